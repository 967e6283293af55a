"""Predictive distributions that are given by a table of quantiles.

Everything is computed in row units ``u = (y - centre) / scale``, so that neither the unit of the
target nor a large offset costs precision, and so that squares cannot overflow.
"""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from sharpgp._tail import Tail
from sharpgp._validation import refuse_other_kinds
from sharpgp.exceptions import InvalidInputError

__all__ = ["PredictiveDistribution"]

Array: TypeAlias = Any  # torch.Tensor, or numpy.ndarray when the distribution answers in NumPy

EPS = torch.finfo(torch.float64).eps
END_SLACK = 1e-10  # of a row's half range
LEVEL_TOLERANCE = 1e-12  # (1 - 0.9) / 2 is not 0.05 in floating point
MIN_SPREAD = 1e-6  # ties are spread out until the density is at most 1 / MIN_SPREAD in row units


class PredictiveDistribution:
    r"""One predictive distribution per point, tabulated by its quantiles.

    Between the levels :math:`p_1 < \dots < p_K` the quantile function is linear; outside it has
    tails: those given, or else exponential ones that continue the density :math:`f_1` of the
    outermost cell,

    .. math:: Q(p) = q_1 + \frac{p_1}{f_1} \log\frac{p}{p_1} \quad (p < p_1), \qquad
              f_1 = \frac{p_2 - p_1}{q_2 - q_1},

    and likewise above :math:`p_K`. Mean, standard deviation, density and CRPS are those of this
    distribution, in closed form.

    Tied quantiles are spread out evenly, by about 1e-6 of the row's half range in all, so that
    the cdf stays invertible; a row of one single value is spread by 1e-6 of its magnitude (of 1
    when it is zero). A tail next to tied levels takes its density from the first cell that has a
    width of its own. Both keep the log density of every finite observation finite.

    Parameters
    ----------
    levels : tensor or array, shape [K]
        Levels, strictly increasing in (0, 1), at least two.
    quantiles : tensor or array, shape [K, n]
        Finite quantiles; where they cross, their running maximum over the levels is taken.
    tail : Tail, optional
        Law of what lies beyond the outermost quantiles, on both sides, with a scale [n].
    caution : callable, optional
        Told the levels that :meth:`quantile` and :meth:`interval` are asked for, and for intervals
        the coverage, so that it can warn of those that data do not support.
    numpy : bool, default False
        Answer in NumPy arrays instead of torch tensors.

    Examples
    --------
    >>> dist = PredictiveDistribution([0.25, 0.75], [[-1.0, 9.0], [1.0, 11.0]], numpy=True)
    >>> dist.mean
    array([ 0., 10.])
    >>> dist.quantile(0.5)
    array([ 0., 10.])
    >>> dist.interval(0.5)
    array([[-1.,  1.],
           [ 9., 11.]])
    """

    def __init__(
        self,
        levels: Array,
        quantiles: Array,
        *,
        tail: Tail | None = None,
        caution: Callable[..., None] | None = None,
        numpy: bool = False,
    ) -> None:
        self._as_numpy = numpy
        self._caution = caution
        self._p, q = _checked_table(levels, quantiles)
        q = torch.cummax(q, dim=0).values.T.contiguous()
        self._centre, self._scale, min_spread = _row_units(q.detach())

        self._u = _separate((q - self._centre) / self._scale, min_spread * self._p)
        self._dp = self._p.diff()
        # The maximum matters only for levels so close that rounding swallows their distance.
        self._w = torch.maximum(self._u.diff(dim=1), min_spread * self._dp)

        self._below, self._above = self._p[0], 1 - self._p[-1]  # probability in either tail
        if tail is not None:
            # Of tied scores the tail has no width, and gets that of a tie.
            scale = torch.maximum(tail.scale[:, None] / self._scale, min_spread)
            self._lower = self._upper = Tail(scale, tail.degrees)
        else:
            self._lower, self._upper = self._continued(min_spread)
        self._tied = self._w <= 2 * min_spread * self._dp

    def _continued(self, min_spread: Tensor) -> tuple[Tail, Tail]:
        """Exponential tails that continue the density of the first cell that has a width."""
        rise = self._p - self._p[0]
        first = _first_wide(self._w, self._dp, min_spread)
        fall = self._p[-1] - self._p
        last = len(fall) - 1 - _first_wide(self._w.flip(1), self._dp.flip(0), min_spread)
        return (
            Tail(self._below * (self._u.gather(1, first) - self._u[:, :1]) / rise[first]),
            Tail(self._above * (self._u[:, -1:] - self._u.gather(1, last)) / fall[last]),
        )

    def __len__(self) -> int:
        return len(self._u)

    def __repr__(self) -> str:
        return f"PredictiveDistribution({len(self)} points, {len(self._p)} levels)"

    def numpy(self) -> PredictiveDistribution:
        """Return the same distribution, answering in NumPy arrays.

        Examples
        --------
        >>> PredictiveDistribution([0.25, 0.75], [[-1.0], [1.0]]).numpy().std.round(3)
        array([1.633])
        """
        view = copy.copy(self)
        view._as_numpy = True
        return view

    @property
    def levels(self) -> Array:
        """Levels of the table, shape (K,)."""
        return self._answer(self._p.clone())

    @property
    def quantiles(self) -> Array:
        """Quantiles of the table, shape (n, K), rearranged and with ties spread out."""
        return self._answer(self._centre + self._scale * self._u)

    @property
    def mean(self) -> Array:
        """Expected value, tails included, shape (n,)."""
        return self._answer((self._centre + self._scale * self._mean_u()).squeeze(1))

    @property
    def std(self) -> Array:
        """Standard deviation, tails included, shape (n,)."""
        m = self._mean_u()
        middle = (self._u[:, 1:] + self._u[:, :-1]) / 2
        below = (self._u[:, :1] - self._lower.mean - m).square() + self._lower.variance
        above = (self._u[:, -1:] + self._upper.mean - m).square() + self._upper.variance
        inside = ((middle - m).square() + self._w.square() / 12) @ self._dp[:, None]
        variance = self._below * below + inside + self._above * above
        return self._answer((self._scale * variance.sqrt()).squeeze(1))

    def quantile(self, p: Array) -> Array:
        """Return the quantiles at the levels ``p``: infinite at 0 and 1, never crossing.

        Parameters
        ----------
        p : float or array of shape (k,), in [0, 1]

        Returns
        -------
        Shape (n,) for one level, (n, k) for k of them.

        Examples
        --------
        >>> dist = PredictiveDistribution([0.25, 0.75], [[-1.0], [1.0]], numpy=True)
        >>> dist.quantile([0.0, 0.25, 0.5]).tolist()
        [[-inf, -1.0, 0.0]]
        """
        p = self._checked_probability(p, "levels")
        if self._caution is not None:
            self._caution(p.reshape(-1))
        q = self._invert(p.reshape(1, -1))
        return self._answer(q.squeeze(1) if p.ndim == 0 else q)

    def interval(self, coverage: Array) -> Array:
        r"""Return the centred interval from :math:`Q((1-c)/2)` to :math:`Q((1+c)/2)`.

        The interval is closed: its ends are moved outward by rounding, and out of tied quantiles,
        so that it holds the value that they tie at.

        Parameters
        ----------
        coverage : float or array of shape (k,), in [0, 1]

        Returns
        -------
        Shape (n, 2) for one coverage, (n, 2, k) for k of them.

        Examples
        --------
        >>> dist = PredictiveDistribution([0.25, 0.75], [[-1.0], [1.0]], numpy=True)
        >>> dist.interval([0.2, 0.5]).round(3).tolist()
        [[[-0.4, -1.0], [0.4, 1.0]]]
        """
        c = self._checked_probability(coverage, "coverage")
        lower, upper = (1 - c.reshape(1, -1)) / 2, (1 + c.reshape(1, -1)) / 2
        if self._caution is not None and c.numel():
            self._caution(torch.cat([lower[0], upper[0]]), float(c.max()))
        ends = torch.stack([self._end(lower, up=False), self._end(upper, up=True)], dim=1)
        return self._answer(ends.squeeze(-1) if c.ndim == 0 else ends)

    def sample(self, k: int, random_state: int | np.random.Generator | None = None) -> Array:
        """Draw ``k`` independent values per point by inversion, shape (n, k).

        Parameters
        ----------
        k : int
            Number of draws.
        random_state : int, numpy.random.Generator or None
            Seed; the draws are the same on every device.

        Examples
        --------
        >>> dist = PredictiveDistribution([0.25, 0.75], [[-1.0], [1.0]], numpy=True)
        >>> dist.sample(3, random_state=0).shape
        (1, 3)
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 0:
            raise InvalidInputError(
                f"sample: expected a number of draws >= 0, found {k!r}; pass an integer"
            )
        p = np.random.default_rng(random_state).random((len(self), int(k)))
        # random() includes 0, whose quantile is infinite.
        return self._answer(self._invert(self._tensor(p).clamp_min(EPS / 2)))

    def cdf(self, y: Array) -> Array:
        """Return the probability of a value up to ``y``, strictly increasing; (n,) -> (n,).

        Examples
        --------
        >>> dist = PredictiveDistribution([0.25, 0.75], [[-1.0], [1.0]], numpy=True)
        >>> dist.cdf([0.5])
        array([0.625])
        """
        return self._answer(self._shares(self._standardise(y))[0].squeeze(1))

    def log_prob(self, y: Array) -> Array:
        """Return the log density at ``y``; (n,) -> (n,).

        Examples
        --------
        >>> dist = PredictiveDistribution([0.25, 0.75], [[-1.0], [1.0]], numpy=True)
        >>> np.exp(dist.log_prob([0.5]))
        array([0.25])
        """
        return self._answer(self._log_density(self._standardise(y)).squeeze(1))

    def crps(self, y: Array) -> Array:
        r"""Return the continuous ranked probability score, exactly; (n,) -> (n,).

        .. math:: \mathrm{CRPS}(F, y) = \int (F(x) - 1\{y \le x\})^2 \, dx

        References
        ----------
        Gneiting and Raftery (2007), Strictly proper scoring rules, prediction, and estimation.

        Examples
        --------
        >>> dist = PredictiveDistribution([0.25, 0.75], [[-1.0], [1.0]], numpy=True)
        >>> dist.crps([0.0]).round(6)
        array([0.354167])
        """
        u = self._standardise(y)
        area = self._area_below(u) + self._area_above(u)
        return self._answer((self._scale * area).squeeze(1))

    def _shares(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Probability [n, 1] up to ``u``, and beyond it, each precise where it is small."""
        k = self._cell(u)
        t = ((u - self._u.gather(1, k)) / self._w.gather(1, k)).clamp(0, 1)
        inside = self._p[k] + self._dp[k] * t
        below, above = self._excess(u)
        left = inside * self._lower.log_share(below).exp()
        right = (1 - inside) * self._upper.log_share(above).exp()
        return torch.where(above > 0, 1 - right, left), torch.where(below > 0, 1 - left, right)

    def _log_density(self, u: Tensor) -> Tensor:
        k = self._cell(u)
        f = (self._dp[k] / self._w.gather(1, k)).log()
        below, above = self._excess(u)
        f = torch.where(below > 0, self._below.log() + self._lower.log_density(below), f)
        f = torch.where(above > 0, self._above.log() + self._upper.log_density(above), f)
        return f - self._scale.log()

    def _area_below(self, u: Tensor) -> Tensor:
        """Integral [n, 1] of ``F^2`` up to ``u``: in every cell ``F`` is linear."""
        left, v = self._part(u)
        below, above = self._excess(u)
        inside = (left * _cone(self._p[:-1], v)).sum(1, keepdim=True)
        tails = self._lower.area_beyond(below, self._below)
        return inside + tails + self._upper.area_before(above, self._above)

    def _area_above(self, u: Tensor) -> Tensor:
        """Integral [n, 1] of ``(1 - F)^2`` from ``u`` on."""
        left, v = self._part(u)
        below, above = self._excess(u)
        inside = ((self._w - left) * _cone(1 - v, 1 - self._p[1:])).sum(1, keepdim=True)
        tails = self._upper.area_beyond(above, self._above)
        return inside + tails + self._lower.area_before(below, self._below)

    def _part(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """How much of each cell lies up to ``u``, and ``F`` where that ends, both [n, K-1]."""
        left = torch.minimum((u - self._u[:, :-1]).clamp_min(0), self._w)
        return left, self._p[:-1] + self._dp * left / self._w

    def _mean_u(self) -> Tensor:
        middle = (self._u[:, 1:] + self._u[:, :-1]) / 2
        below = self._below * (self._u[:, :1] - self._lower.mean)
        above = self._above * (self._u[:, -1:] + self._upper.mean)
        return below + middle @ self._dp[:, None] + above

    def _invert(self, p: Tensor) -> Tensor:
        """Quantiles at ``p``, [1, k] shared by the points or [n, k], as [n, k]."""
        k = (torch.searchsorted(self._p, p, right=True) - 1).clamp(0, len(self._dp) - 1)
        t = ((p - self._p[k]) / self._dp[k]).clamp(0, 1)
        k = k.expand(len(self), -1)
        inside = self._u.gather(1, k) + t * self._w.gather(1, k)
        # Rounding must not carry a quantile past the next node: quantiles never cross.
        inside = torch.minimum(inside, self._u.gather(1, k + 1))
        below = self._lower.excess((p / self._below).clamp_max(1))
        above = self._upper.excess(((1 - p) / self._above).clamp_max(1))
        return self._centre + self._scale * (inside - below + above)

    def _end(self, p: Tensor, *, up: bool) -> Tensor:
        """Ends [n, k] of closed intervals at ``p`` [1, k]: quantiles, moved out of ties."""
        k = (torch.searchsorted(self._p, p, right=True) - 1).clamp(0, len(self._dp) - 1)
        left, right = ((p - self._p[i]).abs() <= LEVEL_TOLERANCE for i in (k, k + 1))
        node = torch.where(right, k + 1, k).expand(len(self), -1)
        inside = (p > self._p[0]) & (p < self._p[-1])
        at = left | right | (inside & self._tied.gather(1, k.expand(len(self), -1)))
        end = self._u.gather(1, _run_ends(self._tied, up=up).gather(1, node))
        ends = torch.where(at, self._centre + self._scale * end, self._invert(p))
        # A value that an end goes through is inside, whatever rounding says.
        slack = END_SLACK * self._scale + 16 * EPS * ends.abs()
        return ends + slack if up else ends - slack

    def _cell(self, u: Tensor) -> Tensor:
        k = torch.searchsorted(self._u.detach(), u.detach(), right=True) - 1
        return k.clamp(0, len(self._dp) - 1)

    def _excess(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """How far ``u`` lies below the first and above the last node, zero otherwise."""
        return (self._u[:, :1] - u).clamp_min(0), (u - self._u[:, -1:]).clamp_min(0)

    def _standardise(self, y: Array) -> Tensor:
        y = self._tensor(y)
        if y.shape != (len(self),):
            raise InvalidInputError(
                f"y: expected shape ({len(self)},), one value per point, found {tuple(y.shape)}; "
                "pass the observations of the points that were predicted"
            )
        if not torch.isfinite(y).all():
            raise InvalidInputError(
                f"y: expected finite values, found {int((~torch.isfinite(y)).sum())} that are not; "
                "remove or impute them"
            )
        return (y[:, None] - self._centre) / self._scale

    def _checked_probability(self, p: Array, name: str) -> Tensor:
        p = self._tensor(p)
        if p.ndim > 1 or not ((p >= 0) & (p <= 1)).all():
            raise InvalidInputError(
                f"{name}: expected a number or a flat array in [0, 1], found {_summary(p)}; "
                "pass probabilities, not percentages"
            )
        return p

    def _tensor(self, x: Array) -> Tensor:
        return _as_tensor(x, self._u.device)

    def _answer(self, x: Tensor) -> Array:
        return x.detach().cpu().numpy() if self._as_numpy else x


def _as_tensor(x: Array, device: torch.device | None = None) -> Tensor:
    refuse_other_kinds(x, "values")
    if not isinstance(x, Tensor):
        try:
            # torch refuses negative strides and warns about read-only memory: a copy has neither.
            x = np.array(x, dtype=np.float64, order="C")
        except (TypeError, ValueError, OverflowError):
            raise InvalidInputError(f"expected numbers, found {reprlib.repr(x)}") from None
    return torch.as_tensor(x, dtype=torch.float64, device=device)


def _checked_table(levels: Array, quantiles: Array) -> tuple[Tensor, Tensor]:
    q = _as_tensor(quantiles)
    p = _as_tensor(levels, q.device).clone()
    inside = p.ndim == 1 and len(p) >= 2 and bool((p > 0).all() and (p < 1).all())
    if not inside or not (p.diff() > 0).all():
        raise InvalidInputError(
            "levels: expected at least two, strictly increasing in (0, 1), "
            f"found {_summary(p)}; sort them and drop repeats, 0 and 1"
        )
    if q.ndim != 2 or len(q) != len(p):
        raise InvalidInputError(
            f"quantiles: expected shape ({len(p)}, n), levels first, found {tuple(q.shape)}; "
            "transpose a table whose levels come last"
        )
    if not torch.isfinite(q).all():
        raise InvalidInputError(
            f"quantiles: expected finite values, found {int((~torch.isfinite(q)).sum())} that are "
            "not; drop levels without a finite quantile"
        )
    return p, q


def _summary(x: Tensor) -> str:
    flat = x.flatten()
    if flat.numel() == 0 or x.ndim > 1:
        return f"shape {tuple(x.shape)}"
    return f"{flat.numel()} from {float(flat.min()):g} to {float(flat.max()):g}"


def _row_units(q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centre, scale and smallest spread of the rows of ``q`` [n, K], each [n, 1].

    Values carry a rounding error of ``EPS * magnitude``, which moves probabilities by that over
    the spread of a tie. With a large offset the spread therefore grows to the geometric mean of
    rounding error and scale, where it distorts no more than rounding does.
    """
    K = q.shape[1]
    centre = q[:, (K - 1) // 2, None] / 2 + q[:, K // 2, None] / 2
    magnitude = q.abs().amax(dim=1, keepdim=True)
    scale = q[:, -1:] / 2 - q[:, :1] / 2
    own_value = torch.where(magnitude > 0, magnitude, torch.ones_like(magnitude))
    scale = torch.where(scale > 32 * EPS * magnitude, scale, own_value)
    return centre, scale, (EPS * (magnitude / scale)).sqrt().clamp_min(MIN_SPREAD)


def _separate(u: Tensor, floor: Tensor) -> Tensor:
    """Move nodes as little as needed for ``diff(u) >= diff(floor)``, both sides sharing the move.

    ``u - floor`` has to be nondecreasing; the running maximum from the left and the running
    minimum from the right both achieve it, and so does their mean, which is odd in ``u``.
    """
    t = u - floor
    up = torch.cummax(t, dim=1).values
    down = torch.cummin(t.flip(1), dim=1).values.flip(1)
    return (up + down) / 2 + floor


def _first_wide(w: Tensor, dp: Tensor, min_spread: Tensor) -> Tensor:
    """End node of the first cell that is wider than a spread-out tie, [n, 1]; 1 without any."""
    return (w > 2 * min_spread * dp).byte().argmax(dim=1, keepdim=True) + 1


def _run_ends(tied: Tensor, *, up: bool) -> Tensor:
    """First (or last) node of the run of tied cells [n, K-1] that each node [n, K] belongs to."""
    if up:
        return tied.shape[1] - _run_ends(tied.flip(1), up=False).flip(1)
    nodes = torch.arange(tied.shape[1] + 1, device=tied.device).expand(len(tied), -1)
    starts = torch.cat([torch.zeros_like(tied[:, :1]), tied], dim=1).logical_not()
    return torch.where(starts, nodes, 0).cummax(1).values


def _cone(a: Tensor, b: Tensor) -> Tensor:
    """Mean square of a linear function between its end values ``a`` and ``b``."""
    return (a * a + a * b + b * b) / 3
