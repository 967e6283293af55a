"""Why an interval is wide: how much each column adds to its width."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sharpgp._validation import as_float, as_numpy
from sharpgp.data.inputs import encode_rows, feature_names

Floats = NDArray[np.float64]
#: Number of column orders, each with a typical row, over which contributions are averaged.
ORDERS = 16


@dataclass(frozen=True)
class WidthParts:
    r"""How much each column adds to the width of each interval; an array (n, d) to NumPy.

    ``base + parts.sum(axis=1)`` is the width, exactly.

    Attributes
    ----------
    columns : tuple of d str
    parts : array of shape (n, d)
        In units of the target.
    base : float
        Mean width at the typical rows that columns are compared with.
    coverage : float
    """

    columns: tuple[str, ...]
    parts: Floats
    base: float
    coverage: float

    @property
    def width(self) -> Floats:
        """Widths (n,) of the intervals."""
        return np.asarray(self.base + self.parts.sum(axis=1))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        """The parts."""
        return np.asarray(self.parts, dtype=dtype)

    def __str__(self) -> str:
        wide = max(len("typical row"), *map(len, self.columns))
        mean, size = self.parts.mean(axis=0), np.abs(self.parts).mean(axis=0)
        rows = [f"{'column':{wide}}  mean part  mean size"]
        rows += [
            f"{self.columns[j]:{wide}}  {mean[j]:9.3g}  {size[j]:9.3g}"
            for j in np.argsort(-size, kind="stable")
        ]
        rows.append(f"{'typical row':{wide}}  {self.base:9.3g}")
        return "\n".join(rows)

    __repr__ = __str__

    def plot(self, row: int, ax: Any = None) -> Any:
        """Draw the parts of one row's width, the largest on top, on given or new axes."""
        from sharpgp import plots

        return plots.width_parts(self, row, ax=ax)


def explain_widths(
    model: Any,
    X: ArrayLike,
    coverage: float,
    *,
    draws: int = ORDERS,
    random_state: int | None = 0,
) -> WidthParts:
    r"""Shapley values of the width, by columns.

    .. math:: w(x) = \bar w + \sum_j \phi_j(x), \quad
              \phi_j = \frac{1}{M} \sum_m \left[w(x_{S_m \cup j}, b_m) - w(x_{S_m}, b_m)\right]

    with :math:`b_m` one of the model's own rows and :math:`S_m` the columns before ``j`` in a
    random order: the columns of :math:`b_m` are replaced by those of ``x`` one by one.  A column's
    part is large if noise depends on it, or if its value is far from the data.

    Parameters
    ----------
    model : SharpGPRegressor
        Fitted.
    X : array or table of shape (n, d)
    coverage : float
    draws : int
        ``M``; each asks the model for ``n d`` intervals.
    random_state : int or None

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (60, 2))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=60)
    >>> model = SharpGPRegressor(base="rbf", calibration="vanilla").fit(X, y)
    >>> found = explain_widths(model, [[0.0, 0.0], [3.0, 0.0]], 0.9)
    >>> found.columns[int(np.asarray(found)[1].argmax())]  # the second row is far out in x0
    'x0'
    """
    rows = encode_rows(model, X)
    asked = model.rows(X if rows is None else rows)
    features, usual = as_numpy(asked.X), None if asked.noise is None else asked.noise[:1]
    calibrated = model.calibrated_
    known = as_numpy(calibrated.labelled_data()[0].X)
    encoding = getattr(model, "encoding_", None)
    names = feature_names(model) or [f"x{j}" for j in range(features.shape[1])]
    places = {name: [j] for j, name in enumerate(names)} if encoding is None else encoding.places
    rng = np.random.default_rng(random_state)
    parts, base = np.zeros((len(features), len(places))), 0.0

    def width(X: Floats) -> Floats:
        noise = None if usual is None else usual.expand(len(X))
        mixed = replace(asked[:0], X=as_float(X, "X", asked.device), noise=noise)
        ends = as_numpy(calibrated.predict_interval(mixed, coverage))
        return np.asarray(ends[:, 1] - ends[:, 0])

    columns = list(places.values())
    for typical in known[rng.choice(len(known), draws, replace=len(known) < draws)]:
        mixed = np.tile(typical, (len(features), 1))
        before = np.full(len(features), width(typical[None])[0])
        base += float(before[0]) / draws
        for j in rng.permutation(len(columns)):
            mixed[:, columns[j]] = features[:, columns[j]]
            after = width(mixed)
            parts[:, j] += (after - before) / draws
            before = after
    return WidthParts(tuple(places), parts, base, coverage)
