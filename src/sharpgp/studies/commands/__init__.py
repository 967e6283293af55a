"""The commands ``sharpgp bench``, ``sharpgp demo`` and ``sharpgp datasets``."""

import typer

from sharpgp.studies.commands import (
    bo,
    bounds,
    demo,
    evidence,
    paper,
    peers,
    regression,
    results,
    sets,
)

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
app.command()(demo.demo)
app.command("datasets")(sets.list_datasets)

bench = typer.Typer(
    name="bench", no_args_is_help=True, help="Run the paper's experiments, and print their tables."
)
app.add_typer(bench)
bench.command()(regression.regression)
bench.command()(bounds.bounds)
bench.command()(bo.bo)
bench.command("paper")(paper.whole_paper)
bench.command()(peers.peers)
bench.command()(results.table)
bench.command()(peers.peers_table)
bench.command()(results.regret)
bench.command()(paper.toy)
bench.command(context_settings=evidence.CONTEXT)(evidence.evidence)
