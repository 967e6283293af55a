"""Have the data changed?  The rank test of new rows, and the martingale of a stream."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from sharpgp.exceptions import InvalidInputError
from sharpgp.exchangeability import ALARM_LEVEL, Exchangeability
from sharpgp.plots.style import BLUE, DASHED, GREY, INK, ORANGE, PALE, plain

if TYPE_CHECKING:
    from sharpgp.online import Online


def exchangeability(ax: Axes, found: Exchangeability) -> Axes:
    """Draw the scores of new rows against the calibration scores, as a P-P plot.

    If rows are alike, the line is near the diagonal: all of it is inside the band (Kolmogorov and
    Smirnov's) in 95 % of such cases.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> z = np.linspace(-2, 2, 50)
    >>> found = Exchangeability(1.0, 1.0, 1.0, {}, 50, 50, z, z)
    >>> exchangeability(Figure().subplots(), found).get_title(loc="left")
    'No sign of a change, p = 1'
    """
    every = np.sort(np.concatenate([found.old, found.new]))
    old, new = (
        np.searchsorted(np.sort(part), every, side="right") / len(part)
        for part in (found.old, found.new)
    )
    radius = 1.358 * np.sqrt(1 / len(found.old) + 1 / len(found.new))
    p = np.linspace(0, 1, 101)
    ax.fill_between(p, (p - radius).clip(0), (p + radius).clip(max=1), color=PALE, lw=0)
    ax.plot([0, 1], [0, 1], color=GREY, lw=0.8, ls=DASHED)
    changed = found.p_value < ALARM_LEVEL
    ax.plot([0, *old], [0, *new], color=ORANGE if changed else BLUE, lw=1.4)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    title = "The data have changed" if changed else "No sign of a change"
    plain(ax, "share of calibration scores", "share of new scores")
    ax.set_title(f"{title}, p = {found.p_value:.2g}", loc="left", fontsize=10, color=INK)
    return ax


def martingale(ax: Axes, online: "Online") -> Axes:
    """Draw the capital of a stream's martingale, and the threshold of a change.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sharpgp import Online, SharpGPRegressor
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.cos(40 * X[:, 0])
    >>> online = Online(SharpGPRegressor(calibration="kuleshov18", random_state=0).fit(X, y))
    >>> martingale(Figure().subplots(), online.observe(X[:1], y[:1])).get_yscale()
    'log'
    """
    if online.martingale is None:
        raise InvalidInputError(
            "online: expected a stream of a model with ranked scores, such as 'exact' or 'cv', "
            "found one without a martingale"
        )
    path = np.array([0.0, *online.martingale.log_path]).clip(-300, 300)
    sure = np.flatnonzero(path >= -np.log10(ALARM_LEVEL))
    ax.plot(np.arange(len(path)), 10.0**path, color=ORANGE if len(sure) else BLUE, lw=1.4)
    ax.axhline(1 / ALARM_LEVEL, color=GREY, lw=0.8, ls=DASHED)
    ax.set_yscale("log")
    return plain(ax, "step", "capital of a bet on change")
