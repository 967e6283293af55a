"""``sharpgp bench evidence-page``."""

from pathlib import Path
from typing import Annotated

import typer


def evidence_page(
    results: Annotated[Path, typer.Option(help="Folder of result files and runs.csv.")] = Path(
        "benchmarks/results"
    ),
    out: Annotated[Path, typer.Option(help="File that is written.")] = Path("docs/evidence.md"),
) -> None:
    """Write the page of claims, numbers and commands from the result files, in a checkout."""
    from sharpgp_benchmarks import evidence_page

    out.write_text(evidence_page.evidence_page(results), encoding="utf-8")
    typer.echo(f"wrote {out}")
