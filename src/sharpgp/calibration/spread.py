r"""Mean and spread ``sigma_total(x)`` learned from training data alone, by leave-one-out.

Candidates are ``sigma(theta, x) exp(b g(x) / 2)``: with ``theta`` either ``theta_R`` or searched on
leave-one-out residuals, of the GP as trained or of one on a warped target, and with a share ``b``
of the scale model ``g`` of 0, 1/2 or 1.  A candidate is used only where its leave-one-out score,
with ``g`` from parts of the points that do not hold the one it is asked for, beats that of plain
``sigma(theta_R, x)`` by one standard error, and by more where ``theta`` or the mean change, and
where it is worse at no coverage.  Nothing here sees the points that later fix ``beta``.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.calibration.judging import Scores, scores_of
from sharpgp.calibration.objective import pinball
from sharpgp.calibration.path import Problem, solve_shared
from sharpgp.calibration.ranks import q_lin
from sharpgp.calibration.scale import ScaleModel, held_out_log_squares
from sharpgp.calibration.search import Ard
from sharpgp.gp.compute import side_by_side
from sharpgp.gp.covariance import Named
from sharpgp.gp.exact import ExactPosterior
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.sizes import LEAST_LEARNED, MOST_BATCHED, MOST_SEARCHED, MOST_WARPED
from sharpgp.gp.warped import retrain_warped
from sharpgp.models.folds import parts, together
from sharpgp.models.model import Model

#: Levels whose pinball losses the search of ``theta`` averages.
SEARCH_LEVELS = (0.025, 0.05, 0.1, 0.25, 0.75, 0.9, 0.95, 0.975)
_SHARES = (0.0, 0.5, 1.0)
_SHRINKAGE = 0.003
# What another mean or theta has to gain beyond its standard error, to be worth the change: a
# constant, and a part for each hyperparameter per point, which may fit noise.
_HANDICAP, _HANDICAP_PER_PARAMETER = 0.01, 0.25
_SEARCH_EVALUATIONS = 30


@stored("Choice", searched=bool, share=float, score=float, warped=bool)
@dataclass(frozen=True)
class Choice:
    """Which candidate was taken: ``theta`` searched or not, scale model's share, target warped.

    ``score`` is the leave-one-out score relative to that of ``sigma(theta_R, x)``.
    """

    searched: bool = False
    share: float = 0.0
    score: float = 1.0
    warped: bool = False


@stored(
    "Spread",
    posterior=Posterior,
    theta=Array("P", positive=True),
    choice=Choice,
    scale=ScaleModel | None,
    unit=Array(positive=True),
    scores=Array("N"),
)
class Spread(Model):
    """``sigma_total(x) = unit sigma(theta, x) exp(share g(x) / 2)``, from training data alone.

    ``unit`` makes the :func:`magnitude` of the leave-one-out z-scores 1, so that scores of
    different fits can be pooled.

    Attributes
    ----------
    posterior : Posterior
        Gives the mean, too: the GP as it was trained, or one on a warped target.
    scores : Tensor [N]
        Leave-one-out z-scores of the training points.
    """

    scores: Tensor

    def __init__(
        self, posterior: Posterior, theta: Tensor, choice: Choice, scale: ScaleModel | None
    ) -> None:
        self.posterior = posterior
        self.theta = theta
        self.choice = choice
        self.scale = scale
        residuals, sigma = _loo(posterior, theta)
        if scale is not None:
            sigma = sigma * (0.5 * choice.share * scale.log_square_loo()).exp()
        z = residuals / sigma
        self.unit = magnitude(z)
        self.scores = z / self.unit

    def _restored(self) -> None:
        agree("length of theta", len(self.theta), len(self.posterior.theta_R))
        if self.scale is not None:
            agree(
                "features of the scale model", self.scale.gp.n_features, self.posterior.n_features
            )

    def location(self, X: Tensor) -> Tensor:
        """``mu`` [T]."""
        return self.posterior.mean(X)

    def spread(self, X: Tensor) -> Tensor:
        """``sigma_total`` [T]."""
        sigma = self.posterior.sigma(self.theta.unsqueeze(0), X)[0]
        if self.scale is not None:
            sigma = sigma * (0.5 * self.choice.share * self.scale.log_square(X)).exp()
        return sigma * self.unit

    def extended(self, X: Tensor, y: Tensor) -> "Spread":
        """See :meth:`Model.extended`: ``theta``, unit and scale model stay."""
        other = copy.copy(self)
        other.posterior = self.posterior.extended(X, y)
        return other

    def updated(self, X: Tensor, y: Tensor) -> "Spread":
        """See :meth:`Model.updated`: the scale model learns, every hyperparameter stays."""
        return conditioned_spread(self, self.posterior.extended(X, y))


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


def learn_spread(posterior: Posterior, seed: int, labels: Tensor | None = None) -> Spread:
    """Choose and fit mean and spread on the posterior's training data.

    Parameters
    ----------
    posterior : Posterior
    seed : int
        Seed of the parts on which a searched ``theta`` and a scale model are judged.
    labels : Tensor [N], optional
        Rows that share one are in one part; None: those with equal inputs.
    """
    plain = _as_trained(posterior)
    if posterior.n_train < LEAST_LEARNED:
        return Spread(posterior, posterior.theta_R, plain.choice, None)
    kept = together(posterior.X_train) if labels is None else labels
    makers: list[Callable[[], Candidate | None]] = [
        lambda: plain,
        lambda: _searched(posterior, kept, seed),
        lambda: _warped(posterior),
    ]
    reference = scores_of(plain.residuals, plain.judged)

    def judge(maker: Callable[[], Candidate | None]) -> list[_Judged]:
        candidate = maker()
        if candidate is None:
            return []
        handicap = 0.0
        if candidate is not plain:
            parameters = len(candidate.theta) / posterior.n_train
            handicap = _HANDICAP + _HANDICAP_PER_PARAMETER * parameters
        return _judge(candidate, reference, kept, seed, handicap)

    judged = side_by_side(judge, makers, alone=not runs_in_threads(posterior))
    best = max((one for several in judged for one in several), key=lambda one: one.margin)
    if not best.margin > 0.0:
        return Spread(posterior, posterior.theta_R, plain.choice, None)
    taken = best.candidate
    return Spread(taken.posterior, taken.theta, taken.choice, best.scale)


@dataclass(frozen=True)
class _Judged:
    """A candidate with its share of the scale model, and its gain beyond what it has to gain."""

    candidate: Candidate
    scale: ScaleModel | None
    margin: float


def _judge(
    candidate: Candidate, reference: Scores, labels: Tensor, seed: int, handicap: float
) -> list[_Judged]:
    """Judge a candidate with every share of its scale model.

    A scale model is first judged by its leave-one-out predictions, which cost nothing; where even
    these gain nothing it is not looked at again.  Where they do, models trained without a fifth
    of the points in turn decide.
    """
    X, z = candidate.posterior.X_train, candidate.residuals / candidate.sigma
    scale = ScaleModel(X, z)

    def gain(share: float, g: Tensor) -> Scores:
        sigma = candidate.judged * (0.5 * share * g).exp()
        return scores_of(candidate.residuals, sigma).gain_on(reference)

    g = scale.log_square_loo()
    gains = {share: gain(share, g) for share in _SHARES}
    if max(_SHARES, key=lambda share: float(gains[share].total.mean())) == 0.0:
        gains = {0.0: gains[0.0]}
    else:
        g = held_out_log_squares(X, z, labels, seed)
        gains = {share: gain(share, g) for share in _SHARES}
    found = []
    for share, gained in gains.items():
        mean, error = float(gained.total.mean()), float(gained.total.std()) / len(z) ** 0.5
        margin = mean - error - handicap
        if gained.least < 0.0:
            margin = -math.inf
        choice = replace(candidate.choice, share=share, score=1.0 - mean)
        model = scale if share > 0.0 else None
        found.append(_Judged(replace(candidate, choice=choice), model, margin))
    return found


def refit_spread(choice: Choice, posterior: Posterior, X: Tensor, y: Tensor) -> Spread:
    """The same kind of mean and spread on other data, learned from scratch."""
    fit: Posterior | None = None
    if choice.warped and isinstance(posterior, ExactPosterior):
        fit = retrain_warped(posterior, X, y)
    if fit is None:
        fit = posterior.retrained(X, y)
    theta = _search(fit, None) if choice.searched else fit.theta_R
    model = None
    if choice.share > 0:
        residuals, sigma = _loo(fit, theta)
        model = ScaleModel(X, residuals / sigma)
    return Spread(fit, theta, choice, model)


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


def runs_in_threads(posterior: Posterior) -> bool:
    """Whether several fits may run at once.

    BoTorch's change global settings, and large ones fill threads and memory on their own.
    """
    named = isinstance(getattr(posterior, "covariance", None), Named)
    return named and posterior.n_train <= MOST_BATCHED


def _as_trained(posterior: Posterior) -> Candidate:
    residuals, sigma = _loo(posterior, posterior.theta_R)
    return Candidate(posterior, posterior.theta_R, residuals, sigma, sigma, Choice())


def _searched(posterior: Posterior, labels: Tensor, seed: int) -> Candidate:
    theta = _search(posterior, None)
    residuals, sigma = _loo(posterior, theta)
    judged = _held_out_sigma(posterior, parts(labels, 2, seed), residuals, sigma)
    return Candidate(posterior, theta, residuals, sigma, judged, Choice(searched=True))


def _warped(posterior: Posterior) -> Candidate | None:
    if not isinstance(posterior, ExactPosterior) or posterior.n_train > MOST_WARPED:
        return None
    warped = retrain_warped(posterior, posterior.X_train, posterior.y_train)
    if warped is None:
        return None
    return replace(_as_trained(warped), choice=Choice(warped=True))


def conditioned_spread(spread: Spread, posterior: Posterior) -> Spread:
    """The same spread, every hyperparameter kept, on a posterior conditioned on other data."""
    model = None
    if spread.scale is not None:
        residuals, sigma = _loo(posterior, spread.theta)
        model = spread.scale.conditioned_on(posterior.X_train, residuals / sigma)
    return Spread(posterior, spread.theta, spread.choice, model)


def _loo(posterior: Posterior, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Leave-one-out residuals under ``theta_R`` and standard deviations under ``theta`` [N]."""
    with torch.no_grad():
        mean, sigma = posterior.loo(torch.stack([posterior.theta_R, theta]))
    return posterior.y_train - mean[0], sigma[1]


def _search(posterior: Posterior, rows: Tensor | None) -> Tensor:
    """One ``theta`` for all levels, by the pinball loss of leave-one-out quantiles of ``rows``.

    Beyond :data:`MOST_SEARCHED` points a random part of them stands for all.
    """
    n = posterior.n_train
    rows = torch.arange(n, device=posterior.device) if rows is None else rows
    part = posterior
    if n > MOST_SEARCHED:
        draw = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        rows = rows[draw[:MOST_SEARCHED].to(rows.device)]
        part = posterior.at_rows(rows)
        rows = torch.arange(len(rows), device=posterior.device)
    r = _loo(part, part.theta_R)[0][rows]
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
        restarts=0,
        rng=np.random.default_rng(0),
        most=_SEARCH_EVALUATIONS,
    )
    return theta[0]


def _held_out_sigma(
    posterior: Posterior, halves: list[Tensor], residuals: Tensor, sigma: Tensor
) -> Tensor:
    """``sigma`` [N] of each half of the points under the ``theta`` searched on the other half."""
    out = torch.empty_like(sigma)
    for rows, others in (halves, halves[::-1]):
        half = _loo(posterior, _search(posterior, others))[1]
        # The two halves are compared as one: bring both to the scale of the fit on all points.
        square = (residuals[others] / sigma[others]).square().mean()
        factor = (residuals[others] / half[others]).square().mean() / square
        out[rows] = half[rows] * factor.sqrt()
    return out
