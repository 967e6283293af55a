"""A GP with its learned spread, and its refits on parts of the data."""

import copy
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from sharpgp import _progress as progress
from sharpgp._ranks import q_lin
from sharpgp._stored import Array, agree, stored
from sharpgp.gp.compute import side_by_side
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.sizes import LEARNED_ROWS, MOST_LEFT_OUT
from sharpgp.models.folds import Split, judging_rows
from sharpgp.models.heteroscedastic import ScaleModel
from sharpgp.models.laws import Normal
from sharpgp.models.model import GPModel, HeldOut, Learner, OutOfFold, held_out_of
from sharpgp.models.splitters import judging_pairs, merged
from sharpgp.models.spread_choice import (
    Choice,
    Chosen,
    choose_spread,
    loo_of,
    runs_in_threads,
    same_spread,
)

# Parts that training leaves out at once where the GP is given all other points later, so that only
# hyperparameters miss them; with fewer parts than so many, one at a time.
_PARTS_AT_ONCE, _FEWEST_PARTS = 2, 6
# Parts that are left out in turn where inputs repeat, so that no single point can be.
_LEFT_OUT = 20


def learn_gaussian(
    posterior: Posterior,
    seed: int = 0,
    labels: Tensor | None = None,
    like: Sequence[Choice] | None = None,
) -> "GaussianModel":
    """The GP's mean and the spread that suits its training data best.

    See :func:`sharpgp.models.spread_choice.choose_spread`.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> model = learn_gaussian(train(X, X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0]))[0])
    >>> model.location(X).shape, model.spread(X).shape
    (torch.Size([60]), torch.Size([60]))
    """
    return GaussianModel(choose_spread(posterior, seed, labels, like), posterior)


@stored(
    "GaussianModel",
    posterior=Posterior,
    theta=Array("P", positive=True),
    choice=Choice,
    scale=ScaleModel | None,
    unit=Array(positive=True),
    scores=Array("n"),
    transient={"trained": None},
)
class GaussianModel(GPModel, Learner):
    """``mu(x)`` and ``unit sigma(theta, x) exp(share g(x) / 2)``, from training data alone.

    ``unit`` makes the :func:`magnitude` of the leave-one-out z-scores 1, so that scores of
    different fits can be pooled.

    Attributes
    ----------
    posterior : Posterior
        The GP as it was trained, or one on a warped target.
    scores : Tensor [n]
        Leave-one-out z-scores of the training points, or of those that stand for all.
    trained : Posterior or None
        The GP as it was trained, from which refits take their start; not kept in files.
    """

    scores: Tensor

    def __init__(self, chosen: Chosen, trained: Posterior | None = None) -> None:
        self.trained = trained
        self.posterior = chosen.posterior
        self.theta = chosen.theta
        self.choice = chosen.choice
        self.scale = chosen.scale
        residuals, sigma = self._loo()
        z = residuals / sigma
        self.unit = magnitude(z)
        self.scores = z / self.unit

    def _loo(self) -> tuple[Tensor, Tensor]:
        """Leave-one-out residuals, and deviations that are not brought to unit size [N]."""
        residuals, sigma = loo_of(self.posterior, self.theta)
        if self.scale is not None:
            sigma = sigma * (0.5 * self.choice.share * self.scale.log_square_loo()).exp()
        return residuals, sigma

    @property
    def _start(self) -> Posterior:
        return self.posterior if self.trained is None else self.trained

    def _restored(self) -> None:
        agree("length of theta", len(self.theta), len(self.posterior.theta_R))
        if self.scale is not None:
            agree(
                "features of the scale model", self.scale.gp.n_features, self.posterior.n_features
            )

    def location(self, X: Tensor) -> Tensor:
        """``mu`` [T]."""
        return self.posterior.mean(X)

    def location_and_spread(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """``mu`` and ``sigma_total`` [T]."""
        if not torch.equal(self.theta, self.posterior.theta_R):
            sigma = self.posterior.sigma(self.theta.unsqueeze(0), X)[0]
            return self.location(X), self._scaled(sigma, X)
        location, sigma = self.posterior.mean_and_sigma(X)
        return location, self._scaled(sigma, X)

    def _scaled(self, sigma: Tensor, X: Tensor) -> Tensor:
        return sigma * self._factor(X) * self.unit

    def _factor(self, X: Tensor) -> Tensor:
        """By what the scale model multiplies deviations at new points [T]."""
        if self.scale is None:
            return X.new_ones(len(X))
        return (0.5 * self.choice.share * self.scale.log_square(X)).exp()

    def extended(self, X: Tensor, y: Tensor) -> Self:
        """See :meth:`Model.extended`: ``theta``, unit and scale model stay."""
        other = copy.copy(self)
        other.posterior = self.posterior.extended(X, y)
        return other

    def updated(self, X: Tensor, y: Tensor) -> "GaussianModel":
        """See :meth:`Model.updated`: the scale model learns, every hyperparameter stays."""
        return self.conditioned(self.posterior.extended(X, y))

    def conditioned(self, posterior: Posterior) -> "GaussianModel":
        """The same model, every hyperparameter kept, on a posterior conditioned on other data."""
        scale = None
        if self.scale is not None:
            residuals, sigma = loo_of(posterior, self.theta)
            part, _ = posterior.sampled
            scale = self.scale.conditioned_on(part.X_train, residuals / sigma)
        return GaussianModel(Chosen(posterior, self.theta, self.choice, scale))

    def relearned(self, X: Tensor, y: Tensor, labels: Tensor, seed: int) -> "GaussianModel":
        """See :meth:`Model.relearned`."""
        posterior = self._start.keeping_together(labels).retrained(X, y, start="fresh")
        return learn_gaussian(posterior, seed, labels)

    def leave_one_out(self, labels: Tensor, seed: int) -> HeldOut:
        """See :meth:`Model.leave_one_out`: in closed form, with every hyperparameter kept.

        Where labels tie rows together, parts of them are left out instead of single points.
        """
        n = len(labels)
        if len(labels.unique()) < n and self.posterior.can_leave_out:
            with torch.no_grad():
                pairs = judging_pairs(labels, _LEFT_OUT, seed)
                fits = [self.conditioned(self.posterior.at_rows(rest)) for rest, _ in pairs]
                return held_out_of(fits, pairs, self.X_train, self.y_train).in_order()
        residuals, sigma = self._loo()
        part, rows = self.posterior.sampled
        law = Normal(part.y_train - residuals, sigma * self.unit)
        held = HeldOut(rows, law, self.scores)
        return held.only(judging_rows(labels)[1]) if n > MOST_LEFT_OUT else held

    def out_of_fold(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> OutOfFold:
        """See :meth:`Model.out_of_fold`: with refits of the same choice, from scratch."""
        X, y = self.X_train, self.y_train
        refits = self._refits([[pair] for pair in pairs], labels, seed)
        with torch.no_grad():
            fits = [
                fit if len(fit.y_train) == len(rest) else fit.with_data(X[rest], y[rest])
                for fit, (rest, _) in zip(refits, pairs, strict=True)
            ]
        return OutOfFold(self, fits, held_out_of(fits, pairs, X, y).in_order())

    def out_of_training(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> OutOfFold:
        """See :meth:`Learner.out_of_training`: an exact GP is trained without two parts at once.

        Refits are then conditioned on all points.  Each one that its training left out is
        predicted without itself, in closed form, with the scale that points of other parts give
        it; or, where labels tie rows together, without its part.
        """
        if not self._conditions:
            return self.out_of_fold(pairs, labels, seed)
        size = _PARTS_AT_ONCE if len(pairs) >= _FEWEST_PARTS else 1
        several = merged(pairs, size)
        distinct = len(labels.unique()) == len(labels)
        X, y = self.X_train, self.y_train
        refits = self._refits(several, labels, seed)
        with torch.no_grad():
            fits = [fit.with_data(X, y) for fit in refits]
            held = [
                fit._each_left_out(parts)
                if distinct
                else held_out_of(fit._without(parts), parts, X, y)
                for fit, parts in zip(fits, several, strict=True)
            ]
        return OutOfFold(self, fits, HeldOut.joined(held).in_order())

    def _without(self, pairs: Sequence[Split]) -> "list[GaussianModel]":
        """The same fit, hyperparameters kept, without the points that each of some pairs tests."""
        return [self.with_data(self.X_train[rest], self.y_train[rest]) for rest, _ in pairs]

    def _each_left_out(self, pairs: Sequence[Split]) -> HeldOut:
        """Points that some pairs test, each without itself; the scale model has not seen them.

        A point helps to predict its neighbours: a scale learned from their z-scores would know how
        far off the point itself is.
        """
        rows = torch.cat([test for _, test in pairs])
        residuals, sigma = (of_all[rows] for of_all in loo_of(self.posterior, self.theta))
        spread = self._scaled(sigma, self.X_train[rows])
        law = Normal(self.y_train[rows] - residuals, spread)
        return HeldOut(rows, law, residuals / spread)

    @property
    def _conditions(self) -> bool:
        """Whether the GP can be given points that nothing in it was trained on."""
        return self.posterior.can_leave_out and self.posterior.n_dense > 0

    def conditioned_on(self, X: Tensor, y: Tensor) -> "GaussianModel":
        """What was learned, conditioned on other data."""
        model = self.conditioned(self.posterior.conditioned_on(X, y))
        model.trained = self._start
        return model

    def with_data(self, X: Tensor, y: Tensor) -> "GaussianModel":
        """What was learned, scale model included, with the GP conditioned on other data.

        What calibrates and what predicts then have one scale model, which has seen no point that
        it is scored by.
        """
        other = copy.copy(self)
        other.posterior = self.posterior.conditioned_on(X, y)
        residuals, sigma = loo_of(other.posterior, self.theta)
        z = residuals / (sigma * self._factor(X))
        other.unit = magnitude(z)
        other.scores = z / other.unit
        return other

    def _refits(
        self, several: Sequence[Sequence[Split]], labels: Tensor, seed: int
    ) -> "list[GaussianModel]":
        """Refits of the same choice, learned without the rows that some pairs test."""
        X, y = self.X_train, self.y_train

        def without(parts: Sequence[Split]) -> GaussianModel:
            rest = parts[0][0]
            for other, _ in parts[1:]:
                rest = rest[torch.isin(rest, other)]
            rows = drawn_part(rest, seed + int(parts[0][1][0])) if self._conditions else rest
            start = self._start.keeping_together(labels[rows])
            model = GaussianModel(same_spread(self.choice, start, X[rows], y[rows]))
            progress.advance(len(parts))
            return model

        return side_by_side(without, several, alone=not runs_in_threads(self._start))


def drawn_part(rows: Tensor, seed: int) -> Tensor:
    """Rows to learn from: these, or :data:`~sharpgp.gp.sizes.LEARNED_ROWS` random ones of them.

    Examples
    --------
    >>> rows = torch.arange(5)
    >>> drawn_part(rows, seed=0) is rows, len(drawn_part(torch.arange(9000), seed=0))
    (True, 800)
    """
    if len(rows) <= LEARNED_ROWS:
        return rows
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[:LEARNED_ROWS].to(rows.device)]


def magnitude(z: Tensor) -> Tensor:
    """Typical size of z-scores: their mean absolute quantile over the levels 0.5 to 0.9.

    A mean square would be that of a few outliers, and as different between fits as these are.

    Examples
    --------
    >>> z = torch.ones(20, dtype=torch.float64)
    >>> z[0], z[1] = 99.0, -1.0
    >>> magnitude(z).item()
    1.0
    """
    levels = torch.tensor([0.5, 0.6, 0.7, 0.8, 0.9], dtype=z.dtype, device=z.device)
    found = q_lin(levels.clamp(1.0 / (len(z) + 1), len(z) / (len(z) + 1)), z.abs()).mean()
    # Residuals that are all 0, of a mean that is perfect, must not make a spread of 0.
    return found.clamp_min(1e-12)
