"""``sharpgp bench evidence-page``."""

from pathlib import Path
from typing import Annotated

import typer

from sharpgp_benchmarks.commands.options import names_of


def evidence_page(
    results: Annotated[Path, typer.Option(help="Folder of result files and runs.csv.")] = Path(
        "benchmarks/results"
    ),
    out: Annotated[Path, typer.Option(help="File that is written.")] = Path("docs/evidence.md"),
    pages: Annotated[
        str, typer.Option(help="Pages with passages from the results, with commas.")
    ] = "README.md,docs/benchmarks.md,docs/choosing.md,docs/numerics.md",
) -> None:
    """Write the page of claims, numbers and commands from the result files, in a checkout."""
    from sharpgp_benchmarks import evidence_page

    out.write_text(evidence_page.evidence_page(results), encoding="utf-8")
    typer.echo(f"wrote {out}")
    for page in map(Path, names_of(pages) or []):
        text = evidence_page.filled(page.read_text(encoding="utf-8"), results)
        page.write_text(text, encoding="utf-8")
        typer.echo(f"filled {page}")
