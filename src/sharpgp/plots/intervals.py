"""Intervals of models of one feature."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sharpgp.calibration.predictors.base import FittedModel
from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics import interval_coverage, interval_width
from sharpgp.plots.style import BLUE, GREY, INK, SHADE, plain
from sharpgp.toy import Split


def plot_intervals_1d(
    ax: Axes, model: FittedModel, data: Split, *, coverage: float = 0.99, title: str | None = None
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
    >>> from sharpgp.toy import make_toy
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
    return plain(ax)


def toy_figure(models: Mapping[str, FittedModel], data: Split, coverage: float = 0.99) -> Figure:
    """One panel of :func:`plot_intervals_1d` per model, on common axes.

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> from sharpgp.toy import make_toy
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


def _interval(model: Any, X: np.ndarray, coverage: float) -> tuple[np.ndarray, np.ndarray]:
    ends = np.asarray(model.predict_interval(X, coverage, symmetric=False))
    return ends[:, 0], ends[:, 1]


def _mean(model: Any, X: np.ndarray) -> np.ndarray:
    """The mean of a torch-level predictor or of an estimator."""
    predict = getattr(model, "predict_mean", None) or model.predict
    return np.asarray(predict(X))
