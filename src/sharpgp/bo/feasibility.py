"""Runs that failed: how likely a run succeeds at a point, and acquisitions that mind it."""

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

# What a run is believed to do far from all runs: so many successes, and none that failed.
_BELIEF = 1.0
# Reach of a run, in lengthscales of the GP.
_REACH = 0.5


class Feasibility:
    r"""``P(success at x) = (m + sum_i s_i k(x, x_i)) / (m + sum_i k(x, x_i))``.

    ``s_i`` is 1 for a run that succeeded and 0 for one that failed, ``k`` a squared-exponential
    kernel, and far from all runs success is taken for granted.

    Parameters
    ----------
    X : Tensor [N, D]
        Features of all runs.
    succeeded : Tensor [N]
        Whether each succeeded.
    inverse : Tensor [D]
        Inverse lengthscales of the features.

    Examples
    --------
    >>> X = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> chance = Feasibility(X, torch.tensor([True, False]), torch.tensor([2.0]).double())
    >>> [round(p, 2) for p in chance(torch.tensor([[0.0], [1.0], [9.0]]).double()).tolist()]
    [1.0, 0.5, 1.0]
    """

    def __init__(self, X: Tensor, succeeded: Tensor, inverse: Tensor) -> None:
        self.scale = inverse / _REACH
        self.X = X * self.scale
        self.succeeded = succeeded.to(X)

    def __call__(self, X: Tensor) -> Tensor:
        """Probability [...] at features ``X`` [..., D]; further features do not count."""
        squares = (X[..., : len(self.scale)] * self.scale).unsqueeze(-2) - self.X
        k = torch.exp(-0.5 * squares.square().sum(-1))
        return (_BELIEF + k @ self.succeeded) / (_BELIEF + k.sum(-1))


class MindingFailures(AcquisitionFunction):
    """An acquisition function, less where runs are likely to fail.

    A logarithm gets ``log P(success)`` added, as the expected improvement of a run that may fail;
    any other value falls towards ``floor`` by the share of failures.

    Parameters
    ----------
    inner : AcquisitionFunction
    feasibility : Feasibility
    floor : float, optional
        None where values are logarithms.
    """

    def __init__(
        self, inner: AcquisitionFunction, feasibility: Feasibility, floor: float | None
    ) -> None:
        super().__init__(model=inner.model)
        self.inner, self.feasibility, self.floor = inner, feasibility, floor

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Values at ``X`` [..., 1, D]."""
        value: Tensor = self.inner(X)
        chance = self.feasibility(X.squeeze(-2))
        if self.floor is None:
            return value + chance.log()
        return self.floor + (value - self.floor) * chance
