"""Loops that ask for a point and are told its result: this library's, BoTorch's, the paper's."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import Normalize
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from sharpgp.bo import CalibratedUpperConfidenceBound, Optimiser
from sharpgp.calibration import Sharp
from sharpgp.exceptions import CalibrationWarning
from sharpgp.gp.training import train
from sharpgp_benchmarks.optimisation.problems import Problem

#: Of BoTorch's searches, as its tutorials have them.
RESTARTS, RAW_SAMPLES = 10, 512


class Loop(ABC):
    """Asks for a point, and is told its result."""

    def __init__(self, problem: Problem, X: Tensor, y: Tensor, seed: int) -> None:
        self.problem, self.X, self.y, self.seed = problem, X, y, seed

    @abstractmethod
    def ask(self, q: int = 1) -> Tensor:
        """The next points [q, d], which are run at the same time; some loops know q = 1 only."""

    def levels(self, x: Tensor, y: Tensor) -> Sequence[float | None]:
        """Predictive probabilities of results below those that were told last; None if unknown."""
        return [None] * len(y)

    def tell(self, x: Tensor, y: Tensor) -> None:
        """Results ``y`` [q] at ``x`` [q, d]."""
        self.X, self.y = torch.cat([self.X, x]), torch.cat([self.y, y])

    def best_of(self, acquisition: AcquisitionFunction, q: int = 1) -> Tensor:
        """Where an acquisition function is largest [q, d], by BoTorch's search."""
        rows = self.problem.rows
        if rows is None:
            point, _ = optimize_acqf(
                acquisition,
                self.problem.bounds,
                q=q,
                num_restarts=RESTARTS,
                raw_samples=RAW_SAMPLES,
                sequential=q > 1,
            )
            found: Tensor = point
            return found
        rows = self.rows_left(rows)
        chosen: list[int] = []
        with torch.no_grad():
            for _ in range(q):
                value = acquisition(rows.unsqueeze(1))
                value[chosen] = -torch.inf
                chosen.append(int(value.argmax()))
                if q > 1:
                    acquisition.set_X_pending(rows[chosen])
        return rows[chosen]

    def rows_left(self, rows: Tensor) -> Tensor:
        """Rows [m, d] that were not run yet."""
        done = {tuple(x) for x in self.X.tolist()}
        return rows[[tuple(row) not in done for row in rows.tolist()]]


class Calibrated(Loop):
    """The optimiser of this library."""

    def __init__(self, problem: Problem, X: Tensor, y: Tensor, seed: int, **settings: Any) -> None:
        super().__init__(problem, X, y, seed)
        self.loop = Optimiser(problem.bounds.mT, design=len(y), random_state=seed, **settings)
        self.loop.tell(X, y)

    def ask(self, q: int = 1) -> Tensor:
        return torch.from_numpy(self.loop.ask(q, among=self.problem.rows))

    def tell(self, x: Tensor, y: Tensor) -> None:
        self.loop.tell(x, y)

    def levels(self, x: Tensor, y: Tensor) -> Sequence[float | None]:
        return [run.level for run in self.loop.record.runs[-len(y) :]]


def default_gp(X: Tensor, y: Tensor, problem: Problem) -> SingleTaskGP:
    """BoTorch's default model of results ``y`` [n] at ``X`` [n, d], trained."""
    normalise = Normalize(d=problem.d, bounds=problem.bounds)
    model = SingleTaskGP(X, y.unsqueeze(-1), input_transform=normalise)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def levels_under(model: SingleTaskGP, x: Tensor, y: Tensor) -> list[float]:
    """Predictive probabilities of results below ``y`` [q] at ``x`` [q, d]."""
    with torch.no_grad():
        found = model.posterior(x, observation_noise=True)
        score = (y - found.mean[:, 0]) / found.variance[:, 0].sqrt()
    found_levels: list[float] = torch.special.ndtr(score).tolist()
    return found_levels


class BoTorch(Loop):
    """BoTorch's default model, trained anew at every step."""

    def __init__(
        self,
        problem: Problem,
        X: Tensor,
        y: Tensor,
        seed: int,
        acquisition: Callable[[SingleTaskGP, float], AcquisitionFunction],
    ) -> None:
        super().__init__(problem, X, y, seed)
        self.acquisition = acquisition

    def ask(self, q: int = 1) -> Tensor:
        self.model = default_gp(self.X, self.y, self.problem)
        with torch.no_grad():
            best = float(self.model.posterior(self.X).mean.max())
        if q > 1:
            batch = qLogExpectedImprovement(self.model, best_f=best)
            return self.best_of(batch, q)
        return self.best_of(self.acquisition(self.model, best))

    def levels(self, x: Tensor, y: Tensor) -> Sequence[float | None]:
        return levels_under(self.model, x, y)


class Random(Loop):
    """Uniform points, or random rows."""

    def ask(self, q: int = 1) -> Tensor:
        if self.problem.rows is not None:
            rows = self.rows_left(self.problem.rows)
            return rows[torch.randint(len(rows), (1,))]
        lower, upper = self.problem.bounds
        return lower + torch.rand(1, self.problem.d, dtype=torch.float64) * (upper - lower)


class Paper(Loop):
    """The paper's protocol with the points that there are: half train, half calibrate, once.

    At the highest level that so many calibration points back; hyperparameters and calibration are
    kept, and the GP is conditioned on every result.
    """

    def __init__(self, problem: Problem, X: Tensor, y: Tensor, seed: int) -> None:
        super().__init__(problem, X, y, seed)
        half = len(y) // 2
        posterior, _ = train(X[half:], y[half:])
        self.delta = half / (half + 1)
        model = Sharp(levels=self.delta).fit(posterior, X[:half], y[:half])
        self.model = model.condition_on_observations(X[:half], y[:half])

    def ask(self, q: int = 1) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            bound = CalibratedUpperConfidenceBound(self.model, self.delta)
        return self.best_of(bound)

    def tell(self, x: Tensor, y: Tensor) -> None:
        super().tell(x, y)
        self.model = self.model.condition_on_observations(x, y)
