"""The search space: inputs by name or by position, and how a GP sees them."""

import math
import numbers
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from sharpgp._stored import ABSENT, Several, stored
from sharpgp._validation import as_float, nearest
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.ties import Ties

# Share of an input's range by which a number may miss what is allowed: what rounding does.
_ROUNDING = 1e-6
#: Values of one input at most: the search and the file list them.
MAX_VALUES = 10_000


@dataclass(frozen=True)
class Log:
    """Numbers between two positive ends, searched on a logarithmic scale.

    Examples
    --------
    >>> Log(1e-3, 1)
    Log(low=0.001, high=1)
    """

    low: float
    high: float


@stored("Input", name=str, low=float, high=float, log=bool, values=Several(object))
@dataclass(frozen=True)
class Input:
    """One input: all numbers between two ends, or some values, in order if they are numbers.

    What is stored of a point is its *code*: the number itself, or the position of its value.

    Examples
    --------
    >>> Input.of("k", range(2, 9, 2)).code(6), Input.of("s", ["water", "ethanol"]).code("water")
    (2.0, 0.0)
    >>> Input.of("x", [0, 10])
    Traceback (most recent call last):
    ...
    sharpgp.exceptions.InvalidInputError: x: found [0, 10], which may be a range or two values; \
write (0, 10) for all numbers between, or {0, 10} for these two
    """

    name: str
    low: float
    high: float
    log: bool = False
    values: tuple[Any, ...] = ()

    @classmethod
    def of(cls, name: str, given: Any) -> "Input":
        """From ``(low, high)``, :class:`Log`, a range of whole numbers, a list or set of values."""
        if isinstance(given, Log):
            return cls._between(name, given.low, given.high, log=True)
        if isinstance(given, str) or not isinstance(given, Sequence | Set | np.ndarray):
            raise InvalidInputError(
                f"{name}: expected (low, high), Log(low, high), a range or a list of values, found "
                f"{given!r}"
            )
        if len(given) > MAX_VALUES:
            raise InvalidInputError(
                f"{name}: expected at most {MAX_VALUES} values, found {len(given)}; give "
                "(low, high) and round"
            )
        listed = sorted(given, key=repr) if isinstance(given, Set) else given
        values = [v.item() if isinstance(v, np.generic) else v for v in listed]
        ordered = all(_is_number(value) for value in values)
        if ordered and len(values) == 2 and not isinstance(given, range):
            low, high = values
            if isinstance(given, list):
                raise InvalidInputError(
                    f"{name}: found {given}, which may be a range or two values; write "
                    f"({low}, {high}) for all numbers between, or {{{low}, {high}}} for these two"
                )
            if not isinstance(given, Set):
                return cls._between(name, low, high)
        known = all(v is None or isinstance(v, str | bool | int | float) for v in values)
        if len(values) < 2 or len(set(map(repr, values))) < len(values) or not known:
            raise InvalidInputError(
                f"{name}: expected two or more different values, numbers or text, found {given!r}"
            )
        if ordered and not all(map(math.isfinite, values)):
            raise InvalidInputError(f"{name}: expected finite numbers, found {given!r}")
        values = sorted(values) if ordered else values
        return cls(name, 0.0, len(values) - 1.0, values=tuple(values))

    @classmethod
    def _between(cls, name: str, low: Any, high: Any, *, log: bool = False) -> "Input":
        right = _is_number(low) and _is_number(high) and math.isfinite(high - low) and low < high
        if not right or (log and low <= 0):
            raise InvalidInputError(
                f"{name}: expected {'0 < ' if log else ''}low < high, found ({low}, {high}); "
                "arrays have one row (low, high) for each input"
            )
        return cls(name, float(low), float(high), log)

    @property
    def ordered(self) -> bool:
        """Whether it takes numbers."""
        return all(_is_number(value) for value in self.values)

    def code(self, value: Any) -> float:
        """The code of a user's value, checked."""
        value = value.item() if isinstance(value, np.generic | Tensor) else value
        if not self.values:
            slack = _ROUNDING * (self.high - self.low)
            if _is_number(value) and self.low - slack <= value <= self.high + slack:
                return min(max(float(value), self.low), self.high)
            wanted = f"a number between {self.low:g} and {self.high:g}"
            raise InvalidInputError(f"{self.name}: expected {wanted}, found {value!r}")
        if value in self.values:
            return float(self.values.index(value))
        if self.ordered and _is_number(value) and math.isfinite(value):
            near = min(range(len(self.values)), key=lambda k: abs(self.values[k] - value))
            slack = _ROUNDING * (self.values[-1] - self.values[0])
            if abs(self.values[near] - value) <= slack:
                return float(near)
        shown = ", ".join(map(repr, self.values[:6])) + (", ..." if len(self.values) > 6 else "")
        hint = "" if self.ordered else nearest(value, map(str, self.values))
        raise InvalidInputError(f"{self.name}: expected one of {shown}, found {value!r}{hint}")

    def value(self, code: float) -> Any:
        """The user's value for a code."""
        return self.values[round(code)] if self.values else code


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


@stored(
    "Space",
    inputs=Several(Input),
    named=bool,
    transient=dict.fromkeys(("_ends", "_log", "whole", "categorical", "unit_bounds"), ABSENT),
)
@dataclass
class Space:
    """Inputs, by name (points are dicts) or by position (points are arrays).

    Searches run in *unit* coordinates: numbers between 0 and 1, and categories as their codes.  GPs
    see *features*: numbers between 0 and 1, and an indicator for each category; the indicators of
    one input share a lengthscale.

    Examples
    --------
    >>> space = Space.of({"x": (0, 10), "k": range(1, 5), "s": ["water", "ethanol", "none"]})
    >>> coded = space.codes({"x": 5.0, "k": 4, "s": "ethanol"})
    >>> space.features(space.to_unit(coded)).tolist()
    [[0.5, 1.0, 0.0, 1.0, 0.0]]
    >>> space.ties, space.points(coded)
    ((0, 1, 2, 2, 2), [{'x': 5.0, 'k': 4, 's': 'ethanol'}])
    """

    inputs: tuple[Input, ...]
    named: bool

    @classmethod
    def of(cls, inputs: Any) -> "Space":
        """From a mapping of names to inputs, or an array (d, 2) of lower and upper bounds."""
        if isinstance(inputs, Mapping):
            found = tuple(Input.of(str(name), given) for name, given in inputs.items())
            if not found:
                raise InvalidInputError('inputs: expected at least one, such as {"x": (0, 10)}')
            return cls(found, named=True)
        box = as_float(inputs, "inputs")
        if box.dim() != 2 or box.shape[1] != 2 or not len(box):
            hint = "; transpose it" if box.dim() == 2 and len(box) == 2 else ""
            raise InvalidInputError(
                "inputs: expected one row (low, high) for each input, shape (d, 2), or a dict of "
                f"names, found shape {tuple(box.shape)}{hint}"
            )
        rows = [Input.of(f"input {j}", tuple(row)) for j, row in enumerate(box.tolist())]
        return cls(tuple(rows), named=False)

    @property
    def d(self) -> int:
        """Number of inputs."""
        return len(self.inputs)

    # -------------------------------------------------------------- the user's points and codes

    def codes(self, X: Any) -> Tensor:
        """Codes [n, d] of the user's points, checked.

        Points are a dict, a list of dicts or a data frame, whose other columns do not count; where
        inputs have no names, an array of shape (n, d), or (d,) for one point.
        """
        rows = [
            [one.code(value) for one, value in zip(self.inputs, row, strict=True)]
            for row in self._rows(X)
        ]
        return torch.tensor(rows, dtype=torch.float64).reshape(-1, self.d)

    def _rows(self, X: Any) -> list[Sequence[Any]]:
        if not self.named:
            given = np.asarray(X.detach().cpu() if isinstance(X, Tensor) else X)
            if given.ndim == 1:
                given = given[None]
            if given.ndim != 2 or given.shape[1] != self.d:
                raise InvalidInputError(
                    f"X: expected points of {self.d} input(s), found shape {given.shape}"
                )
            return list(given.tolist())
        names = [one.name for one in self.inputs]
        if hasattr(X, "columns"):
            tables = [{name: X[name] for name in X.columns}]
        else:
            tables = [X] if isinstance(X, Mapping) else X
        if not isinstance(tables, Sequence) or not all(isinstance(one, Mapping) for one in tables):
            raise InvalidInputError(
                f"X: expected a dict, a list of dicts or a data frame of {', '.join(names)}, found "
                f"{type(X).__name__}"
            )
        for table in tables:
            for name in names:
                if name not in table:
                    raise InvalidInputError(
                        f"X: expected a value of {name!r}, found {', '.join(map(str, table))}"
                    )
        if hasattr(X, "columns"):
            return list(zip(*(np.asarray(tables[0][name]).tolist() for name in names), strict=True))
        return [[table[name] for name in names] for table in tables]

    def points(self, coded: Tensor) -> Any:
        """The user's points for codes [n, d]: a list of dicts, or an array (n, d)."""
        if not self.named:
            return coded.numpy().copy()
        return [
            {one.name: one.value(code) for one, code in zip(self.inputs, row, strict=True)}
            for row in coded.tolist()
        ]

    # -------------------------------------------------------------- unit coordinates and features

    @cached_property
    def _ends(self) -> Tensor:
        """Lower and upper ends [2, d] of codes, logarithms where they are searched."""
        ends = [
            [math.log(one.low), math.log(one.high)] if one.log else [one.low, one.high]
            for one in self.inputs
        ]
        return torch.tensor(ends, dtype=torch.float64).mT

    @cached_property
    def _log(self) -> Tensor:
        return torch.tensor([one.log for one in self.inputs])

    @cached_property
    def whole(self) -> Tensor:
        """Mask [d] of inputs that take some values only."""
        return torch.tensor([bool(one.values) for one in self.inputs])

    @cached_property
    def categorical(self) -> tuple[int, ...]:
        """Positions of inputs whose values have no order."""
        return tuple(j for j, one in enumerate(self.inputs) if not one.ordered)

    @cached_property
    def unit_bounds(self) -> Tensor:
        """Bounds [2, d] of unit coordinates."""
        high = torch.ones(self.d, dtype=torch.float64)
        for j in self.categorical:
            high[j] = self.inputs[j].high
        return torch.stack([torch.zeros_like(high), high])

    def to_unit(self, coded: Tensor) -> Tensor:
        """Codes [..., d] in unit coordinates."""
        low, high = self._ends
        scaled = torch.where(self._log, coded.clamp_min(1e-300).log(), coded)
        return (scaled - low) / (high - low) * self.unit_bounds[1]

    def from_unit(self, Z: Tensor) -> Tensor:
        """Unit coordinates [..., d] as codes, those of values rounded."""
        low, high = self._ends
        scaled = low + Z / self.unit_bounds[1] * (high - low)
        coded = torch.where(
            self.whole, scaled.round(), torch.where(self._log, scaled.exp(), scaled)
        )
        bounds = torch.tensor([[one.low, one.high] for one in self.inputs], dtype=torch.float64).mT
        return torch.minimum(torch.maximum(coded, bounds[0]), bounds[1])

    def steps(self, *, categorical: bool) -> dict[int, list[float]]:
        """The unit coordinates that inputs of values may take, as BoTorch's mixed search asks."""
        found = {}
        for j, one in enumerate(self.inputs):
            if one.values and (j in self.categorical) == categorical:
                last = len(one.values) - 1
                found[j] = [k / (1 if categorical else last) for k in range(last + 1)]
        return found

    def features(self, Z: Tensor) -> Tensor:
        """Features [..., D] of unit coordinates [..., d]: what a GP sees."""
        if not self.categorical:
            return Z
        parts = []
        for j in range(self.d):
            part = Z[..., j : j + 1]
            if j in self.categorical:
                part = (part.round() == torch.arange(len(self.inputs[j].values)).to(Z)).to(Z)
            parts.append(part)
        return torch.cat(parts, -1)

    @property
    def ties(self) -> Ties | None:
        """Which features share a lengthscale."""
        if not self.categorical:
            return None
        counts = [len(one.values) if j in self.categorical else 1 for j, one in self._numbered]
        return tuple(j for j, count in enumerate(counts) for _ in range(count))

    @property
    def _numbered(self) -> list[tuple[int, Input]]:
        return list(enumerate(self.inputs))

    def sobol(self, n: int, seed: int) -> Tensor:
        """Space-filling unit coordinates [n, d]; every value has the same share."""
        box = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, self.d)
        U: Tensor = draw_sobol_samples(box, n=n, q=1, seed=seed).squeeze(1)
        return self.snapped(U)

    def snapped(self, U: Tensor) -> Tensor:
        """Numbers [n, d] in [0, 1] as unit coordinates, by equal shares of values."""
        U = U.clone()
        for j, one in self._numbered:
            if one.values:
                last = len(one.values) - 1
                code = (U[:, j] * (last + 1)).floor().clamp(max=last)
                U[:, j] = code if j in self.categorical else code / last
        return U
