"""A GP with its learned spread: learned from parts of the rows, conditioned on all of them."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from sharpgp import _progress as progress
from sharpgp._ranks import q_lin
from sharpgp._stored import Array, agree, stored
from sharpgp.data.folds import Split
from sharpgp.gp.compute import side_by_side
from sharpgp.gp.conditioning import condition, normal_crps, shares_factors
from sharpgp.gp.posterior import Posterior
from sharpgp.models.gaussian.scale_model import ScaleModel
from sharpgp.models.gaussian.spread_choice import (
    Choice,
    Chosen,
    choose_spread,
    honest_share,
    loo_of,
    runs_in_threads,
    same_spread,
)
from sharpgp.models.laws import Normal
from sharpgp.models.model import GPModel, HeldOut, Learner, OutOfFold, held_out_of
from sharpgp.models.pool_weights import SIZE_LEVELS
from sharpgp.models.splitters import quick_pairs
from sharpgp.policy import QUICK_LOSS, Policy
from sharpgp.rows import Inputs, Rows

# Number of parts to leave out in turn where inputs repeat, as single points cannot be left out.
_LEFT_OUT = 20


def learn_gaussian(
    posterior: Posterior,
    seed: int = 0,
    labels: Tensor | None = None,
    *,
    policy: Policy | None = None,
    confirm: bool = True,
) -> "GaussianModel":
    """The GP's mean and the spread that suits its training data best.

    See :func:`sharpgp.models.gaussian.spread_choice.choose_spread`.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> model = learn_gaussian(train(X, X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0]))[0])
    >>> model.location(X).shape, model.law(X).spread.shape
    (torch.Size([60]), torch.Size([60]))
    """
    policy = policy or Policy()
    n = 0 if posterior.n_dense == 0 else posterior.n_train
    if n <= policy.learned_rows:
        chosen = choose_spread(posterior, seed, labels, confirm=confirm)
        return GaussianModel(chosen, posterior, policy)
    every = torch.arange(n, device=posterior.device)
    rows = drawn_part((every, every[:0]), seed, policy.learned_rows)
    of_rows = None if labels is None else labels[rows]
    some = posterior.at_rows(rows)
    part = learn_gaussian(some, seed, of_rows, policy=policy, confirm=confirm)
    if part.choice.warped:
        return part.conditioned_on_all(posterior.rows, posterior.y_train, rows)
    found = part._on(posterior)
    found.trained, found.learned_rows = posterior, rows
    return found


@stored(
    "GaussianModel",
    posterior=Posterior,
    choice=Choice,
    scale=ScaleModel | None,
    unit=Array(positive=True),
    scores=Array("n"),
    policy=Policy,
    transient={"trained": None, "learned_rows": None},
)
class GaussianModel(GPModel, Learner):
    """``mu(x)`` and ``unit sigma(x) exp(share g(x) / 2)``, from training data alone.

    ``unit`` makes the :func:`magnitude` of the leave-one-out z-scores 1, so that scores of
    different fits can be pooled.

    Attributes
    ----------
    posterior : Posterior
        The GP as it was trained, or one on a warped target.
    scores : Tensor [n]
        Leave-one-out z-scores of the training points, or of a sample of them.
    trained : Posterior or None
        The trained GP, from which refits start; not kept in files.
    learned_rows : Tensor or None
        Rows of the data that everything but the conditioning saw; None: all.  Not kept in files.
    """

    scores: Tensor

    def __init__(
        self, chosen: Chosen, trained: Posterior | None = None, policy: Policy | None = None
    ) -> None:
        self.trained, self.policy = trained, policy or Policy()
        self.learned_rows: Tensor | None = None
        self.posterior = chosen.posterior
        self.choice = chosen.choice
        self.scale = chosen.scale
        residuals, sigma = self._loo()
        z = residuals / sigma
        self.unit = magnitude(z)
        self.scores = z / self.unit

    def _loo(self) -> tuple[Tensor, Tensor]:
        """Leave-one-out residuals, and deviations before scaling to unit size [N]."""
        residuals, sigma = loo_of(self.posterior)
        if self.scale is not None:
            g = self.scale.log_square_loo()
            if len(g) < len(sigma):  # it was learned from some of the points
                g = self.scale.log_square(self.X_train[self.posterior.scored_rows])
            sigma = sigma * (0.5 * self.choice.share * g).exp()
        return residuals, sigma

    @property
    def _start(self) -> Posterior:
        return self.posterior if self.trained is None else self.trained

    def _restored(self) -> None:
        if self.scale is not None:
            agree(
                "features of the scale model", self.scale.gp.n_features, self.posterior.n_features
            )

    def location(self, rows: Inputs) -> Tensor:
        return self.posterior.mean(rows)

    def location_and_spread(self, rows: Inputs) -> tuple[Tensor, Tensor]:
        location, sigma = self.posterior.mean_and_sigma(rows)
        return location, sigma * self._factor(Rows.of(rows).X) * self.unit

    def _factor(self, X: Tensor) -> Tensor:
        """Factor of the scale model for deviations at new points [T]."""
        if self.scale is None:
            return X.new_ones(len(X))
        return (0.5 * self.choice.share * self.scale.log_square(X)).exp()

    def extended(self, rows: Inputs, y: Tensor) -> Self:
        """Hyperparameters, unit and scale model stay."""
        return self._on(self.posterior.extended(rows, y))

    def updated(self, rows: Inputs, y: Tensor) -> "GaussianModel":
        """The scale model learns, every hyperparameter stays."""
        return self.conditioned(self.posterior.extended(rows, y))

    def conditioned(self, posterior: Posterior) -> "GaussianModel":
        """The same model, every hyperparameter kept, on a posterior conditioned on other data."""
        scale = None
        if self.scale is not None:
            residuals, sigma = loo_of(posterior)
            X = posterior.X_train[posterior.scored_rows]
            scale = self.scale.conditioned_on(X, residuals / sigma)
        return GaussianModel(Chosen(posterior, self.choice, scale), policy=self.policy)

    def with_data(self, rows: Inputs, y: Tensor, like: Posterior | None = None) -> Self:
        """Everything learned, with the GP conditioned on other data, in blocks if ``like`` is."""
        in_blocks = None if like is None else shares_factors(like)
        return self._on(condition(self.posterior, rows, y, self.policy, in_blocks=in_blocks))

    def restricted(self, keep: Callable[[Rows], Tensor]) -> Learner:
        if not self.posterior.can_leave_out:
            return super().restricted(keep)
        kept = keep(self.rows)
        return self.with_data(self.rows[kept], self.y_train[kept])

    def without_part(self, rest: Tensor, part: int, n_parts: int) -> Self | None:
        leaves = self.posterior.can_leave_out
        return self.with_data(self.rows[rest], self.y_train[rest]) if leaves else None

    def conditioned_on_all(
        self, rows: Inputs, y: Tensor, learned: Tensor, like: Posterior | None = None
    ) -> Self:
        """The same of data [N], of which it was learned from those ``learned`` by number."""
        other = self.with_data(rows, y, like)
        other.trained, other.learned_rows = self._start, learned
        return other

    def _on(self, posterior: Posterior) -> Self:
        other = copy.copy(self)
        other.posterior = posterior
        return other

    def relearned(self, rows: Inputs, y: Tensor, labels: Tensor, seed: int) -> "GaussianModel":
        posterior = self._start.keeping_together(labels).retrained(rows, y, start="fresh")
        return learn_gaussian(posterior, seed, labels, policy=self.policy)

    def leave_one_out(self, labels: Tensor, seed: int) -> HeldOut:
        """In closed form, with every hyperparameter kept.

        Where labels tie rows together, parts of them are left out instead of single points.
        """
        if len(labels.unique()) < len(labels) and self.posterior.can_leave_out:
            with torch.no_grad():
                pairs = quick_pairs(labels, _LEFT_OUT, seed)
                fits = [self.conditioned(self.posterior.at_rows(rest)) for rest, _ in pairs]
                return held_out_of(fits, pairs, self.rows, self.y_train).in_order()
        residuals, sigma = self._loo()
        rows = self.posterior.scored_rows
        y = self.y_train[rows]
        return HeldOut.from_law(rows, Normal(y - residuals, sigma * self.unit), y)

    def out_of_fold(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> OutOfFold:
        """With refits of the same choice, from scratch."""
        rows, y = self.rows, self.y_train
        refits = self._learnings(pairs, labels, seed)
        with torch.no_grad():
            fits = [
                fit if len(fit.y_train) == len(rest) else fit.with_data(rows[rest], y[rest])
                for fit, (rest, _) in zip(refits, pairs, strict=True)
            ]
        return OutOfFold(self, fits, held_out_of(fits, pairs, rows, y).in_order())

    def out_of_training(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> OutOfFold:
        """Each learning sees a part of one pair's training rows, and is conditioned on all rows.

        A point is predicted from all others, in closed form, by the average of the learnings
        that have not seen it; or, where labels tie rows together, without its part.  As few
        learnings predict as are about as good as all, see :func:`fewest_alike`.
        """
        if not self._conditions:
            return self.out_of_fold(pairs, labels, seed)
        rows, y = self.rows, self.y_train
        distinct = len(labels.unique()) == len(labels)
        learning = pairs[: self.policy.learnings] if distinct else pairs
        learnings = self._learnings(learning, labels, seed)
        with torch.no_grad():
            fits = [
                fit
                if len(fit.y_train) == len(y)
                else fit.conditioned_on_all(rows, y, fit._learned_on, self.posterior)
                for fit in learnings
            ]
            if distinct:
                return OutOfFold(self, *_scored_by_others(fits, pairs))
            without = [
                fit.with_data(rows[rest], y[rest])
                for fit, (rest, _) in zip(fits, pairs, strict=True)
            ]
            return OutOfFold(self, fits, held_out_of(without, pairs, rows, y).in_order())

    def tried(
        self, rows: Rows, y: Tensor, learned: Tensor, pairs: Sequence[Split], seed: int
    ) -> OutOfFold:
        with torch.no_grad():
            one = self.conditioned_on_all(rows, y, learned)
            return OutOfFold(one, *_scored_by_others([one], pairs))

    def _sharing(self, share: float) -> Self:
        """The same with another share of the scale model."""
        other = copy.copy(self)
        other.choice = replace(self.choice, share=share)
        other.scale = self.scale if share else None
        return other

    def _in_units(self, unit: Tensor) -> Self:
        other = copy.copy(self)
        other.unit = unit
        return other

    @property
    def _conditions(self) -> bool:
        """Whether the GP can be conditioned on points that it was not trained on."""
        return self.posterior.can_leave_out and self.posterior.n_inducing is None

    @property
    def _learned_on(self) -> Tensor:
        rows = self.learned_rows
        return torch.arange(len(self.y_train), device=self.device) if rows is None else rows

    def _learnings(
        self, pairs: Sequence[Split], labels: Tensor, seed: int
    ) -> "list[GaussianModel]":
        """The same choice, learned from parts of the rows that each pair trains on.

        This model is one of them if it was learned from just such a part.
        """
        rows, y = self.rows, self.y_train

        def learned(pair: Split) -> GaussianModel:
            most = self.policy.learned_rows
            some = drawn_part(pair, seed, most) if self._conditions else pair[0]
            model = self
            if self.learned_rows is None or not torch.equal(some, self.learned_rows):
                start = self._start.keeping_together(labels[some])
                chosen = same_spread(self.choice, start, rows[some], y[some])
                model = GaussianModel(chosen, policy=self.policy)
                model.learned_rows = some
            progress.advance()
            return model

        return side_by_side(learned, pairs, in_turn=not runs_in_threads(self._start))


def _scored_by_others(
    fits: Sequence[GaussianModel], pairs: Sequence[Split]
) -> tuple[list[GaussianModel], HeldOut]:
    """The learnings that predict, with a common share of the scale model; points by those without.

    Units are those of points that a learning has not seen.
    """
    rows = torch.cat([test for _, test in pairs]).sort().values
    unseen = torch.stack([~torch.isin(rows, fit._learned_on) for fit in fits])
    some = unseen.any(0)
    rows, unseen = rows[some], unseen[:, some]
    y = fits[0].y_train[rows]
    residuals, sigma = (
        torch.stack(part)
        for part in zip(*(loo_of(fit.posterior, rows) for fit in fits), strict=True)
    )
    if all(fit.scale is not None for fit in fits):
        X = fits[0].X_train[rows]
        g = torch.stack([fit.scale.log_square(X) for fit in fits if fit.scale is not None])
        share = honest_share(residuals[unseen], sigma[unseen], g[unseen])
        sigma = sigma * (0.5 * share * g).exp()
        fits = [fit._sharing(share) for fit in fits]
    units = [magnitude((r / s)[mask]) for r, s, mask in zip(residuals, sigma, unseen, strict=True)]
    fits = [fit._in_units(unit) for fit, unit in zip(fits, units, strict=True)]
    spread = sigma * torch.stack(units).unsqueeze(-1)
    count = unseen.sum(0)
    kept = fewest_alike(y - residuals, spread)
    location = y - torch.where(unseen, residuals, 0.0).sum(0) / count
    spread = (torch.where(unseen, spread.square(), 0.0).sum(0) / count).sqrt()
    return [fits[k] for k in kept], HeldOut.from_law(rows, Normal(location, spread), y)


def fewest_alike(location: Tensor, spread: Tensor) -> list[int]:
    """The fewest normal laws of several [K, n] whose average predicts as the average of all does.

    If targets have the law of all, the CRPS of the few is larger by a factor of at most
    :data:`~sharpgp.policy.QUICK_LOSS`.  One joins after another, where it brings them closest.

    Examples
    --------
    >>> location = torch.tensor([[0.0], [9.0], [0.01]], dtype=torch.float64)
    >>> fewest_alike(location, torch.ones_like(location))
    [0, 1, 2]
    >>> fewest_alike(location[[0, 2]], torch.ones(2, 1).double())
    [0]
    """

    def loss(some: list[int]) -> float:
        mean, sigma = location[some].mean(0), spread[some].square().mean(0).sqrt()
        return normal_crps(of_all[0], mean, sigma, of_all[1])

    every = list(range(len(location)))
    of_all = location.mean(0), spread.square().mean(0).sqrt()
    most, kept = QUICK_LOSS * loss(every), list[int]()
    while not kept or (len(kept) < len(every) and loss(kept) > most):
        kept.append(min(set(every) - set(kept), key=lambda k: loss([*kept, k])))
    return sorted(kept)


def drawn_part(pair: Split, seed: int, most: int) -> Tensor:
    """Rows that a learning sees: those that a pair trains on, or ``most`` random ones of them.

    They differ by pair and seed.

    Examples
    --------
    >>> rows, test = torch.arange(9000), torch.tensor([9000])
    >>> len(drawn_part((rows, test), 0, most=500)), len(drawn_part((rows[:5], test), 0, most=500))
    (500, 5)
    """
    rest, test = pair
    first = int(test[0]) if len(test) else 0
    order = torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed + first))
    return rest if len(rest) <= most else rest[order[:most].to(rest.device)]


def magnitude(z: Tensor) -> Tensor:
    """Typical size of z-scores: their mean absolute quantile over the levels 0.5 to 0.9.

    A mean square would depend on a few outliers, and differ between fits as much as they do.

    Examples
    --------
    >>> z = torch.ones(20, dtype=torch.float64)
    >>> z[0], z[1] = 99.0, -1.0
    >>> magnitude(z).item()
    1.0
    """
    levels = torch.tensor(SIZE_LEVELS, dtype=z.dtype, device=z.device)
    found = q_lin(levels.clamp(1.0 / (len(z) + 1), len(z) / (len(z) + 1)), z.abs()).mean()
    # A perfect mean has residuals of 0; its spread must not be 0.
    return found.clamp_min(1e-12)
