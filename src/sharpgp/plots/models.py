"""One picture of a fitted model in one line, by name."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from sharpgp._numbers import number
from sharpgp._validation import check_choice
from sharpgp.calibration.predictors.base import FittedModel
from sharpgp.diagnostics import Diagnostics, diagnose
from sharpgp.models.pool import Member
from sharpgp.plots import calibration
from sharpgp.plots.style import BLUE, DASHED, GREY, ORANGE, SHADE, plain

#: Columns of an explanation that are drawn, and characters of a value in a label.
MOST_BARS, MOST_CHARACTERS = 12, 18


def plot(
    model: FittedModel | BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    kind: str = "auto",
    *,
    ax: Axes | None = None,
    coverage: float = 0.95,
    feature: int | str | None = None,
    unit: str = "",
) -> Axes | Figure:
    """Draw a fitted model on data, on given axes or on new ones.

    Parameters
    ----------
    model : SharpGPRegressor, Calibrated, or what :func:`sharpgp.through` takes
    X : array or frame of shape (n, d)
    y : array or series of shape (n,)
        Test data; names of columns and target become labels.
    kind : str
        ``"intervals"`` over one feature, ``"observed"`` against predicted, ``"reliability"``,
        ``"coverage"`` along a feature, ``"relevance"`` of the features, ``"base"``, the models of
        the pool with their weights, or ``"sheet"``, all figures of the report.  ``"auto"`` is
        ``"intervals"`` for one feature and ``"observed"`` for several.
    ax : matplotlib Axes, optional
        Default: new ones, made by pyplot, so that notebooks show them.  A ``"sheet"`` takes none.
    coverage : float
        Of the intervals.
    feature : int or str, optional
        Column or name; by default the most relevant one for ``"intervals"``, and for
        ``"coverage"`` the one along which it strays most.
    unit : str
        Of the target, for the labels.

    Returns
    -------
    matplotlib Axes, or Figure for a ``"sheet"``

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sharpgp import SharpGPRegressor
    >>> from sharpgp.toy import make_toy
    >>> toy = make_toy(random_state=0)
    >>> model = SharpGPRegressor(calibration="kuleshov18")
    >>> model = model.fit(toy.X_train, toy.y_train, toy.X_cal, toy.y_cal)
    >>> ax = plot(model, toy.X_test, toy.y_test, ax=Figure().subplots())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('x0', 'y')
    """
    check_choice(kind, "kind", ["auto", "sheet", *_KINDS])
    found = diagnose(model, X, y, coverages=[coverage], unit=unit)
    if kind == "sheet":
        return calibration.calibration_figure(
            found, coverage=coverage, feature=feature, figure=_pyplot().figure(figsize=(14, 7))
        )
    if kind == "auto":
        kind = "intervals" if len(found.columns) == 1 else "observed"
    if ax is None:
        ax = _pyplot().subplots()[1]
    return _KINDS[kind](ax, found, feature)


def intervals(ax: Axes, found: Diagnostics, feature: int | str | None = None) -> Axes:
    """Draw observations and intervals over one feature: a band if there is no other.

    Intervals are those of ``found.coverages[0]``; points outside of theirs are marked.
    """
    if feature is None:
        feature = next(iter(found.relevant), 0)
    column = calibration.column_of(found, feature)
    order = np.argsort(column.values, kind="stable")
    x, y, mean = column.values[order], found.y[order], found.mean[order]
    if column.labels:  # side by side within a category
        x = x + 0.6 * (np.argsort(np.random.default_rng(0).permutation(len(x))) / len(x) - 0.5)
    lower, upper = found.lower[order, 0], found.upper[order, 0]
    missed = (y < lower) | (y > upper)
    label = f"{100 * found.coverages[0]:g} % interval"
    if found.X.shape[1] == 1:
        ax.fill_between(x, lower, upper, color=SHADE, lw=0, label=label)
        ax.plot(x, mean, color=BLUE, lw=1.4, label="mean")
    else:
        ax.vlines(x, lower, upper, color=SHADE, lw=1.2, label=label)
        ax.scatter(x, mean, s=14, marker="_", color=BLUE, lw=1, label="mean")
    _observations(ax, x, y, missed)
    if column.dates:
        ax.xaxis_date()  # matplotlib counts days since 1970, too
    if column.labels:
        ax.set_xticks(np.arange(len(column.labels)), column.labels)
    return _labelled(ax, found, column.name, _target(found))


def observed(ax: Axes, found: Diagnostics, feature: int | str | None = None) -> Axes:
    """Draw observed against predicted values, with intervals of ``found.coverages[0]``."""
    lower, upper = found.lower[:, 0], found.upper[:, 0]
    missed = (found.y < lower) | (found.y > upper)
    ends = [float(found.mean.min()), float(found.mean.max())]
    label = f"{100 * found.coverages[0]:g} % interval"
    ax.vlines(found.mean, lower, upper, color=SHADE, lw=1.2, label=label)
    ax.plot(ends, ends, color=GREY, lw=0.8, ls=DASHED)
    _observations(ax, found.mean, found.y, missed)
    x, y = f"predicted {_target(found)}", f"observed {_target(found)}"
    return _labelled(ax, found, x, y, legend="upper left")  # the corner without points


def relevance(ax: Axes, found: Diagnostics, feature: int | str | None = None) -> Axes:
    """Draw the relevance of features or columns, largest first; see :mod:`sharpgp.relevance`."""
    values = found.relevant or {column.name: 0.0 for column in found.columns}
    shown = list(values.items())[:20][::-1]
    _bars(ax, [name for name, _ in shown], np.array([value for _, value in shown]))
    return plain(ax, "change of predictions if shuffled")


def base(ax: Axes, members: Sequence[Member]) -> Axes:
    """Draw the pooled models with their weights.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = base(Figure().subplots(), [Member("rbf", 0.25, 1.5), Member("trees", 0.75, 1.25)])
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['rbf', 'trees']
    """
    ordered = sorted(members, key=lambda one: one.weight)
    _bars(ax, [one.name for one in ordered], np.array([one.weight for one in ordered]))
    return plain(ax, "weight")


class _Parts(Protocol):
    """A :class:`sharpgp.explanations.Parts`, whose module imports this one."""

    @property
    def what(self) -> str: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def parts(self) -> np.ndarray: ...
    @property
    def base(self) -> float: ...
    @property
    def total(self) -> np.ndarray: ...


class _Explanation(Protocol):
    """A :class:`sharpgp.explanations.Explanation`."""

    @property
    def mean(self) -> _Parts: ...
    @property
    def width(self) -> _Parts: ...
    @property
    def values(self) -> np.ndarray: ...


def explanation(
    found: _Explanation, row: int = 0, *, axes: Sequence[Axes] | None = None
) -> Sequence[Axes]:
    """Draw what each column adds to one row's mean and width, on two axes; see ``explain``."""
    if axes is None:
        panels: Sequence[Axes] = _pyplot().subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")[
            1
        ]
        axes = panels
    for one, ax in zip((found.mean, found.width), axes, strict=True):
        parts(one, row, ax=ax, values=found.values[row])
    return axes


def parts(
    found: _Parts, row: int, *, ax: Axes | None = None, values: Sequence[object] | None = None
) -> Axes:
    """Draw what each column adds to one row's mean or width; see ``explain``."""
    if ax is None:
        ax = _pyplot().subplots()[1]
    order = np.argsort(np.abs(found.parts[row]), kind="stable")[-MOST_BARS:]
    shown = found.parts[row][order]
    colours = [ORANGE if value > 0 else BLUE for value in shown]
    ax.barh(np.arange(len(order)), shown, 0.7, color=colours)
    names = [found.columns[j] for j in order]
    if values is not None:
        names = [f"{name} = {_short(values[j])}" for name, j in zip(names, order, strict=True)]
    ax.set_yticks(np.arange(len(order)), names)
    ax.axvline(0.0, color=GREY, lw=0.8)
    title = f"{found.what}: {number(found.total[row], 3)}"
    ax.set_title(title, loc="left", fontsize=9, color=GREY)
    return plain(ax, f"added to {number(found.base, 3)} of typical rows")


def _short(value: object) -> str:
    """A value of the user's as a label."""
    text = number(value) if isinstance(value, int | float) else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


_KINDS: dict[str, Callable[[Axes, Diagnostics, Any], Axes]] = {
    "intervals": intervals,
    "observed": observed,
    "reliability": lambda ax, found, _: calibration.reliability_of(ax, found),
    "coverage": lambda ax, found, feature: _coverage(ax, found, feature),
    "relevance": relevance,
    "base": lambda ax, found, _: base(ax, found.members),
}


def _coverage(ax: Axes, found: Diagnostics, feature: int | str | None) -> Axes:
    return calibration.coverage_of(ax, found, calibration.grouping_of(found, feature), 0)


def _observations(ax: Axes, x: np.ndarray, y: np.ndarray, missed: np.ndarray) -> None:
    ax.scatter(x[~missed], y[~missed], s=9, color=BLUE, lw=0, label="observed", zorder=3)
    if missed.any():
        ax.scatter(x[missed], y[missed], s=12, color=ORANGE, lw=0, label="outside", zorder=3)


def _labelled(
    ax: Axes,
    found: Diagnostics,
    xlabel: str,
    ylabel: str,
    *,
    legend: Literal["best", "upper left"] = "best",
) -> Axes:
    inside = (found.y >= found.lower[:, 0]) & (found.y <= found.upper[:, 0])
    width = float((found.upper[:, 0] - found.lower[:, 0]).mean())
    ax.set_title(
        f"covers {100 * inside.mean():.1f} %, width {width:.3g}",
        loc="right",
        fontsize=9,
        color=GREY,
    )
    ax.legend(frameon=False, fontsize=8, loc=legend)
    return plain(ax, xlabel, ylabel)


def _target(found: Diagnostics) -> str:
    return (found.target or "y") + (f" ({found.unit})" if found.unit else "")


def _bars(ax: Axes, names: list[str], values: np.ndarray) -> None:
    ax.barh(np.arange(len(names)), values, 0.7, color=SHADE, edgecolor=BLUE, lw=0.6)
    ax.set_yticks(np.arange(len(names)), names)


def _pyplot() -> Any:
    from matplotlib import pyplot

    return pyplot
