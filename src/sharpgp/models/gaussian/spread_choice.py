r"""Mean and spread learned from training data alone, by leave-one-out.

The mean is that of a GP as trained or of one on a warped target, where that has larger
leave-one-out log densities, by more than one standard error and a handicap, and scores that are
worse at no coverage.  The spread
``sigma(theta, x) exp(b g(x) / 2)`` has a share ``b`` of 0, 1/2 or 1 of the scale model ``g``.  One
is used only where its score beats that of plain ``sigma`` by one standard error, and where it is
worse at no coverage.  It is first judged by its closed-form leave-one-out predictions, which
flatter it; where these gain, by points that it has not seen.  Nothing here sees the points that
later fix ``beta``.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sharpgp._stored import stored
from sharpgp.data.folds import row_labels
from sharpgp.gp.compute import MAX_ROWS_BATCHED
from sharpgp.gp.kernels.covariance import Named
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.wrappers.target_warp import warped
from sharpgp.models.gaussian.candidate_scores import Scores, scores_of
from sharpgp.models.gaussian.scale_model import ScaleModel, held_out_log_squares
from sharpgp.rows import Inputs, Rows

# Fewest training points for learning a spread; fewer scores cannot judge one.
_LEAST_LEARNED = 40
_SHARES = (0.0, 0.5, 1.0)
# Least gain of another mean beyond its standard error: a constant, plus a part for each
# hyperparameter per point, as these may fit noise.
_HANDICAP, _HANDICAP_PER_PARAMETER = 0.01, 0.25


@stored("Choice")
@dataclass(frozen=True)
class Choice:
    """The choice made: share of the scale model, and warp of the target.

    ``score`` is the leave-one-out score relative to that of the plain GP; ``warped`` tells whether
    the target is warped.
    """

    share: float = 0.0
    score: float = 1.0
    warped: bool = False


@dataclass(frozen=True)
class Chosen:
    """A posterior, the choice that led there, and the scale model, if any."""

    posterior: Posterior
    choice: Choice
    scale: ScaleModel | None


@dataclass(frozen=True)
class Candidate:
    """A posterior, with leave-one-out residuals and deviations [N] to judge it."""

    posterior: Posterior
    residuals: Tensor
    sigma: Tensor
    choice: Choice


def choose_spread(
    posterior: Posterior, seed: int, labels: Tensor | None = None, *, confirm: bool = True
) -> Chosen:
    """The mean and spread with the best leave-one-out scores of the training data.

    Parameters
    ----------
    posterior : Posterior
    seed : int
        Seed of the parts on which a scale model is judged.
    labels : Tensor [N], optional
        Rows that share one are in one part; None: those with equal inputs.
    confirm : bool
        Whether a scale model is judged by points that it has not seen.  If not, it is kept as far
        as it looks good; :func:`honest_share` judges it by points that no learning has seen.
    """
    rows, plain = posterior.scored_rows, _as_trained(posterior, Choice())
    if len(rows) < _LEAST_LEARNED:
        return Chosen(posterior, plain.choice, None)
    mean = _warped(posterior, scores_of(plain.residuals, plain.sigma)) or plain
    X, z, ties = posterior.X_train[rows], mean.residuals / mean.sigma, mean.posterior.ties
    scale = ScaleModel(X, z, ties)
    g = scale.log_square_loo()
    share = honest_share(mean.residuals, mean.sigma, g)
    if confirm and share:
        kept = row_labels(X) if labels is None else labels[rows]
        g = held_out_log_squares(X, z, kept, seed, ties, in_turn=not runs_in_threads(posterior))
        share = honest_share(mean.residuals, mean.sigma, g)
    if not share:
        return Chosen(mean.posterior, mean.choice, None)
    gained = _gain(mean.residuals, mean.sigma, share, g).total.mean()
    choice = replace(mean.choice, share=share, score=mean.choice.score * (1.0 - float(gained)))
    return Chosen(mean.posterior, choice, scale)


def honest_share(residuals: Tensor, sigma: Tensor, g: Tensor) -> float:
    """Share of a scale model, by its predictions ``g`` [n] of points that it has not seen.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> z = torch.randn(400, dtype=torch.float64, generator=generator)
    >>> scale = torch.linspace(0.2, 2.0, 400, dtype=torch.float64)
    >>> honest_share(scale * z, torch.ones_like(z), 2 * scale.log())
    1.0
    >>> honest_share(z, torch.ones_like(z), 2 * scale.log())
    0.0
    """
    margins = {0.0: 0.0}
    for share in _SHARES[1:]:
        gained = _gain(residuals, sigma, share, g)
        margins[share] = _beyond_chance(gained.total) if gained.least >= 0.0 else -math.inf
    return max(margins, key=lambda share: margins[share])


def _gain(residuals: Tensor, sigma: Tensor, share: float, g: Tensor) -> Scores:
    """Gain of a share of a scale model over plain deviations."""
    scaled = scores_of(residuals, sigma * (0.5 * share * g).exp())
    return scaled.gain_on(scores_of(residuals, sigma))


def _beyond_chance(gained: Tensor) -> float:
    """Mean of a gain over the points [n], less its standard error."""
    return float(gained.mean() - gained.std() / len(gained) ** 0.5)


def same_spread(choice: Choice, posterior: Posterior, rows: Inputs, y: Tensor) -> Chosen:
    """The same kind of mean and spread on other data, learned from scratch."""
    fit = posterior.retrained(rows, y)
    if choice.warped:
        fit = warped(fit) or fit
    scale = None
    if choice.share > 0:
        residuals, sigma = loo_of(fit)
        scale = ScaleModel(Rows.of(rows).X[fit.scored_rows], residuals / sigma, fit.ties)
    return Chosen(fit, choice, scale)


def runs_in_threads(posterior: Posterior) -> bool:
    """Whether several fits may run at once.

    BoTorch's fits change global settings, and large ones fill threads and memory by themselves.
    """
    named = isinstance(getattr(posterior, "covariance", None), Named)
    return named and posterior.n_train <= MAX_ROWS_BATCHED


def _as_trained(posterior: Posterior, choice: Choice) -> Candidate:
    return Candidate(posterior, *loo_of(posterior), choice)


def _warped(posterior: Posterior, reference: Scores) -> Candidate | None:
    """A warped GP, if its leave-one-out log densities are larger beyond chance and a handicap.

    And if its scores are worse than the ``reference`` at no coverage.
    """
    other = warped(posterior)
    if other is None:
        return None
    gained = other.loo_log_density() - posterior.loo_log_density()
    handicap = _HANDICAP + _HANDICAP_PER_PARAMETER * len(posterior.theta_R) / posterior.n_train
    if not _beyond_chance(gained) > handicap:
        return None
    found = _as_trained(other, Choice(warped=True))
    scores = scores_of(found.residuals, found.sigma).gain_on(reference)
    if scores.least < 0.0:
        return None
    choice = replace(found.choice, score=1.0 - float(scores.total.mean()))
    return replace(found, choice=choice)


def loo_of(posterior: Posterior, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Leave-one-out residuals and standard deviations [n] of training points by number.

    By default of :attr:`DataPosterior.scored_rows`.
    """
    with torch.no_grad():
        rows = posterior.scored_rows if rows is None else rows
        mean, sigma = posterior.left_out(rows)
        return posterior.y_train[rows] - mean, sigma
