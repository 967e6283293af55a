"""What calibration needs from a model: scores and values, and held-out points."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sharpgp._forwarded import forwarded
from sharpgp.data.folds import Split
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.posterior import Posterior
from sharpgp.models.law_memory import law_of
from sharpgp.models.laws import Law, Normal, joined
from sharpgp.models.pool_weights import crps_of_scores
from sharpgp.rows import Inputs, Rows


@dataclass(frozen=True)
class HeldOut:
    """Training points under fits that have not seen them.

    Attributes
    ----------
    rows : Tensor [n]
        Which training points.
    law : Law
        Predictions of the fits for these points.
    scores : Tensor [n]
        Scores of the targets under this law.
    """

    rows: Tensor
    law: Law
    scores: Tensor

    @classmethod
    def from_law(cls, rows: Tensor, law: Law, y: Tensor) -> "HeldOut":
        """With the scores of the targets [n] of these rows."""
        return cls(rows, law, law.score(y))

    @classmethod
    def joined(cls, parts: Sequence["HeldOut"]) -> "HeldOut":
        """Several as one, in order."""
        rows, scores = (torch.cat([getattr(one, f) for one in parts]) for f in ("rows", "scores"))
        return cls(rows, joined([part.law for part in parts]), scores)

    def crps(self, y: Tensor, weights: Tensor | None = None) -> float:
        """Mean CRPS of the law with these scores, for targets and weights [N] of all points."""
        weights = None if weights is None else weights[self.rows]
        return crps_of_scores(self.law, self.scores, y[self.rows], weights)

    def by_part(self, pairs: Sequence[Split]) -> tuple[Tensor, ...]:
        """Scores of each part, for rows in the order of the parts."""
        return self.scores.split([len(test) for _, test in pairs])

    def in_order(self) -> "HeldOut":
        """The same in the order of the training points."""
        return self.take(self.rows.argsort())

    def take_rows(self, rows: Tensor) -> "HeldOut":
        """The points of some rows among these, in the order of the training points."""
        return self.take(torch.isin(self.rows, rows).nonzero()[:, 0]).in_order()

    def take(self, places: Tensor) -> "HeldOut":
        """Some of these points, by position."""
        return HeldOut(self.rows[places], self.law.take(places), self.scores[places])


class Model(ABC):
    """Turns ``y`` at ``x`` into a score, and back: ``Q(delta, x) = value(x, beta(delta))``.

    Learned from training data alone; it can be learned again from any of them.  Answers are in
    the user's units, for rows, or for their features [T, d] alone.  A law does not depend on the
    weight of a row.  Rows that share one of the ``labels`` [N] are left out together.  A kind of
    model has a :meth:`law`.

    Attributes
    ----------
    scores : Tensor [N] or None
        Held-out scores of its own training points, if any.
    normalised : bool
        Whether scores are standard ones; otherwise they are in units of the target.
    rounding : float
        Residuals up to this size count as 0, and intervals are wider by as much at each end.
    """

    scores: Tensor | None = None
    normalised: ClassVar[bool] = True
    rounding: float = 0.0
    #: Units whose rows it also knows one by one, if any: a point is then of a known one or new.
    known: Any = None

    @abstractmethod
    def law(self, rows: Inputs) -> Law:
        """The law of ``y`` at each row [T]."""

    def location(self, rows: Inputs) -> Tensor:
        """Centre [T] of the prediction."""
        return law_of(self, rows).location

    def value(self, rows: Inputs, z: Tensor) -> Tensor:
        """Targets [K, T] that scores ``z`` [K, T or 1] of rows stand for; increasing in ``z``."""
        return law_of(self, rows).value(z)

    def score(self, rows: Inputs, y: Tensor) -> Tensor:
        """Scores [T] of ``y`` [T] at each row: the inverse of :meth:`value`."""
        return law_of(self, rows).score(y)

    @abstractmethod
    def extended(self, rows: Inputs, y: Tensor) -> "Model":
        """The same model conditioned on further data; everything that was learned stays."""

    @abstractmethod
    def updated(self, rows: Inputs, y: Tensor) -> "Model":
        """As :meth:`extended`, and everything estimated from residuals also learns."""

    def compact(self) -> "Model":
        """The same answers without what only learning again needs; by default the model itself."""
        return self

    @property
    @abstractmethod
    def gp(self) -> Posterior | None:
        """The GP of the model; of several, the one with the largest weight."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features ``d``."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where tensors live."""

    @property
    @abstractmethod
    def rows(self) -> Rows:
        """Training rows [N]."""

    @property
    @abstractmethod
    def y_train(self) -> Tensor:
        """Training targets [N]."""

    @property
    def X_train(self) -> Tensor:
        """Features [N, d] of the training rows."""
        return self.rows.X

    @property
    def learner(self) -> "Learner | None":
        """What can be learned again: the model, or the one that it is around; None for neither."""
        return None

    @property
    def learned_from(self) -> tuple[Rows, Tensor]:
        """All rows that trained it, where some stand for several."""
        return self.rows, self.y_train


class GPModel(Model):
    """A model that rests on one GP: ``value(x, z) = location(x) + z spread(x)``.

    Attributes
    ----------
    posterior : Posterior
    """

    posterior: Posterior

    @abstractmethod
    def location_and_spread(self, rows: Inputs) -> tuple[Tensor, Tensor]:
        """Both [T]; the spread is positive."""

    def law(self, rows: Inputs) -> Normal:
        return Normal(*self.location_and_spread(rows))

    gp = forwarded("posterior")

    n_features = forwarded("posterior.n_features")
    device = forwarded("posterior.device")
    rows = forwarded("posterior.rows")
    y_train = forwarded("posterior.y_train")


class WrappedModel(Model):
    """A model around another one, with the other's data and GP."""

    model: Model

    gp = forwarded("model.gp")
    rows = forwarded("model.rows")
    y_train = forwarded("model.y_train")
    n_features = forwarded("model.n_features")
    device = forwarded("model.device")
    learner = forwarded("model.learner")


def needed_gp(model: Model) -> Posterior:
    """The GP of a model; one without is an error."""
    if model.gp is None:
        raise InvalidInputError(
            f"expected a model with a GP, found {type(model).__name__}; add a kernel, such as "
            "'matern32', to base"
        )
    return model.gp


class Learner(Model):
    """A model that can be learned again from some of its data, and so calibrate itself."""

    def compact(self) -> "Learner":
        return self

    @abstractmethod
    def extended(self, rows: Inputs, y: Tensor) -> "Learner":
        """See :meth:`Model.extended`."""

    @abstractmethod
    def updated(self, rows: Inputs, y: Tensor) -> "Learner":
        """See :meth:`Model.updated`."""

    @property
    def learner(self) -> "Learner":
        return self

    def restricted(self, keep: Callable[[Rows], Tensor]) -> "Learner":
        """The same model of the training rows that ``keep`` names by number.

        Conditioned on them where that forgets the others, else learned again.
        """
        kept = keep(self.rows)
        labels = torch.arange(len(kept), device=kept.device)
        return self.relearned(self.rows[kept], self.y_train[kept], labels, 0)

    def without_part(self, rest: Tensor, part: int, n_parts: int) -> "Learner | None":
        """The fit to the training rows ``rest`` [n], all but those of a part, without learning.

        None if there is no such fit.
        """
        return None

    @abstractmethod
    def relearned(self, rows: Inputs, y: Tensor, labels: Tensor, seed: int) -> "Learner":
        """The same kind of model from other data, with every choice made again."""

    @abstractmethod
    def leave_one_out(self, labels: Tensor, seed: int) -> HeldOut:
        """The training points, each predicted without itself, quickly and without refits."""

    @abstractmethod
    def out_of_fold(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> "OutOfFold":
        """Refits to the rows of each pair, and the points that each pair tests under them."""

    def out_of_training(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> "OutOfFold":
        """As :meth:`out_of_fold`, for random parts; only training has to leave the points out.

        A model that can be conditioned without training predicts each point from all others, by
        refits that were not trained on it.  Others learn everything from the rows of a pair.
        """
        return self.out_of_fold(pairs, labels, seed)

    def tried(
        self, rows: Rows, y: Tensor, learned: Tensor, pairs: Sequence[Split], seed: int
    ) -> "OutOfFold":
        """The same kind of model of a few rows [P], and predictions of those that pairs test.

        A model that can be conditioned without training has seen the rows ``learned``, by number,
        and predicts the others; other models learn everything again.
        """
        labels = torch.arange(len(y), device=y.device)
        return self.relearned(rows, y, labels, seed).out_of_fold(pairs, labels, seed)


@dataclass(frozen=True)
class OutOfFold:
    """Refits to parts of the data, and their predictions of the other parts.

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


def held_out_of(fits: Sequence[Model], pairs: Sequence[Split], rows: Inputs, y: Tensor) -> HeldOut:
    """The rows that each pair tests, in the order of the pairs, under the fit without them."""
    with torch.no_grad():
        law = joined([fit.law(rows[test]) for fit, (_, test) in zip(fits, pairs, strict=True)])
    tested = torch.cat([test for _, test in pairs])
    return HeldOut.from_law(tested, law, y[tested])
