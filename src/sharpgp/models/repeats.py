r"""Rows with equal inputs: training rows in their place, known inputs, and predictions there.

Let ``c`` rows have the input ``a``.  They share an effect of that input, with variance ``tau2``;
each also has noise of its own, with variance ``se2``.  Copies of a row have ``se2 = 0``, plain
replicates ``tau2 = 0``.  With ``f`` a model's prediction at ``a`` without these rows, and ``m``
their mean, a further row at ``a`` has

.. code-block:: text

    location  f + w (m - f),   w = tau2 / (tau2 + se2 / c)
    variance  se2 + w se2 / c

This is the posterior of a GP with these two kinds of noise.  It makes predictions sharper; their
coverage rests on ranks within two classes, known and new inputs, see
:mod:`sharpgp.calibration.predictors.seen_or_new`.
"""

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesRegressor
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.data.copies import Nearest, equal_rows
from sharpgp.data.folds import first_of_each
from sharpgp.models.law_memory import law_of
from sharpgp.models.laws import Law, Normal, either
from sharpgp.models.model import HeldOut, Model, WrappedModel
from sharpgp.rows import Inputs, Rows

#: Residuals up to this share of the target's deviation are rounding: copies are predicted exactly.
ROUNDING = 1e-9
# Least own noise as a share of the target's variance, so that no spread is 0.
_LEAST_OWN = 1e-6
# Number of trees, and most inputs, for a first estimate of the variance that inputs do not explain.
_TREES, _MOST_ESTIMATED = 50, 2000


@dataclass(frozen=True)
class Repeats:
    """Training rows, some with equal inputs, and the rows that models are fitted to instead.

    Attributes
    ----------
    X, y : Tensor [N, d], Tensor [N]
        The rows as they were given.
    labels : Tensor [N]
        Number of each row's input, in the order in which inputs first occur.
    fitted : Tensor [P]
        The same for the rows that models are fitted to.
    own : float
        Variance ``se2`` of rows about the mean of their input.
    averaged : float
        Share of ``own`` in the noise of a fitted row: less than 1 for means.
    noise : Tensor [N], optional
        Known variances of the rows' noise.
    groups : Tensor [N], optional
        Groups of the rows; with groups there are no classes.
    drawn : Tensor [C], optional
        Which of the calibration rows were held out one by one; None: all.
    """

    X: Tensor
    y: Tensor
    labels: Tensor
    fitted: Tensor
    own: float
    averaged: float
    noise: Tensor | None = None
    groups: Tensor | None = None
    drawn: Tensor | None = None

    def to(self, device: torch.device) -> "Repeats":
        """The same on a device."""
        return replace(
            self,
            X=self.X.to(device),
            y=self.y.to(device),
            labels=self.labels.to(device),
            fitted=self.fitted.to(device),
            noise=None if self.noise is None else self.noise.to(device),
            groups=None if self.groups is None else self.groups.to(device),
            drawn=None if self.drawn is None else self.drawn.to(device),
        )

    @property
    def tells(self) -> bool:
        """Whether known inputs tell anything about further rows there."""
        return self.noise is None and int(self.labels.max()) + 1 < len(self.labels)

    @property
    def known(self) -> "KnownInputs":
        """The inputs of these rows."""
        return KnownInputs(self.X[first_of_each(self.labels)])

    def count(self) -> Tensor:
        """How many rows each input has [L]."""
        return self.labels.bincount()

    def n_agreeing(self) -> int:
        """How many rows repeat an earlier one in inputs and target."""
        near = equal_rows(self.y.unsqueeze(1)).to(self.labels.device)
        pairs = torch.stack([self.labels, near], 1)
        return len(self.y) - len(pairs.unique(dim=0))

    def by_input(self, held: HeldOut) -> Tensor:
        """Place [L] of each input among points under fits without it; -1 where it is not."""
        found = self.labels.new_full((int(self.labels.max()) + 1,), -1)
        places = torch.arange(len(held.rows), device=found.device)
        return found.scatter(0, self.fitted[held.rows], places)  # equal for all rows of an input


# ------------------------------------------------------------------ what trains


def own_variance(y: np.ndarray, labels: np.ndarray) -> float:
    """Variance of targets about the mean of their label, pooled; 0 where no label repeats.

    Examples
    --------
    >>> own_variance(np.array([1.0, 3.0, 9.0]), np.array([0, 0, 1]))
    2.0
    """
    centred = y - label_means(y, labels)[labels]
    freedom = len(y) - int(labels.max()) - 1
    return float(centred @ centred) / freedom if freedom else 0.0


def label_means(y: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mean target of each label; of equal targets exactly that value.

    Examples
    --------
    >>> label_means(np.array([0.1, 0.1, 0.1, 4.0]), np.array([0, 0, 0, 1])).tolist()
    [0.1, 4.0]
    """
    first = y[np.unique(labels, return_index=True)[1]]
    return np.asarray(first + np.bincount(labels, y - first[labels]) / np.bincount(labels))


def fitted_rows(
    X: np.ndarray, y: np.ndarray, labels: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    r"""Rows [P] that models are fitted to, and their targets: an effective number for each input.

    The mean of ``c`` rows has noise ``tau2 + se2 / c``, that of ``k`` independent rows
    ``(tau2 + se2) / k``: equal for ``k = c / (1 + (c - 1) rho)``, ``rho = tau2 / (tau2 + se2)``.
    So models are fitted to ``k`` (rounded) rows of an input, moved to the mean of all ``c``: one
    row for copies, all for independent measurements.

    Examples
    --------
    >>> X = np.linspace(0, 1, 20)[:, None].repeat(2, axis=0)
    >>> rows, targets = fitted_rows(X, np.sin(X[:, 0]), np.arange(20).repeat(2), 0)
    >>> len(rows), bool((targets == np.sin(X[rows, 0])).all())
    (20, True)
    """
    count, mean, own = np.bincount(labels), label_means(y, labels), own_variance(y, labels)
    shared = _shared_variance(X, y, labels, own, seed)
    rho = shared / (shared + own) if shared + own > 0.0 else 1.0
    worth = np.rint(count / (1.0 + (count - 1) * rho)).astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(y))
    by_label = order[np.argsort(labels[order], kind="stable")]
    start = np.cumsum(count) - count
    place = np.empty(len(y), dtype=np.int64)
    place[by_label] = np.arange(len(y)) - start[labels[by_label]]
    rows = np.flatnonzero(place < worth[labels])
    of_rows = labels[rows]
    moved = mean - np.bincount(of_rows, y[rows]) / np.bincount(of_rows)
    targets = np.where(worth == count, 0.0, moved)[of_rows] + y[rows]
    return rows, np.where(worth[of_rows] == 1, mean[of_rows], targets)


def _shared_variance(
    X: np.ndarray, y: np.ndarray, labels: np.ndarray, own: float, seed: int
) -> float:
    """First estimate of ``tau2``: variance of the means that trees, out of bag, do not explain."""
    count, mean = np.bincount(labels), label_means(y, labels)
    if own <= ROUNDING * y.var():
        return float(y.var())
    first = np.unique(labels, return_index=True)[1]
    some = np.random.default_rng(seed).permutation(len(mean))[:_MOST_ESTIMATED]
    residual = mean[some] - mean[some].mean()
    if len(some) > 2:
        trees = ExtraTreesRegressor(_TREES, bootstrap=True, oob_score=True, random_state=seed)
        trees.fit(X[first[some]], mean[some])
        residual = mean[some] - trees.oob_prediction_
    return max(float(residual @ residual) / len(some) - own * float((1.0 / count).mean()), 0.0)


# ------------------------------------------------------------------ what is known


@stored("KnownInputs")
@dataclass(frozen=True, eq=False, repr=False)
class KnownInputs:
    """Distinct inputs [L, d], and which points have one of them.

    Examples
    --------
    >>> known = KnownInputs(torch.tensor([[0.0, 1.0], [2.0, 3.0]]).double())
    >>> known.find(torch.tensor([[2.0, 3.0], [2.0, 4.0]]).double()).tolist()
    [1, -1]
    """

    X: Annotated[Tensor, Array("L d")]

    @cached_property
    def _nearest(self) -> Nearest:
        return Nearest(self.X)

    def find(self, rows: Inputs) -> Tensor:
        """Number [T] of each row's input, up to rounding; -1 where it is new."""
        return self._nearest.find(Rows.of(rows).X)


@stored(
    "SeenModel", transient=dict.fromkeys(("known", "mean", "count", "rounding", "_shared", "_law"))
)
@dataclass(eq=False, repr=False)
class SeenModel(WrappedModel):
    """A model that also knows the measurements at each of its inputs.

    Parameters
    ----------
    model : Model
    X, y : Tensor [N, d], Tensor [N]
        All rows that trained it.
    without : Tensor [2, L]
        Location and spread of each input under a fit without it.
    own, averaged, labels
        See :class:`Repeats`.
    """

    model: Model
    X: Annotated[Tensor, Array("N d")]
    y: Annotated[Tensor, Array("N")]
    without: Annotated[Tensor, Array("two L")]
    own: float
    averaged: float
    labels: Annotated[Tensor | None, Array("N", whole=True)] = None

    @classmethod
    def learned(cls, model: Model, repeats: Repeats, held: HeldOut | None) -> "SeenModel":
        """The model with what its training rows tell; ``held``: fits without each input."""
        with torch.no_grad():
            law = model.law(repeats.X[first_of_each(repeats.labels)])
        without = torch.stack([law.location, law.spread])
        if held is not None:
            place = repeats.by_input(held)
            honest = torch.stack([held.law.location, held.law.spread])[:, place]
            without = torch.where(place < 0, without, honest)
        data = repeats.X, repeats.y, without, repeats.own, repeats.averaged, repeats.labels
        return cls(model, *data)

    def __post_init__(self) -> None:
        device = self.X.device
        if self.labels is None:  # as in files of earlier versions
            self.labels = equal_rows(self.X).to(device)
        agree("inputs", tuple(self.without.shape), (2, int(self.labels.max()) + 1))
        mean = label_means(self.y.cpu().numpy(), self.labels.cpu().numpy())
        self.mean = torch.from_numpy(mean).to(device)
        self.count = self.labels.bincount()
        self.known = KnownInputs(self.X[first_of_each(self.labels)])
        self.rounding = ROUNDING * float(self.y.std())
        # Effects of inputs have the size of the residuals of repeated ones.
        variance, several = self.without[1].square(), self.count > 1
        residual = (self.mean - self.without[0])[several]
        size = residual.square().sum() / variance[several].sum()
        self._shared = (size * variance - self.averaged * self.own).clamp_min(0.0)
        every = torch.arange(len(mean), device=device)
        self._law = self.law_of_known(every, self.mean, self.count)

    def law_of_known(self, inputs: Tensor, mean: Tensor, count: Tensor) -> Normal:
        """The law of a further row at some inputs [n], by number.

        ``mean`` and ``count`` [n] are those of the rows that are known there.
        """
        f, shared, noise = self.without[0][inputs], self._shared[inputs], self.own / count.double()
        weight = torch.where(shared + noise > 0.0, shared / (shared + noise), 1.0)
        own = max(self.own, _LEAST_OWN * float(self.y.var()))
        spread = (own + weight * noise).sqrt()
        location = torch.lerp(f, mean, weight)  # exact for copies
        return Normal(location, spread if self.normalised else torch.ones_like(spread))

    @property
    def scores(self) -> Tensor | None:  # type: ignore[override]
        """Held-out scores of the model, for new inputs."""
        return self.model.scores

    @property
    def learned_from(self) -> tuple[Rows, Tensor]:
        return Rows(self.X), self.y

    @property
    def normalised(self) -> bool:  # type: ignore[override]
        return self.model.normalised

    def law(self, rows: Inputs) -> Law:
        found = self.known.find(rows)
        return either(found >= 0, self.of_single(self.model.law(rows)), self._law.take(found))

    def location(self, rows: Inputs) -> Tensor:
        found = self.known.find(rows)
        return torch.where(found >= 0, self._law.location[found], self.model.location(rows))

    def of_single(self, law: Law) -> Law:
        """The law of single rows at new inputs, where the model was fitted to means."""
        more = (1.0 - self.averaged) * self.own
        if not more or not self.normalised:
            return law
        return law.changed(factor=(1.0 + more / law.spread.square()).sqrt())

    def score(self, rows: Inputs, y: Tensor) -> Tensor:
        """Residuals within rounding are 0."""
        law = law_of(self, rows)
        return law.score(self.rounded(y, law.location))

    def rounded(self, y: Tensor, location: Tensor) -> Tensor:
        """Targets, moved to the location where they differ only by rounding."""
        return torch.where((y - location).abs() <= self.rounding, location, y)

    def extended(self, rows: Inputs, y: Tensor) -> "SeenModel":
        """New rows join the known ones."""
        return self._with(self.model.extended(rows, y), Rows.of(rows).X, y)

    def updated(self, rows: Inputs, y: Tensor) -> "SeenModel":
        return self._with(self.model.updated(rows, y), Rows.of(rows).X, y)

    def compact(self) -> "SeenModel":
        other = copy.copy(self)
        other.model = self.model.compact()
        return other

    def _with(self, model: Model, X: Tensor, y: Tensor) -> "SeenModel":
        assert self.labels is not None
        known, L = self.known.find(X), self.without.shape[1]
        new = (known < 0).nonzero()[:, 0]
        further = equal_rows(X[new]).to(X.device)
        labels = known.clone()
        labels[new] = further + L
        # The present model has not seen them.
        law = self.model.law(X[new[first_of_each(further)]])
        without = torch.cat([self.without, torch.stack([law.location, law.spread])], 1)
        every = torch.cat([self.X, X]), torch.cat([self.y, y])
        labels = torch.cat([self.labels, labels])
        return SeenModel(model, *every, without, self.own, self.averaged, labels)
