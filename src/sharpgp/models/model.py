"""What calibration needs of a model: a location, a spread, and points that it has not seen."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sharpgp.gp.posterior import Posterior
from sharpgp.models.folds import Split
from sharpgp.models.weights import pooled_crps


@dataclass(frozen=True)
class HeldOut:
    """Training points under fits that have not seen them.

    Attributes
    ----------
    rows : Tensor [n]
        Which training points.
    location, spread : Tensor [n]
    scores : Tensor [n]
        ``(y - location) / spread``, or what a model makes of that.
    """

    rows: Tensor
    location: Tensor
    spread: Tensor
    scores: Tensor

    @classmethod
    def joined(cls, parts: Sequence["HeldOut"]) -> "HeldOut":
        """Several as one, in their order."""
        names = ("rows", "location", "spread", "scores")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))

    def crps(self, y: Tensor, weights: Tensor | None = None) -> float:
        """Mean CRPS of ``location + spread * score``, for targets and weights [N] of all points."""
        weights = None if weights is None else weights[self.rows]
        return float(pooled_crps(self.location, self.spread, y[self.rows], weights)[0])

    def by_part(self, pairs: Sequence[Split]) -> tuple[Tensor, ...]:
        """Scores of each part, for rows in the order of the parts."""
        return self.scores.split([len(test) for _, test in pairs])

    def in_order(self) -> "HeldOut":
        """The same in the order of the training points."""
        rows, order = self.rows.sort()
        return HeldOut(rows, self.location[order], self.spread[order], self.scores[order])

    def only(self, rows: Tensor) -> "HeldOut":
        """Those of some rows, which are among these, in the order of the training points."""
        chosen = torch.isin(self.rows, rows)
        found = (part[chosen] for part in (self.rows, self.location, self.spread, self.scores))
        return HeldOut(*found).in_order()

    def at(self, rows: Tensor) -> "HeldOut":
        """Some of all training points, which these are in their order."""
        return HeldOut(rows, self.location[rows], self.spread[rows], self.scores[rows])


class ScoreShape(ABC):
    """Increasing functions ``g_m``, one for each location ``m``: of scores, in spreads."""

    @abstractmethod
    def stretched(self, beta: Tensor, location: Tensor) -> Tensor:
        """``g_m(beta)`` [K, T] for ``beta`` [K, T or 1] at locations [T]."""

    @abstractmethod
    def unstretched(self, z: Tensor, location: Tensor) -> Tensor:
        """``g_m^-1(z)`` [T] for ``z`` [T] at locations [T]."""

    def stretched_table(self, table: Tensor, location: Tensor) -> tuple[Tensor, Tensor]:
        """``g_m`` of increasing scores [K, T or 1], and how many times as wide they are then [T].

        Tails beyond the table grow as it does on average.
        """
        least = torch.finfo(table.dtype).tiny
        found = self.stretched(table, location)
        width, before = (each[-1] - each[0] for each in (found, table))
        return found, width.clamp_min(least) / before.clamp_min(least)


class Model(ABC):
    """Location and spread of ``y`` at ``x``, so that ``Q = location + beta * spread``.

    Learned from training data alone; it can be learned again from any of them.  Answers are in
    the user's units, for inputs of shape [T, d].  Rows that share one of the ``labels`` [N] are
    left out together.

    Attributes
    ----------
    posterior : Posterior
        The GP that the model rests on.
    scores : Tensor [N] or None
        Held-out z-scores of its own training points, where it has any.
    normalised : bool
        Whether ``beta`` counts spreads; else it is in units of the target.
    shape : ScoreShape or None
        How many spreads a score stands for at a location; None: as many as it says.
    rounding : float
        Residuals up to this size count as 0, and intervals are wider by as much at each end.
    """

    posterior: Posterior
    scores: Tensor | None = None
    shape: "ScoreShape | None" = None
    rounding: float = 0.0
    normalised: ClassVar[bool] = True

    @abstractmethod
    def location(self, X: Tensor) -> Tensor:
        """Centre [T] of the prediction."""

    @abstractmethod
    def spread(self, X: Tensor) -> Tensor:
        """Spread [T] about the location, positive."""

    def location_and_spread(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Both [T], for models in which they share work."""
        return self.location(X), self.spread(X)

    def at(self, beta: Tensor, X: Tensor) -> Tensor:
        """What scores ``beta`` [K, T or 1] stand for at ``X``, [K, T]; increasing in ``beta``."""
        location, spread = self.location_and_spread(X)
        if self.shape is not None:
            beta = self.shape.stretched(beta, location)
        return location + beta * spread

    def scores_of(self, X: Tensor, y: Tensor) -> Tensor:
        """Scores [T] of ``y`` [T] at ``X``: the inverse of :meth:`at`."""
        location, spread = self.location_and_spread(X)
        z = (y - location) / spread
        return z if self.shape is None else self.shape.unstretched(z, location)

    @abstractmethod
    def extended(self, X: Tensor, y: Tensor) -> "Model":
        """The same model conditioned on further data; what was learned otherwise is kept."""

    @abstractmethod
    def updated(self, X: Tensor, y: Tensor) -> "Model":
        """As :meth:`extended`, and what is estimated from residuals learns, too."""

    @property
    def n_features(self) -> int:
        """Number of features ``d``."""
        return self.posterior.n_features

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.posterior.device

    @property
    def X_train(self) -> Tensor:
        """Training inputs [N, d]."""
        X: Tensor = self.posterior.X_train
        return X

    @property
    def weighted(self) -> bool:
        """Whether the last feature is the logarithm of each observation's relative noise."""
        return self.posterior.weighted

    @property
    def inputs(self) -> Tensor:
        """Training inputs without weights [N, d]."""
        return self.X_train[:, :-1] if self.weighted else self.X_train

    @property
    def row_weights(self) -> Tensor | None:
        """Weights [N] of the training points, where they have any."""
        return (-self.X_train[:, -1]).exp() if self.weighted else None

    @property
    def y_train(self) -> Tensor:
        """Training targets [N]."""
        y: Tensor = self.posterior.y_train
        return y


class Learner(Model):
    """A model that can be learned again from some of its data: what can calibrate itself.

    Attributes
    ----------
    has_posterior : bool
        False for one that rests on no GP.
    """

    has_posterior: bool = True

    @abstractmethod
    def extended(self, X: Tensor, y: Tensor) -> "Learner":
        """See :meth:`Model.extended`."""

    @abstractmethod
    def updated(self, X: Tensor, y: Tensor) -> "Learner":
        """See :meth:`Model.updated`."""

    @abstractmethod
    def relearned(self, X: Tensor, y: Tensor, labels: Tensor, seed: int) -> "Learner":
        """The same kind of model from other data, with every choice made again."""

    @abstractmethod
    def leave_one_out(self, labels: Tensor, seed: int) -> HeldOut:
        """The training points, without refits: what a fit knows without a point, quickly.

        Beyond :data:`~sharpgp.gp.sizes.MOST_LEFT_OUT` points, those of
        :func:`~sharpgp.models.folds.judging_rows`.
        """

    @abstractmethod
    def out_of_fold(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> "OutOfFold":
        """Refits to the rows of each pair, and the points that each pair tests under them."""

    def out_of_training(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> "OutOfFold":
        """As :meth:`out_of_fold`, for parts drawn at random: what needs no training may know more.

        A model that can be conditioned on points without being trained on them predicts each
        point from all others, by refits that were trained without it.  Others learn everything
        from the rows of a pair.
        """
        return self.out_of_fold(pairs, labels, seed)


@dataclass(frozen=True)
class OutOfFold:
    """What refits to parts of the data say.

    Attributes
    ----------
    model : Learner
        The fit to all data.
    refits : sequence of Learner
        One for each pair, or for several of them; the fit itself where it has not seen the points.
    held : HeldOut
        Tested points, in the order of the training points.
    """

    model: Learner
    refits: Sequence[Learner]
    held: HeldOut


def held_out_of(fits: Sequence[Model], pairs: Sequence[Split], X: Tensor, y: Tensor) -> HeldOut:
    """The rows that each pair tests, in the order of the pairs, under the fit without them."""
    with torch.no_grad():
        tests = zip(fits, pairs, strict=True)
        found = [fit.location_and_spread(X[test]) for fit, (_, test) in tests]
        location, spread = (torch.cat(part) for part in zip(*found, strict=True))
    rows = torch.cat([test for _, test in pairs])
    return HeldOut(rows, location, spread, (y[rows] - location) / spread)
