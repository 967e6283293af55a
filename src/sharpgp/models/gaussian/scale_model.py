"""The scale model: where the noise is large, learned from leave-one-out z-scores."""

import copy
import math

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.data.folds import split_parts
from sharpgp.gp.compute import side_by_side
from sharpgp.gp.conditioning import condition
from sharpgp.gp.directions import Directions
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.by_name import named
from sharpgp.gp.kernels.covariance import NOISE
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.ties import Ties
from sharpgp.gp.training import REFIT_TOLERANCE, train
from sharpgp.models.splitters import complements
from sharpgp.policy import EXACT_ROWS, Policy
from sharpgp.rows import Inputs, Rows

# E log(chi^2_1): mean of log z^2 for standard normal z.
_LOG_CHI_SQUARE = math.log(2.0) + float(torch.digamma(torch.tensor(0.5).double()))
# Added to z^2 before the logarithm, so that a residual near 0 is not an outlier.
_SOFTENING = 0.02
# Degrees of freedom of the Student distribution assumed for z-scores, which limits the influence of
# outliers on the scale.
_FREEDOM = 5.0
# Fisher information of one z-score about the log of its squared scale.
_INFORMATION = _FREEDOM / (2.0 * (_FREEDOM + 3.0))
_STEPS = 8
#: Prior on its lengthscales. z-scores tell so little about their scale that, without a prior, many
#: features fit noise at any number of points.
PRIOR = LengthscalePrior(deviation=1.0, in_ranges=False, fades=False)
# Number of parts, each judged by a scale model trained without it.
_PARTS = 5


def log_squares(z: Tensor) -> Tensor:
    """``log z^2``, softened near 0 and with mean 0 for standard normal ``z``."""
    return (z.square() + _SOFTENING).log() - _LOG_CHI_SQUARE


@stored("ScaleModel", gp=Posterior, _at_training=Array("N"))
class ScaleModel:
    r"""A GP ``g(x)`` for the log of the squared scale of z-scores: ``z ~ exp(g(x)/2) t_5``.

    A stationary kernel's ``sigma`` only knows how far the data are; ``exp(g(x)/2)`` multiplies it
    where the noise itself is larger or smaller.  Kernel hyperparameters come from a GP regression
    of ``log(z_i^2 + 0.02)``, by marginal likelihood.  Given them, ``g`` is found by Fisher
    scoring: a GP regression of working responses ``g_i + s_i / I`` with noise variance ``1 / I``,
    where ``s_i`` is the derivative of the log density of ``z_i`` and ``I`` its information.  Of
    what z-scores tell about ``g``, logarithms of squares keep 40 %.

    Parameters
    ----------
    X : Tensor [N, d]
    z : Tensor [N]
        Leave-one-out z-scores; a common factor does not matter.
    ties : tuple of int, optional
        Which features share a lengthscale, see :mod:`sharpgp.gp.ties`.

    Examples
    --------
    >>> X = torch.linspace(-1, 1, 80, dtype=torch.float64)[:, None]
    >>> noise = torch.randn(80, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> model = ScaleModel(X, noise * (0.1 + (X[:, 0] > 0)))
    >>> g = model.log_square(X)
    >>> bool(g[-10:].mean() > g[:10].mean() + 2)
    True
    """

    def __init__(self, X: Tensor, z: Tensor, ties: Ties | Directions | None = None) -> None:
        if isinstance(ties, Directions) and ties.are_whole:
            # The axes of a mean's gradients: noise seldom has them.
            ties = ties.ties or None
        logs, kernel = log_squares(_normalised(z)), named("rbf", ties)
        trained, _ = train(X, logs, kernel, start=0, tolerance=REFIT_TOLERANCE, prior=PRIOR)
        prior = copy.copy(trained)
        prior.theta_R = trained.theta_R.clone()
        prior.theta_R[NOISE] = 1.0 / (_INFORMATION * trained.y_units.scale.square())
        with torch.no_grad():
            self._score(prior.retargeted(torch.zeros_like(z)), z)

    def _score(self, gp: Posterior, z: Tensor) -> None:
        """Fisher scoring from ``g = 0`` at the inputs of ``gp``."""
        z, g = _normalised(z), torch.zeros_like(z)
        with torch.no_grad():
            for _ in range(_STEPS):
                gp = gp.retargeted(working_response(g, z))
                g = _at_training(gp)
            self.gp = gp
            self._at_training = gp.loo(gp.theta_R.unsqueeze(0))[0][0]

    def _restored(self) -> None:
        agree("points of the scale model", len(self._at_training), self.gp.n_train)

    def conditioned_on(self, X: Tensor, z: Tensor) -> "ScaleModel":
        """The same model, hyperparameters kept, of other z-scores."""
        other = copy.copy(self)
        gp = condition(self.gp, X, torch.zeros_like(z), Policy(exact_rows=EXACT_ROWS))
        other._score(gp, z)
        return other

    def log_square(self, rows: Inputs) -> Tensor:
        """``g(x)`` [T] at new points, within the range of ``g`` at the training points.

        A GP that interpolates noisy targets can overshoot, and the exponential would turn that into
        a spread wrong by orders of magnitude.
        """
        at_training = self._at_training
        return self.gp.mean(Rows.of(rows).X).clamp(at_training.min(), at_training.max())

    def log_square_loo(self) -> Tensor:
        """``g(x_i)`` [N] at the training points, each predicted from the others."""
        return self._at_training


def held_out_log_squares(
    X: Tensor,
    z: Tensor,
    labels: Tensor,
    seed: int,
    ties: Ties | Directions | None = None,
    *,
    in_turn: bool = False,
) -> Tensor:
    """``g(x_i)`` [N], each from a scale model trained without the fifth that ``i`` is in.

    Rows that share a label [N] are in one fifth; ``in_turn``: one fifth after the other.

    :meth:`ScaleModel.log_square_loo` predicts each point from the others, too, but with
    hyperparameters that have seen all: too good for a decision on whether there is anything to
    learn.

    Examples
    --------
    >>> X = torch.linspace(-1, 1, 80, dtype=torch.float64)[:, None]
    >>> noise = torch.randn(80, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> g = held_out_log_squares(X, noise * (0.1 + (X[:, 0] > 0)), torch.arange(80), seed=0)
    >>> bool(g[-10:].mean() > g[:10].mean() + 2)
    True
    """
    pairs = complements(len(z), split_parts(labels, _PARTS, seed))

    def held_out(pair: tuple[Tensor, Tensor]) -> Tensor:
        rest, part = pair
        model = ScaleModel(X[rest], z[rest], ties)
        with torch.no_grad():
            return model.log_square(X[part])

    g = torch.empty_like(z)
    g[torch.cat([part for _, part in pairs])] = torch.cat(
        side_by_side(held_out, pairs, in_turn=in_turn)
    )
    return g


def _at_training(gp: Posterior) -> Tensor:
    """The mean [N] at the training points: ``K Ky^-1 y = y - noise Ky^-1 y`` of an exact GP."""
    if not isinstance(gp, ExactPosterior):
        return gp.mean(gp.X_train)
    return gp.y_units.back(gp.y_standardised - gp.theta_R[NOISE] * gp.weights)


def _normalised(z: Tensor) -> Tensor:
    """Scores with mean square 1; a common factor is not the scale model's task."""
    return z / z.square().mean().sqrt().clamp_min(torch.finfo(z.dtype).tiny)


def working_response(g: Tensor, z: Tensor) -> Tensor:
    """Target of the GP regression in one step of Fisher scoring from ``g`` [N].

    Examples
    --------
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> working_response(0 * one, one).item()  # a z-score of 1 has the scale that it should have
    0.0
    """
    square = z.square()
    slope = 0.5 * ((_FREEDOM + 1.0) * square / (_FREEDOM * g.exp() + square) - 1.0)
    return g + slope / _INFORMATION
