"""Sums of named kernels, each with its own lengthscales: smooth and rough parts of a function."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from sharpgp._stored import Several, agree, stored
from sharpgp.gp.kernels.additive import Additive
from sharpgp.gp.kernels.covariance import NOISE, STATIONARY, Named, Stationary, without_names
from sharpgp.gp.kernels.fixed_points import FixedPoints
from sharpgp.gp.kernels.laplace import Laplace
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.ties import Ties

#: The class of every kernel by name.
CLASSES: dict[str, type[Named]] = {
    **dict.fromkeys(STATIONARY, Stationary),
    "additive": Additive,
    "laplace": Laplace,
}


def of_names(names: str, n_features: int, ties: Ties | None) -> Named:
    """The kernel of a name, or the sum of several with a plus between.

    Examples
    --------
    >>> of_names("rbf+laplace", 2, None).n_inverse
    4
    """
    parts = [CLASSES[name](name, n_features, ties) for name in names.split("+")]
    return parts[0] if len(parts) == 1 else Sum(parts)


@stored("Sum", parts=Several(Named), earlier=without_names)
class Sum(Named):
    r"""``k = k_1 + k_2 + ...`` of named kernels of the same features.

    ``theta`` has the inverse lengthscales of every part, in their order, then the variances of
    every part, then the noise variance.

    Parameters
    ----------
    parts : sequence of Named

    Examples
    --------
    >>> from sharpgp.gp.kernels.by_name import make_covariance
    >>> kernel = make_covariance("rbf+matern12", 1)
    >>> theta = torch.tensor([[2.0, 1.0, 3.0, 1.0, 0.1]], dtype=torch.float64)
    >>> X = torch.tensor([[0.0], [0.5]], dtype=torch.float64)
    >>> [round(v, 4) for v in kernel.matrix(theta, X)[0, 0].tolist()]
    [4.0, 2.4261]
    """

    parts: Sequence[Named]

    def __init__(self, parts: Sequence[Named]) -> None:
        vars(self)["parts"] = list(parts)
        kind = "+".join(part.kind for part in self.parts)
        super().__init__(kind, self.parts[0].n_features, self.parts[0].ties)

    def _restored(self) -> None:
        agree("parts", self.kind, "+".join(part.kind for part in self.parts))
        super()._restored()

    @cached_property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """See :class:`Covariance`."""
        found: list[list[str]] = [[], []]
        for k, part in enumerate(self.parts):
            of_part = [f"{name}_{k + 1}" if k else name for name in part.names[:NOISE]]
            found[0] += of_part[: part.n_inverse]
            found[1] += of_part[part.n_inverse :]
        return (*found[0], *found[1], self.parts[0].names[NOISE])

    @property
    def n_inverse(self) -> int:
        return sum(part.n_inverse for part in self.parts)

    @property
    def of_all_features(self) -> tuple[bool, ...]:
        return tuple(one for part in self.parts for one in part.of_all_features)

    @property
    def _places(self) -> list[list[int]]:
        """Which entries of ``theta`` are those of each part, its noise among them."""
        inverse, variance, found = 0, self.n_inverse, []
        for part in self.parts:
            more = part.n_theta - part.n_inverse - 1
            own = [*range(inverse, inverse + part.n_inverse), *range(variance, variance + more)]
            found.append([*own, self.n_theta - 1])
            inverse, variance = inverse + part.n_inverse, variance + more
        return found

    def _of_parts(self, theta: Tensor) -> list[Tensor]:
        return [theta[..., own] for own in self._places]

    def matrix(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return self._summed(theta, lambda part, own: part.matrix(own, X1, X2))

    def blocks(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return self._summed(theta, lambda part, own: part.blocks(own, X1, X2))

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        return self._summed(theta, lambda part, own: part.diag(own, X))

    def _summed(self, theta: Tensor, of_part: Callable[[Named, Tensor], Tensor]) -> Tensor:
        several = zip(self.parts, self._of_parts(theta), strict=True)
        first, *others = (of_part(part, own) for part, own in several)
        for other in others:
            first = first + other
        return first

    def relevance(self, theta: Tensor) -> Tensor:
        """The largest of any part."""
        several = zip(self.parts, self._of_parts(theta), strict=True)
        return torch.stack([part.relevance(own) for part, own in several]).amax(0)

    def fix_points(self, X: Tensor) -> FixedPoints:
        places = [torch.tensor(own, device=X.device) for own in self._places]
        return _SumAt([part.fix_points(X) for part in self.parts], places)

    def reaching(self, Z: Tensor) -> Self:
        return type(self)([part.reaching(Z) for part in self.parts])

    def penalty(self, prior: LengthscalePrior | None, Z: Tensor) -> Callable[[Tensor], Any]:
        """The sum of those of the parts."""
        of_parts, places = [part.penalty(prior, Z) for part in self.parts], self._places
        return lambda log_theta: sum(
            one(log_theta[own]) for one, own in zip(of_parts, places, strict=True)
        )


class _SumAt(FixedPoints):
    """Every part on its own; what the last one's share of a total is, the others leave over."""

    def __init__(self, parts: Sequence[FixedPoints], places: Sequence[Tensor]) -> None:
        *self._others, self._last = zip(parts, places, strict=True)

    def matrix(self, theta: Tensor, out: Tensor) -> None:
        self._n_theta = len(theta)
        part, own = self._last
        part.matrix(theta[own], out)
        for part, own in self._others:
            part.add_to(theta[own], out)

    def contracted(self, inverse: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
        gradient = alpha.new_zeros(self._n_theta)
        for part, own in self._others:
            by_part, share = part.contracted_alone(inverse, alpha)
            gradient.index_add_(0, own, by_part)
            total = total - share
        part, own = self._last
        return gradient.index_add_(0, own, part.contracted(inverse, alpha, total))
