"""Regret of optimisations over their iterations."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from sharpgp.exceptions import InvalidInputError
from sharpgp.plots.style import CYCLE, plain


def regret_figure(
    regrets: Mapping[str, Mapping[str, ArrayLike]], labels: Mapping[str, str] | None = None
) -> Figure:
    """Cumulative and simple regret over the iterations: one row per function.

    Lines are medians over repetitions, bands reach from the lower to the upper quartile.

    Parameters
    ----------
    regrets : mapping from function to mapping from method to array of shape (repetitions, T)
        Regret of each point that was asked for.
    labels : mapping, optional
        Names of the methods in the legend.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> figure = regret_figure({"ackley": {"ucb": rng.uniform(size=(5, 30))}})
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['cumulative regret', 'simple regret']
    """
    if not regrets:
        raise InvalidInputError("regrets: expected at least one function, found none")
    figure = Figure(figsize=(8.4, 2.5 * len(regrets) + 0.4), layout="constrained")
    grid = figure.subplots(len(regrets), 2, squeeze=False)
    methods = list(dict.fromkeys(name for row in regrets.values() for name in row))
    for (function, row), axes in zip(regrets.items(), grid, strict=True):
        for method, values in row.items():
            each = np.atleast_2d(np.asarray(values, dtype=np.float64))
            colour = CYCLE[methods.index(method) % len(CYCLE)]
            steps = np.arange(1, each.shape[1] + 1)
            curves = each.cumsum(1), np.minimum.accumulate(each, 1)
            for ax, curve in zip(axes, curves, strict=True):
                low, middle, high = np.quantile(curve, [0.25, 0.5, 0.75], axis=0)
                ax.fill_between(steps, low, high, color=colour, alpha=0.13, lw=0)
                name = (labels or {}).get(method, method)
                ax.plot(steps, middle, color=colour, lw=1.4, label=name)
        for ax, what in zip(axes, ("cumulative regret", "simple regret"), strict=True):
            plain(ax, "iteration" if function == list(regrets)[-1] else "", what, function)
            ax.set_xlim(1, each.shape[1])
            ax.set_yscale("log")
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9
    )
    return figure
