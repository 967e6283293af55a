"""A kernel for observations whose noise variance is known."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from sharpgp._forwarded import forwarded
from sharpgp._stored import stored
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.dense import add_each_to_diagonal
from sharpgp.gp.directions import Directions
from sharpgp.gp.kernels.covariance import NOISE, Named
from sharpgp.gp.kernels.fixed_points import FixedPoints
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.ties import Ties


@stored("KnownNoise", base=Named, transient={"names": None})
class KnownNoise(Named):
    r"""``k(x, x') + v(x) [x is x']``, where the last feature of ``x`` is the variance ``v``.

    Observations carry their noise with them: through splits, refits and leave-one-out, and to
    points to predict, whose ``v`` is that of the future observation.  The noise variance in
    ``theta`` is the noise beyond ``v``.  In units of the target's variance.

    Parameters
    ----------
    base : Named
        The kernel of all features but the last.

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> kernel = KnownNoise(Stationary("rbf", 1))
    >>> theta = torch.tensor([[1.0, 3.0, 0.1]], dtype=torch.float64)
    >>> X = torch.tensor([[0.0, 0.5], [9.0, 0.25]], dtype=torch.float64)
    >>> kernel.matrix(theta, X)[0].diagonal().tolist(), kernel.diag(theta, X).tolist()
    ([3.5, 3.25], [[3.5, 3.25]])
    """

    known_noise: ClassVar[bool] = True

    def __init__(self, base: Named) -> None:
        self.base = base
        self.names = base.names

    def _names(self) -> tuple[str, ...]:
        return self.base.names

    def _restored(self) -> None:
        self.names = self.base.names

    @property
    def kind(self) -> str:  # type: ignore[override]
        """Name of the kernel."""
        return self.base.kind

    @property
    def n_features(self) -> int:  # type: ignore[override]
        """Number of features, of which the last is the variance."""
        return self.base.n_features + 1

    @property
    def ties(self) -> Ties | None:  # type: ignore[override]
        """See :class:`Covariance`; the variance has no lengthscale to share."""
        return None if self.base.ties is None else (*self.base.ties, self.base.n_lengthscales)

    @property
    def sharing(self) -> Ties | Directions | None:
        shared = self.base.sharing
        return shared.with_feature() if isinstance(shared, Directions) else self.ties

    @property
    def n_lengthscales(self) -> int:
        """The noise variance has no lengthscale."""
        return self.base.n_lengthscales

    n_inverse = forwarded("base.n_inverse")
    of_all_features = forwarded("base.of_all_features")

    def units(self, X: Tensor, y_units: Affine) -> Affine:
        """Variances are in units of the target's variance."""
        features = self.base.units(X[:, :-1], y_units)
        square = y_units.scale.square().reshape(1)
        shift = torch.cat([features.shift, torch.zeros_like(square)])
        return Affine(shift, torch.cat([features.scale, square]))

    def reaching(self, Z: Tensor) -> "KnownNoise":
        base = self.base.reaching(Z[:, :-1])
        assert isinstance(base, Named)
        return self if base is self.base else KnownNoise(base)

    def penalty(self, prior: LengthscalePrior | None, Z: Tensor) -> Callable[[Tensor], Any]:
        return self.base.penalty(prior, Z[:, :-1])

    def matrix(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        if X2 is not None:
            return self.base.matrix(theta, X1[:, :-1], X2[:, :-1])
        return add_each_to_diagonal(self.base.matrix(theta, X1[:, :-1]), X1[:, -1])

    def blocks(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        if X2 is not None:
            return self.base.blocks(theta, X1[..., :-1], X2[..., :-1])
        return add_each_to_diagonal(self.base.blocks(theta, X1[..., :-1]), X1[..., -1])

    def relevance(self, theta: Tensor) -> Tensor:
        """A point's own noise does not move it."""
        return torch.cat([self.base.relevance(theta), theta.new_zeros(1)])

    def fix_points(self, X: Tensor) -> FixedPoints:
        return _WithNoise(self.base.fix_points(X[:, :-1]), X[:, -1])

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        return self.base.diag(theta, X[:, :-1]) + X[:, -1]


@stored("Weighted", base=Named, transient={"names": None})
class Weighted(KnownNoise):
    r"""``k(x, x') + s (r(x) - 1) [x is x']`` with ``s``, the noise in ``theta``: ``s r(x)`` in all.

    The last feature of ``x`` is ``log r = -log w`` with the weight ``w`` of an observation: its
    likelihood to the power of ``w`` is, up to a factor without the function, that with ``1/w``
    times the noise.  Points to predict have the usual weight, 1.

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> kernel = Weighted(Stationary("rbf", 1))
    >>> theta = torch.tensor([[1.0, 3.0, 0.1]], dtype=torch.float64)
    >>> X = torch.tensor([[0.0, 0.0], [9.0, 2.0]], dtype=torch.float64).log1p()
    >>> [round(v, 9) for v in kernel.matrix(theta, X)[0].diagonal().tolist()]
    [3.0, 3.2]
    """

    known_noise: ClassVar[bool] = False
    weighted: ClassVar[bool] = True

    def relative_noise(self, X: Tensor) -> Tensor:
        return X[:, -1].exp()

    def units(self, X: Tensor, y_units: Affine) -> Affine:
        """Weights stay as they are."""
        found = self.base.units(X[:, :-1], y_units)
        one = torch.ones_like(found.scale[:1])
        return Affine(torch.cat([found.shift, 0.0 * one]), torch.cat([found.scale, one]))

    def matrix(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        if X2 is not None:
            return super().matrix(theta, X1, X2)
        more = theta[:, NOISE, None] * (self.relative_noise(X1) - 1.0)
        return add_each_to_diagonal(self.base.matrix(theta, X1[:, :-1]), more)

    def reaching(self, Z: Tensor) -> "Weighted":
        found = super().reaching(Z)
        return self if found is self else Weighted(found.base)

    def blocks(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        """What asks for them knows one noise for all rows."""
        raise InvalidInputError("sample_weight: expected an exact GP, found one of neighbours")

    def fix_points(self, X: Tensor) -> FixedPoints:
        return _WithWeights(self.base.fix_points(X[:, :-1]), self.relative_noise(X) - 1.0)

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        return self.base.diag(theta, X[:, :-1])


class _WithWeights(FixedPoints):
    """A kernel on fixed points whose noise is larger than usual by ``more`` [N] times it."""

    def __init__(self, base: FixedPoints, more: Tensor) -> None:
        self._base, self._more = base, more

    def matrix(self, theta: Tensor, out: Tensor) -> None:
        self._base.matrix(theta, out)
        self._noise = theta[NOISE]
        out.diagonal().add_(self._noise * self._more)

    def contracted(self, inverse: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
        by_noise = 0.5 * (alpha.square() - inverse.diagonal()) @ self._more
        gradient = self._base.contracted(inverse, alpha, total - self._noise * by_noise)
        gradient[NOISE] += by_noise
        return gradient


class _WithNoise(FixedPoints):
    """A kernel on fixed points with noise of known variances [N]."""

    def __init__(self, base: FixedPoints, variances: Tensor) -> None:
        self._base, self._variances = base, variances

    def matrix(self, theta: Tensor, out: Tensor) -> None:
        self._base.matrix(theta, out)
        out.diagonal().add_(self._variances)

    def contracted(self, inverse: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
        known = 0.5 * (alpha.square() - inverse.diagonal()) @ self._variances
        return self._base.contracted(inverse, alpha, total - known)
