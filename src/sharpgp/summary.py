"""Summary of a fit: columns, models, lengthscales in units, held-out metrics."""

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from sharpgp._validation import as_numpy
from sharpgp.data.inputs import feature_names
from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics import CalibrationReport
from sharpgp.models.pool import BaseTable


@dataclass(frozen=True)
class Summary:
    """A fitted model in one table; prints as text, shows in notebooks.

    Attributes
    ----------
    n_rows : int
        Rows that trained the model.
    calibration : str
    columns : dict of str to str
        What each column holds, or why it is not used.
    lengthscales : dict of str to float
        Lengthscales of the GP with the largest weight, by column and in its units: how far a value
        must change for the function to change.  Those of categories have no unit.
    members : BaseTable
    report : CalibrationReport or None
        Metrics on held-out points; None without any.
    """

    n_rows: int
    calibration: str
    columns: dict[str, str]
    lengthscales: dict[str, float]
    members: BaseTable
    report: CalibrationReport | None

    def __str__(self) -> str:
        names = [*self.columns, *(name for name in self.lengthscales if name not in self.columns)]
        wide = max(len("column"), *map(len, names))
        kind = max(len("holds"), *map(len, self.columns.values()))
        lines = [f"{'column':{wide}}  {'holds':{kind}}  lengthscale"]
        for name in names:
            length = self.lengthscales.get(name)
            shown = "" if length is None else f"{length:.4g}"
            lines.append(f"{name:{wide}}  {self.columns.get(name, ''):{kind}}  {shown}".rstrip())
        parts = [f"{self.n_rows:,} training rows, calibration {self.calibration}"]
        parts += ["\n".join(lines), str(self.members)]
        if self.report is not None:
            parts.append(f"On these rows, each predicted by fits without it:\n{self.report}")
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same, for notebooks."""
        return f"<pre>{escape(str(self))}</pre>"


def summarise(model: Any) -> Summary:
    """The summary of a fitted estimator.

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 100, (80, 2))
    >>> y = np.sin(X[:, 0] / 20) + 0.1 * rng.normal(size=80)
    >>> model = SharpGPRegressor(base="rbf", calibration="loo", random_state=0).fit(X, y)
    >>> found = summarise(model)
    >>> found.columns
    {'x0': 'number', 'x1': 'number'}
    >>> bool(20 < found.lengthscales["x0"] < found.lengthscales["x1"])
    True
    """
    encoding = getattr(model, "encoding_", None)
    names = feature_names(model) or [f"x{j}" for j in range(model.n_features_in_)]
    columns = dict.fromkeys(names, "number")
    if encoding is not None:
        columns = {one.name: ", ".join([one.kind, *one.seasons]) for one in encoding.columns}
        columns |= dict.fromkeys(encoding.unused, "not used")
    try:
        view = model.calibrated_.at_own_points()
        report = view.calibration_report(view.X_own, view.y_own)
    except InvalidInputError:
        report = None
    return Summary(
        model.calibrated_.n_train,
        model.calibration_,
        columns,
        _lengthscales(model.calibrated_.gp, names, encoding),
        model.base_,
        report,
    )


def _lengthscales(gp: Any, names: list[str], encoding: Any) -> dict[str, float]:
    """Lengthscales by name, in units of their columns; empty for kernels without any."""
    known = enumerate(getattr(gp, "names", ()))
    inverse = [k for k, name in known if name.startswith("inverse_lengthscale")]
    labels = names if encoding is None else encoding.lengthscales
    units = getattr(getattr(gp, "base", gp), "x_units", None)  # also of a warped GP
    if units is None or len(inverse) < len(labels):
        return {}
    ties = np.arange(len(labels)) if encoding is None else np.array(encoding.ties)
    firsts = np.unique(ties, return_index=True)[1]
    theta, scale = as_numpy(gp.theta_R)[inverse], as_numpy(units.scale)
    return {
        label: float(scale[first] / theta[k])
        for k, (label, first) in enumerate(zip(labels, firsts, strict=True))
    }
