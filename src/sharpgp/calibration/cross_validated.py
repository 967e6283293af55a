"""Calibration without a holdout: every point trains and every point calibrates."""

import copy
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from sharpgp._stored import stored
from sharpgp._validation import as_count
from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.exact import SpreadPredictor
from sharpgp.calibration.judging import SCORED_LEVELS
from sharpgp.calibration.levels import Levels
from sharpgp.calibration.limits import warn_if_overfitted
from sharpgp.calibration.plus import PlusPredictor
from sharpgp.calibration.recalibrator import Recalibrator, register
from sharpgp.calibration.spread import (
    Spread,
    conditioned_spread,
    learn_spread,
    refit_spread,
    runs_in_threads,
)
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.centred import CentredPosterior
from sharpgp.gp.posterior import DataPosterior, Posterior
from sharpgp.gp.threads import side_by_side

logger = logging.getLogger("sharpgp")

# Leads of refits, in log likelihood per point, from which they are of another kind than the fit on
# all data; and the share of them that may be.
_BEHIND, _FAR_AHEAD, _FEW = 0.01, 0.25, 0.2


@stored("CrossValidatedPredictor")
class CrossValidatedPredictor(SpreadPredictor):
    """A spread predictor whose scores come from fits that did not see the point they score."""

    def labelled_data(self) -> tuple[Tensor, Tensor]:
        """The training points, which are those that calibrate."""
        return self.posterior.X_train, self.posterior.y_train

    def _updated(self, X: Tensor, y: Tensor) -> Self:
        """New points are scored by the present fit, which has not seen them, then join it."""
        later = self._rescored(X, y, None)
        later.posterior = self.posterior.extended(X, y)
        later.spread_model = conditioned_spread(self.spread_model, later.posterior)
        return later


@dataclass(frozen=True)
class _Refit:
    """A part under the fit without it: residuals and z-scores [n].

    ``own`` are leave-one-out scores of the fit's own points; ``lead``, how much better it explains
    these than the fit on all data does; ``kept``, the fit itself where it is used later.
    """

    r: Tensor
    z: Tensor
    own: Tensor
    lead: float
    kept: Spread | None


@register("cv")
class CrossValidated(Recalibrator):
    r"""Every point trains, every point calibrates: ``beta`` from cross-validated z-scores.

    The whole pipeline (mean, ``theta``, scale model) is fitted on all data for prediction, and
    from scratch without each of ``folds`` parts in turn, side by side; the z-scores of the parts
    left out are pooled, and ``beta(delta) = q_lin(delta, z)``.  (Started from the full fit, the
    refits would stay close to it and so know the parts that they leave out.)  Where many refits end
    in poorer maxima of the likelihood than the full fit, their scores are of another shape than
    its; :func:`carried_over` then gives them the shape of its.  Where they end in far better ones,
    the full fit starts from scratch, too.  Predictions from
    all data are at least as good as those from a part, so coverage is nominal in practice; there
    is no finite-sample guarantee.

    Parameters
    ----------
    folds : int or None
        Number of parts.  None: leave-one-out scores of the one fit, without refits; fast, and
        optimistic, because the hyperparameters have seen every point (see the documentation).
    plus : bool
        CV+: intervals compare every point with the fit that did not see it, which covers with
        probability ``1 - 2 alpha`` (less a little) whatever the data; each fit then also makes
        its own choice between the candidates for mean and spread, and all of them are kept.
    levels, random_state
        As in every recalibrator; the seed draws the parts.

    Notes
    -----
    ``fit(posterior, None, None)`` uses the posterior's own training data.  Given calibration
    data, it first trains the GP again on both together, so that nothing is wasted.  The parts run
    in as many threads as torch has, one each; results do not depend on how many.

    References
    ----------
    R. F. Barber, E. J. Candes, A. Ramdas and R. J. Tibshirani, "Predictive inference with the
    jackknife+", Annals of Statistics, 2021.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X, y)
    >>> calibrated = CrossValidated(folds=5).fit(posterior, None, None)
    >>> calibrated.n_cal
    60
    >>> plus = CrossValidated(folds=5, plus=True).fit(posterior)
    >>> round(plus.worst_case(0.95), 3)
    0.777
    """

    needs_calibration = False

    def __init__(
        self,
        *,
        folds: int | None = 10,
        plus: bool = False,
        levels: Levels = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(levels=levels, random_state=random_state)
        self.folds = folds
        self.plus = plus

    def _fit(self, posterior: Posterior, X: Tensor, y: Tensor) -> Calibrated:
        full = posterior
        if len(y):
            everything = torch.cat([full.X_train, X]), torch.cat([full.y_train, y])
            full = full.retrained(*everything, warm=True)
        X, y = full.X_train, full.y_train
        if len(y) < 4:
            raise InvalidInputError(
                f"cv: expected at least 4 points to cross-validate with, found {len(y)}; add data"
            )
        if self.folds is None:
            return self._without_refits(full)
        folds = min(as_count(self.folds, "folds", least=2), len(y))
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(self.seed))
        parts = order.to(y.device).chunk(folds)
        spread = learn_spread(full, self.seed)
        refits = self._refits(full, spread, parts)
        if _many(refit.lead > _FAR_AHEAD for refit in refits):
            logger.info("cv: refits are far ahead of the full fit, which starts from scratch")
            full = full.retrained(X, y)
            spread = learn_spread(full, self.seed)
            refits = self._refits(full, spread, parts)
        if self.plus:
            fits = [refit.kept for refit in refits if refit.kept is not None]
            return PlusPredictor(spread.posterior, fits, [refit.z for refit in refits])
        r = torch.cat([refit.r for refit in refits])
        z = torch.cat([refit.z for refit in refits])
        if _many(refit.lead < -_BEHIND for refit in refits):
            logger.info(
                "cv: refits are at poorer maxima of the likelihood than the fit on all data"
            )
            z = torch.cat([carried_over(f.z, f.own, spread.scores) for f in refits])
        back = torch.cat(parts).argsort()
        return CrossValidatedPredictor(spread, X, r[back], z[back])

    def _refits(self, full: Posterior, spread: Spread, parts: Sequence[Tensor]) -> "list[_Refit]":
        X, y = full.X_train, full.y_train

        def without(part: Tensor) -> _Refit:
            rest = torch.ones_like(y, dtype=torch.bool)
            rest[part] = False
            if self.plus:
                fit = learn_spread(anew(full).retrained(X[rest], y[rest]), self.seed)
            else:
                fit = refit_spread(spread.choice, full, X[rest], y[rest])
            r = y[part] - fit.posterior.mean(X[part])
            lead = 0.0 if self.plus else lead_of(fit.posterior, spread.posterior.at_rows(rest))
            return _Refit(r, r / fit(X[part]), fit.scores, lead, fit if self.plus else None)

        return side_by_side(without, parts, alone=not runs_in_threads(full))

    def _without_refits(self, full: Posterior) -> CrossValidatedPredictor:
        if self.plus:
            raise InvalidInputError("plus: expected a number of folds, found folds=None; give one")
        warn_if_overfitted(full)
        spread = learn_spread(full, self.seed)
        with torch.no_grad():
            mean, _ = spread.posterior.loo(spread.posterior.theta_R.unsqueeze(0))
        r = full.y_train - mean[0]
        return CrossValidatedPredictor(spread, full.X_train, r, spread.scores)

    def fit(
        self,
        posterior: Posterior,
        X_cal: Any = None,
        y_cal: Any = None,
        *,
        sample_weight: Any = None,
    ) -> Any:
        """Calibrate on the posterior's training data, and on the calibration data if given.

        ``sample_weight`` then has one entry per point of both, training points first.
        """
        return super().fit(posterior, X_cal, y_cal, sample_weight=sample_weight)


@register("loo")
class LeaveOneOut(CrossValidated):
    """``CrossValidated(folds=None)``: leave-one-out scores without refits.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0]))
    >>> LeaveOneOut().fit(posterior).n_cal
    60
    """

    def __init__(self, *, levels: Levels = None, random_state: int | None = None) -> None:
        Recalibrator.__init__(self, levels=levels, random_state=random_state)

    folds = None
    plus = False


def lead_of(refit: Posterior, whole: Posterior) -> float:
    """How much better a GP explains its data than another one's hyperparameters do, per point.

    By log likelihood, and by the log density of the prior that both were trained with, if any.

    ``whole`` is the fit on all data, conditioned on those of ``refit`` only.  Where training ends
    in the same maximum of the likelihood the refit leads a little, as it was made for these data.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> good, _ = train(X, y)
    >>> poor = train(X, torch.cos(37 * X[:, 0]))[0].conditioned_on(X, y)
    >>> lead_of(good, poor) > 1.0, lead_of(good, good)
    (True, 0.0)
    """
    ours, theirs = refit.log_likelihood(), whole.log_likelihood()
    if ours is None or theirs is None:
        return 0.0
    return ours + refit.log_prior() - theirs - whole.log_prior()


def _many(refits: Iterable[bool]) -> bool:
    found = list(refits)
    return sum(found) > _FEW * len(found)


def carried_over(z: Tensor, own: Tensor, whole: Tensor) -> Tensor:
    """Scores of one fit at the same places among the scores of another one.

    A score between two quantiles of ``own`` goes to the same place between those of ``whole``, at
    :data:`SCORED_LEVELS`; beyond the outermost ones distances grow as the range of quantiles does.

    Parameters
    ----------
    z : Tensor [n]
        Scores of new points under one fit.
    own, whole : Tensor
        Leave-one-out scores of the points that the two fits were trained on.

    Examples
    --------
    >>> own = torch.linspace(-1, 1, 101, dtype=torch.float64)
    >>> carried_over(torch.tensor([-2.0, 0.5], dtype=torch.float64), own, 3 * own)
    tensor([-6.0000,  1.5000], dtype=torch.float64)
    """
    levels = torch.tensor(SCORED_LEVELS, dtype=z.dtype, device=z.device)
    a, b = torch.quantile(own, levels), torch.quantile(whole, levels)
    i = torch.searchsorted(a, z.contiguous()).clamp(1, len(a) - 1)
    width = (a[i] - a[i - 1]).clamp_min(torch.finfo(z.dtype).tiny)
    place = ((z - a[i - 1]) / width).clamp(0.0, 1.0)
    inside = b[i - 1] + place * (b[i] - b[i - 1])
    growth = (b[-1] - b[0]) / (a[-1] - a[0]) if a[-1] > a[0] else torch.ones_like(a[0])
    return inside + growth * (z - z.clamp(a[0], a[-1]))


def anew(posterior: Posterior) -> Posterior:
    """The same posterior with nothing to tell about how to train it."""
    fresh = copy.copy(posterior)
    if isinstance(fresh, DataPosterior):
        fresh.training_start = None
    elif isinstance(fresh, CentredPosterior):
        fresh.gp = anew(fresh.gp)
    return fresh
