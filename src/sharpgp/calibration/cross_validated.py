"""Calibration without a holdout: every point trains and every point calibrates."""

import copy
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.cautions import warn_if_overfitted
from sharpgp.calibration.cv_plus import PlusPredictor
from sharpgp.calibration.judging import SCORED_LEVELS
from sharpgp.calibration.levels import Levels
from sharpgp.calibration.recalibrator import Recalibrator, register
from sharpgp.calibration.scored import ScoredPredictor
from sharpgp.calibration.spread import (
    Spread,
    conditioned_spread,
    learn_spread,
    refit_spread,
    runs_in_threads,
)
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.gp.centred import CentredPosterior
from sharpgp.gp.compute import side_by_side
from sharpgp.gp.posterior import Posterior
from sharpgp.models.folds import parts, together
from sharpgp.models.splitters import Split, complements, splits

logger = logging.getLogger("sharpgp")

# Leads of refits, in log likelihood per point, from which they are of another kind than the fit on
# all data; and the share of them that may be.  One alone always may: it lacks what it leaves out.
_BEHIND, _FAR_AHEAD, _FEW = 0.01, 0.25, 0.2
# Parts that are left out in turn where inputs repeat, so that no single point can be.
_MOST_LEFT_OUT = 50


@dataclass(frozen=True)
class _Refit:
    """A part under the fit without it: z-scores [n].

    ``own`` are leave-one-out scores of the fit's own points; ``lead``, how much better it explains
    these than the fit on all data does; ``kept``, the fit itself where it is used later.
    """

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
    folds : int, splitter, list of pairs or None
        Number of parts; points that belong :func:`~sharpgp.models.folds.together` (equal inputs,
        and groups given to ``fit``) are in one.  Or whatever has scikit-learn's
        ``split(X, y, groups)``, or its pairs (rows to train on, rows to test with): each refit
        then trains on its rows only, and points that no pair tests do not calibrate.
        None: leave-one-out scores of the one fit, without refits; fast, and
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
        folds: Any = 10,
        plus: bool = False,
        levels: Levels = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(levels=levels, random_state=random_state)
        self.folds = folds
        self.plus = plus

    def _fit(self, posterior: Posterior, X: Tensor, y: Tensor) -> Calibrated:
        return self._fit_groups(posterior, X, y, None, None)

    def _fit_groups(
        self,
        posterior: Posterior,
        X: Tensor,
        y: Tensor,
        groups: Tensor | None,
        groups_cal: Tensor | None,
    ) -> Calibrated:
        full = posterior
        if len(y):
            groups = _both(groups, groups_cal)
            everything = torch.cat([full.X_train, X]), torch.cat([full.y_train, y])
            full = _keeping_together(full, groups).retrained(*everything, start="warm")
        X, y = full.X_train, full.y_train
        if len(y) < 4:
            raise InvalidInputError(
                f"cv: expected at least 4 points to cross-validate with, found {len(y)}; add data"
            )
        if self.folds is None:
            return self._without_refits(full, groups)
        pairs = splits(self.folds, X, y, groups, self.seed)
        labels = together(X, groups)
        if groups is not None and isinstance(self.folds, Integral) and len(pairs) < int(self.folds):
            warn(
                f"{len(pairs)} groups for {self.folds} folds: every group is left out in turn; "
                "what is said of new groups rests on few"
            )
        spread = learn_spread(full, self.seed, labels)
        refits = self._refits(full, spread, pairs, labels)
        if _many(refit.lead > _FAR_AHEAD for refit in refits):
            logger.info("cv: refits are far ahead of the full fit, which starts from scratch")
            full = _keeping_together(full, groups).retrained(X, y)
            spread = learn_spread(full, self.seed, labels)
            refits = self._refits(full, spread, pairs, labels)
        if self.plus:
            fits = [refit.kept for refit in refits if refit.kept is not None]
            return PlusPredictor(spread.posterior, fits, [refit.z for refit in refits])
        z = torch.cat([refit.z for refit in refits])
        if _many(refit.lead < -_BEHIND for refit in refits):
            logger.info(
                "cv: refits are at poorer maxima of the likelihood than the fit on all data"
            )
            z = torch.cat([carried_over(f.z, f.own, spread.scores) for f in refits])
        tested, back = torch.cat([test for _, test in pairs]).sort()
        return ScoredPredictor(spread, X[tested], y[tested], z[back], in_training=True)

    def _refits(
        self, full: Posterior, spread: Spread, pairs: Sequence[Split], labels: Tensor
    ) -> "list[_Refit]":
        X, y = full.X_train, full.y_train

        def without(pair: Split) -> _Refit:
            rest, part = pair
            start = _keeping_together(full, labels[rest])
            if self.plus:
                refit = start.retrained(X[rest], y[rest], start="fresh")
                fit = learn_spread(refit, self.seed, labels[rest])
            else:
                fit = refit_spread(spread.choice, start, X[rest], y[rest])
            z = (y[part] - fit.location(X[part])) / fit.spread(X[part])
            # A fit to few of the points leads by what it overfits: that says nothing.
            compared = not self.plus and 2 * len(rest) > len(y)
            lead = lead_of(fit.posterior, spread.posterior) if compared else 0.0
            return _Refit(z, fit.scores, lead, fit if self.plus else None)

        return side_by_side(without, pairs, alone=not runs_in_threads(full))

    def _without_refits(self, full: Posterior, groups: Tensor | None) -> ScoredPredictor:
        if self.plus:
            raise InvalidInputError("plus: expected a number of folds, found folds=None; give one")
        if groups is not None:
            raise InvalidInputError(
                "loo: expected points that each stand alone, found groups, of which it would "
                "leave out one point only; use calibration='cv'"
            )
        warn_if_overfitted(full)
        spread = learn_spread(full, self.seed)
        z, labels = spread.scores, together(full.X_train)
        if len(labels.unique()) < len(labels) and not isinstance(full, CentredPosterior):
            z = _leaving_out(spread, parts(labels, _MOST_LEFT_OUT, self.seed))
        return ScoredPredictor(spread, full.X_train, full.y_train, z, in_training=True)

    def fit(
        self,
        posterior: Posterior,
        X_cal: Any = None,
        y_cal: Any = None,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        groups_cal: Any = None,
    ) -> Any:
        """Calibrate on the posterior's training data, and on the calibration data if given.

        ``sample_weight`` then has one entry per point of both, training points first.
        """
        found = super().fit(posterior, X_cal, y_cal, groups=groups, groups_cal=groups_cal)
        if sample_weight is None:
            return found
        n_points = found.posterior.n_train
        if not callable(sample_weight) and found.n_cal != n_points:
            raise InvalidInputError(
                "sample_weight: expected a function of X where folds leave points out that do not "
                f"calibrate, found numbers for {found.n_cal} of {n_points} points"
            )
        return found.weighted(sample_weight)


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

    ``whole`` is the fit on all data; it is conditioned on those of ``refit``.  Where training ends
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
    there = whole.at_data_of(refit)
    ours: float = refit.log_likelihood() + refit.log_prior()
    theirs: float = there.log_likelihood() + there.log_prior()
    return ours - theirs


def _many(refits: Iterable[bool]) -> bool:
    found = list(refits)
    return sum(found) > max(1, _FEW * len(found))


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


def _leaving_out(spread: Spread, tests: Sequence[Tensor]) -> Tensor:
    """z-scores [N] of parts, without them but with every hyperparameter kept."""
    X, y = spread.posterior.X_train, spread.posterior.y_train
    z = torch.empty_like(y)
    with torch.no_grad():
        for rest, part in complements(len(y), tests):
            fit = conditioned_spread(spread, spread.posterior.at_rows(rest))
            z[part] = (y[part] - fit.location(X[part])) / fit.spread(X[part])
    return z


def _keeping_together(posterior: Posterior, groups: Tensor | None) -> Posterior:
    """The same posterior, whose regression, if it has one, will be fitted to rows of groups."""
    if not isinstance(posterior, CentredPosterior):
        return posterior
    told = copy.copy(posterior)
    told.regression = posterior.regression.keeping_together(groups)
    return told


def _both(groups: Tensor | None, groups_cal: Tensor | None) -> Tensor | None:
    """Groups of training and calibration points, in which a name means the same group."""
    if (groups is None) != (groups_cal is None):
        raise InvalidInputError(
            "groups: expected those of training and of calibration points, as both train and "
            "calibrate here, found one of them; give groups and groups_cal"
        )
    return None if groups is None or groups_cal is None else torch.cat([groups, groups_cal])
