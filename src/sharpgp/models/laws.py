r"""Laws of the target at rows ``x``: each turns values into standard scores, and back.

``score(y) = Phi^-1(F_x(y))`` and ``value(z) = F_x^-1(Phi(z))`` are increasing, and inverse to each
other.  Ranks, tails, weights and classes work with scores, and need not know the kind of law.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from scipy.special import ndtri_exp
from torch import Tensor
from torch.special import log_ndtr, ndtr, ndtri

from sharpgp._stored import Array, Spec, agree, stored
from sharpgp.gp.compute import side_by_side

#: Numbers of all rows [T].
Rowwise = Annotated[Tensor, Array("T")]
RowwisePositive = Annotated[Tensor, Array("T", positive=True)]
#: A number for each row [T], or one for all.
Each: TypeAlias = Tensor | float
# Smaller probabilities are added as logarithms.
_FAR = 1e-8
# Tolerances of a search for a value: in scores, and in spreads.
_CLOSE, _WITHIN, _MOST_STEPS = 1e-10, 4e-16, 200
# Least step by which growth is judged, where the scores of a tail are all the same.
_LEAST_STEP = 1e-3
# Values that one thread finds at a time.
_AT_ONCE = 2**12
# Values of laws that were asked last, beside the laws: in no file or pickle.
_MOST_KEPT = 2**20
_last_values: "WeakKeyDictionary[Law, tuple[tuple[Tensor, Tensor], ...]]" = WeakKeyDictionary()


class Law(ABC):
    """A law of the target at each of ``T`` rows.

    Attributes
    ----------
    location, spread : Tensor [T]
        Mean, and about the deviation, positive.
    rounding : Tensor [T] or float
        Precision of values: closed intervals end this much farther out.
    """

    location: Tensor
    spread: Tensor
    rounding: Tensor | float = 0.0

    @abstractmethod
    def scores_at(self, y: Tensor, rows: Tensor) -> Tensor:
        """Scores [n] of values [n], each under the law of one of the rows [n]."""

    @abstractmethod
    def values_at(self, z: Tensor, rows: Tensor) -> Tensor:
        """Values [n] of scores [n], each under the law of one of the rows [n]."""

    @abstractmethod
    def take(self, rows: Tensor) -> Self:
        """The laws of some of the rows."""

    @classmethod
    @abstractmethod
    def joined(cls, laws: Sequence[Self]) -> Self:
        """The rows of several laws of a kind, in their order."""

    def changed(self, shift: Each = 0.0, size: Each = 1.0, factor: Each = 1.0) -> "Law":
        """See :class:`Changed`."""
        ones = torch.ones_like(self.spread)
        return Changed(self, shift * ones, size * ones, factor * ones)

    def score(self, y: Tensor) -> Tensor:
        """Scores [..., T] of values [..., T]."""
        rows = torch.arange(len(self), device=y.device).expand(y.shape)
        return self.scores_at(y.reshape(-1), rows.reshape(-1)).reshape(y.shape)

    def value(self, z: Tensor) -> Tensor:
        """Values [K, T] of scores [K, T or 1]; the last ones are kept, as calls repeat them."""
        if torch.is_grad_enabled() and (z.requires_grad or self.location.requires_grad):
            return self._value(z)
        kept = _last_values.get(self, ())
        for asked, values in kept:
            if asked.dtype == z.dtype and torch.equal(asked, z):
                return values.clone()
        values = self._value(z)
        if values.numel() <= _MOST_KEPT:
            _last_values[self] = (
                (z.clone(), values),
                *kept[: _MOST_KEPT // max(1, values.numel()) - 1],
            )
        return values.clone()

    def _value(self, z: Tensor) -> Tensor:
        z = z.expand(-1, len(self))
        rows = torch.arange(len(self), device=z.device).expand(z.shape)
        parts = zip(z.reshape(-1).split(_AT_ONCE), rows.reshape(-1).split(_AT_ONCE), strict=True)
        on_gpu = z.device.type != "cpu"
        found = side_by_side(lambda part: self.values_at(*part), parts, in_turn=on_gpu)
        return torch.cat(found).reshape(z.shape)

    def growth(self, z: Tensor, values: Tensor, step: Tensor) -> Tensor:
        """How much a step [T or 1] outward from the least and greatest score adds [2, T].

        In units of the step; ``z`` [K, T or 1] is increasing, with their ``values`` [K, T].
        """
        step = step.expand(len(self)).clamp_min(_LEAST_STEP)
        outward = torch.stack([-step, step])
        return (self.value(z[[0, -1]] + outward) - values[[0, -1]]) / outward

    def __len__(self) -> int:
        return len(self.location)


@dataclass(frozen=True)
class Nodes(Spec):
    """Nodes [G] that all rows share, or [T, G] of each."""

    def check(self, value: Any, sizes: dict[str, int]) -> None:
        Array("G" if getattr(value, "ndim", 1) == 1 else "T G").check(value, sizes)


@stored("Normal")
@dataclass(frozen=True, eq=False)
class Normal(Law):
    """Location and spread: ``value(z) = location + z spread``.

    Examples
    --------
    >>> law = Normal(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 10.0]))
    >>> law.score(torch.tensor([2.0, 2.0])).tolist(), law.value(torch.tensor([[1.0]])).tolist()
    ([1.0, 0.0], [[2.0, 12.0]])
    """

    location: Rowwise
    spread: RowwisePositive

    def scores_at(self, y: Tensor, rows: Tensor) -> Tensor:
        return (y - self.location[rows]) / self.spread[rows]

    def values_at(self, z: Tensor, rows: Tensor) -> Tensor:
        return self.location[rows] + z * self.spread[rows]

    def take(self, rows: Tensor) -> "Normal":
        return Normal(self.location[rows], self.spread[rows])

    @classmethod
    def joined(cls, laws: "Sequence[Normal]") -> "Normal":
        return cls(_together(laws, "location"), _together(laws, "spread"))

    def changed(self, shift: Each = 0.0, size: Each = 1.0, factor: Each = 1.0) -> "Normal":
        """A normal law again."""
        spread = factor * self.spread
        return Normal(self.location + shift * spread, size * spread)

    def growth(self, z: Tensor, values: Tensor, step: Tensor) -> Tensor:
        return self.spread.expand(2, -1)


@stored("Table")
@dataclass(frozen=True, eq=False)
class Table(Law):
    """Values at nodes and their scores, linear between; tails beyond with slopes of their own.

    ``y`` and ``z`` [G] or [T, G] are increasing: nodes that all rows share, or each row's.
    ``tails`` [2, T] says by how much values change with scores below and above the nodes.

    Examples
    --------
    >>> y, z = torch.tensor([[-1.0, 0.0, 4.0]]), torch.tensor([-1.0, 0.0, 1.0])
    >>> law = Table(y, z, torch.zeros(1), torch.ones(1), torch.tensor([[1.0], [2.0]]), 0.0)
    >>> law.value(torch.tensor([[-3.0], [0.5], [2.0]]))[:, 0].tolist()
    [-3.0, 2.0, 6.0]
    >>> law.score(torch.tensor([[-3.0], [2.0], [6.0]]))[:, 0].tolist()
    [-3.0, 0.5, 2.0]
    """

    y: Annotated[Tensor, Nodes()]
    z: Annotated[Tensor, Nodes()]
    location: Rowwise
    spread: RowwisePositive
    tails: Annotated[Tensor, Array("two T", positive=True)]
    rounding: float

    def _restored(self) -> None:
        nodes = self.y.shape[-1]
        for part in (self.y, self.z):
            shapes = ((nodes,), (len(self.location), nodes))
            agree("nodes of a table", tuple(part.shape) in shapes and nodes > 1, True)
            agree("nodes in order", bool((part.diff() > 0).all()), True)

    @classmethod
    def of_quantiles(cls, levels: Tensor, table: Tensor, typical: float) -> "Table":
        """From quantiles [T, L] at levels [L], each row in order; ties are told apart.

        Slopes are at least a millionth of a ``typical`` one, those of tails a hundredth.  Tails
        have the slope of the outermost cell, but at least the mean slope of the row.
        """
        z = ndtri(levels)
        dz, apart = z.diff(), float(z[-1] - z[0])
        ramp = torch.cat([dz.new_zeros(1), dz.cumsum(0)]) * (_LEAST_INSIDE * typical)
        # A large offset needs steps that it does not swallow.
        size = table.abs().amax(1, keepdim=True) / typical
        ramp = ramp * (1.0 + size * (4.0 * torch.finfo(table.dtype).eps / _LEAST_INSIDE / dz.min()))
        steps = table - ramp
        down = steps.flip(1).cummin(1).values.flip(1)
        # Halfway between what the left and the right allow: a tie has its value in the middle.
        y = (steps.cummax(1).values + down) / 2.0 + ramp
        mean = ((y[:, -1] - y[:, 0]) / apart).clamp(min=_LEAST_OUTSIDE * typical)
        outer = (y[:, [1, -1]] - y[:, [0, -2]]) / dz[[0, -1]]
        tails = torch.maximum(outer, mean.unsqueeze(1)).T
        rounding = (
            16.0 * torch.finfo(table.dtype).eps * (float(table.abs().max()) if len(table) else 0.0)
        )
        found = cls(y, z, mean, mean, tails, rounding)
        low, middle, high = found.value(z.new_tensor([[-1.0], [0.0], [1.0]]))
        return replace(found, location=middle, spread=(high - low) / 2.0)

    def scores_at(self, y: Tensor, rows: Tensor) -> Tensor:
        return self._read(self.y, self.z, y, rows, 1.0 / self.tails)

    def values_at(self, z: Tensor, rows: Tensor) -> Tensor:
        return self._read(self.z, self.y, z, rows, self.tails)

    @staticmethod
    def _read(given: Tensor, other: Tensor, at: Tensor, rows: Tensor, tails: Tensor) -> Tensor:
        cell = (_place(given, at, rows) - 1).clamp(0, given.shape[-1] - 2)
        left, right = _pick(given, rows, cell), _pick(given, rows, cell + 1)
        share = ((at - left) / (right - left)).clamp(0.0, 1.0)
        inside = torch.lerp(_pick(other, rows, cell), _pick(other, rows, cell + 1), share)
        below = (given[..., 0].expand(tails.shape[1])[rows] - at).clamp(min=0.0)
        above = (at - given[..., -1].expand(tails.shape[1])[rows]).clamp(min=0.0)
        return inside - below * tails[0][rows] + above * tails[1][rows]

    def take(self, rows: Tensor) -> "Table":
        y, z = (part if part.dim() == 1 else part[rows] for part in (self.y, self.z))
        of_rows = self.location[rows], self.spread[rows], self.tails[:, rows]
        return Table(y, z, *of_rows, self.rounding)

    @classmethod
    def joined(cls, laws: "Sequence[Table]") -> "Table":
        """Of laws that share the same nodes."""
        first = laws[0]
        y, z = (
            getattr(first, name) if getattr(first, name).dim() == 1 else _together(laws, name)
            for name in ("y", "z")
        )
        tails = torch.cat([law.tails for law in laws], 1)
        of_rows = _together(laws, "location"), _together(laws, "spread"), tails
        return cls(y, z, *of_rows, max(law.rounding for law in laws))


@stored("Mixture")
@dataclass(frozen=True, eq=False)
class Mixture(Law):
    r"""``F = sum_k w_k F_k``; with the mean and the deviation of the mixture.

    A value lies between those of the members, where a bracketed search finds it.  Probabilities are
    added up as logarithms where they are small, so that beyond all else the law ends as that of the
    widest member.

    Weights [K] are positive, with sum 1; laws are of the same rows.

    Examples
    --------
    >>> ones = torch.ones(1, dtype=torch.float64)
    >>> law = Mixture(torch.tensor([0.5, 0.5]).double(), [Normal(-ones, ones), Normal(ones, ones)])
    >>> law.value(torch.zeros(1, 1).double()).abs().item() < 1e-12, law.spread.square().item()
    (True, 2.0)
    >>> z = torch.tensor([[-300.0]], dtype=torch.float64)
    >>> round(law.score(law.value(z)).item(), 6)
    -300.0
    """

    weights: Annotated[Tensor, Array("K")]
    laws: Sequence[Law]
    location: Tensor = field(init=False)
    spread: Tensor = field(init=False)

    def _restored(self) -> None:
        agree("laws and weights", len(self.laws), len(self.weights))
        agree("rows", len({len(law) for law in self.laws}), 1)

    def __post_init__(self) -> None:
        w = self.weights.to(self.laws[0].location.device).unsqueeze(-1)
        m, s = (torch.stack([getattr(law, f) for law in self.laws]) for f in ("location", "spread"))
        location = (w * m).sum(0)
        spread = (w * (s.square() + (m - location).square())).sum(0).sqrt()
        vars(self).update(location=location, spread=spread)

    @property
    def rounding(self) -> Tensor:  # type: ignore[override]
        size = self.spread + self.location.abs()
        own = _ROUNDING * size.detach()
        if not len(own):
            return own
        return own + max(torch.as_tensor(law.rounding).max() for law in self.laws).to(own)

    def scores_at(self, y: Tensor, rows: Tensor) -> Tensor:
        return self._mixed(torch.stack([law.scores_at(y, rows) for law in self.laws]))

    def _mixed(self, z: Tensor) -> Tensor:
        """Scores [n] of the mixture from those of its members [K, n]."""
        w = self.weights.to(z.device).unsqueeze(-1)
        low, high = (w * ndtr(z)).sum(0), (w * ndtr(-z)).sum(0)
        lower = low < high
        inner = torch.where(lower, low, high).clamp(_FAR, 0.5)
        found = torch.where(lower, ndtri(inner), -ndtri(inner))
        far = torch.minimum(low, high) < _FAR
        if not bool(far.any()):
            return found
        sign = torch.where(lower[far], 1.0, -1.0)
        log_p = torch.logsumexp(w.log() + log_ndtr(z[:, far] * sign), 0)
        return found.index_put((far.nonzero()[:, 0],), sign * _NdtriExp.apply(log_p))

    def values_at(self, z: Tensor, rows: Tensor) -> Tensor:
        with torch.no_grad():
            y = self._solved(z, rows, torch.stack([law.values_at(z, rows) for law in self.laws]))
        if not (torch.is_grad_enabled() and (z.requires_grad or self.location.requires_grad)):
            return y
        with torch.enable_grad():  # the derivative of an inverse function, by one step of Newton's
            inner = y.clone().requires_grad_()
            (slope,) = torch.autograd.grad(self.scores_at(inner, rows).sum(), inner)
            return y + (z - self.scores_at(y, rows)) / slope.detach()

    def _solved(self, z: Tensor, rows: Tensor, found: Tensor) -> Tensor:
        """Where scores are ``z`` [n], between the values of the members [K, n].

        By secants from their mean, and by halving where these leave the bracket, or make little
        progress.
        """
        y, (low, high) = self.weights.to(found) @ found, found.aminmax(dim=0)
        within = _WITHIN * (self.spread + self.location.abs())[rows]
        left = (high - low > within).nonzero()[:, 0]
        of, aim, tol, a, b, at = (part[left] for part in (rows, z, within, low, high, y))
        before, f_before = at - self.spread[of], torch.full_like(aim, torch.inf)
        for _ in range(_MOST_STEPS):
            if not len(left):
                break
            f = self.scores_at(at, of) - aim
            below = f < 0.0
            a, b = torch.where(below, at, a), torch.where(below, b, at)
            slope = (f - f_before) / (at - before)
            # The first step takes the spread for the slope.
            slope = torch.where(f_before.isinf(), 1.0 / self.spread[of], slope)
            guess, halfway = at - f / slope, 0.5 * (a + b)
            good = (guess > a) & (guess < b) & (f.abs() <= 0.5 * f_before.abs())
            done = (f.abs() <= _CLOSE * (1.0 + aim.abs())) | (b - a <= tol)
            y[left[done]] = torch.where(good, guess, at)[done]
            before, f_before, at = at, f, torch.where(good, guess, halfway)
            if bool(done.any()):
                kept = ~done
                left, of, aim, tol, a, b, at, before, f_before = (
                    part[kept] for part in (left, of, aim, tol, a, b, at, before, f_before)
                )
        y[left] = 0.5 * (a + b)
        return y

    def take(self, rows: Tensor) -> "Mixture":
        return Mixture(self.weights, [law.take(rows) for law in self.laws])

    @classmethod
    def joined(cls, laws: "Sequence[Mixture]") -> "Mixture":
        """Of mixtures with the same weights and kinds of members."""
        members = zip(*(law.laws for law in laws), strict=True)
        return cls(laws[0].weights, [joined(of_one) for of_one in members])


@stored("Changed")
@dataclass(frozen=True, eq=False)
class Changed(Law):
    r"""``value(z) = m + factor (value_0(shift + size z) - m)``, with ``m`` the location of a law.

    Examples
    --------
    >>> nodes, one = torch.tensor([-1.0, 1.0]), torch.ones(1)
    >>> law = Table(nodes, nodes, 0.0 * one, one, torch.ones(2, 1), 0.0)
    >>> law.changed(one, one, one).value(torch.ones(1, 1)).item()
    2.0
    """

    law: Law
    shift: Rowwise
    size: RowwisePositive
    factor: RowwisePositive
    location: Tensor = field(init=False)
    spread: Tensor = field(init=False)

    def __post_init__(self) -> None:
        spread = self.factor * self.law.spread
        location = self.law.location + self.shift * spread
        vars(self).update(location=location, spread=self.size * spread)

    @property
    def rounding(self) -> Tensor:  # type: ignore[override]
        return self.factor * self.law.rounding

    def scores_at(self, y: Tensor, rows: Tensor) -> Tensor:
        m = self.law.location[rows]
        z = self.law.scores_at(m + (y - m) / self.factor[rows], rows)
        return (z - self.shift[rows]) / self.size[rows]

    def values_at(self, z: Tensor, rows: Tensor) -> Tensor:
        m = self.law.location[rows]
        y = self.law.values_at(self.shift[rows] + self.size[rows] * z, rows)
        return m + self.factor[rows] * (y - m)

    def take(self, rows: Tensor) -> "Changed":
        return Changed(self.law.take(rows), self.shift[rows], self.size[rows], self.factor[rows])

    @classmethod
    def joined(cls, laws: "Sequence[Changed]") -> "Changed":
        parts = (_together(laws, name) for name in ("shift", "size", "factor"))
        return cls(joined([law.law for law in laws]), *parts)


@stored("Either")
@dataclass(frozen=True, eq=False)
class Either(Law):
    """One of two laws at each row, where ``which`` [T] is 0 or 1."""

    which: Annotated[Tensor, Array("T", whole=True)]
    laws: Sequence[Law]
    location: Tensor = field(init=False)
    spread: Tensor = field(init=False)

    def __post_init__(self) -> None:
        for name in ("location", "spread"):
            vars(self)[name] = self._chosen(*(getattr(law, name) for law in self.laws))

    @property
    def rounding(self) -> Tensor:  # type: ignore[override]
        return self._chosen(*(torch.as_tensor(law.rounding) for law in self.laws))

    def _chosen(self, one: Tensor, other: Tensor) -> Tensor:
        return torch.where(self.which == 0, one, other)

    def scores_at(self, y: Tensor, rows: Tensor) -> Tensor:
        one, other = (law.scores_at(y, rows) for law in self.laws)
        return torch.where(self.which[rows] == 0, one, other)

    def values_at(self, z: Tensor, rows: Tensor) -> Tensor:
        one, other = (law.values_at(z, rows) for law in self.laws)
        return torch.where(self.which[rows] == 0, one, other)

    def take(self, rows: Tensor) -> "Either":
        return Either(self.which[rows], [law.take(rows) for law in self.laws])

    @classmethod
    def joined(cls, laws: "Sequence[Either]") -> "Either":
        members = zip(*(law.laws for law in laws), strict=True)
        return cls(_together(laws, "which"), [joined(of_one) for of_one in members])


def joined(laws: Sequence[Law]) -> Law:
    """The rows of several laws, in their order."""
    first, *others = [law for law in laws if len(law)] or laws[:1]
    if not others:
        return first
    if all(type(law) is type(first) for law in others):
        return type(first).joined([first, *others])
    n, rest = len(first), joined(others)  # of different kinds
    rows = torch.arange(n + len(rest), device=first.location.device)
    return either(rows >= n, first.take(rows.clamp(max=n - 1)), rest.take((rows - n).clamp(min=0)))


def averaged(laws: Sequence[Law]) -> Law:
    """One law from those of several equally weighted fits for the same rows.

    Of locations and spreads the mean location, and the root mean square spread; of tables with the
    same nodes the mean probabilities; else the mixture.
    """
    first = laws[0]
    if len(laws) == 1:
        return first
    if all(type(law) is Normal for law in laws):
        m, s = (torch.stack([getattr(law, f) for law in laws]) for f in ("location", "spread"))
        return Normal(m.mean(0), s.square().mean(0).sqrt())
    tables = [law for law in laws if isinstance(law, Table) and law.y.dim() == 1]
    if len(tables) == len(laws):
        m, s = (torch.stack([getattr(law, f) for law in laws]) for f in ("location", "spread"))
        spread = (s.square().mean(0) + m.var(0, correction=0)).sqrt()
        z = ndtri(torch.stack([ndtr(law.z) for law in tables]).mean(0))
        tails = torch.stack([law.tails for law in tables]).mean(0)
        return Table(tables[0].y, z, m.mean(0), spread, tails, tables[0].rounding)
    n = len(laws)
    return Mixture(first.location.new_full((n,), 1.0 / n), laws)


def either(which: Tensor, one: Law, other: Law) -> Law:
    """The first law where ``which`` [T] is False, the second where it is True."""
    if type(one) is Normal and type(other) is Normal:
        m, s = (
            torch.where(which, getattr(other, f), getattr(one, f)) for f in ("location", "spread")
        )
        return Normal(m, s)
    return Either(which.long(), [one, other])


# Values are known to within so much of their size; least slopes of tables, in units of the
# typical one, between neighbours and of tails: ties can be told apart, and no score is infinite.
_ROUNDING = 1e-11
_LEAST_INSIDE, _LEAST_OUTSIDE = 1e-6, 1e-2


class _NdtriExp(torch.autograd.Function):
    """``Phi^-1(exp(log_p))``."""

    @staticmethod
    def forward(ctx, log_p):  # type: ignore[no-untyped-def]
        """The scores."""
        z = torch.from_numpy(np.asarray(ndtri_exp(log_p.detach().cpu().numpy()))).to(log_p)
        ctx.save_for_backward(z, log_p)
        return z

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        """With the density ``phi(z)``, ``dz = exp(log_p) / phi(z) dlog_p``."""
        z, log_p = ctx.saved_tensors
        return gradient * (log_p + 0.5 * z.square() + 0.9189385332046727).exp()


def _together(laws: Sequence[Law], name: str) -> Tensor:
    return torch.cat([getattr(law, name) for law in laws])


def _pick(nodes: Tensor, rows: Tensor, cell: Tensor) -> Tensor:
    return nodes[cell] if nodes.dim() == 1 else nodes[rows, cell]


def _place(nodes: Tensor, at: Tensor, rows: Tensor) -> Tensor:
    """How many nodes [G] or [T, G] are below values [n], each in one of the rows [n]."""
    if nodes.dim() == 1:
        return torch.searchsorted(nodes, at.detach().contiguous())
    count = nodes.shape[1]
    low, high = torch.zeros_like(rows), torch.full_like(rows, count)
    for _ in range(count.bit_length()):
        middle = (low + high) // 2
        right = (nodes[rows, middle.clamp(max=count - 1)] < at) & (low < high)
        low, high = torch.where(right, middle + 1, low), torch.where(right, high, middle)
    return low
