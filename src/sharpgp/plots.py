"""Figures on matplotlib axes; nothing here touches pyplot's global state."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from sharpgp.datasets import Split
from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics import interval_coverage, interval_width, observed_levels

#: Ink and fills: one hue for the model, neutral greys for the data.
INK, BLUE, SHADE, GREY, PALE = "#1f2933", "#1f5fa8", "#c9dcf1", "#6b7785", "#e9edf1"
#: Line colours for several methods in one diagram, distinct also without colour vision.
CYCLE = ("#1f5fa8", "#d1601f", "#2a8a5c", "#8a4fa8", "#b58900", "#4a5560", "#c2386b", "#2b9db0")


def plot_intervals_1d(
    ax: Axes, model: Any, data: Split, *, coverage: float = 0.99, title: str | None = None
) -> Axes:
    """Draw a fitted model of one feature: mean, centred interval, training and calibration data.

    The title gives the share of the test part that is covered, and the mean width there.

    Parameters
    ----------
    ax : matplotlib Axes
    model : SharpGPRegressor or Calibrated
        Fitted on ``data.X_train`` and calibrated on ``data.X_cal``.
    data : Split
        With inputs of shape (n, 1).
    coverage : float
    title : str, optional
        Name of the model.

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> from sharpgp.datasets import make_toy
    >>> toy = make_toy(random_state=0)
    >>> model = SharpGPRegressor(calibration="kuleshov18")
    >>> model = model.fit(toy.X_train, toy.y_train, toy.X_cal, toy.y_cal)
    >>> ax = plot_intervals_1d(Figure().subplots(), model, toy, coverage=0.9)
    >>> ax.get_title(loc="right").startswith("covers")
    True
    """
    if data.X_train.shape[1] != 1:
        raise InvalidInputError(
            f"X: expected one feature to plot against, found {data.X_train.shape[1]}"
        )
    every = np.concatenate([data.X_train, data.X_cal, data.X_test])
    margin = 0.03 * np.ptp(every)
    grid = np.linspace(every.min() - margin, every.max() + margin, 500)[:, None]
    lower, upper = _interval(model, grid, coverage)
    ax.fill_between(
        grid[:, 0], lower, upper, color=SHADE, lw=0, label=f"{100 * coverage:g} % interval"
    )
    ax.scatter(
        data.X_cal, data.y_cal, s=7, marker="s", fc="none", ec=GREY, lw=0.5, label="calibration"
    )
    ax.plot(grid[:, 0], _mean(model, grid), color=BLUE, lw=1.4, label="mean")
    ax.scatter(
        data.X_train, data.y_train, s=18, marker="x", c=INK, lw=0.9, label="training", zorder=3
    )
    test = _interval(model, data.X_test, coverage)
    covered, width = interval_coverage(data.y_test, *test), interval_width(*test)
    ax.set_title(title or "", loc="left", fontsize=10, fontweight="bold", color=INK)
    ax.set_title(
        f"covers {100 * covered:.1f} %, width {width:.2f}", loc="right", fontsize=9, color=GREY
    )
    ax.set_xlim(grid[0, 0], grid[-1, 0])
    return _plain(ax)


def toy_figure(models: Mapping[str, Any], data: Split, coverage: float = 0.99) -> Figure:
    """One panel of :func:`plot_intervals_1d` per model, on common axes.

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> from sharpgp.datasets import make_toy
    >>> toy = make_toy(random_state=0)
    >>> model = SharpGPRegressor(calibration="vanilla").fit(toy.X_train, toy.y_train)
    >>> len(toy_figure({"vanilla": model}, toy).axes)
    1
    """
    if not models:
        raise InvalidInputError("models: expected at least one fitted model, found none")
    columns = min(3, len(models))
    rows = math.ceil(len(models) / columns)
    figure = Figure(figsize=(3.6 * columns, 2.4 * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for ax, (name, model) in zip(grid.flat, models.items(), strict=False):
        plot_intervals_1d(ax, model, data, coverage=coverage, title=name)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    spare = grid.flat[len(models) :]
    for ax in spare:
        ax.set_axis_off()
    for ax in grid.flat[len(models) - columns : len(models)]:
        ax.tick_params(labelbottom=True)
    if len(spare):
        spare[0].legend(handles, labels, loc="center", frameon=False, fontsize=9)
    else:
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=len(labels),
            frameon=False,
            fontsize=9,
        )
    return figure


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

    The band is :math:`p \pm 1.96 \sqrt{p (1 - p) (1/C + 1/T)}`: at each level, 95 % of perfectly
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
        fluctuation = 1 / len(y) + (0.0 if n_cal is None else 1 / n_cal)
        half = 1.96 * np.sqrt(every * (1 - every) * fluctuation)
        low, high = np.clip(every - half, 0, 1), np.clip(every + half, 0, 1)
        ax.fill_between(every, low, high, color=PALE, lw=0, label="95 % sampling band")
        ax.plot([0, 1], [0, 1], color=GREY, lw=0.8, ls=(0, (4, 3)))
    observed = observed_levels(y, quantiles)
    ax.plot(p, observed, color=color, lw=1.4, marker="o", ms=2.8, label=label)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel("nominal level", fontsize=9, color=INK)
    ax.set_ylabel("observed share at or below", fontsize=9, color=INK)
    return _plain(ax)


def _interval(model: Any, X: np.ndarray, coverage: float) -> tuple[np.ndarray, np.ndarray]:
    ends = np.asarray(model.predict_interval(X, coverage, symmetric=False))
    return ends[:, 0], ends[:, 1]


def _mean(model: Any, X: np.ndarray) -> np.ndarray:
    """The mean of a torch-level predictor or of an estimator."""
    predict = getattr(model, "predict_mean", None) or model.predict
    return np.asarray(predict(X))


def _plain(ax: Axes) -> Axes:
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(colors=GREY, labelsize=8, width=0.6)
    return ax
