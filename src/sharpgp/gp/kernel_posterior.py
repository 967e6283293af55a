"""Base of this library's GPs with data: a covariance, units, and the data in these."""

from abc import abstractmethod
from functools import cached_property
from typing import Any, Self

from torch import Tensor

from sharpgp._forwarded import forwarded
from sharpgp._stored import Array, agree
from sharpgp.gp.kernels.covariance import Covariance
from sharpgp.gp.posterior import DataPosterior, TrainingResult
from sharpgp.gp.scaling import Affine
from sharpgp.rows import Inputs, Rows


class KernelPosterior(DataPosterior):
    """A GP of this library: a covariance, its hyperparameters, units, and standardised data.

    Parameters
    ----------
    X : Rows or Tensor [N, d]
    y : Tensor [N]
        Training data in the user's units.
    covariance : Covariance
    theta_R : Tensor [P]
        Hyperparameters, in standardised units, the same for every kind of GP.
    x_units, y_units : Affine, optional
        Maps from the user's units to the standardised ones.
    training : TrainingResult, optional
        How ``theta_R`` was found.
    """

    def __init__(
        self,
        X: Inputs,
        y: Tensor,
        covariance: Covariance,
        theta_R: Tensor,
        *,
        x_units: Affine | None = None,
        y_units: Affine | None = None,
        training: TrainingResult | None = None,
    ) -> None:
        rows = Rows.of(X)
        units = x_units or Affine.identity(rows.X), y_units or Affine.identity(y)
        self.theta_R, self.training = theta_R, training
        self.x_units, self.y_units = units
        self._rows, self._y = self._inward(rows), self.y_units.forward(y)
        self.covariance = covariance.reaching(self._X)

    def _restored(self) -> None:
        agree("rows", len(self._rows), len(self._y))
        agree("length of theta_R", len(self.theta_R), self.covariance.n_theta)
        agree("units of the inputs", self.x_units.shift.shape, self._X[0].shape)
        agree("units of the target", self.y_units.shift.shape, self._y[0].shape)
        # gpytorch kernels do not say how many features they take.
        theta = self.theta_R.unsqueeze(0)
        agree("kernel of a point", self.covariance.matrix(theta, self._X[:1]).shape, (1, 1, 1))

    names = forwarded("covariance.names")
    searched = forwarded("covariance.searched")
    n_inverse = forwarded("covariance.n_inverse")
    ties = forwarded("covariance.sharing")

    @property
    def n_train(self) -> int:
        return self._X.shape[0]

    @property
    def n_features(self) -> int:
        return self._X.shape[1]

    device = forwarded("_X.device")

    @cached_property
    def input_range(self) -> tuple[Tensor, Tensor]:
        """Cached, as every prediction needs it."""
        return self.x_units.back(self._X.amin(0)), self.x_units.back(self._X.amax(0))

    def _inward(self, rows: Inputs) -> Rows:
        """Rows in the units that the covariance works in."""
        return self.x_units.rows_forward(rows, self.y_units)

    @property
    def rows(self) -> Rows:
        return self.x_units.rows_back(self._rows, self.y_units)

    @property
    def rows_standardised(self) -> Rows:
        """Training rows in the units that the covariance works in."""
        return self._rows

    _X = forwarded("_rows.X")
    _noise = forwarded("_rows.noise")

    @property
    def y_train(self) -> Tensor:
        return self.y_units.back(self._y)

    @property
    def X_standardised(self) -> Tensor:
        """Training inputs [N, d] in the units that the covariance works in."""
        return self._X

    @property
    def y_standardised(self) -> Tensor:
        """Training targets [N] in the units that the covariance works in."""
        return self._y

    def _per_point(self, log_likelihood: Tensor) -> float:
        """:meth:`log_likelihood` from a log likelihood [1] of the standardised targets."""
        return float(log_likelihood[0] / self.n_train - self.y_units.scale.log())

    @abstractmethod
    def moments(self, theta: Tensor, rows: Inputs) -> tuple[Tensor, Tensor]:
        """Predictive mean and standard deviation [K, T], both under each ``theta`` [K, P]."""

    def conditioned_on(self, rows: Inputs, y: Tensor) -> Self:
        return self._again(rows, y, self.theta_R, self.x_units, self.y_units)

    def in_units(self, theta_R: Tensor, x_units: Affine, y_units: Affine) -> Self:
        """The same data and covariance in other standardised units, with ``theta_R`` in those."""
        return self._again(self.rows, self.y_train, theta_R, x_units, y_units)

    def _again(
        self, rows: Inputs, y: Tensor, theta_R: Tensor, x_units: Affine, y_units: Affine
    ) -> Self:
        """The same kind of GP on other data, in other units."""
        given: dict[str, Any] = {"x_units": x_units, "y_units": y_units, "training": self.training}
        return type(self)(rows, y, self.covariance, theta_R, **given, **self._settings)

    @property
    def _settings(self) -> dict[str, Any]:
        """What else the constructor takes."""
        return {}


#: Attributes in files of every GP with data.
STORED: dict[str, Any] = {
    "covariance": Covariance,
    "theta_R": Array("P", positive=True),
    "x_units": Affine,
    "y_units": Affine,
    "_rows": Rows,
    "_y": Array("N"),
    "training": TrainingResult | None,
}
