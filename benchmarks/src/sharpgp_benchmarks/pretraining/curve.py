"""The curves of both trainings: ``python -m sharpgp_benchmarks.pretraining.curve FIGURE``."""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from sharpgp.plots.style import BLUE, GREY, ORANGE, plain


def curve_figure(shipped: pd.DataFrame, successor: pd.DataFrame) -> Figure:
    """Loss on the same kept tables by minutes and by tables seen.

    Examples
    --------
    >>> line = {"seconds": [60.0], "tables": [1000], "unseen": [1.0], "finishing": [0]}
    >>> len(curve_figure(pd.DataFrame(line), pd.DataFrame(line)).axes)
    2
    """
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    names = ("minutes of an H200", "tables seen, in millions")
    for ax, (by, unit), name in zip(panels, (("seconds", 60), ("tables", 1e6)), names, strict=True):
        ax.plot(shipped[by] / unit, shipped["unseen"], color=ORANGE, lw=1.6, label="shipped")
        steady = successor[successor["finishing"] == 0]
        ax.plot(steady[by] / unit, steady["unseen"], color=BLUE, lw=1.6, label="successor")
        finish = successor.iloc[len(steady) - 1 :]
        ax.plot(finish[by] / unit, finish["unseen"], color=BLUE, lw=1.6, ls=":")
        plain(ax)
        ax.set_xlabel(name)
        ax.axhline(float(shipped["unseen"].iloc[-1]), color=GREY, lw=0.8)
    panels[0].set_ylabel("loss on kept tables")
    panels[0].legend(frameon=False)
    return figure


def main() -> None:
    """Draw it from the files in ``benchmarks``."""
    parser = argparse.ArgumentParser(prog="python -m sharpgp_benchmarks.pretraining.curve")
    parser.add_argument("figure", type=Path)
    parser.add_argument("--benchmarks", type=Path, default=Path("benchmarks"))
    options = parser.parse_args()
    shipped = pd.read_csv(options.benchmarks / "results" / "prior_curve.csv")
    successor = pd.read_csv(options.benchmarks / "checkpoint" / "curve.csv")
    curve_figure(shipped, successor).savefig(options.figure)


if __name__ == "__main__":
    main()
