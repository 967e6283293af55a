"""Figures of an optimisation: results, whether the model foresaw them, what is left to gain."""

import itertools
from typing import TYPE_CHECKING, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sharpgp.exceptions import InvalidInputError
from sharpgp.plots.style import BLUE, CYCLE, DASHED, GREY, ORANGE, PALE, plain

if TYPE_CHECKING:
    import pandas as pd

    from sharpgp.bo.record import Record


class _Optimiser(Protocol):
    """A :class:`sharpgp.bo.Optimiser`, whose module imports this one."""

    record: "Record"

    def front(self) -> "pd.DataFrame":
        """The Pareto front of several objectives."""


def progress(optimiser: _Optimiser, ax: Axes) -> Axes:
    """Results by run, the best so far as a line, and failed runs as ticks at the bottom.

    Examples
    --------
    >>> from sharpgp.bo import Optimiser
    >>> loop = Optimiser({"x": (0, 1)})
    >>> loop.tell([{"x": 0.1}, {"x": 0.5}, {"x": 0.9}], [1.0, 2.0, None])
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


def coverage_so_far(optimiser: _Optimiser, ax: Axes) -> Axes:
    """Share of results, so far, inside the intervals that were predicted for them.

    Dashed lines are the levels of the intervals, 80 and 95 %.

    Examples
    --------
    >>> from sharpgp.bo import Optimiser
    >>> loop = Optimiser([(0, 1)], design=3)
    >>> for _ in range(5):
    ...     x = loop.ask()
    ...     loop.tell(x, x[0])
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


def remaining_so_far(optimiser: _Optimiser, ax: Axes) -> Axes:
    """Probability that more is left to gain, by run, as ``remaining`` and ``stop`` answered.

    Examples
    --------
    >>> from sharpgp.bo import Optimiser
    >>> loop = Optimiser([(0, 1)])
    >>> loop.remaining(amount=0.1)
    1.0
    >>> remaining_so_far(loop, Figure().subplots()).get_ylabel()
    'probability'
    """
    checks = np.array(optimiser.record.checks).reshape(-1, 3)
    for amount, colour in zip(np.unique(checks[:, 1]), itertools.cycle(CYCLE), strict=False):
        runs, _, found = checks[checks[:, 1] == amount].T
        label = f"more than {amount:g}"
        ax.plot(runs, found, "o-", ms=3.5, lw=1.4, color=colour, label=label)
    ax.axhline(0.05, color=GREY, lw=0.8, ls=DASHED)
    ax.set_ylim(-0.02, 1.02)
    ax.legend(frameon=False, fontsize=8)
    return plain(ax, "run", "probability", "Left to gain")


def front(optimiser: _Optimiser, ax: Axes) -> Axes:
    """Two objectives of all runs, and the Pareto front with 95 % intervals of the functions.

    Of three objectives the last is not drawn.

    Examples
    --------
    >>> from sharpgp.bo import Optimiser
    >>> loop = Optimiser([(0, 1)], objectives={"yield": "max", "cost": "min"})
    >>> loop.tell([[0.1], [0.5], [0.9]], [[1.0, 2.0], [3.0, 3.0], [2.0, 4.0]])
    >>> front(loop, Figure().subplots()).get_ylabel()
    'cost'
    """
    best, quantities = optimiser.front(), optimiser.record.quantities
    x, y = list(optimiser.record.settings["objectives"])[:2]
    every = [quantities[x].averages(), quantities[y].averages()]
    both = [point for point in every[0] if point in every[1]]
    ax.plot(
        *([one[point] for point in both] for one in every), "o", ms=3.5, color=GREY, label="runs"
    )
    bars = {}
    for key, name in (("xerr", x), ("yerr", y)):
        if f"{name} low" in best:
            ends = best[f"{name} low"], best[f"{name} high"]
            below, above = best[name] - ends[0], ends[1] - best[name]
            bars[key] = np.clip([below, above], 0.0, None)
    ax.errorbar(best[x], best[y], fmt="o", ms=4.5, color=BLUE, lw=1.0, label="front", **bars)
    ax.legend(frameon=False, fontsize=8)
    return plain(ax, x, y, "Front")


def optimisation_figure(optimiser: _Optimiser) -> Figure:
    """Progress of an optimisation, calibration during it, and what is left to gain.

    The last two appear once there are results beyond the design, and answers of ``remaining`` or
    ``stop``; of several objectives their front comes first.  ``pyplot.show()`` shows it, too.

    Parameters
    ----------
    optimiser : sharpgp.bo.Optimiser
    """
    from matplotlib import get_backend, pyplot

    record = optimiser.record
    parts = [progress]
    if len(record.settings.get("objectives", ())) > 1:
        parts.insert(0, front)
    if any(run.level is not None for run in record.runs):
        parts.append(coverage_so_far)
    if record.checks:
        parts.append(remaining_so_far)
    # Notebooks that draw what a cell gives would draw a figure of pyplot twice.
    make = Figure if "inline" in get_backend() else pyplot.figure
    figure = make(figsize=(4.2 * len(parts), 3.2), layout="constrained")
    for part, ax in zip(parts, figure.subplots(1, len(parts), squeeze=False)[0], strict=True):
        part(optimiser, ax)
    return figure
