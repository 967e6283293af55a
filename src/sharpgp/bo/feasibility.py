"""Runs that failed: how likely a run succeeds at a point, and acquisitions that mind it."""

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

# Far from all runs success is taken for granted, with the weight of so much of a run.
_BELIEF = 0.05
# Reaches of a run, in units of the space, of one input, and what it counts for within each: what
# failed once fails again next to it, whatever succeeded nearby.
_REACHES = {0.2: 1.0, 0.05: 4.0, 0.0125: 16.0}
# Runs that would have to succeed for a point to be worth asking for: one that fails is lost.
_CAUTION = 3.0


class Feasibility:
    r"""``P(success at x) = (m + sum_i s_i k(x, x_i)) / (m + sum_i k(x, x_i))``, cautiously cubed.

    ``s_i`` is 1 for a run that succeeded and 0 for one that failed, ``k`` a sum of
    squared-exponential kernels of shorter and shorter reach and growing weight, and far from all
    runs success is taken for granted.

    Parameters
    ----------
    X : Tensor [N, D]
        Features of all runs.
    succeeded : Tensor [N]
        Whether each succeeded.

    Examples
    --------
    >>> X = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> chance = Feasibility(X, torch.tensor([True, False]))
    >>> [round(p, 2) for p in chance(torch.tensor([[0.0], [1.0], [9.0]]).double()).tolist()]
    [1.0, 0.0, 1.0]
    """

    def __init__(self, X: Tensor, succeeded: Tensor) -> None:
        self.X = X
        self.succeeded = succeeded.to(X)

    def __call__(self, X: Tensor) -> Tensor:
        """Probability [...] at features ``X`` [..., D]; further features do not count."""
        d = self.X.shape[1]
        squares = (X[..., :d].unsqueeze(-2) - self.X).square().sum(-1) / d
        k = torch.zeros_like(squares)
        for reach, weight in _REACHES.items():
            k = k + weight * torch.exp(-0.5 * squares / reach**2)
        return ((_BELIEF + k @ self.succeeded) / (_BELIEF + k.sum(-1))) ** _CAUTION


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
