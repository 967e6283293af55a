"""Optimisation in a trust region around the best point, with BoTorch's default model."""

from collections.abc import Sequence

import torch
from botorch.generation import MaxPosteriorSampling
from botorch.models import SingleTaskGP
from torch import Tensor
from torch.quasirandom import SobolEngine

from sharpgp_benchmarks.optimisation.loops import Loop, default_gp, levels_under
from sharpgp_benchmarks.optimisation.problems import Problem

#: Side of the region, relative to the whole space: at first, at most, and where it starts afresh.
FIRST, LARGEST, SMALLEST = 0.8, 1.6, 0.5**7
#: Successes in a row that double the side.
SUCCESSES = 3
#: What a result has to gain on the best one to be a success, relative to it.
_GAIN = 1e-3
#: Candidates for each input, and at most.
_CANDIDATES, _MOST = 100, 5000
#: Inputs of a candidate that differ from those of the best point, on average, where there are more.
_CHANGED = 20.0


class TrustRegion(Loop):
    """TuRBO-1: Thompson sampling in a box around the best point that grows and shrinks.

    Its sides are in the ratio of the lengthscales.  Successes in a row double it; as many failures
    as there are inputs, at least four, halve it; when it has become too small, the search starts
    afresh from a new design, with a model that knows nothing of the old one.

    References
    ----------
    D. Eriksson, M. Pearce, J. Gardner, R. Turner and M. Poloczek, "Scalable Global Optimization via
    Local Bayesian Optimization", NeurIPS 2019.
    """

    def __init__(self, problem: Problem, X: Tensor, y: Tensor, seed: int) -> None:
        super().__init__(problem, X, y, seed)
        self.model: SingleTaskGP | None = None
        self.generator = torch.Generator().manual_seed(seed)
        self._start_afresh(forget=0)

    def _start_afresh(self, forget: int) -> None:
        """A region of the first size, and a design, of which the results so far may be part."""
        self.forgotten, self.side = forget, FIRST
        self.successes = self.failures = 0

    def ask(self, q: int = 1) -> Tensor:
        X, y = self.X[self.forgotten :], self.y[self.forgotten :]
        if len(y) < self.problem.design_size:
            self.model = None
            return self._of_design()
        self.model = default_gp(X, y, self.problem)
        centre = X[int(y.argmax())]
        candidates = self._candidates(centre, self._box(centre))
        with torch.no_grad():
            return MaxPosteriorSampling(self.model, replacement=False)(candidates)

    def levels(self, x: Tensor, y: Tensor) -> Sequence[float | None]:
        return [None] * len(y) if self.model is None else levels_under(self.model, x, y)

    def tell(self, x: Tensor, y: Tensor) -> None:
        if self.model is not None:
            best = float(self.y[self.forgotten :].max())
            better = float(y) > best + _GAIN * abs(best)
            self.successes = self.successes + 1 if better else 0
            self.failures = 0 if better else self.failures + 1
        super().tell(x, y)
        if self.successes == SUCCESSES:
            self.side, self.successes = min(2.0 * self.side, LARGEST), 0
        elif self.failures == max(4, self.problem.d):
            self.side, self.failures = self.side / 2.0, 0
        if self.side < SMALLEST:
            self._start_afresh(forget=len(self.y))

    def _of_design(self) -> Tensor:
        """A random point [1, d] that was not run yet."""
        if self.problem.rows is not None:
            rows = self.rows_left(self.problem.rows)
            return rows[torch.randint(len(rows), (1,), generator=self.generator)]
        return self.problem.design(self.generator)[:1]

    def _box(self, centre: Tensor) -> Tensor:
        """Lower and upper bounds [2, d] of the region."""
        assert self.model is not None
        lengths = self.model.covar_module.lengthscale.detach().reshape(-1)
        sides = self.side * lengths / lengths.log().mean().exp()
        lower, upper = self.problem.bounds
        half = 0.5 * sides * (upper - lower)
        return torch.stack(
            [torch.maximum(centre - half, lower), torch.minimum(centre + half, upper)]
        )

    def _candidates(self, centre: Tensor, box: Tensor) -> Tensor:
        """Points [m, d] of the region: the rows in it, or a space-filling set."""
        d, rows = self.problem.d, self.problem.rows
        count = min(_CANDIDATES * d, _MOST)
        if rows is not None:
            left = self.rows_left(rows)
            inside = left[((left >= box[0]) & (left <= box[1])).all(1)]
            if len(inside):
                order = torch.randperm(len(inside), generator=self.generator)
                return inside[order[:count]]
            lower, upper = self.problem.bounds
            distance = ((left - centre) / (upper - lower)).square().sum(1)
            return left[[int(distance.argmin())]]
        seed = int(torch.randint(2**31, (1,), generator=self.generator))
        unit = SobolEngine(d, scramble=True, seed=seed).draw(count, dtype=torch.float64)
        points = box[0] + unit * (box[1] - box[0])
        changed = torch.rand(count, d, generator=self.generator) < _CHANGED / d
        # One input at least, so that no candidate is the best point itself.
        changed[torch.arange(count), torch.randint(d, (count,), generator=self.generator)] = True
        return torch.where(changed, points, centre)
