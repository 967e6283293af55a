"""How an optimisation goes: its results, and whether they were where the model said."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sharpgp.exceptions import InvalidInputError
from sharpgp.plots.style import BLUE, DASHED, GREY, ORANGE, PALE, plain


def progress(optimiser: Any, ax: Axes) -> Axes:
    """Results by run, the best so far as a line, and failed runs as ticks at the bottom.

    Examples
    --------
    >>> from sharpgp.bo import Optimiser
    >>> loop = Optimiser([[0.0], [1.0]])
    >>> loop.tell([[0.1], [0.5], [0.9]], [1.0, 2.0, float("nan")])
    >>> progress(loop, Figure().subplots()).get_ylabel()
    'result'
    """
    runs = optimiser.record.runs
    if not any(not run.failed for run in runs):
        raise InvalidInputError("optimiser: expected a run with a result, found none; tell one")
    y = np.array([run.y for run in runs])
    place = np.arange(1, len(y) + 1)
    ok = np.isfinite(y)
    asked = np.array([run.level is not None for run in runs])
    better = np.fmax.accumulate if optimiser.record.sign > 0 else np.fmin.accumulate
    ax.plot(place, better(y), color=BLUE, lw=1.4, drawstyle="steps-post")
    ax.plot(place[ok & ~asked], y[ok & ~asked], "o", ms=3.5, mfc="white", mec=GREY, label="design")
    ax.plot(place[ok & asked], y[ok & asked], "o", ms=3.5, color=GREY, label="asked for")
    if not ok.all():
        bottom = np.full(int((~ok).sum()), 0.02)
        ax.plot(
            place[~ok],
            bottom,
            "|",
            color=ORANGE,
            label="failed",
            transform=ax.get_xaxis_transform(),
        )
    ax.legend(frameon=False, fontsize=8)
    return plain(ax, "run", "result", "Progress")


def coverage_so_far(optimiser: Any, ax: Axes) -> Axes:
    """Share of results inside of the intervals that were stated before, as it went.

    Dashed lines are the levels of the intervals, 80 and 95 %.

    Examples
    --------
    >>> from sharpgp.bo import Optimiser
    >>> loop = Optimiser([[0.0], [1.0]], design=3)
    >>> for _ in range(5):
    ...     x = loop.ask()
    ...     loop.tell(x, x[:, 0])
    >>> coverage_so_far(loop, Figure().subplots()).get_ylabel()
    'inside so far'
    """
    levels = np.array([run.level for run in optimiser.record.runs if run.level is not None])
    if len(levels) == 0:
        raise InvalidInputError(
            "optimiser: expected runs that a model predicted, found none; ask beyond the design"
        )
    count = np.arange(1, len(levels) + 1)
    for coverage, colour in ((0.95, BLUE), (0.8, GREY)):
        inside = np.abs(levels - 0.5) <= coverage / 2
        ax.axhline(coverage, color=colour, lw=0.8, ls=DASHED)
        ax.plot(count, inside.cumsum() / count, color=colour, lw=1.4, label=f"{coverage:.0%}")
    ax.set_ylim(0.0, 1.02)
    ax.set_facecolor("white")
    ax.grid(color=PALE, lw=0.6)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return plain(ax, "result predicted before it was seen", "inside so far", "Calibration")


def optimisation_figure(optimiser: Any) -> Figure:
    """Progress of an optimisation and calibration during it, side by side.

    Parameters
    ----------
    optimiser : sharpgp.bo.Optimiser
        With results beyond its design.
    """
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    progress(optimiser, left)
    coverage_so_far(optimiser, right)
    return figure
