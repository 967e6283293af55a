"""The figures of the calibration report: reliability, PIT, widths, coverage, curves."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from sharpgp.diagnostics import (
    MIN_POINTS_PER_GROUP,
    Diagnostics,
    Grouping,
    LevelCurves,
    OwnColumn,
    column_named,
    texts_of,
)
from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics import (
    coverage_along,
    coverage_band,
    interval_coverage,
    interval_width,
    observed_levels,
    pit_histogram,
    sampling_band,
)
from sharpgp.plots.style import BLUE, DASHED, GREY, INK, ORANGE, PALE, SHADE, plain


def reliability(
    ax: Axes,
    y: ArrayLike,
    quantiles: ArrayLike,
    levels: ArrayLike,
    n_cal: int | None = None,
    *,
    label: str | None = None,
    color: str = BLUE,
    band: bool = True,
) -> Axes:
    r"""Draw observed against nominal levels, with the band that sampling alone would give.

    The band is that of :func:`sharpgp.metrics.sampling_band`: at each level, 95 % of perfectly
    calibrated predictors with ``C`` calibration points fall inside it on ``T`` test points.

    Parameters
    ----------
    ax : matplotlib Axes
    y : array of shape (T,)
    quantiles : array of shape (T, k)
    levels : array of shape (k,)
    n_cal : int or None
        ``C``; None leaves its term out.
    label, color : str
        Of the line.
    band : bool
        False for further methods in the same axes.

    Examples
    --------
    >>> y = np.linspace(-1, 1, 50)
    >>> ax = reliability(Figure().subplots(), y, np.tile([-0.5, 0.5], (50, 1)), [0.25, 0.75])
    >>> [float(v) for v in ax.lines[-1].get_ydata()]
    [0.26, 0.74]
    """
    y, p = np.asarray(y, dtype=np.float64), np.asarray(levels, dtype=np.float64)
    if band:
        every = np.linspace(0, 1, 201)
        low, high = sampling_band(every, n_cal, len(y))
        ax.fill_between(every, low, high, color=PALE, lw=0, label="95 % sampling band")
        ax.plot([0, 1], [0, 1], color=GREY, lw=0.8, ls=DASHED)
    observed = observed_levels(y, quantiles)
    ax.plot(p, observed, color=color, lw=1.4, marker="o", ms=2.8, label=label)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return plain(ax, "nominal level", "observed share at or below")


def pit(ax: Axes, values: ArrayLike, n_cal: int | None = None, *, n_bins: int = 10) -> Axes:
    """Draw the histogram of PIT values ``F(y)``, with the band of a calibrated predictor.

    The band is for all bars together: 95 % of calibrated predictors keep every bar inside.

    Parameters
    ----------
    ax : matplotlib Axes
    values : array of shape (n,)
        ``dist.cdf(y)``.
    n_cal : int or None
    n_bins : int

    Examples
    --------
    >>> ax = pit(Figure().subplots(), np.linspace(0.01, 0.99, 100), n_bins=4)
    >>> [round(float(bar[0].get_height()), 2) for bar in ax.containers]
    [0.25, 0.25, 0.25, 0.25]
    """
    found = pit_histogram(values, n_cal, n_bins, confidence=1 - 0.05 / n_bins)
    ax.axhspan(found.low, found.high, color=PALE, lw=0, label="95 % sampling band")
    outside = (found.share < found.low) | (found.share > found.high)
    for left, width, share, off in zip(
        found.edges[:-1], np.diff(found.edges), found.share, outside, strict=True
    ):
        ax.bar(left, share, 0.94 * width, align="edge", color=ORANGE if off else SHADE)
    ax.axhline(1 / n_bins, color=GREY, lw=0.8, ls=DASHED)
    ax.set_xlim(0, 1)
    return plain(ax, "place in the predictive distribution", "share of points")


def widths(ax: Axes, y: ArrayLike, lower: ArrayLike, upper: ArrayLike, *, n_bins: int = 24) -> Axes:
    """Draw the histogram of interval widths; the title gives mean width and coverage.

    Examples
    --------
    >>> ax = widths(Figure().subplots(), [0.0, 3.0], [-1.0, -1.0], [1.0, 2.0])
    >>> ax.get_title(loc="right")
    'width 2.5, covers 50.0 %'
    """
    mean, covered = interval_width(lower, upper), interval_coverage(y, lower, upper)
    ax.hist(np.asarray(upper) - np.asarray(lower), bins=n_bins, color=SHADE, rwidth=0.94)
    ax.axvline(mean, color=GREY, lw=0.8, ls=DASHED)
    ax.set_title(
        f"width {mean:.3g}, covers {100 * covered:.1f} %", loc="right", fontsize=9, color=GREY
    )
    return plain(ax, "width of the interval", "points")


def coverage_by_width(
    ax: Axes,
    y: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    coverage: float,
    n_cal: int | None = None,
    *,
    n_bins: int = 5,
) -> Axes:
    """Draw the share covered in groups from the narrowest to the widest intervals.

    19 in 20 calibrated predictors have all groups inside the bands. Groups of fewer than ten points
    are not judged: their band is [0, 1].

    Examples
    --------
    >>> ends = np.array([1.0, 1.0, 2.0, 2.0])
    >>> ax = coverage_by_width(Figure().subplots(), [0.0, 0, 5, 0], -ends, ends, 0.9, n_bins=2)
    >>> [float(y) for y in ax.collections[-1].get_offsets()[:, 1]]
    [1.0, 0.5]
    """
    width, name = np.asarray(upper) - np.asarray(lower), "width of the interval"
    return coverage_by_feature(
        ax, width, y, lower, upper, coverage, n_cal, name=name, n_bins=n_bins
    )


def coverage_by_feature(
    ax: Axes,
    feature: ArrayLike,
    y: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    coverage: float,
    n_cal: int | None = None,
    *,
    name: str = "feature",
    n_bins: int = 5,
) -> Axes:
    """Draw the share covered in groups along a feature; see :func:`coverage_by_width`.

    Examples
    --------
    >>> one = np.ones(4)
    >>> ax = coverage_by_feature(Figure().subplots(), [0, 0, 1, 1], [0, 0, 5, 0], -one, one, 0.9)
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['≤ 0', '≤ 1']
    """
    bins = coverage_along(feature, y, lower, upper, n_bins)
    confidence = 1 - 0.05 / len(bins.n_points)
    bands = [
        coverage_band(coverage, n_cal, int(n), confidence)
        if n >= MIN_POINTS_PER_GROUP
        else (0.0, 1.0)
        for n in bins.n_points
    ]
    low, high = np.array(bands).T
    off = (bins.coverage < low) | (bins.coverage > high)
    ticks = [f"≤ {end}" for end in texts_of(bins.edges)[1:]]
    return _shares(ax, bins.coverage, low, high, off, ticks, name, coverage)


def beta_curve(ax: Axes, curves: LevelCurves) -> Axes:
    """Draw the scale ``beta(delta)``, beside a Gaussian's where the two can be compared.

    They can if ``beta`` multiplies one standard deviation at all levels.

    Examples
    --------
    >>> delta = np.array([0.1, 0.5, 0.9])
    >>> curves = LevelCurves(delta, np.array([-2.0, 0, 2]), np.ones((3, 1)), ("noise variance",))
    >>> len(beta_curve(Figure().subplots(), curves).lines)
    2
    """
    if curves.gauss is not None:
        ax.plot(curves.delta, curves.gauss, color=GREY, lw=0.8, ls=DASHED, label="Gaussian")
    ax.plot(curves.delta, curves.beta, color=BLUE, lw=1.4, label="beta")
    ax.set_xlim(0, 1)
    unit = "standard deviations" if curves.scores else "units of the target"
    return plain(ax, "level", f"beta, {unit}")


def theta_curves(ax: Axes, curves: LevelCurves) -> Axes:
    """Draw the entries of ``theta(delta)`` that differ from the trained ones, relative to these.

    Examples
    --------
    >>> theta = np.array([[2.0, 1.0], [1.0, 1.0], [3.0, 1.0]])
    >>> delta = np.array([0.1, 0.5, 0.9])
    >>> curves = LevelCurves(delta, delta - 0.5, theta, ("1/lengthscale of a", "noise variance"))
    >>> ax = theta_curves(Figure().subplots(), curves)
    >>> ax.get_legend_handles_labels()[1]
    ['1/lengthscale of a']
    """
    ax.axhline(1.0, color=GREY, lw=0.8, ls=DASHED)
    shades = np.linspace(0.15, 0.85, max(1, int(curves.moved.sum())))
    for shade, j in zip(shades, np.flatnonzero(curves.moved), strict=False):
        colour = colormaps["viridis"](shade)
        ax.plot(curves.delta, curves.theta[:, j], color=colour, lw=1.2, label=curves.names[j])
    ax.set(xlim=(0, 1), yscale="log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    return plain(ax, "level", "theta / trained theta")


def calibration_figure(
    found: Diagnostics,
    *,
    coverage: float = 0.95,
    feature: int | str | None = None,
    figure: Figure | None = None,
) -> Figure:
    """All figures of the calibration report on one sheet.

    Parameters
    ----------
    found : Diagnostics
        From :func:`sharpgp.diagnostics.diagnose`.
    coverage : float
        Coverage of the intervals; one of ``found.coverages``.
    feature : int or str, optional
        Column or name of the feature for coverage along it.  Default: where it strays most.
    figure : matplotlib Figure, optional
        To draw on, such as ``plt.figure(figsize=(14, 7))``; a new one otherwise.  A narrow one
        gets fewer columns.

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> from sharpgp.toy import make_toy
    >>> from sharpgp.diagnostics import diagnose
    >>> toy = make_toy(random_state=0)
    >>> model = SharpGPRegressor(calibration="kuleshov18")
    >>> model = model.fit(toy.X_train, toy.y_train, toy.X_cal, toy.y_cal)
    >>> figure = calibration_figure(diagnose(model, toy.X_test, toy.y_test))
    >>> [ax.get_title(loc="left") for ax in figure.axes][:3]
    ['Reliability', 'PIT', 'Widths']
    """
    k = _position(found, coverage)
    lower, upper = found.lower[:, k], found.upper[:, k]
    grouping = grouping_of(found, feature)
    panels: dict[str, Callable[[Axes], Axes]] = {
        "Reliability": lambda ax: reliability_of(ax, found),
        "PIT": lambda ax: pit(ax, found.pit, found.n_cal),
        "Widths": lambda ax: widths(ax, found.y, lower, upper),
        "Coverage by width": lambda ax: coverage_of(ax, found, found.groupings[0], k),
        "Coverage by feature": lambda ax: coverage_of(ax, found, grouping, k),
        "Observed against predicted": lambda ax: _observed(ax, found, lower, upper),
    }
    curves = found.curves
    if curves is not None:
        panels["beta by level"] = lambda ax: beta_curve(ax, curves)
        if curves.moved.any():
            panels["theta by level"] = lambda ax: _with_legend(theta_curves(ax, curves))
    if figure is None:
        figure = Figure(figsize=(3.5 * math.ceil(len(panels) / 2), 7))
    figure.set_layout_engine("constrained")
    # Enough columns for nearly square panels; the first panel gets the places that are left.
    across = figure.get_figwidth() / figure.get_figheight()
    columns = min(max(1, round(math.sqrt(len(panels) * across))), len(panels))
    rows = math.ceil(len(panels) / columns)
    left = rows * columns - len(panels)
    title = f"{found.method}: {len(found.y):,} test points, {100 * coverage:g} % intervals"
    figure.suptitle(title, fontsize=10, color=GREY)
    for i, (name, draw) in enumerate(panels.items()):
        place = (1, 1 + left) if i == 0 else i + 1 + left
        ax = draw(figure.add_subplot(rows, columns, place))
        ax.set_title(name, loc="left", fontsize=10, fontweight="bold", color=INK)
    return figure


def _observed(ax: Axes, found: Diagnostics, lower: Any, upper: Any) -> Axes:
    """Draw observed against predicted values, with intervals; misses are marked."""
    missed = (found.y < lower) | (found.y > upper)
    ends = [float(found.mean.min()), float(found.mean.max())]
    ax.vlines(found.mean, lower, upper, color=SHADE, lw=1)
    ax.plot(ends, ends, color=GREY, lw=0.8, ls=DASHED)
    ax.scatter(found.mean, found.y, s=7, c=[ORANGE if m else BLUE for m in missed], lw=0, zorder=3)
    return plain(ax, "predicted", "observed")


def _with_legend(ax: Axes) -> Axes:
    ax.legend(frameon=False, fontsize=7)
    return ax


def reliability_of(ax: Axes, found: Diagnostics) -> Axes:
    """The reliability diagram of collected predictions; targets at atoms count as their PITs."""
    levels = np.tile(found.levels, (len(found.pit), 1))
    return reliability(ax, found.pit, levels, found.levels, found.n_cal)


def coverage_of(ax: Axes, found: Diagnostics, grouping: Grouping, k: int) -> Axes:
    """Coverage of the parts of a grouping, with the bands of the report."""
    parts = [j for j in range(len(grouping.says)) if grouping.inside(j).any()]
    share = np.array([found.covered[grouping.inside(j), k].mean() for j in parts])
    low, high = np.array([found.places.band(grouping, j, k) for j in parts]).T
    odd = np.array([found.excess_of(grouping, j) > 1 for j in parts])
    ticks = [grouping.ends[j][1] if grouping.named else f"≤ {grouping.ends[j][1]}" for j in parts]
    name = "width of the interval" if grouping.kind == "width" else grouping.name
    return _shares(ax, share, low, high, odd, ticks, name, float(found.coverages[k]))


def _shares(
    ax: Axes,
    share: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    off: np.ndarray,
    ticks: list[str],
    name: str,
    coverage: float,
) -> Axes:
    where = np.arange(len(share))
    ax.bar(where, high - low, 0.76, bottom=low, color=PALE, label="95 % sampling band")
    ax.axhline(coverage, color=GREY, lw=0.8, ls=DASHED)
    ax.scatter(where, share, s=28, c=[ORANGE if o else BLUE for o in off], zorder=3)
    ax.set_xticks(where, ticks, fontsize=7 if sum(map(len, ticks)) > 30 else None)
    if sum(map(len, ticks)) > 60:
        ax.tick_params(axis="x", rotation=45)
    return plain(ax, name, "share covered")


def _position(found: Diagnostics, coverage: float) -> int:
    (near,) = np.nonzero(np.isclose(found.coverages, coverage))
    if not len(near):
        known = ", ".join(f"{c:g}" for c in found.coverages)
        raise InvalidInputError(f"coverage: expected one of {known}, found {coverage!r}")
    return int(near[0])


def grouping_of(found: Diagnostics, feature: Any) -> Grouping:
    """The parts of a column, by number or name; for None, of the one that strays most."""
    columns = {g.name: g for g in found.groupings if g.kind == "column"}
    if feature is not None:
        return columns[column_named(found.columns, feature).name]
    return max(columns.values(), key=found.stray)


def column_of(found: Diagnostics, feature: Any) -> OwnColumn:
    """A column by number or name; for None, the one along which coverage strays most."""
    return column_named(found.columns, grouping_of(found, feature).name)
