r"""Mean and spread ``sigma_total(x)`` learned from training data alone, by leave-one-out.

Candidates are ``sigma(theta, x) exp(b g(x) / 2)``: with ``theta`` either ``theta_R`` or searched on
leave-one-out residuals, of the GP as trained or of one on a warped target, and with a share ``b``
of the scale model ``g`` of 0, 1/2 or 1.  A candidate is used only where its leave-one-out score,
with ``g`` from parts of the points that do not hold the one it is asked for, beats that of plain
``sigma(theta_R, x)`` by one standard error, and by more where ``theta`` or the mean change, and
where it is worse at no coverage.  What cannot get there is dropped early: a ``theta`` that gains
too little on the very points that it was searched on, a warp that loses beyond chance, a scale
model whose closed-form leave-one-out predictions, which flatter it, gain too little or less than
another candidate.  Nothing here sees the points that later fix ``beta``.

A GP that follows another one of the same data tries what that one took, and nothing else.

Of a large exact GP, a random part of the points chooses and all of them are conditioned on.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from sharpgp._stored import agree, stored
from sharpgp.gp.compute import side_by_side
from sharpgp.gp.covariance import Named
from sharpgp.gp.exact import ExactPosterior
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.sizes import (
    LEARNED_ROWS,
    LEAST_LEARNED,
    MOST_BATCHED,
    MOST_LEFT_OUT,
    MOST_SEARCHED,
    drawn_rows,
)
from sharpgp.gp.ties import Ties
from sharpgp.gp.warped import Side, best_warped, retrain_warped
from sharpgp.models.families import Ard
from sharpgp.models.folds import parts, together
from sharpgp.models.heteroscedastic import ScaleModel, held_out_log_squares
from sharpgp.models.judging import Scores, scores_of
from sharpgp.models.objective import pinball
from sharpgp.models.search import Problem
from sharpgp.models.shared_search import solve_shared

#: Levels whose pinball losses the search of ``theta`` averages.
SEARCH_LEVELS = (0.025, 0.05, 0.1, 0.25, 0.75, 0.9, 0.95, 0.975)
_SHARES = (0.0, 0.5, 1.0)
_SHRINKAGE = 0.003
# What another mean or theta has to gain beyond its standard error, to be worth the change: a
# constant, and a part for each hyperparameter per point, which may fit noise.
_HANDICAP, _HANDICAP_PER_PARAMETER = 0.01, 0.25
_SEARCH_EVALUATIONS = 30


@stored("Choice", searched=bool, share=float, score=float, side=str)
@dataclass(frozen=True)
class Choice:
    """Which candidate was taken: ``theta`` searched or not, scale model's share, target warped.

    ``score`` is the leave-one-out score relative to that of ``sigma(theta_R, x)``; ``side`` the
    one from which a warp was found, empty where there is none.
    """

    searched: bool = False
    share: float = 0.0
    score: float = 1.0
    side: Side | Literal[""] = ""

    def _restored(self) -> None:
        agree("side of a warp", self.side in ("", *get_args(Side)), True)

    @property
    def warped(self) -> bool:
        """Whether the target is warped."""
        return self.side != ""


@dataclass(frozen=True)
class Chosen:
    """A posterior and ``theta`` [P], the choice that led there, and the scale model, if any."""

    posterior: Posterior
    theta: Tensor
    choice: Choice
    scale: ScaleModel | None


@dataclass(frozen=True)
class Candidate:
    """A posterior with ``theta``, and leave-one-out residuals and deviations [N] to judge it by.

    ``judged`` is ``sigma`` where nothing was searched, and from a search that did not use the
    point otherwise.
    """

    posterior: Posterior
    theta: Tensor
    residuals: Tensor
    sigma: Tensor
    judged: Tensor
    choice: Choice


def choose_spread(
    posterior: Posterior,
    seed: int,
    labels: Tensor | None = None,
    like: Sequence[Choice] | None = None,
) -> Chosen:
    """The mean and spread with the best leave-one-out scores of the training data.

    Parameters
    ----------
    posterior : Posterior
    seed : int
        Seed of the parts on which a searched ``theta`` and a scale model are judged.
    labels : Tensor [N], optional
        Rows that share one are in one part; None: those with equal inputs.
    like : sequence of Choice, optional
        Choices for other GPs of the same data: a search, a warp and a scale model are tried only
        where one of them took one, and a scale model needs no further proof then.  None: all are.
    """
    part, some = posterior.sampled
    if part is not posterior:
        found = choose_spread(part, seed, None if labels is None else labels[some], like)
        return replace(found, posterior=posterior)
    kept = together(posterior.X_train) if labels is None else labels
    if posterior.n_dense > LEARNED_ROWS:
        rows = drawn_rows(posterior.n_train, LEARNED_ROWS).to(posterior.device)
        return _on_all(choose_spread(posterior.at_rows(rows), seed, kept[rows], like), posterior)
    plain = _as_trained(posterior)
    if posterior.n_train < LEAST_LEARNED:
        return Chosen(posterior, posterior.theta_R, plain.choice, None)
    makers: list[Callable[[], Candidate | None]] = [lambda: plain]
    reference = scores_of(plain.residuals, plain.judged)
    parameters = len(plain.theta) / posterior.n_train
    handicap = _HANDICAP + _HANDICAP_PER_PARAMETER * parameters
    searches = like is None or any(choice.searched for choice in like)
    if searches and not _trained_on_a_part(posterior):
        makers.append(lambda: _searched(posterior, kept, seed, reference, handicap))
    if like is None or any(choice.warped for choice in like):
        makers.append(lambda: _warped(posterior, reference))
    scales = like is None or any(choice.share > 0.0 for choice in like)
    alone = not runs_in_threads(posterior)

    def judge(maker: Callable[[], Candidate | None]) -> list[_Judged]:
        candidate = maker()
        if candidate is None:
            return []
        return _judge(candidate, reference, 0.0 if candidate is plain else handicap, scales)

    judged = [one for several in side_by_side(judge, makers, alone=alone) for one in several]
    while True:
        best = max(judged, key=lambda one: one.margin)
        if not best.margin > 0.0:
            return Chosen(posterior, posterior.theta_R, plain.choice, None)
        if like is not None or not best.flattered:
            taken = best.candidate
            return Chosen(taken.posterior, taken.theta, taken.choice, best.scale)
        judged = [one for one in judged if one is not best]
        judged += _confirmed(best, reference, kept, seed, alone=alone)


def _on_all(chosen: Chosen, posterior: Posterior) -> Chosen:
    """What a part of the points of a GP chose, conditioned on all of them."""
    X, y = posterior.X_train, posterior.y_train
    fit = chosen.posterior.conditioned_on(X, y) if chosen.choice.warped else posterior
    scale = None
    if chosen.scale is not None:
        residuals, sigma = loo_of(fit, chosen.theta)
        scale = chosen.scale.conditioned_on(X, residuals / sigma)
    return Chosen(fit, chosen.theta, chosen.choice, scale)


@dataclass(frozen=True)
class _Judged:
    """A candidate with its share of the scale model, and its gain beyond what it has to gain.

    ``flattered`` tells that hyperparameters of the scale model have seen all points.
    """

    candidate: Candidate
    scale: ScaleModel | None
    handicap: float
    margin: float
    flattered: bool


def _judge(candidate: Candidate, reference: Scores, handicap: float, scales: bool) -> list[_Judged]:
    """Judge a candidate without a scale model; and with one, where its predictions gain.

    These are leave-one-out predictions, which cost nothing once there is a scale model.
    """
    none, *shares = _SHARES
    found = _with_share(none, candidate, None, None, reference, handicap)
    if not scales:
        return [found]
    scale = ScaleModel(*_scaled_by(candidate))
    g = scale.log_square_loo()
    several = [_with_share(b, candidate, scale, g, reference, handicap, True) for b in shares]
    best = max(several, key=lambda one: one.margin)
    return [found, best] if best.margin > max(0.0, found.margin) else [found]


def _confirmed(
    one: _Judged, reference: Scores, labels: Tensor, seed: int, *, alone: bool
) -> list[_Judged]:
    """The same with every share, judged by scale models without a fifth of the points in turn."""
    given = one.candidate, one.scale
    X, z, ties = _scaled_by(one.candidate)
    g = held_out_log_squares(X, z, labels, seed, ties, alone=alone)
    return [_with_share(b, *given, g, reference, one.handicap) for b in _SHARES[1:]]


def _scaled_by(candidate: Candidate) -> tuple[Tensor, Tensor, Ties | None]:
    """What a scale model of a candidate is learned from."""
    posterior = candidate.posterior
    return posterior.X_train, candidate.residuals / candidate.sigma, posterior.ties


def _with_share(
    share: float,
    candidate: Candidate,
    scale: ScaleModel | None,
    g: Tensor | None,
    reference: Scores,
    handicap: float,
    flattered: bool = False,
) -> _Judged:
    sigma = candidate.judged
    if g is not None:
        sigma = sigma * (0.5 * share * g).exp()
    gained = scores_of(candidate.residuals, sigma).gain_on(reference)
    mean, error = _mean_and_error(gained)
    margin = mean - error - handicap if gained.least >= 0.0 else -math.inf
    choice = replace(candidate.choice, share=share, score=1.0 - mean)
    return _Judged(replace(candidate, choice=choice), scale, handicap, margin, flattered)


def _mean_and_error(gained: Scores) -> tuple[float, float]:
    """Mean of a gain over the points, and its standard error."""
    total = gained.total
    return float(total.mean()), float(total.std()) / len(total) ** 0.5


def same_spread(choice: Choice, posterior: Posterior, X: Tensor, y: Tensor) -> Chosen:
    """The same kind of mean and spread on other data, learned from scratch."""
    fit: Posterior | None = None
    if choice.side and isinstance(posterior, ExactPosterior):
        fit = retrain_warped(posterior, X, y, side=choice.side)
    if fit is None:
        fit = posterior.retrained(X, y)
    theta = _search(fit, None) if choice.searched else fit.theta_R
    model = None
    if choice.share > 0:
        residuals, sigma = loo_of(fit, theta)
        model = ScaleModel(X[fit.sampled[1]], residuals / sigma, fit.ties)
    return Chosen(fit, theta, choice, model)


def runs_in_threads(posterior: Posterior) -> bool:
    """Whether several fits may run at once.

    BoTorch's change global settings, and large ones fill threads and memory on their own.
    """
    named = isinstance(getattr(posterior, "covariance", None), Named)
    return named and posterior.n_train <= MOST_BATCHED


def _trained_on_a_part(posterior: Posterior) -> bool:
    """Whether the kernel is one of which a search on all points would cost too much."""
    most = getattr(getattr(posterior, "covariance", None), "most_trained", None)
    return most is not None and posterior.n_train > most


def _as_trained(posterior: Posterior) -> Candidate:
    residuals, sigma = loo_of(posterior, posterior.theta_R)
    return Candidate(posterior, posterior.theta_R, residuals, sigma, sigma, Choice())


def _searched(
    posterior: Posterior, labels: Tensor, seed: int, reference: Scores, handicap: float
) -> Candidate | None:
    theta = _search(posterior, None)
    residuals, sigma = loo_of(posterior, theta)
    flattered, _ = _mean_and_error(scores_of(residuals, sigma).gain_on(reference))
    if not flattered > handicap:
        return None
    judged = _held_out_sigma(posterior, parts(labels, 2, seed), residuals, sigma)
    return Candidate(posterior, theta, residuals, sigma, judged, Choice(searched=True))


def _warped(posterior: Posterior, reference: Scores) -> Candidate | None:
    if not isinstance(posterior, ExactPosterior) or posterior.n_train > MOST_LEFT_OUT:
        return None
    warped = best_warped(posterior)
    if warped is None:
        return None
    found = replace(_as_trained(warped), choice=Choice(side=warped.side))
    mean, error = _mean_and_error(scores_of(found.residuals, found.sigma).gain_on(reference))
    return found if mean + error > 0.0 else None


def loo_of(posterior: Posterior, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Leave-one-out residuals under ``theta_R`` and standard deviations under ``theta`` [n].

    Of the points that the GP answers for, see :meth:`DataPosterior.sampled`.
    """
    own = posterior.theta_R
    part, _ = posterior.sampled
    with torch.no_grad():
        same = torch.equal(own, theta)
        mean, sigma = part.loo(own[None] if same else torch.stack([own, theta]))
    return part.y_train - mean[0], sigma[-1]


def _search(posterior: Posterior, rows: Tensor | None) -> Tensor:
    """One ``theta`` for all levels, by the pinball loss of leave-one-out quantiles of ``rows``.

    Beyond :data:`MOST_SEARCHED` points a random part of them stands for all.
    """
    n = posterior.n_train
    rows = torch.arange(n, device=posterior.device) if rows is None else rows
    part = posterior
    if n > MOST_SEARCHED:
        rows = rows[drawn_rows(len(rows), MOST_SEARCHED).to(rows.device)]
        part = posterior.at_rows(rows)
        rows = torch.arange(len(rows), device=posterior.device)
    r = loo_of(part, part.theta_R)[0][rows]
    unit = r.abs().mean().clamp_min(torch.finfo(r.dtype).tiny)
    lowest = 1.0 / (len(r) + 1)
    delta = torch.tensor(SEARCH_LEVELS, dtype=torch.float64, device=r.device)
    problem = Problem(
        Ard(posterior),
        pinball,
        lambda theta: part.loo(theta)[1][:, rows] / unit,
        r / unit,
        shrinkage=_SHRINKAGE,
    )
    theta, _, _ = solve_shared(
        problem,
        delta.clamp(lowest, 1.0 - lowest),
        most=_SEARCH_EVALUATIONS,
    )
    return theta[0]


def _held_out_sigma(
    posterior: Posterior, halves: list[Tensor], residuals: Tensor, sigma: Tensor
) -> Tensor:
    """``sigma`` [N] of each half of the points under the ``theta`` searched on the other half."""
    out = torch.empty_like(sigma)
    for rows, others in (halves, halves[::-1]):
        half = loo_of(posterior, _search(posterior, others))[1]
        # The two halves are compared as one: bring both to the scale of the fit on all points.
        square = (residuals[others] / sigma[others]).square().mean()
        factor = (residuals[others] / half[others]).square().mean() / square
        out[rows] = half[rows] * factor.sqrt()
    return out
