"""Which points may be run: expressions, mixtures, few of many, functions of the inputs."""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

from sharpgp._stored import stored
from sharpgp._validation import as_count, nearest
from sharpgp.bo.space import Space
from sharpgp.exceptions import InvalidInputError

# Share of a constraint's range by which a point may miss it: what rounding does.
_ROUNDING = 1e-6
# Points that are drawn at most to find some that meet all constraints.
_MAX_DRAWN = 2**14
# Rounds of projections onto constraints, and steps of a random walk between them.
_PROJECTIONS, _STEPS = 30, 40
# Feasible points that a solver is asked for where random ones do not suffice.
_CORNERS = 24
# What an expression may consist of, and which side of a comparison is the larger one.
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_SIGNS: dict[type, int] = {ast.LtE: -1, ast.Lt: -1, ast.Eq: 0, ast.GtE: 1, ast.Gt: 1}
#: Fixed unit coordinates, by column.
Fixed = Mapping[int, float]
#: Indices and weights, whose sum is at least (or just) the last, as BoTorch's searches take them.
Sum = tuple[Tensor, Tensor, float]


@stored("AtMost")
@dataclass(frozen=True, init=False)
class AtMost:
    """At most ``count`` of some inputs differ from zero.

    Examples
    --------
    >>> AtMost(2, "salt", "sugar", "acid")
    AtMost(count=2, names=('salt', 'sugar', 'acid'))
    """

    count: int
    names: tuple[str, ...]

    def __init__(self, count: int, *names: str) -> None:
        vars(self).update(count=as_count(count, "AtMost", least=1), names=_each(names))


@stored("MixedInputs")
@dataclass(frozen=True, init=False)
class Mixture:
    """Inputs that sum to ``total``, of which at most ``at_most`` differ from zero.

    Examples
    --------
    >>> Mixture("water", "ethanol", "acetone", total=100, at_most=2).names
    ('water', 'ethanol', 'acetone')
    """

    names: tuple[str, ...]
    total: float
    at_most: int | None

    def __init__(self, *names: str, total: float = 1.0, at_most: int | None = None) -> None:
        vars(self).update(names=_each(names), total=float(total), at_most=at_most)


def _each(names: tuple[Any, ...]) -> tuple[str, ...]:
    """Names that were given one by one, or as one list."""
    return tuple(names[0]) if len(names) == 1 and isinstance(names[0], list | tuple) else names


#: An expression such as ``"2 * a + b <= 10"``, a mixture, few of many, or a function.
Constraint = str | Mixture | AtMost | Callable[..., bool]


@dataclass(frozen=True)
class _Bounded:
    """``low <= value <= high``, as the user wrote it; ``weights`` [d] are those of a sum."""

    text: str
    value: Callable[[Tensor], Tensor]
    low: float
    high: float
    slack: float
    weights: Tensor | None


class Region:
    """The points of a space that meet all constraints.

    ``inequalities`` and ``equalities`` are those of the constraints that are sums in unit
    coordinates, as BoTorch's searches take them; a ``simple`` region needs no others.

    Examples
    --------
    >>> space = Space.of({"a": (0, 1), "b": (0, 1), "c": (0, 10, 2)})
    >>> region = Region(space, ["a + b == 1", lambda c: c > 3])
    >>> region.space.points(region.space.from_unit(region.sample(64, seed=0)))[0]["c"] > 3
    True
    """

    def __init__(self, space: Space, given: Sequence[Constraint] = ()) -> None:
        self.space, self.given = space, tuple(given)
        self.names = [one.name if space.named else f"x{j}" for j, one in enumerate(space.inputs)]
        scales = [one.plain_scale for one in space.inputs]
        self.plain = torch.tensor([scale is not None for scale in scales])
        self.start, self.span = torch.tensor([one or (0.0, 1.0) for one in scales]).double().mT
        self.zero = torch.zeros(space.d, dtype=torch.float64)
        self.bounded: list[_Bounded] = []
        self.few: list[tuple[Tensor, int]] = []
        self.functions: list[tuple[Callable[..., bool], str, list[str]]] = []
        self.inequalities: list[Sum] = []
        self.equalities: list[Sum] = []
        self.simple = True
        for one in self.given:
            self._add(one)
        if self.given:
            self.check()

    def _add(self, one: Constraint) -> None:
        if isinstance(one, str):
            for value, sign in _comparisons(one, lambda name: self._column(name, one)):
                low, high = 0.0 if sign >= 0 else -np.inf, 0.0 if sign <= 0 else np.inf
                self._bound(one, value, low, high)
        elif isinstance(one, Mixture):
            columns = [self._column(name, one) for name in one.names]
            text = f"{' + '.join(one.names)} == {one.total:g}"
            self._bound(text, lambda V: V[:, columns].sum(1), *[float(one.total)] * 2)
            if one.at_most is not None:
                self._add(AtMost(one.at_most, *one.names))
        elif isinstance(one, AtMost):
            columns = [self._column(name, one) for name in one.names]
            for j in columns:
                known = self.space.inputs[j]
                if not known.has_zero:
                    found = f"found {known.name!r} from {known.shown}"
                    raise InvalidInputError(f"{one}: expected inputs that may be 0, {found}")
                self.zero[j] = known.to_unit(torch.tensor(known.code(0.0), dtype=torch.float64))
            self.few.append((torch.tensor(columns), one.count))
            self.simple = False
        elif callable(one):
            code = getattr(one, "__code__", None)
            names = list(code.co_varnames[: code.co_argcount]) if code is not None else []
            shown = f"the function {getattr(one, '__name__', repr(one))}"
            if not self.space.named or (len(names) == 1 and names[0] not in self.names):
                names = []  # it takes the whole point
            for name in names:
                self._column(name, shown, numbers=False)
            self.functions.append((one, shown, names))
            self.simple = False
        else:
            raise InvalidInputError(
                'constraints: expected "2 * a + b <= 10", Mixture, AtMost or a function of the '
                f"inputs that gives True or False, found {one!r}"
            )

    def _column(self, name: str, where: object, *, numbers: bool = True) -> int:
        if name not in self.names:
            hint = nearest(name, self.names) or f"; inputs are {', '.join(self.names)}"
            raise InvalidInputError(f"{where}: found no input {name!r}{hint}")
        j = self.names.index(name)
        if numbers and self.space.categories[j]:
            raise InvalidInputError(f"{where}: expected numbers, found categories in {name!r}")
        return j

    def _bound(self, text: str, value: Callable[[Tensor], Tensor], low: float, high: float) -> None:
        """One more bound on an expression: a sum, if it is one at random points."""
        eye = torch.eye(self.space.d, dtype=torch.float64)
        origin = float(value(torch.zeros_like(eye[:1]))[0])
        rises = (value(eye) - origin).nan_to_num(0.0, 0.0, 0.0)
        U = self.space.values(self.space.from_unit(self.space.sobol(8, seed=0))).nan_to_num()
        found = value(U)
        is_sum = torch.allclose(found, origin + U @ rises, rtol=1e-9, atol=1e-12)
        weights = rises if is_sum else None
        used = torch.zeros(0).long() if weights is None else weights.nonzero()[:, 0]
        if weights is None or not bool(self.plain[used].all()):
            if low == high:
                raise InvalidInputError(
                    f"{text}: expected a sum of inputs on plain scales in an equality; found others"
                )
            self.simple = False
            slack = _ROUNDING * float(found[found.isfinite()].abs().max())
            self.bounded.append(_Bounded(text, value, low, high, slack, None))
            return
        slack = _ROUNDING * float(weights.abs() @ self.space.ranges.nan_to_num())
        self.bounded.append(_Bounded(text, value, low, high, slack, weights))
        before = origin + float(weights @ self.start)
        scaled = (weights * self.span)[used]
        if low == high:
            self.equalities.append((used, scaled, low - before))
            self.simple = self.simple and not bool(self.space.whole[used].any())
        else:
            sign = 1.0 if np.isfinite(low) else -1.0
            self.inequalities.append(
                (used, sign * scaled, sign * (max(low, -high) * sign - before))
            )

    # ---------------------------------------------------------------- which points

    def allows(self, coded: Tensor) -> Tensor:
        """Whether each of the codes [n, d] meets all constraints."""
        V, found = self.space.values(coded), torch.ones(len(coded), dtype=torch.bool)
        for one in self.bounded:
            value = one.value(V)
            found &= (value >= one.low - one.slack) & (value <= one.high + one.slack)
        for columns, count in self.few:
            used = V[:, columns].abs() > _ROUNDING * self.space.ranges[columns]
            found &= used.sum(1) <= count
        for function, shown, names in self.functions:
            for i in found.nonzero()[:, 0].tolist():
                (point,) = self.space.points(coded[i])
                answer = function(**{k: point[k] for k in names}) if names else function(point)
                if not isinstance(answer, bool | np.bool_):
                    raise InvalidInputError(f"{shown}: expected True or False, found {answer!r}")
                found[i] = bool(answer)
        return found

    def check(self, fixed: Fixed | None = None) -> None:
        """Raise unless some point meets all constraints."""
        where = f"fixed: with {self.space.part(fixed)}" if fixed else "constraints"
        few = [
            AtMost(count, *(self.names[j] for j in columns.tolist())) for columns, count in self.few
        ]
        texts = [*dict.fromkeys(one.text for one in self.bounded), *map(str, few)]
        sums = [one for one in self.bounded if one.weights is not None]
        tried = f"among {_MAX_DRAWN} tried"
        if self.solved(fixed) is None:
            alone = [one.text for one in sums if self.solved(fixed, [one]) is None]
            texts, tried = alone[:1] or texts, "at all"
        elif len(self.sample(1, 0, fixed)):
            return
        texts = texts + [shown for _, shown, _ in self.functions] * (tried != "at all")
        raise InvalidInputError(
            f"{where}: expected a point that meets {' and '.join(texts)}, found none {tried}; "
            "widen the inputs or drop a constraint"
        )

    def sample(self, n: int, seed: int, fixed: Fixed | None = None) -> Tensor:
        """At most ``n`` points all over the region, as unit coordinates; none if none was found.

        Space-filling ones where enough of these meet the constraints, and else those of a random
        walk between the sums, or at their corners.
        """
        found = placed(self.space.sobol(n, seed), fixed)
        if not self.given:
            return found
        found, m, enough = self.of(found), max(4 * n, 512), max(n // 2, 1)
        generator = torch.Generator().manual_seed(seed)
        while len(found) < enough and m <= _MAX_DRAWN:
            Z = placed(self.space.sobol(m, seed), fixed)
            found, m = self.of(Z), 4 * m
            if len(found) < enough:
                found = torch.cat([found, self.of(self.repaired(Z, fixed, generator, walk=True))])
        if len(found) < min(enough, _CORNERS):
            corners = [self.solved(fixed, seed=seed + k) for k in range(_CORNERS)]
            found = torch.cat([found, *(self.of(Z[None]) for Z in corners if Z is not None)])
        return found[:n]

    def of(self, Z: Tensor) -> Tensor:
        """Those of the unit coordinates [n, d] that meet all constraints."""
        return Z[self.allows(self.space.from_unit(Z))] if self.given else Z

    def repaired(
        self,
        Z: Tensor,
        fixed: Fixed | None = None,
        generator: torch.Generator | None = None,
        *,
        walk: bool = False,
    ) -> Tensor:
        """Points [n, d] near those of ``Z`` that meet the sums, and have few where few are allowed.

        By projections onto the sums, for half of the points with ``walk`` followed by a random
        walk between them: some are at their ends, others are not.
        """
        Z, given = placed(Z, fixed), torch.tensor([j in (fixed or {}) for j in range(self.space.d)])
        moves = (self.plain & ~given).expand(len(Z), -1).clone()
        for columns, count in self.few:
            # Half of the points keep their largest inputs, half others.
            chance = torch.rand(len(Z), len(columns), generator=generator, dtype=torch.float64)
            size = (Z[:, columns] - self.zero[columns]).abs()
            keep = torch.where(chance[:, :1] < 0.5, size, chance)
            keep = torch.where(given[columns] & (size > 0), torch.inf, keep)
            dropped = (keep.argsort(1, descending=True).argsort(1) >= count) & ~given[columns]
            Z[:, columns] = torch.where(dropped, self.zero[columns], Z[:, columns])
            moves[:, columns] &= ~dropped
        if not (self.equalities or self.inequalities):
            return Z
        for _ in range(_PROJECTIONS):
            for sums, sided in ((self.inequalities, True), (self.equalities, False)):
                for columns, weights, bound in sums:
                    missing = bound - Z[:, columns] @ weights
                    missing = missing.clamp(min=0.0) if sided else missing
                    way = weights * moves[:, columns]
                    step = way * (missing / way.square().sum(1).clamp(min=1e-300))[:, None]
                    Z[:, columns] = torch.where(
                        moves[:, columns], (Z[:, columns] + step).clamp(0.0, 1.0), Z[:, columns]
                    )
        if walk:
            half = torch.rand(len(Z), generator=generator) < 0.5
            Z[half] = self._walked(Z[half], moves[half], generator)
        Z = self.space.to_values(Z)
        for columns, weights, bound in self.equalities:  # steps may have left them
            for place in torch.randperm(len(columns), generator=generator).tolist():
                j, missing = int(columns[place]), bound - Z[:, columns] @ weights
                Z[:, j] += torch.where(moves[:, j], missing / weights[place], 0.0)
                Z = self.space.to_values(Z)
        return Z

    def _walked(self, Z: Tensor, moves: Tensor, generator: torch.Generator | None) -> Tensor:
        """Hit and run from each point, along what may move, within box and sums."""
        rows, normals = self._dense(self.inequalities), self._dense(self.equalities)
        bounds = torch.tensor([bound for *_, bound in self.inequalities]).double()
        for _ in range(_STEPS):
            way = torch.randn(Z.shape, generator=generator, dtype=torch.float64) * moves
            if len(normals):
                A = normals * moves[:, None]
                gram = A @ A.mT + 1e-12 * torch.eye(len(normals))
                way = way - (A.mT @ torch.linalg.solve(gram, A @ way[..., None]))[..., 0]
            # How far it is to every bound, along the way and back.
            slack = torch.cat([Z, 1.0 - Z, Z @ rows.mT - bounds], 1).clamp(min=0.0)
            speed = torch.cat([way, -way, way @ rows.mT], 1)
            ahead = torch.where(speed < -1e-12, slack / -speed, torch.inf).amin(1)
            back = torch.where(speed > 1e-12, slack / speed, torch.inf).amin(1)
            u = torch.rand(len(Z), generator=generator, dtype=torch.float64)
            length = (u * (ahead + back) - back).nan_to_num(0.0, 0.0, 0.0)
            Z = torch.where(moves, (Z + length[:, None] * way).clamp(0.0, 1.0), Z)
        return Z

    def _dense(self, sums: Sequence[Sum]) -> Tensor:
        found = torch.zeros(len(sums), self.space.d, dtype=torch.float64)
        for i, (columns, weights, _) in enumerate(sums):
            found[i, columns] = weights
        return found

    def solved(
        self,
        fixed: Fixed | None = None,
        bounded: Sequence[_Bounded] | None = None,
        seed: int | None = None,
    ) -> Tensor | None:
        """A point [d] that meets the sums, and has few where few are allowed; None if none does.

        By a mixed-integer program; with a seed, the best for random prices.
        """
        few = self.few if bounded is None else []
        sums = [one for one in (bounded or self.bounded) if one.weights is not None]
        # Variables are unit coordinates, or positions of values, then a switch for each of few.
        whole, d = self.space.whole.numpy(), self.space.d
        steps = np.array([max(len(one.values) - 1.0, 1.0) for one in self.space.inputs])
        unit = np.where(np.array(self.space.categories) > 0, 1.0, steps)
        switches = [(j, k) for k, (columns, _) in enumerate(few) for j in columns.tolist()]
        low, high = np.zeros(d + len(switches)), np.r_[steps, np.ones(len(switches))]
        for j, z in (fixed or {}).items():
            low[j] = high[j] = z * unit[j]
        parts = []
        for one in sums:
            assert one.weights is not None
            before = float(one.value(self.start[None])[0])
            row = np.r_[(one.weights * self.span).numpy() / steps, np.zeros(len(switches))]
            parts.append(
                LinearConstraint(row, one.low - before - one.slack, one.high - before + one.slack)
            )
        for place, (j, _) in enumerate(switches):
            # Off its zero by no more than its range, and only if it is switched on.
            none, row = float(self.zero[j]) * steps[j], np.zeros((2, len(low)))
            row[:, j], row[:, d + place] = (1.0, -1.0), -steps[j]
            parts.append(LinearConstraint(row, -np.inf, [none, -none]))
        for k, (_, count) in enumerate(few):
            row = np.r_[np.zeros(d), [float(part == k) for _, part in switches]]
            parts.append(LinearConstraint(row, -np.inf, count))
        prices = np.zeros(len(low))
        if seed is not None:
            prices[:d] = np.random.default_rng(seed).normal(size=d) / steps
        kinds = np.r_[whole, np.ones(len(switches))]
        found = milp(prices, integrality=kinds, bounds=Bounds(low, high), constraints=parts).x
        return None if found is None else torch.from_numpy(found[:d] / unit).clamp(min=0.0)


def placed(Z: Tensor, fixed: Fixed | None) -> Tensor:
    """Points [n, d] with some coordinates as given."""
    Z = Z.clone()
    for j, z in (fixed or {}).items():
        Z[:, j] = z
    return Z


def _comparisons(
    text: str, column: Callable[[str], int]
) -> list[tuple[Callable[[Tensor], Tensor], int]]:
    """For each comparison of a chain, the left side less the right one, and its sign.

    Examples
    --------
    >>> (first, sign), (second, _) = _comparisons(
    ...     "1 <= a * `spin rate` <= 9", ["a", "spin rate"].index
    ... )
    >>> first(torch.tensor([[2.0, 4.0]])), second(torch.tensor([[2.0, 4.0]])), sign
    (tensor([-7.]), tensor([-1.]), -1)
    """
    quoted = {f"_quoted{k}": name for k, name in enumerate(re.findall("`([^`]*)`", text))}
    plain = text.strip()
    for key, name in quoted.items():
        plain = plain.replace(f"`{name}`", key, 1)
    hint = "names with blanks in `backticks`, or a function that gives True or False"
    if re.search(r"(?<![<>=!])=(?!=)", plain):
        hint = "<=, >= or =="
    wrong = InvalidInputError(
        f'constraints: expected arithmetic such as "2 * a + b <= 10", found {text!r}; write {hint}'
    )

    def side(node: ast.expr) -> Callable[[Tensor], Any]:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            number = float(node.value)
            return lambda V: number
        if isinstance(node, ast.Name):
            j = column(quoted.get(node.id, node.id))
            return lambda V: V[:, j]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner, sign = side(node.operand), -1.0 if isinstance(node.op, ast.USub) else 1.0
            return lambda V: sign * inner(V)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right, apply = side(node.left), side(node.right), _ARITHMETIC[type(node.op)]
            return lambda V: apply(left(V), right(V))
        raise wrong

    try:
        tree = ast.parse(plain, mode="eval").body
    except SyntaxError:
        raise wrong from None
    if not isinstance(tree, ast.Compare) or not all(type(one) in _SIGNS for one in tree.ops):
        raise wrong

    def less(one: Callable[[Tensor], Any], other: Callable[[Tensor], Any]) -> Any:
        return lambda V: (one(V) - other(V)) + torch.zeros(len(V), dtype=V.dtype)

    sides = [side(node) for node in (tree.left, *tree.comparators)]
    return [
        (less(one, other), _SIGNS[type(sense)])
        for (one, other), sense in zip(pairwise(sides), tree.ops, strict=True)
    ]
