"""A new model, method or GP is one file: what is defined here alone works with all the rest."""

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers import wavy
from sharpgp import CrossValidated, Exact, Kuleshov18, LeaveOneOut, SharpGPRegressor, persistence
from sharpgp._stored import Array, stored
from sharpgp.bo import CalibratedUpperConfidenceBound
from sharpgp.calibration import recalibrator
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.recalibrator import PosteriorMethod, register
from sharpgp.gp import train
from sharpgp.gp.posterior import DataPosterior
from sharpgp.models.gaussian.gaussian_model import learn_gaussian
from sharpgp.models.gaussian.plain_gp import PosteriorModel
from sharpgp.models.laws import Law, Normal
from sharpgp.models.without_gp import RefittedModel
from sharpgp.rows import Inputs, Rows

pytestmark = pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")

X, Y = map(torch.from_numpy, wavy(60, seed=2))
X_CAL, Y_CAL = map(torch.from_numpy, wavy(30, seed=3))
X_NEW, Y_NEW = map(torch.from_numpy, wavy(200, seed=4))


# ------------------------------------------------------------------ a model


@stored("test.NearestModel", _rows=Rows, _y=Array("N"), k=int)
class NearestModel(RefittedModel):
    """Mean and deviation of the nearest points."""

    def __init__(self, rows: Inputs, y: Tensor, k: int = 4) -> None:
        super().__init__(rows, y)
        self.k = k

    def law(self, rows: Inputs) -> Law:
        apart = torch.cdist(Rows.of(rows).X, self.X_train)
        near = self._y[apart.topk(self.k, largest=False).indices]
        return Normal(near.mean(1), near.std(1) + 0.1)

    def relearned(self, rows: Inputs, y: Tensor, labels: Tensor, seed: int) -> "NearestModel":
        return NearestModel(rows, y, self.k)


@pytest.mark.parametrize(
    "method",
    [Exact(), pytest.param(LeaveOneOut(), marks=pytest.mark.slow), CrossValidated(folds=3)],
    ids=type,
)
def test_a_model(method, tmp_path):
    models = {"gp": learn_gaussian(train(X, Y)[0]), "nearest": NearestModel(X, Y)}
    data = (X_CAL, Y_CAL) if isinstance(method, Exact) else ()
    calibrated = method.fit(models, *data)
    assert [one.name for one in calibrated.model.members] == ["gp", "nearest"]
    lower, upper = calibrated.predict_interval(X_NEW, 0.8).T
    assert ((lower <= Y_NEW) & (upper >= Y_NEW)).double().mean() > 0.65
    assert calibrated.updated(X_NEW[:9], Y_NEW[:9]).n_cal == calibrated.n_cal + 9
    persistence.save(calibrated, tmp_path / "model.sgp")
    again = persistence.load(tmp_path / "model.sgp")
    assert torch.equal(
        again.predict_quantiles(X_NEW, 0.3), calibrated.predict_quantiles(X_NEW, 0.3)
    )


# ------------------------------------------------------------------ a method


@pytest.fixture
def cautious(monkeypatch):
    """A method that is known by a name for the time of a test."""
    monkeypatch.setattr(recalibrator, "_REGISTRY", dict(recalibrator._REGISTRY))

    @register("cautious")
    class Cautious(PosteriorMethod):
        """Scores of the GP, made larger."""

        def __init__(self, *, factor: float = 1.5, random_state: int | None = None) -> None:
            super().__init__(random_state=random_state)
            self.factor = factor

        def _fit(self, posterior, X, y):
            plain = ScoredPredictor.from_model(PosteriorModel(posterior), X, y)
            return ScoredPredictor(plain.model, X, y, self.factor * plain.scores)

    return Cautious


def test_a_method(cautious, tmp_path):
    by_name = SharpGPRegressor(calibration="cautious", random_state=0).fit(X, Y)
    given = SharpGPRegressor(calibration=cautious(factor=1.5), random_state=0).fit(X, Y)
    plain = SharpGPRegressor(calibration="kuleshov18", random_state=0).fit(X, Y)
    assert by_name.calibration_ == "cautious"
    width, same, other = (
        np.ptp(m.predict_interval(X_NEW.numpy(), 0.8, symmetric=True), axis=1)
        for m in (plain, given, by_name)
    )
    np.testing.assert_allclose(other, 1.5 * width)
    np.testing.assert_array_equal(same, other)
    given.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    assert again.calibration.factor == 1.5
    np.testing.assert_array_equal(again.predict(X_NEW.numpy()), given.predict(X_NEW.numpy()))


# ------------------------------------------------------------------ a GP


@stored(
    "test.LinePosterior",
    theta_R=Array("P", positive=True),
    names=tuple,
    searched=Tensor,
    X=Array("N d"),
    y=Array("N"),
    training=type(None),
)
class LinePosterior(DataPosterior):
    """Bayesian linear regression: ``K = slope^2 X X^T + noise``."""

    training = None

    def __init__(self, X: Tensor, y: Tensor, theta: Tensor) -> None:
        self.X, self.y, self.theta_R = X, y, theta
        self.names = ("inverse_lengthscale_0", "noise_variance")
        self.searched = torch.tensor([True, True])
        self.training = None

    n_train = property(lambda self: len(self.y))
    n_features = property(lambda self: self.X.shape[1])
    n_inverse = property(lambda self: 1)
    device = property(lambda self: self.X.device)
    rows = property(lambda self: Rows(self.X))
    y_train = property(lambda self: self.y)

    def _weights(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [d] and covariance [d, d] of the slopes."""
        slope, noise = theta
        eye = torch.eye(self.X.shape[1], dtype=torch.float64)
        covariance = torch.linalg.inv(self.X.T @ self.X / noise + eye / slope)
        return covariance @ self.X.T @ self.y / noise, covariance

    def mean(self, rows: Inputs) -> Tensor:
        return Rows.of(rows).X @ self._weights(self.theta_R)[0]

    def sigma(self, theta: Tensor, rows: Inputs) -> Tensor:
        X = Rows.of(rows).X
        return torch.stack([((X @ self._weights(t)[1]) * X).sum(1).add(t[1]).sqrt() for t in theta])

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        means, sigmas = [], []
        for t in theta:
            K = t[0] * self.X @ self.X.T + t[1] * torch.eye(self.n_train, dtype=torch.float64)
            inverse = torch.linalg.inv(K)
            means.append(self.y - inverse @ self.y / inverse.diagonal())
            sigmas.append(inverse.diagonal().rsqrt())
        return torch.stack(means), torch.stack(sigmas)

    def log_likelihood(self) -> float:
        K = self.theta_R[0] * self.X @ self.X.T + self.theta_R[1] * torch.eye(self.n_train)
        normal = torch.distributions.MultivariateNormal(torch.zeros_like(self.y), K)
        return float(normal.log_prob(self.y)) / self.n_train

    def log_prior(self) -> float:
        return 0.0

    def at_rows(self, rows: Tensor) -> "LinePosterior":
        return LinePosterior(self.X[rows], self.y[rows], self.theta_R)

    def subset(self, n: int, generator: torch.Generator) -> "LinePosterior":
        return self.at_rows(torch.randperm(self.n_train, generator=generator)[:n])

    def conditioned_on(self, rows: Inputs, y: Tensor) -> "LinePosterior":
        return LinePosterior(Rows.of(rows).X, y, self.theta_R)

    def retrained(self, rows: Inputs, y: Tensor, *, start: str = "same") -> "LinePosterior":
        return LinePosterior(Rows.of(rows).X, y, self.theta_R)


@pytest.mark.parametrize(
    "method", [Kuleshov18(), Exact(), LeaveOneOut(), CrossValidated(folds=3)], ids=type
)
def test_a_gp(method, tmp_path):
    line = X @ torch.tensor([1.0, -0.5]).double() + 0.3 * (Y - Y.mean())
    line_cal = X_CAL @ torch.tensor([1.0, -0.5]).double() + 0.3 * (Y_CAL - Y.mean())
    gp = LinePosterior(X, line, torch.tensor([1.0, 0.1], dtype=torch.float64))
    data = () if isinstance(method, LeaveOneOut | CrossValidated) else (X_CAL, line_cal)
    calibrated = method.fit(gp, *data)
    lower, upper = calibrated.predict_interval(X_CAL, 0.8).T
    assert 0.6 < ((lower <= line_cal) & (line_cal <= upper)).double().mean() <= 1.0
    later = calibrated.condition_on_observations(X_NEW[:5], X_NEW[:5, 0])
    assert later.posterior.n_train == 65
    value = CalibratedUpperConfidenceBound(calibrated, delta=0.9)(X_NEW[:4].unsqueeze(1))
    torch.testing.assert_close(value, calibrated.predict_quantiles(X_NEW[:4], 0.9))
    persistence.save(calibrated, tmp_path / "line.sgp")
    again = persistence.load(tmp_path / "line.sgp")
    assert torch.equal(
        again.predict_quantiles(X_NEW, 0.3), calibrated.predict_quantiles(X_NEW, 0.3)
    )
