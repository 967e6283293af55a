"""The search space: continuous, whole-number and categorical inputs, and how a GP sees them."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from sharpgp._stored import Array, Several, stored
from sharpgp._validation import as_features, as_float
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.ties import Ties

# Share of an input's range by which it may lie beyond a bound: what rounding does.
_ROUNDING = 1e-6


@stored("Space", lower=Array("d"), upper=Array("d"), integer=Several(int), categorical=Several(int))
@dataclass(frozen=True, eq=False)
class Space:
    """A box, some of whose inputs take whole numbers only.

    Searches run in *unit* coordinates: numbers between 0 and 1, categories as their codes.  GPs see
    *features*: numbers between 0 and 1, and for each category an indicator; the indicators of one
    input share a lengthscale.

    Attributes
    ----------
    lower, upper : Tensor [d]
    integer, categorical : tuple of int
        Positions of inputs whose values are whole numbers, and of those whose whole numbers are
        codes without an order.

    Examples
    --------
    >>> space = Space.of([[0.0, 1, 0], [10.0, 4, 2]], integer=[1], categorical=[2])
    >>> space.features(space.to_unit(torch.tensor([[5.0, 4, 1]]).double())).tolist()
    [[0.5, 1.0, 0.0, 1.0, 0.0]]
    >>> space.ties
    (0, 1, 2, 2, 2)
    """

    lower: Tensor
    upper: Tensor
    integer: tuple[int, ...] = ()
    categorical: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, bounds: Any, integer: Sequence[int] = (), categorical: Sequence[int] = ()
    ) -> "Space":
        """From bounds of shape (2, d), checked."""
        box = as_float(bounds, "bounds")
        if box.dim() != 2 or len(box) != 2:
            raise InvalidInputError(
                f"bounds: expected lower and upper ones, shape (2, d), found {tuple(box.shape)}"
            )
        lower, upper = box
        if not bool(torch.isfinite(box).all()) or not bool((lower < upper).all()):
            raise InvalidInputError(
                "bounds: expected finite numbers, each lower bound below its upper one, found "
                f"{box.tolist()}"
            )
        d = len(lower)
        for name, dims in (("integer", integer), ("categorical", categorical)):
            for j in _positions(dims, name):
                if not 0 <= j < d:
                    raise InvalidInputError(f"{name}: expected positions below {d}, found {j}")
                if bool((box[:, j] != box[:, j].round()).any()):
                    raise InvalidInputError(
                        f"bounds: expected whole numbers for input {j}, found {box[:, j].tolist()}"
                    )
        if both := set(integer) & set(categorical):
            raise InvalidInputError(
                f"categorical: expected inputs that are not integer, found {min(both)} in both"
            )
        return cls(lower, upper, tuple(integer), tuple(categorical))

    @property
    def d(self) -> int:
        """Number of inputs."""
        return len(self.lower)

    @property
    def mixed(self) -> bool:
        """Whether any input takes whole numbers only."""
        return bool(self.integer or self.categorical)

    def inputs(self, X: Any) -> Tensor:
        """User's inputs of shape (n, d), or (d,) for one point, as a tensor [n, d] within bounds.

        Examples
        --------
        >>> Space.of([[0.0, 1], [10.0, 4]], integer=[1]).inputs([5.0, 2.5])
        Traceback (most recent call last):
        ...
        sharpgp.exceptions.InvalidInputError: X: expected whole numbers for input 1, found 2.5
        """
        given = as_float(X, "X")
        given = as_features(given.unsqueeze(0) if given.dim() == 1 else given, n_features=self.d)
        within = torch.minimum(torch.maximum(given, self.lower), self.upper)
        rounded = torch.where(self._whole, within.round(), within)
        for found, allowed, expected in (
            (given, within, "numbers between {:g} and {:g}"),
            (within, rounded, "whole numbers"),
        ):
            beyond = (found - allowed).abs() > _ROUNDING * self._range
            if bool(beyond.any()):
                i, j = beyond.nonzero()[0].tolist()
                wanted = expected.format(float(self.lower[j]), float(self.upper[j]))
                raise InvalidInputError(
                    f"X: expected {wanted} for input {j}, found {float(given[i, j]):g}"
                )
        return rounded

    def to_unit(self, X: Tensor) -> Tensor:
        """User's inputs [..., d] in unit coordinates."""
        return torch.where(self._coded, X - self.lower, (X - self.lower) / self._range)

    def from_unit(self, Z: Tensor) -> Tensor:
        """Unit coordinates [..., d] as the user's inputs, whole numbers rounded."""
        X = torch.where(self._coded, Z + self.lower, self.lower + Z * self._range)
        X = torch.where(self._whole, X.round(), X)
        return torch.minimum(torch.maximum(X, self.lower), self.upper)

    @property
    def unit_bounds(self) -> Tensor:
        """Bounds [2, d] of unit coordinates."""
        high = torch.where(self._coded, self._range, 1.0)
        return torch.stack([torch.zeros_like(high), high])

    def steps(self, dims: Sequence[int]) -> dict[int, list[float]]:
        """The values that inputs may take in unit coordinates, as BoTorch's mixed search asks."""
        found = {}
        for j in dims:
            count = round(float(self._range[j]))
            whole = 1 if j in self.categorical else count
            found[j] = [k / whole for k in range(count + 1)]
        return found

    def features(self, Z: Tensor) -> Tensor:
        """Features [..., D] of unit coordinates [..., d]: what a GP sees."""
        if not self.categorical:
            return Z
        parts = []
        for j in range(self.d):
            if j in self.categorical:
                codes = torch.arange(round(float(self._range[j])) + 1).to(Z)
                parts.append((Z[..., j : j + 1].round() == codes).to(Z))
            else:
                parts.append(Z[..., j : j + 1])
        return torch.cat(parts, -1)

    @property
    def ties(self) -> Ties | None:
        """Which features share a lengthscale."""
        if not self.categorical:
            return None
        found: list[int] = []
        for j in range(self.d):
            count = round(float(self._range[j])) + 1 if j in self.categorical else 1
            found += [j] * count
        return tuple(found)

    def sobol(self, n: int, seed: int) -> Tensor:
        """Space-filling unit coordinates [n, d]; every whole number has the same share."""
        box = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, self.d)
        U: Tensor = draw_sobol_samples(box, n=n, q=1, seed=seed).squeeze(1)
        return self.snapped(U)

    def snapped(self, U: Tensor) -> Tensor:
        """Numbers [n, d] in [0, 1] as unit coordinates, by equal shares of whole numbers."""
        U = U.clone()
        for j in (*self.integer, *self.categorical):
            count = round(float(self._range[j]))
            code = (U[:, j] * (count + 1)).floor().clamp(max=count)
            U[:, j] = code if j in self.categorical else code / count
        return U

    @property
    def _range(self) -> Tensor:
        return self.upper - self.lower

    @property
    def _coded(self) -> Tensor:
        return self._marked(self.categorical)

    @property
    def _whole(self) -> Tensor:
        return self._marked((*self.integer, *self.categorical))

    def _marked(self, dims: Sequence[int]) -> Tensor:
        mask = torch.zeros(self.d, dtype=torch.bool)
        mask[list(dims)] = True
        return mask


def _positions(dims: Any, name: str) -> list[int]:
    """Positions of inputs, as they were given."""
    try:
        return [operator.index(j) for j in dims]
    except TypeError:
        raise InvalidInputError(
            f"{name}: expected positions of inputs, such as [0], found {dims!r}"
        ) from None
