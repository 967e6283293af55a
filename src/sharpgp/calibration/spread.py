r"""A spread ``sigma_total(x)`` learned from training data alone, by leave-one-out.

Candidates are ``sigma(theta, x) exp(b g(x) / 2)`` with ``theta`` either ``theta_R`` or searched on
leave-one-out residuals, and with a share ``b`` of the scale model of 0, 1/2 or 1.  A candidate is
used only where its held-out interval score beats that of plain ``sigma(theta_R, x)`` by one
standard error.  Nothing here sees the points that later fix ``beta``.
"""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.calibration.objective import pinball
from sharpgp.calibration.path import Problem, solve_shared
from sharpgp.calibration.scale import ScaleModel
from sharpgp.calibration.search import Ard
from sharpgp.gp.posterior import Posterior

#: Levels whose pinball losses the search of ``theta`` averages.
SEARCH_LEVELS = (0.025, 0.05, 0.1, 0.25, 0.75, 0.9, 0.95, 0.975)
#: Coverages whose interval scores decide between the candidates.
SCORED_COVERAGES = (0.8, 0.9, 0.95)
_SHARES = (0.0, 0.5, 1.0)
_SHRINKAGE = 0.003
_SEARCH_EVALUATIONS = 30
_MIN_POINTS = 40
#: Points whose leave-one-out quantities a search uses at most.
MOST_SEARCHED = 600


@stored("Choice", searched=bool, share=float, score=float)
@dataclass(frozen=True)
class Choice:
    """Which candidate was taken: ``theta`` searched or not, and the share of the scale model.

    ``score`` is the held-out interval score relative to that of ``sigma(theta_R, x)``.
    """

    searched: bool
    share: float
    score: float


@stored(
    "Spread",
    posterior=Posterior,
    theta=Array("P", positive=True),
    choice=Choice,
    scale=ScaleModel | None,
    unit=Array(positive=True),
)
class Spread:
    """``sigma_total(x) = unit sigma(theta, x) exp(share g(x) / 2)``, from training data alone.

    ``unit`` makes the mean square of the leave-one-out z-scores 1, so that spreads of different
    fits can be pooled.
    """

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
        # Residuals that are all 0, of a mean that is perfect, must not make a spread of 0.
        self.unit = (residuals / sigma).square().mean().sqrt().clamp_min(1e-12)

    def _restored(self) -> None:
        agree("length of theta", len(self.theta), len(self.posterior.theta_R))
        if self.scale is not None:
            agree(
                "features of the scale model", self.scale.gp.n_features, self.posterior.n_features
            )

    def on(self, posterior: Posterior) -> "Spread":
        """The same ``theta``, unit and scale model on a posterior that has seen other data."""
        other = copy.copy(self)
        other.posterior = posterior
        return other

    def __call__(self, X: Tensor) -> Tensor:
        """``sigma_total`` [T]."""
        sigma = self.posterior.sigma(self.theta.unsqueeze(0), X)[0]
        if self.scale is not None:
            sigma = sigma * (0.5 * self.choice.share * self.scale.log_square(X)).exp()
        return sigma * self.unit


def learn_spread(posterior: Posterior, seed: int) -> Spread:
    """Choose and fit a spread on the posterior's training data.

    Parameters
    ----------
    posterior : Posterior
    seed : int
        Seed of the two halves on which a searched ``theta`` is judged.
    """
    plain = Choice(False, 0.0, 1.0)
    if posterior.n_train < _MIN_POINTS:
        return Spread(posterior, posterior.theta_R, plain, None)
    residuals, sigma_R = _loo(posterior, posterior.theta_R)
    theta = _search(posterior, None)
    sigma = _loo(posterior, theta)[1]
    held_out = _held_out_sigma(posterior, seed, residuals, sigma)
    baseline = _interval_scores(residuals, sigma_R)
    best: tuple[Choice, Tensor, ScaleModel | None] = (plain, posterior.theta_R, None)
    best_gain = 0.0
    for searched, fitted, judged in ((False, sigma_R, sigma_R), (True, sigma, held_out)):
        scale = ScaleModel(posterior.X_train, residuals / fitted)
        g = scale.log_square_loo()
        for share in _SHARES:
            scores = _interval_scores(residuals, judged * (0.5 * share * g).exp())
            gain = baseline - scores
            gain_beyond_noise = float(gain.mean() - gain.std() / len(gain) ** 0.5)
            if gain_beyond_noise > best_gain:
                choice = Choice(searched, share, float(scores.mean() / baseline.mean()))
                model = scale if share > 0 else None
                best = choice, theta if searched else posterior.theta_R, model
                best_gain = gain_beyond_noise
    choice, theta, model = best
    return Spread(posterior, theta, choice, model)


def refit_spread(spread: Spread, posterior: Posterior) -> Spread:
    """The same kind of spread on another fit of the same GP, learned from scratch."""
    theta = _search(posterior, None) if spread.choice.searched else posterior.theta_R
    model = None
    if spread.scale is not None:
        residuals, sigma = _loo(posterior, theta)
        model = ScaleModel(posterior.X_train, residuals / sigma)
    return Spread(posterior, theta, spread.choice, model)


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


def _held_out_sigma(posterior: Posterior, seed: int, residuals: Tensor, sigma: Tensor) -> Tensor:
    """``sigma`` [N] of each half of the points under the ``theta`` searched on the other half."""
    n = posterior.n_train
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).to(sigma.device)
    out = torch.empty_like(sigma)
    for rows, others in ((order[: n // 2], order[n // 2 :]), (order[n // 2 :], order[: n // 2])):
        half = _loo(posterior, _search(posterior, others))[1]
        # The two halves are compared as one: bring both to the scale of the fit on all points.
        square = (residuals[others] / sigma[others]).square().mean()
        factor = (residuals[others] / half[others]).square().mean() / square
        out[rows] = half[rows] * factor.sqrt()
    return out


def _interval_scores(r: Tensor, sigma: Tensor) -> Tensor:
    """Interval score [N] of symmetric bands, averaged over :data:`SCORED_COVERAGES`."""
    z = (r / sigma).abs()
    total = torch.zeros_like(r)
    for coverage in SCORED_COVERAGES:
        half = torch.quantile(z, coverage) * sigma
        total += 2.0 * half + 2.0 / (1.0 - coverage) * (r.abs() - half).clamp(min=0.0)
    return total / len(SCORED_COVERAGES)
