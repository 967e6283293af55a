"""A spread without a GP: a weighted sum of parts, monotone in its weights by construction."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.posterior import Posterior


class WeightedSpread(Posterior):
    r"""Any mean, with ``sigma(theta, x)^2 = sum_j theta_j phi_j(x)`` around it.

    The parts ``phi_j >= 0`` are sources of uncertainty: a constant, the distance to the nearest
    training point, the disagreement of an ensemble.  ``sigma`` grows with every weight, so that
    what the paper assumes of a kernel holds here for any parts; all methods that need only held-out
    data accept it, such as :class:`~sharpgp.Sharp` and :class:`~sharpgp.Kuleshov18`.

    Parameters
    ----------
    mean : callable
        From inputs [T, d] to the mean [T].
    parts : callable
        From inputs [T, d] to the nonnegative parts [T, P]; each is scaled by its mean over ``X``,
        and ``theta_R`` weights all alike.
    X : Tensor [n, d]
        Inputs that both were made for, such as those of the training points.
    names : sequence of str, optional
        Names of the parts.

    Examples
    --------
    >>> from sharpgp import Sharp
    >>> X = torch.linspace(-2, 2, 81, dtype=torch.float64)[:, None]
    >>> y = X[:, 0] * torch.cos(37 * X[:, 0])  # the larger x, the wider
    >>> def parts(X):
    ...     return torch.cat([torch.ones_like(X), X.square()], dim=1)
    >>> spread = WeightedSpread(lambda X: 0 * X[:, 0], parts, X)
    >>> calibrated = Sharp(levels=[0.1, 0.9]).fit(spread, X, y)
    >>> lower, upper = calibrated.predict_quantiles(X[[40, 80]], [0.1, 0.9]).T
    >>> bool((upper - lower)[1] > 2 * (upper - lower)[0])
    True
    """

    def __init__(
        self,
        mean: Callable[[Tensor], Tensor],
        parts: Callable[[Tensor], Tensor],
        X: Tensor,
        *,
        names: Sequence[str] | None = None,
    ) -> None:
        self._mean, self._parts = mean, parts
        self._ends = X.amin(0), X.amax(0)
        unit = self._checked(X).mean(0)
        if not bool((unit > 0).all()):
            raise InvalidInputError(
                "parts: expected each to be above 0 at some of the inputs, found one that is 0 at "
                "all of them; leave it out"
            )
        self._unit = unit
        self.theta_R = torch.ones_like(unit)
        self.names = tuple(names or (f"weight_{j}" for j in range(len(unit))))
        # A common factor of all weights is absorbed by beta: the first one is held.
        self.searched = torch.arange(len(unit)) > 0

    @property
    def n_features(self) -> int:
        """See :meth:`Posterior.n_features`."""
        return len(self._ends[0])

    @property
    def n_inverse(self) -> int:
        """See :meth:`Posterior.n_inverse`: none."""
        return 0

    @property
    def n_dense(self) -> int:
        """See :meth:`Posterior.n_dense`: there is no matrix."""
        return 0

    @property
    def device(self) -> torch.device:
        """See :meth:`Posterior.device`."""
        return self.theta_R.device

    @property
    def input_range(self) -> tuple[Tensor, Tensor]:
        """See :meth:`Posterior.input_range`."""
        return self._ends

    def mean(self, X: Tensor) -> Tensor:
        """See :meth:`Posterior.mean`."""
        return self._mean(X)

    def sigma(self, theta: Tensor, X: Tensor) -> Tensor:
        """See :meth:`Posterior.sigma`."""
        return (theta @ (self._checked(X) / self._unit).mT).sqrt()

    def _checked(self, X: Tensor) -> Tensor:
        found = self._parts(X)
        if found.dim() != 2 or len(found) != len(X) or found.shape[1] < 2:
            raise InvalidInputError(
                f"parts: expected shape ({len(X)}, P) with P >= 2, found {tuple(found.shape)}"
            )
        if not bool((found >= 0).all()) or not bool((found.sum(1) > 0).all()):
            raise InvalidInputError(
                "parts: expected numbers that are not negative, one of them above 0 at every "
                "point, found others; add a constant, or take squares"
            )
        return found
