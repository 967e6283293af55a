"""A prior on lengthscales, for training where data say little about them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from sharpgp._stored import stored
from sharpgp.gp.ties import Ties, of_each

#: Training points per hyperparameter below which these fit noise, and the prior counts in full.
LEAST_PER_HYPERPARAMETER = 10
#: From this many on, the likelihood needs no help, and the prior is off (``sharpgp bench evidence
#: few_points``).
ENOUGH_PER_HYPERPARAMETER = 2 * LEAST_PER_HYPERPARAMETER
# Range of a standardised feature that is constant.  One that varies spans at least 2: its
# deviation is 1, and at most half of its range.
_LEAST_RANGE = 2.0


@stored("LengthscalePrior")
@dataclass(frozen=True)
class LengthscalePrior:
    r"""Log-normal prior on the lengthscales of a named kernel.

    With ``d`` features and ``r_j`` the range of feature ``j`` in the training data,
    ``log(l_j / r_j) ~ N(sqrt(2) + log(d) / 2, s^2)``: a feature matters little unless the data say
    otherwise, and the more features, the less each.  Training adds ``weight`` times its log density
    to the log likelihood.

    Parameters
    ----------
    deviation : float
        ``s``; weak by default.
    in_ranges : bool
        ``r_j`` as above; False: the standard deviation of the feature.
    fades : bool
        Whether ``weight`` is set by :meth:`for_size` rather than given.
    weight : float

    References
    ----------
    C. Hvarfner, E. O. Hellsten and L. Nardi, "Vanilla Bayesian optimization performs great in high
    dimensions", ICML 2024; for mean and deviation.

    Examples
    --------
    >>> import torch
    >>> prior = LengthscalePrior()
    >>> [prior.for_size(n, 12).weight for n in (60, 120, 180, 240)]
    [1.0, 1.0, 0.5, 0.0]
    >>> Z = torch.tensor([[-1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    >>> at_its_mode = prior.centre(Z)
    >>> prior.penalty(at_its_mode, at_its_mode).item()
    0.0
    """

    deviation: float = math.sqrt(3.0)
    in_ranges: bool = True
    fades: bool = True
    weight: float = 1.0

    def for_size(self, n_train: int, n_theta: int) -> "LengthscalePrior":
        """The prior for a number of training points and of hyperparameters.

        Its weight is 1 up to :data:`LEAST_PER_HYPERPARAMETER` points per hyperparameter, 0 from
        :data:`ENOUGH_PER_HYPERPARAMETER` on, and linear in between, so that a single point never
        changes the model abruptly.
        """
        if not self.fades:
            return self
        least, enough = LEAST_PER_HYPERPARAMETER, ENOUGH_PER_HYPERPARAMETER
        weight = (enough - n_train / n_theta) / (enough - least)
        return replace(self, weight=min(1.0, max(0.0, weight)))

    def centre(self, Z: Tensor, ties: Ties | None = None) -> Tensor:
        """Mean [d] of the log inverse lengthscales, in the units of inputs ``Z`` [N, d].

        For features that share a lengthscale, the mean of the one with the largest range.
        """
        ranges = of_each(Z.amax(0) - Z.amin(0), ties, "amax")
        mean = math.sqrt(2.0) + 0.5 * math.log(len(ranges))
        if not self.in_ranges:
            return Z.new_full((len(ranges),), -mean)
        return -mean - ranges.clamp_min(_LEAST_RANGE).log()

    def penalty(self, log_inverse: Tensor, centre: Tensor) -> Tensor:
        """Negative log density of log inverse lengthscales [d], up to a constant, weighted."""
        return 0.5 * self.weight * ((log_inverse - centre) / self.deviation).square().sum()


def penalty_of(
    prior: LengthscalePrior | None, Z: Tensor, ties: Ties | None = None
) -> Callable[[Tensor], Tensor | float]:
    """The prior's term in the negative log likelihood, as a function of ``log theta`` [P].

    ``Z`` [N, d] are the training inputs in the units of ``theta``, whose first entries are the
    inverse lengthscales of the ``d`` features, fewer where these share them (``ties``); without a
    prior nothing is added.

    Examples
    --------
    >>> import torch
    >>> Z = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    >>> far = torch.tensor([2.0, 0.0, -2.0], dtype=torch.float64)
    >>> penalty_of(None, Z)(far), penalty_of(LengthscalePrior(), Z)(far) > 3
    (0.0, tensor(True))
    """
    if prior is None or prior.weight == 0.0:
        return lambda log_theta: 0.0
    centre = prior.centre(Z, ties)
    return lambda log_theta: prior.penalty(log_theta[: len(centre)], centre)
