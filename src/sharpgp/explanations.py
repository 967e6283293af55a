"""Why a prediction is high, and why its interval is wide: what each column adds to either."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sharpgp._numbers import number
from sharpgp._table import as_html, as_text
from sharpgp._validation import as_float, as_numpy, check_choice
from sharpgp.data.frames import collected
from sharpgp.data.inputs import encode_rows, feature_names
from sharpgp.data.reading import is_frame
from sharpgp.exceptions import MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

    from sharpgp.plots.models import Axes

Floats = NDArray[np.float64]
#: Rows of the model's own that stand for all others.
TYPICAL_ROWS = 16
#: Most of its rows from which these are chosen: their distances are kept, a square of memory.
MAX_ROWS_CHOSEN_FROM = 1000


@dataclass(frozen=True)
class Parts:
    r"""What each column adds to one quantity of each row; an array (n, d) to NumPy.

    ``base + parts.sum(axis=1)`` is the quantity, but for rounding.

    Attributes
    ----------
    what : str
        ``"mean"`` or, with its coverage, ``"width of 95 % intervals"``.
    columns : tuple of d str
    parts : array of shape (n, d)
        In units of the target.
    base : float
        Mean of the quantity over typical rows.
    """

    what: str
    columns: tuple[str, ...]
    parts: Floats
    base: float

    @property
    def total(self) -> Floats:
        """The quantity (n,)."""
        return np.asarray(self.base + self.parts.sum(axis=1))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        """The parts."""
        return np.asarray(self.parts, dtype=dtype)

    def _rows(self) -> list[tuple[str, ...]]:
        mean, size = self.parts.mean(axis=0), np.abs(self.parts).mean(axis=0)
        rows = [("column", "mean part", "mean size")]
        rows += [
            (self.columns[j], number(mean[j], 3), number(size[j], 3))
            for j in np.argsort(-size, kind="stable")
        ]
        return [*rows, ("typical rows", number(self.base, 3), "")]

    def __str__(self) -> str:
        return f"{self.what}\n{as_text(self._rows())}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self._rows(), caption=self.what)

    def plot(self, row: int, ax: "Axes | None" = None) -> "Axes":
        """Draw the parts of one row, the largest on top, on given or new axes."""
        from sharpgp import plots

        return plots.parts(self, row, ax=ax)


@dataclass(frozen=True)
class Explanation:
    """What each column adds to the mean and to the width of the interval of each row.

    Attributes
    ----------
    mean, width : Parts
    values : array of shape (n, d)
        What was asked, as the user wrote it.
    """

    mean: Parts
    width: Parts
    values: NDArray[Any]

    def frame(self) -> "pd.DataFrame":
        """A row for each row and column: its value, and its parts of mean and width."""
        import pandas as pd

        n, d = self.mean.parts.shape
        return pd.DataFrame(
            {
                "row": np.repeat(np.arange(n), d),
                "column": np.tile(self.mean.columns, n),
                "value": self.values.ravel(),
                "mean": self.mean.parts.ravel(),
                "width": self.width.parts.ravel(),
            }
        )

    def shap(self, of: str = "mean") -> Any:
        """The parts of ``"mean"`` or ``"width"`` as a ``shap.Explanation``, for its figures."""
        check_choice(of, "of", ("mean", "width"))
        try:
            import shap
        except ImportError:
            raise MissingExtraError(
                "expected the package shap, found none; pip install shap"
            ) from None
        parts: Parts = getattr(self, of)
        return shap.Explanation(
            values=parts.parts,
            base_values=np.full(len(parts.parts), parts.base),
            data=self.values,
            feature_names=list(parts.columns),
        )

    def _rows(self) -> list[tuple[str, ...]]:
        one = len(self.values) == 1
        sizes = [parts.parts[0] if one else np.abs(parts.parts).mean(0) for parts in self._both]
        what = ("mean", "width") if one else ("mean, mean size", "width, mean size")
        rows: list[tuple[str, ...]] = [("column", *what)]
        for j in np.argsort(-np.abs(sizes[0]), kind="stable"):
            rows.append((self.mean.columns[j], *(number(size[j], 3) for size in sizes)))
        return [*rows, ("typical rows", *(number(parts.base, 3) for parts in self._both))]

    @property
    def _both(self) -> tuple[Parts, Parts]:
        return self.mean, self.width

    def __str__(self) -> str:
        return as_text(self._rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self._rows(), caption=f"Parts of the mean and of the {self.width.what}")

    def plot(self, row: int = 0, axes: "Sequence[Axes] | None" = None) -> "Sequence[Axes]":
        """Draw the parts of one row's mean and width side by side, on two given or new axes."""
        from sharpgp import plots

        return plots.explanation(self, row, axes=axes)


def explain(
    model: Any, X: ArrayLike, coverage: float = 0.95, *, random_state: int | None = 0
) -> Explanation:
    r"""Shapley values of mean and width, by columns.

    .. math:: f(x) = \bar f + \sum_j \phi_j(x), \quad
              \phi_j(x) = \psi_j(x) - \frac{1}{B} \sum_b \psi_j(x_b), \quad
              \psi_j(x) = \frac{1}{2} \sum_{S} \left[f(x_{S \cup j}, c) - f(x_S, c)\right]

    A row's columns replace those of the model's most typical row :math:`c` one by one, in a random
    order and in its reverse; :math:`S` are the columns before ``j`` in either.  Two orders give the
    Shapley values :math:`\psi` exactly where columns act alone or in pairs.  Subtracting their mean
    over typical rows :math:`x_b` compares with all of these: :math:`\bar f` is the mean of
    :math:`f` over them.  They are chosen by kernel herding (Chen, Welling and Smola, 2010).

    A row takes ``2 d`` predictions.  A column's part of the width is large if noise depends on it,
    or if its value is far from the data.

    Parameters
    ----------
    model : SharpGPRegressor
        Fitted.
    X : array or table of shape (n, d)
    coverage : float
        Of the intervals.
    random_state : int or None
        Of the order.

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (60, 2))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=60)
    >>> model = SharpGPRegressor(base="rbf", calibration="vanilla").fit(X, y)
    >>> found = explain(model, [[0.9, 0.0], [0.0, 3.0]], 0.9)
    >>> bool(abs(found.mean.parts[0, 0]) > 10 * abs(found.mean.parts[0, 1]))
    True
    >>> found.width.columns[int(np.asarray(found.width)[1].argmax())]  # far out in x1
    'x1'
    """
    X = collected(X)
    encoded = encode_rows(model, X)
    asked = model.rows(X if encoded is None else encoded)
    calibrated = model.calibrated_
    own, y = calibrated.labelled_data()
    typical = _typical(as_numpy(own.X), as_numpy(y))
    encoding = getattr(model, "encoding_", None)
    names = feature_names(model) or [f"x{j}" for j in range(asked.X.shape[1])]
    places = {name: [j] for j, name in enumerate(names)} if encoding is None else encoding.places
    columns = list(places.values())
    order = np.random.default_rng(random_state).permutation(len(columns))

    def answer(X: Floats) -> Floats:
        noise = None if asked.noise is None else asked.noise[:1].expand(len(X))
        rows = replace(asked[:0], X=as_float(X, "X", asked.device), noise=noise)
        ends = as_numpy(calibrated.predict_interval(rows, coverage))
        mean = as_numpy(calibrated.predict_mean(rows))
        return np.stack([mean, ends[:, 1] - ends[:, 0]], axis=-1)

    def from_centre(X: Floats) -> Floats:
        """Parts (n, d, 2) of the difference to the most typical row."""
        paths = [list(_path(X, typical[0], columns, one)) for one in (order, order[::-1])]
        found = answer(np.concatenate([*paths[0], *paths[1]])).reshape(2, -1, len(X), 2)
        parts = np.zeros((len(X), len(columns), 2))
        for steps, one in zip(found, (order, order[::-1]), strict=True):
            parts[:, one] += np.diff(steps, axis=0).transpose(1, 0, 2) / 2
        return parts

    # The typical rows are asked by themselves: a model remembers its answer.
    usual = from_centre(typical).mean(axis=0)
    base = answer(typical).mean(axis=0)
    parts = from_centre(as_numpy(asked.X)) - usual
    what = ("mean", f"width of {100 * coverage:g} % intervals")
    mean, width = (Parts(what[k], tuple(places), parts[..., k], float(base[k])) for k in (0, 1))
    return Explanation(mean, width, _values(X, list(places)))


def _path(
    X: Floats, centre: Floats, columns: list[list[int]], order: NDArray[np.int64]
) -> Iterator[Floats]:
    """Rows from the centre to ``X``, one column more at each step: d + 1 arrays (n, d)."""
    mixed = np.tile(centre, (len(X), 1))
    yield mixed
    for j in order:
        mixed = mixed.copy()
        mixed[:, columns[j]] = X[:, columns[j]]
        yield mixed


def _typical(X: Floats, y: Floats) -> Floats:
    """Rows whose features and targets have the distribution of all, the most central one first."""
    kept = np.linspace(0, len(X) - 1, min(len(X), MAX_ROWS_CHOSEN_FROM)).astype(int)
    X, y = X[kept], y[kept]
    both = np.column_stack([X, y])
    both = (both - both.mean(0)) / np.maximum(both.std(0), np.finfo(float).tiny)
    both[:, -1] *= np.sqrt(X.shape[1])  # the target counts as much as all features
    squares = np.square(both).sum(1)
    distances = np.maximum(squares[:, None] + squares - 2 * both @ both.T, 0.0)
    kernel = np.exp(-distances / max(float(np.median(distances)), np.finfo(float).tiny))
    usual, taken = kernel.mean(1), np.zeros(len(X))
    chosen: list[int] = []
    for k in range(min(TYPICAL_ROWS, len(X))):
        score = usual - taken / (k + 1)
        score[chosen] = -np.inf
        chosen.append(int(score.argmax()))
        taken += kernel[chosen[-1]]
    return X[chosen]


def _values(X: Any, columns: list[str]) -> NDArray[Any]:
    """The user's values (n, d) of some columns."""
    if is_frame(X):
        found = np.empty((len(X), len(columns)), dtype=object)
        for j, name in enumerate(columns):
            found[:, j] = np.asarray(X[name])
        return found
    return np.asarray(as_numpy(X))
