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

from sharpgp._stored import ABSENT, stored
from sharpgp._validation import nearest
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.ties import Ties

# Share of an input's range by which a number may miss what is allowed: what rounding does.
_ROUNDING = 1e-6
#: Values of one input at most: the search and the file list them.
MAX_VALUES = 10_000


@dataclass(frozen=True)
class Log:
    """Numbers between two positive ends, searched on a logarithmic scale."""

    low: float
    high: float


@stored("Input")
@dataclass(frozen=True)
class Input:
    """One input: all numbers between two ends, or some values, in order if they are numbers.

    What is stored of a point is its *code*: the number itself, or the position of its value.
    """

    name: str
    low: float
    high: float
    log: bool = False
    values: tuple[Any, ...] = ()

    @classmethod
    def of(cls, name: str, given: Any) -> "Input":
        """From ``(low, high)`` or ``(low, high, step)``, :class:`Log`, a range, a list or set."""
        log = isinstance(given, Log)
        if log:
            given = (given.low, given.high)
        elif hasattr(given, "to_list"):  # a column of pandas or polars
            given = given.to_list()
        elif isinstance(given, Set):
            given = sorted(given, key=repr)
        elif isinstance(given, list) and len(given) == 2 and all(map(_is_number, given)):
            low, high = given
            raise InvalidInputError(
                f"{name}: found {given}, which may be a range or two values; write "
                f"({low}, {high}) for all numbers between, or {{{low}, {high}}} for these two"
            )
        if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
            raise InvalidInputError(
                f"{name}: expected (low, high), Log(low, high), a range or a list of values, found "
                f"{given!r}"
            )
        if len(given) > MAX_VALUES:
            raise InvalidInputError(
                f"{name}: expected at most {MAX_VALUES} values, found {len(given)}; give "
                "(low, high) and round"
            )
        values = [v.item() if isinstance(v, np.generic) else v for v in given]
        ordered = all(map(_is_number, values))
        if ordered and len(values) == 3 and isinstance(given, tuple):
            values = _by_steps(name, *values)
        elif ordered and len(values) == 2 and isinstance(given, tuple | np.ndarray):
            low, high = map(float, values)
            if not (math.isfinite(high - low) and low < high and (low > 0 or not log)):
                raise InvalidInputError(
                    f"{name}: expected {'0 < ' if log else ''}low < high, both finite, found "
                    f"({low}, {high})"
                )
            return cls(name, low, high, log)
        known = all(v is None or isinstance(v, str | bool | int | float) for v in values)
        wrong = not known or (ordered and not all(map(math.isfinite, values)))
        if wrong or len(values) < 2 or len(set(map(repr, values))) < len(values):
            raise InvalidInputError(
                f"{name}: expected two or more different values, numbers or text, found {given!r}"
            )
        if isinstance(given, tuple) and list(map(_is_number, values)) == [True, True, False]:
            raise InvalidInputError(
                f"{name}: found {given}, which may be a scale or values; write (low, high) or "
                "Log(low, high) for all numbers between, or a list for values"
            )
        return cls(
            name, 0.0, len(values) - 1.0, values=tuple(sorted(values) if ordered else values)
        )

    @property
    def categories(self) -> int:
        """Number of values that have no order; 0 of numbers."""
        return 0 if all(map(_is_number, self.values)) else len(self.values)

    @property
    def plain_scale(self) -> tuple[float, float] | None:
        """Value and rise of the value from unit coordinate 0 to 1; None if it rises unevenly."""
        if self.log or self.categories:
            return None
        first, last = (self.values[0], self.values[-1]) if self.values else (self.low, self.high)
        even = np.linspace(first, last, len(self.values))
        if self.values and not np.allclose(even, self.values, rtol=0, atol=1e-9 * (last - first)):
            return None
        return float(first), float(last - first)

    @property
    def has_zero(self) -> bool:
        """Whether it may be 0."""
        return 0 in self.values if self.values else self.low <= 0 <= self.high

    @property
    def shown(self) -> str:
        """Its range or choices, for people."""
        if not self.values:
            return f"{self.low:g} to {self.high:g}" + " (log)" * self.log
        listed = ", ".join(f"{v:g}" if _is_number(v) else str(v) for v in self.values)
        if self.categories or len(self.values) < 4 or self.plain_scale is None:
            return listed if len(listed) <= 60 else f"{len(self.values)} values"
        first, second, *_, last = self.values
        return f"{first:g} to {last:g} by {round(second - first, 12):g}"

    def code(self, value: Any) -> float:
        """The code of a user's value, checked."""
        value = value.item() if isinstance(value, np.generic | Tensor) else value
        number = _is_number(value) and math.isfinite(value)
        if not self.values:
            slack = _ROUNDING * (self.high - self.low)
            if number and self.low - slack <= value <= self.high + slack:
                return min(max(float(value), self.low), self.high)
            raise InvalidInputError(
                f"{self.name}: expected a number between {self.low:g} and {self.high:g}, "
                f"found {value!r}"
            )
        if value in self.values:
            return float(self.values.index(value))
        if number and not self.categories:
            distance = [abs(one - value) for one in self.values]
            if min(distance) <= _ROUNDING * (self.values[-1] - self.values[0]):
                return float(distance.index(min(distance)))
        shown = ", ".join(map(repr, self.values[:6])) + (", ..." if len(self.values) > 6 else "")
        hint = nearest(value, map(str, self.values))
        raise InvalidInputError(f"{self.name}: expected one of {shown}, found {value!r}{hint}")

    def to_unit(self, code: Tensor) -> Tensor:
        """Codes as unit coordinates: categories stay, numbers go to [0, 1]."""
        if self.categories:
            return code
        if self.log:
            return (code / self.low).log() / math.log(self.high / self.low)
        return (code - self.low) / (self.high - self.low)

    def from_unit(self, z: Tensor) -> Tensor:
        """Unit coordinates as codes, those of values rounded."""
        if self.log:
            code = self.low * (z * math.log(self.high / self.low)).exp()
        else:
            code = z if self.categories else self.low + z * (self.high - self.low)
        return (code.round() if self.values else code).clamp(self.low, self.high)


def _by_steps(name: str, low: Any, high: Any, step: Any) -> list[Any]:
    """Values from ``low`` by ``step``, none above ``high``."""
    if not (math.isfinite(high - low) and low < high and 0 < step <= high - low):
        raise InvalidInputError(
            f"{name}: expected (low, high, step) with a step of at most high - low, found "
            f"({low:g}, {high:g}, {step:g}); write [{low:g}, {high:g}, {step:g}] for three values"
        )
    count = math.floor((high - low) / step * (1 + 1e-12)) + 1
    if count > MAX_VALUES:
        raise InvalidInputError(
            f"{name}: expected at most {MAX_VALUES} values, found {count}; write ({low:g}, "
            f"{high:g}) for all numbers between"
        )
    whole = all(isinstance(one, int) for one in (low, high, step))
    return [low + k * step if whole else float(f"{low + k * step:.12g}") for k in range(count)]


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


@stored("Space", transient=dict.fromkeys(("whole", "categories", "ranges"), ABSENT))
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
        """From a mapping of names to inputs, an array (d, 2) of bounds, or SciPy's ``Bounds``."""
        if hasattr(inputs, "lb"):
            inputs = np.column_stack([inputs.lb, inputs.ub])
        if isinstance(inputs, Mapping) and inputs and all(isinstance(one, str) for one in inputs):
            return cls(tuple(Input.of(name, one) for name, one in inputs.items()), named=True)
        try:
            box = np.asarray(inputs, dtype=float)
        except (TypeError, ValueError):
            box = np.empty(0)
        if box.ndim != 2 or box.shape[1] != 2 or not (box[:, 0] < box[:, 1]).all():
            former = box.ndim == 2 and len(box) == 2 and bool((box[0] < box[1]).all())
            hint = ", all lower and then all upper bounds: transpose it" * former
            raise InvalidInputError(
                'inputs: expected names, such as {"x": (0, 10)}, or one row (low, high) for each '
                f"input, found {' '.join(str(inputs).split())[:80]}{hint}"
            )
        rows = [Input.of(f"input {j}", tuple(row)) for j, row in enumerate(box.tolist())]
        return cls(tuple(rows), named=False)

    @property
    def d(self) -> int:
        """Number of inputs."""
        return len(self.inputs)

    @cached_property
    def whole(self) -> Tensor:
        """Mask [d] of inputs that take some values only."""
        return torch.tensor([bool(one.values) for one in self.inputs])

    @cached_property
    def categories(self) -> tuple[int, ...]:
        """Number of categories of each input; 0 of numbers."""
        return tuple(one.categories for one in self.inputs)

    def codes(self, X: Any) -> Tensor:
        """Codes [n, d] of the user's points, checked.

        Points are a dict, a list of dicts or a data frame, whose other columns do not count; where
        inputs have no names, an array of shape (n, d), or (d,) for one point.
        """
        rows: Any
        if self.named:
            rows = self._rows(X)
        else:
            given = np.asarray(X.detach().cpu() if isinstance(X, Tensor) else X)
            rows = given[None] if given.ndim == 1 else given
            if rows.ndim != 2 or rows.shape[1] != self.d:
                found = f"shape {given.shape}" if given.ndim else f"a {type(X).__name__}"
                raise InvalidInputError(f"X: expected points of {self.d} input(s), found {found}")
        coded = [[one.code(v) for one, v in zip(self.inputs, row, strict=True)] for row in rows]
        return torch.tensor(coded, dtype=torch.float64).reshape(-1, self.d)

    def _rows(self, X: Any) -> list[Sequence[Any]]:
        """Values of the inputs, point by point."""
        names, rows = [one.name for one in self.inputs], X
        if hasattr(X, "columns"):
            columns = [np.asarray(X[name]).tolist() for name in X.columns]
            rows = [dict(zip(X.columns, row, strict=True)) for row in zip(*columns, strict=True)]
        elif isinstance(X, Mapping):
            rows = [X]
        if not (isinstance(rows, list | tuple) and all(isinstance(row, Mapping) for row in rows)):
            raise InvalidInputError(
                f"X: expected a dict, a list of dicts or a data frame of {', '.join(names)}, found "
                f"{type(X).__name__}"
            )
        for row in rows:
            if missing := [name for name in names if name not in row]:
                shown = ", ".join(map(str, row))
                raise InvalidInputError(f"X: expected a value of {missing[0]!r}, found {shown}")
        return [[row[name] for name in names] for row in rows]

    def points(self, coded: Any) -> Any:
        """The user's points for codes [n, d]: a list of dicts, or an array (n, d)."""
        rows = torch.as_tensor(coded, dtype=torch.float64).reshape(-1, self.d)
        if not self.named:
            return rows.numpy().copy()
        return [
            {one.name: one.values[round(code)] if one.values else code for one, code in pairs}
            for pairs in (zip(self.inputs, row, strict=True) for row in rows.tolist())
        ]

    def shown(self, x: Sequence[float]) -> Any:
        """A point from its codes [d], to six digits."""
        return self.points([[float(f"{code:.6g}") for code in x]])[0]

    def to_unit(self, coded: Tensor) -> Tensor:
        """Codes [n, d] in unit coordinates."""
        return torch.stack([one.to_unit(coded[:, j]) for j, one in enumerate(self.inputs)], 1)

    def from_unit(self, Z: Tensor) -> Tensor:
        """Unit coordinates [n, d] as codes."""
        return torch.stack([one.from_unit(Z[:, j]) for j, one in enumerate(self.inputs)], 1)

    def values(self, coded: Tensor) -> Tensor:
        """Numbers [n, d] for codes [n, d]; NaN for categories."""
        columns = []
        for one, column in zip(self.inputs, coded.unbind(1), strict=True):
            if one.categories:
                column = torch.full_like(column, torch.nan)
            elif one.values:
                column = torch.tensor(one.values).double()[column.round().long()]
            columns.append(column)
        return torch.stack(columns, 1)

    @cached_property
    def ranges(self) -> Tensor:
        """Largest less smallest number [d] of each input; NaN for categories."""
        ends = torch.tensor([[one.low, one.high] for one in self.inputs]).double()
        return self.values(ends.mT)[1] - self.values(ends.mT)[0]

    def to_values(self, Z: Tensor) -> Tensor:
        """Unit coordinates [n, d] moved to the nearest that their inputs may take."""
        if not bool(self.whole.any()):
            return Z.clamp(*self.unit_bounds)
        return self.to_unit(self.from_unit(Z))

    def column(self, name: Any, where: str) -> int:
        """The column of an input, by name or, without names, by position."""
        names = [one.name if self.named else j for j, one in enumerate(self.inputs)]
        if name not in names:
            hint = nearest(name, map(str, names)) or f"; inputs are {', '.join(map(str, names))}"
            raise InvalidInputError(f"{where}: found no input {name!r}{hint}")
        return names.index(name)

    def fixed(self, given: Any) -> dict[int, float]:
        """Unit coordinates by column, for values by name or position."""
        if not isinstance(given, Mapping):
            shown = '{"temperature": 60}' if self.named else "{0: 60}"
            raise InvalidInputError(f"fixed: expected values by input, as {shown}, found {given!r}")
        columns = {self.column(name, "fixed"): value for name, value in given.items()}
        return {
            j: float(one.to_unit(torch.tensor(one.code(value), dtype=torch.float64)))
            for j, value in columns.items()
            for one in [self.inputs[j]]
        }

    def part(self, fixed: Mapping[int, float]) -> dict[Any, Any]:
        """Values by name or position, for some unit coordinates by column."""
        Z = torch.zeros(1, self.d, dtype=torch.float64)
        for j, z in fixed.items():
            Z[0, j] = z
        (point,) = self.points(self.from_unit(Z))
        return {
            key: point[key] for j in fixed for key in [self.inputs[j].name if self.named else j]
        }

    @property
    def unit_bounds(self) -> Tensor:
        """Bounds [2, d] of unit coordinates."""
        high = torch.tensor([max(count, 2) - 1.0 for count in self.categories]).double()
        return torch.stack([torch.zeros_like(high), high])

    def steps(self, *, categorical: bool) -> dict[int, list[float]]:
        """The unit coordinates that inputs of values may take, as BoTorch's mixed search asks."""
        return {
            j: one.to_unit(torch.arange(len(one.values)).double()).tolist()
            for j, one in enumerate(self.inputs)
            if one.values and bool(one.categories) == categorical
        }

    def features(self, Z: Tensor) -> Tensor:
        """Features [..., D] of unit coordinates [..., d]: what a GP sees."""
        if not any(self.categories):
            return Z
        parts = [
            (Z[..., j : j + 1].round() == torch.arange(count)).to(Z) if count else Z[..., j : j + 1]
            for j, count in enumerate(self.categories)
        ]
        return torch.cat(parts, -1)

    @property
    def ties(self) -> Ties | None:
        """Which features share a lengthscale."""
        if not any(self.categories):
            return None
        return tuple(j for j, count in enumerate(self.categories) for _ in range(max(count, 1)))

    def sobol(self, n: int, seed: int) -> Tensor:
        """Space-filling unit coordinates [n, d]; every value has the same share."""
        box = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, self.d)
        return self.snapped(draw_sobol_samples(box, n=n, q=1, seed=seed).squeeze(1))

    def snapped(self, U: Tensor) -> Tensor:
        """Numbers [n, d] in [0, 1] as unit coordinates, by equal shares of values."""
        columns = []
        for one, u in zip(self.inputs, U.unbind(1), strict=True):
            count = len(one.values)
            columns.append(one.to_unit((u * count).floor().clamp(max=count - 1)) if count else u)
        return torch.stack(columns, 1)
