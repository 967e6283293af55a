"""The commands ``sharpgp bench`` and ``sharpgp datasets``, found by entry points."""

import typer

from sharpgp_benchmarks.commands import (
    bo,
    bounds,
    coco,
    evidence,
    evidence_page,
    paper,
    peers,
    published,
    regression,
    results,
    sets,
)

datasets = typer.Typer(add_completion=False, rich_markup_mode="markdown")
datasets.command("datasets")(sets.list_datasets)

bench = typer.Typer(
    name="bench",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="Run the paper's experiments, and print their tables.",
)
bench.command()(regression.regression)
bench.command()(bounds.bounds)
bench.command()(bo.bo)
bench.command()(coco.coco)
bench.command("paper")(paper.whole_paper)
bench.command()(peers.peers)
bench.command()(results.table)
bench.command()(peers.peers_table)
bench.command()(evidence_page.evidence_page)
bench.command()(published.published)
bench.command()(published.published_table)
bench.command()(results.regret)
bench.command()(paper.toy)
bench.command(context_settings=evidence.CONTEXT)(evidence.evidence)
