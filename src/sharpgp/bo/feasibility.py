"""Runs that failed: how likely a run succeeds at a point."""

import torch
from torch import Tensor

# Far from all runs success is taken for granted, with the weight of so much of a run.
_BELIEF = 0.05
# Longest reach of a run, in units of the space, of one input.
_REACH = 0.2
# Runs that would have to succeed for a point to be worth asking for: one that fails is lost.
_CAUTION = 3


class Feasibility:
    r"""``P(success at x) = (m + sum_i s_i k(x, x_i)) / (m + sum_i k(x, x_i))``, cautiously cubed.

    ``s_i`` is 1 for a run that succeeded and 0 for one that failed.  ``k`` is a sum of three
    squared-exponential kernels, each of a quarter of the reach and four times the weight of the one
    before: what failed once fails again next to it, whatever succeeded nearby.

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
        k = sum(4**j * torch.exp(-0.5 * squares * (4**j / _REACH) ** 2) for j in range(3))
        return ((_BELIEF + k @ self.succeeded) / (_BELIEF + k.sum(-1))) ** _CAUTION
