"""Predictive distributions that are given by a table of quantiles: checks, shapes, arrays."""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from sharpgp._quantile_table import EPS, DistributionTable, QuantileTable
from sharpgp._rounded import RoundedTable
from sharpgp._tail import Tail
from sharpgp._validation import refuse_other_kinds
from sharpgp.exceptions import InvalidInputError

__all__ = ["PredictiveDistribution"]

Array: TypeAlias = Any  # torch.Tensor, or numpy.ndarray when the distribution answers in NumPy


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
        Distribution beyond the outermost quantiles, with a scale [n] on both sides, or [2, n].
    caution : callable, optional
        Called with the levels requested from :meth:`quantile` and :meth:`interval`, and for
        intervals the coverage, so that it can warn about those that data do not support.
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
        self._table = QuantileTable(*_checked_table(levels, quantiles), tail)
        self._law: DistributionTable = self._table

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"PredictiveDistribution({len(self)} points, {len(self._table.p)} levels)"

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

    def rounded(self, step: float = 1.0) -> PredictiveDistribution:
        r"""Return the distribution of values that are whole numbers, or multiples of ``step``.

        Grades, counts and readings of a coarse scale are not continuous, but predictions are.  A
        value :math:`k s` has the probability of all values rounded to it,

        .. math:: P(R = k s) = F((k + \tfrac12) s) - F((k - \tfrac12) s) .

        ``cdf`` jumps, ``log_prob`` is the log of a probability, and quantiles, draws and ends of
        intervals are multiples of ``step``.  Intervals cover at least what they claim, usually
        more: take those of ``predict_interval`` for coverage, and this for probabilities, mean and
        CRPS.  If thousands of steps are likely, these two are computed before rounding, which
        changes them by at most a step.

        Examples
        --------
        >>> dist = PredictiveDistribution([0.25, 0.75], [[-1.0], [1.0]], numpy=True)
        >>> grades = dist.rounded()
        >>> grades.quantile([0.05, 0.5, 0.7]).tolist(), grades.cdf([0.0]).tolist()
        ([[-3.0, 0.0, 1.0]], [0.625])
        >>> np.exp(grades.log_prob([0.0])), grades.crps([0.0]).round(4)
        (array([0.25]), array([0.334]))
        """
        number = isinstance(step, int | float | np.number) and not isinstance(step, bool)
        if not number or not 0 < step < np.inf:
            raise InvalidInputError(f"step: expected a positive number, found {step!r}")
        view = copy.copy(self)
        view._law = RoundedTable(self._law, float(step))
        return view

    @property
    def levels(self) -> Array:
        """Levels of the table, shape (K,)."""
        return self._answer(self._table.p.clone())

    @property
    def quantiles(self) -> Array:
        """Quantiles of the table, shape (n, K), rearranged and with ties spread out."""
        return self._answer(self._law.quantiles())

    @property
    def mean(self) -> Array:
        """Expected value, tails included, shape (n,)."""
        return self._answer(self._law.mean().squeeze(1))

    @property
    def std(self) -> Array:
        """Standard deviation, tails included, shape (n,)."""
        return self._answer(self._law.std().squeeze(1))

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
        q = self._law.quantile(p.reshape(1, -1))
        return self._answer(q.squeeze(1) if p.ndim == 0 else q)

    def interval(self, coverage: Array) -> Array:
        r"""Return the centred interval from :math:`Q((1-c)/2)` to :math:`Q((1+c)/2)`.

        The interval is closed.  Its ends are rounded outward and moved out of tied quantiles, so
        that it contains the tied value.

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
        ends = torch.stack(
            [self._law.interval_end(lower, up=False), self._law.interval_end(upper, up=True)], dim=1
        )
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
        return self._answer(self._law.quantile(self._tensor(p).clamp_min(EPS / 2)))

    def cdf(self, y: Array) -> Array:
        """Return the probability of a value up to ``y``, strictly increasing; (n,) -> (n,).

        Examples
        --------
        >>> dist = PredictiveDistribution([0.25, 0.75], [[-1.0], [1.0]], numpy=True)
        >>> dist.cdf([0.5])
        array([0.625])
        """
        return self._answer(self._law.cdf(self._observed(y)).squeeze(1))

    def log_prob(self, y: Array) -> Array:
        """Return the log density at ``y``; (n,) -> (n,).

        Examples
        --------
        >>> dist = PredictiveDistribution([0.25, 0.75], [[-1.0], [1.0]], numpy=True)
        >>> np.exp(dist.log_prob([0.5]))
        array([0.25])
        """
        return self._answer(self._law.log_density(self._observed(y)).squeeze(1))

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
        return self._answer(self._law.crps(self._observed(y)).squeeze(1))

    def _observed(self, y: Array) -> Tensor:
        """Observations [n, 1], one for each point."""
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
        return y[:, None]

    def _checked_probability(self, p: Array, name: str) -> Tensor:
        p = self._tensor(p)
        if p.ndim > 1 or not ((p >= 0) & (p <= 1)).all():
            raise InvalidInputError(
                f"{name}: expected a number or a flat array in [0, 1], found {_summary(p)}; "
                "pass probabilities, not percentages"
            )
        return p

    def _tensor(self, x: Array) -> Tensor:
        return _as_tensor(x, self._table.p.device)

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
