"""The curve of the training: ``python -m sharpgp_benchmarks.pretraining.curve FIGURE``."""

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from sharpgp.plots.style import BLUE, GREY, ORANGE, plain

#: Loss at which the first network of this kind ended.
FORMER = -0.002


def curve_figure(curve: pd.DataFrame) -> Figure:
    """Losses on kept tables by minutes and by tables seen; of a finish, those of its last weights.

    Examples
    --------
    >>> line = {"seconds": 60.0, "tables": 1000, "finishing": 0}
    >>> losses = {"unseen": 1.0, "graphs": 1.1, "last_unseen": 1.2, "last_graphs": 1.3}
    >>> len(curve_figure(pd.DataFrame([line | losses])).axes)
    2
    """
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    names = ("minutes of an H200", "tables seen, in millions")
    priors = {"unseen": ("functions of columns", ORANGE), "graphs": ("causal graphs", BLUE)}
    steady = curve[curve["finishing"] == 0]
    finish = curve.iloc[len(curve) - int(curve["finishing"].sum()) :]
    for ax, (by, unit), name in zip(panels, (("seconds", 60), ("tables", 1e6)), names, strict=True):
        for column, (label, colour) in priors.items():
            ax.plot(steady[by] / unit, steady[column], color=colour, lw=1.6, label=label)
            ax.plot(finish[by] / unit, finish[f"last_{column}"], color=colour, lw=1.6, ls=":")
        plain(ax)
        ax.set_ylim(-0.1, 0.8)
        ax.set_xlabel(name)
        ax.axhline(FORMER, color=GREY, lw=0.8)
    panels[0].set_ylabel("loss on kept tables")
    panels[0].legend(frameon=False)
    return figure


def main() -> None:
    """Draw it from the checkpoint's file."""
    parser = argparse.ArgumentParser(prog="python -m sharpgp_benchmarks.pretraining.curve")
    parser.add_argument("figure", type=Path)
    parser.add_argument("--curve", type=Path, default=Path("benchmarks/checkpoint/curve.csv"))
    options = parser.parse_args()
    curve_figure(pd.read_csv(options.curve)).savefig(options.figure)


if __name__ == "__main__":
    main()
