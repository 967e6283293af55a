"""Builders shared by the tests: a closed-form posterior, simulated data, tiny settings.

Nothing here trains a GP except :func:`trained_posterior`; decisions are tested on
:class:`FakePosterior`, whose mean and sigma are known in closed form.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sharpgp.calibration.recalibrator import Recalibrator, make_recalibrator
from sharpgp.gp import training
from sharpgp.gp.posterior import DataPosterior, Posterior
from sharpgp.gp.training import train
from sharpgp.rows import Inputs, Rows

#: Settings that keep a slow method fast in the contract suite; a method that is not listed here
#: runs with its defaults.
SETTINGS: dict[str, dict[str, Any]] = {
    "paper": {"levels": 7},
    "kuleshov22": {"epochs": 30},
    "fully_bayesian": {"warmup": 15, "samples": 15, "max_tree_depth": 4},
    "capone22": {"warmup": 15, "samples": 15, "max_tree_depth": 4},
    "cv": {"folds": 3},
    "cv+": {"folds": 3},
}

#: Methods whose quantiles come from calibration ranks, with a finite-sample promise.
CONFORMAL = ("kuleshov18", "marx22")


def method(name: str, **settings: Any) -> Recalibrator:
    """A recalibrator by name with the tiny settings of this suite and a fixed seed."""
    return make_recalibrator(name, **{"random_state": 0, **SETTINGS.get(name, {}), **settings})


def marked(names: Iterable[Any], *, slow: Collection[Any]) -> list[Any]:
    """Values to parametrise with, those in ``slow`` left to ``make test-slow``."""
    return [pytest.param(n, marks=pytest.mark.slow) if n in slow else n for n in names]


class FakePosterior(DataPosterior):
    r"""``mu(x) = shift`` and ``sigma(theta, x)^2 = scale^2 (theta_0 x_1^2 + theta_1)``.

    Under ``theta_R = (1, 1)`` and ``scale = 1`` this is ``sigma(x) = sqrt(1 + x_1^2)``: known,
    heteroscedastic, increasing in ``theta``, noise included as its last entry, and free to
    compute.  ``n_train`` and the leave-one-out answers are formal.
    """

    names = ("inverse_lengthscale_0", "noise_variance")

    def __init__(self, *, n_features: int = 1, scale: float = 1.0, shift: float = 0.0) -> None:
        self.theta_R = torch.ones(2, dtype=torch.float64)
        self.searched = torch.tensor([True, True])
        self.scale, self.shift, self._d = scale, shift, n_features

    @property
    def n_train(self) -> int:
        return 10

    @property
    def n_features(self) -> int:
        return self._d

    @property
    def n_inverse(self) -> int:
        return 1

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def rows(self) -> Rows:
        ends = torch.linspace(-5.0, 5.0, self.n_train, dtype=torch.float64)
        return Rows(ends[:, None].expand(-1, self.n_features))

    @property
    def y_train(self) -> Tensor:
        return torch.zeros(self.n_train, dtype=torch.float64) + self.shift

    def mean(self, rows: Inputs) -> Tensor:
        X = Rows.of(rows).X
        return X.new_full((len(X),), self.shift)

    def sigma(self, theta: Tensor, rows: Inputs) -> Tensor:
        x = Rows.of(rows).X[:, 0]
        return self.scale * (theta[:, :1] * x.square() + theta[:, 1:2]).sqrt()

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.y_train.expand(theta.shape[0], -1)
        return mean, torch.ones_like(mean)

    def log_likelihood(self) -> float:
        return 0.0

    def log_prior(self) -> float:
        return 0.0

    def subset(self, n: int, generator: torch.Generator) -> "FakePosterior":
        return self

    def conditioned_on(self, rows: Inputs, y: Tensor) -> "FakePosterior":
        return self


class HumpedPosterior(FakePosterior):
    """Sigma falls as ``theta`` grows beyond ``theta_R``: monotonicity is broken on purpose."""

    def sigma(self, theta: Tensor, rows: Inputs) -> Tensor:
        x = Rows.of(rows).X[:, 0]
        return self.scale * (1.0 + x.square() / (0.1 + theta[:, :1])).sqrt()


def fake_data(
    n: int, *, seed: int = 0, scale: float = 1.0, shift: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Data that :class:`FakePosterior` describes exactly: ``y ~ N(mu, sigma(theta_R, x)^2)``."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1))
    y = shift + scale * np.sqrt(1.0 + x[:, 0] ** 2) * rng.normal(size=n)
    return torch.from_numpy(x), torch.from_numpy(y)


def wavy(n: int, *, d: int = 2, noise: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Smooth function of ``d`` features with Gaussian noise, as NumPy arrays."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, d))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, -1] + noise * rng.normal(size=n)
    return X, y


def trained_posterior(n: int = 60, seed: int = 0) -> Posterior:
    """A GP trained on :func:`wavy` data."""
    X, y = wavy(n, seed=seed)
    return train(torch.from_numpy(X), torch.from_numpy(y))[0]


@contextmanager
def from_one_start() -> Iterator[None]:
    """GPs are trained from the first of the built-in starts, where all of them would be tried."""
    real = training._train_named

    def from_first(Z, t, covariance, start, *settings):
        return real(Z, t, covariance, 0 if start is None else start, *settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_train_named", from_first)
        yield


def integrate(f: Callable[[np.ndarray], np.ndarray], breaks: np.ndarray) -> float:
    """Integral of ``f``, which takes many points at once, by a rule of degree 79 between breaks.

    Where ``f`` is a polynomial of a low degree, times a power or an exponential that falls by
    ``exp(32)`` at most, the rule errs by less than rounding does.
    """
    nodes, weights = np.polynomial.legendre.leggauss(40)
    half = np.diff(breaks)[:, None] / 2
    x = breaks[:-1, None] + half * (1 + nodes)
    return float((half * weights * f(x.ravel()).reshape(x.shape)).sum())


def standard_error(p: float, n: int) -> float:
    """Of a share observed in ``n`` independent trials of probability ``p``."""
    return float(np.sqrt(p * (1.0 - p) / n))


def solve_slowly(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """``A^-1 B`` to the last digit: refined with residuals that are summed without rounding.

    Each round divides the error by ``1 / (n eps cond(A))``.  Extended precision would do as well,
    but not every machine has it.
    """
    X = np.linalg.solve(A, B)
    for _ in range(3):
        X = X + np.linalg.solve(A, _residual(A, X, B))
    return X


def _residual(A: np.ndarray, X: np.ndarray, B: np.ndarray) -> np.ndarray:
    """``B - A X``, each entry rounded once."""
    product, lost = _two_products(A[:, :, None], X[None])
    terms = np.concatenate([B[:, None], -product, -lost], axis=1)
    return np.apply_along_axis(math.fsum, 1, terms)


def _two_products(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``a b`` rounded, and what rounding took away (Dekker, 1971)."""

    def halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scaled = (2.0**27 + 1.0) * x
        high = scaled - (scaled - x)
        return high, x - high

    (a1, a2), (b1, b2), product = halves(a), halves(b), a * b
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)
