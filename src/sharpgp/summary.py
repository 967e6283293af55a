"""Summary of a fit: columns, models, lengthscales in units, held-out metrics."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sharpgp._table import as_html, as_text
from sharpgp._validation import as_numpy
from sharpgp.data.inputs import feature_names
from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics import CalibrationReport
from sharpgp.models.pool import BaseTable

_OF_REPORT = "On these rows, each predicted by fits without it"


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
        parts = [self._head, as_text(self._rows(), text=3), str(self.members)]
        if self.report is not None:
            parts.append(f"{_OF_REPORT}:\n{self.report}")
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same, for notebooks."""
        tables = [as_html(self._rows(), text=2, caption=self._head), self.members._repr_html_()]
        if self.report is not None:
            tables.append(as_html(self.report.rows, caption=_OF_REPORT))
        return "".join(tables)

    @property
    def _head(self) -> str:
        return f"{self.n_rows:,} training rows, calibration {self.calibration}"

    def _rows(self) -> list[tuple[str, str, str]]:
        names = [*self.columns, *(name for name in self.lengthscales if name not in self.columns)]
        lengths = {name: f"{length:.4g}" for name, length in self.lengthscales.items()}
        rows = [(name, self.columns.get(name, ""), lengths.get(name, "")) for name in names]
        return [("column", "holds", "lengthscale"), *rows]


def display(model: Any) -> str:
    """What a fitted estimator shows in notebooks: rows, columns, coverage and pool."""
    if hasattr(model, "outputs_"):
        rows = [("output", "training rows", "calibration", "pool")]
        for k, one in enumerate(model.outputs_):
            pool = ", ".join(f"{member.name} {member.weight:.2f}" for member in one.base_)
            rows.append((str(k), f"{one.calibrated_.n_train:,}", one.calibration_, pool))
        return as_html(rows, text=4)
    promised = model.promise()
    line = promised.lines[0]
    coverage = "no statement"
    if line.coverage is not None:
        coverage = f"{'at least' if line.theorem else 'about'} {100 * line.coverage:.0f} %"
    facts = {
        "training rows": f"{model.calibrated_.n_train:,}",
        "columns": f"{len(_columns(model)):,}",
        "calibration": f"{model.calibration_}, {line.units:,} {line.counted}",
        f"{100 * promised.coverage:g} % intervals cover": f"{coverage} of {line.population}",
    }
    if line.theorem:
        facts["theorem"] = line.theorem
    if doubtful := [one.name for one in promised.premises if one.doubtful]:
        facts["in doubt"] = ", ".join(doubtful)
    return as_html(list(facts.items()), text=2, head=False) + model.base_._repr_html_()


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
    columns = _columns(model)
    try:
        view = model.calibrated_.at_own_points()
        report = view.calibration_report(view.X_own, view.y_own)
    except InvalidInputError:
        report = None
    return Summary(
        model.calibrated_.n_train,
        model.calibration_,
        columns,
        _lengthscales(model.calibrated_.gp, list(columns), encoding),
        model.base_,
        report,
    )


def _columns(model: Any) -> dict[str, str]:
    """What each column holds, or that it is not used."""
    encoding = getattr(model, "encoding_", None)
    if encoding is None:
        names = feature_names(model) or [f"x{j}" for j in range(model.n_features_in_)]
        return dict.fromkeys(names, "number")
    used = {one.name: ", ".join([one.kind, *one.seasons]) for one in encoding.columns}
    return used | dict.fromkeys(encoding.unused, "not used")


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
