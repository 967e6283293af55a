"""CV+: calibration without a holdout, with a worst-case coverage in finite samples."""

import torch

from sharpgp.calibration.methods.cross_validation import WithoutHoldout, split_points
from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.predictors.cv_plus import PlusPredictor
from sharpgp.calibration.recalibrator import CalibrationPoints, Scored, register
from sharpgp.data.folds import Split
from sharpgp.gp.compute import side_by_side
from sharpgp.models.gaussian.spread_choice import runs_in_threads
from sharpgp.models.model import Learner, held_out_of
from sharpgp.models.pool import Base, inputs_of, pooled_out_of_fold
from sharpgp.models.splitters import Folds, check_folds


@register("cv+")
class CVPlus(WithoutHoldout):
    r"""CV+: intervals compare every point with the fit that did not see it.

    They cover with probability at least ``1 - 2 alpha`` (less a little) for exchangeable data.
    Each fit makes its own choice of mean and spread, and all of them are kept.  With several
    models, the weights come from all data and so have seen every point: the bound is for one model.

    Parameters
    ----------
    folds : int, splitter or list of pairs
        As in :class:`~sharpgp.CrossValidated`; the worst case is stated for parts of equal size.
    random_state
        As in every recalibrator; the seed draws the parts.

    References
    ----------
    R. F. Barber, E. J. Candes, A. Ramdas and R. J. Tibshirani, "Predictive inference with the
    jackknife+", Annals of Statistics, 2021.

    Examples
    --------
    >>> import torch
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0]))
    >>> round(CVPlus(folds=5).fit(posterior).worst_case(0.95), 3)
    0.777
    """

    def __init__(self, *, folds: Folds = 10, random_state: int | None = None) -> None:
        super().__init__(random_state=random_state)
        self.folds = folds

    def check(self, n_train: int, n_cal: int) -> None:
        """Refuse a number of parts below two."""
        super().check(n_train, n_cal)
        check_folds(self.folds)

    def _scored(self, base: Base, points: CalibrationPoints) -> Scored:
        models, groups = self._everything(base, points)
        model = next(iter(models.values()))
        data = inputs_of(models), model.y_train, groups
        labels, pairs = split_points(self.folds, *data, self.seed)
        if len(models) > 1:
            model, _ = pooled_out_of_fold(models, pairs, labels, self.seed)
        X, y = model.X_train, model.y_train

        def without(pair: Split) -> Learner:
            rest, _ = pair
            return model.relearned(X[rest], y[rest], labels[rest], self.seed)

        fits = side_by_side(
            without, pairs, in_turn=model.gp is None or not runs_in_threads(model.gp)
        )
        return Scored(model, held_out_of(fits, pairs, X, y), pairs, list(fits), groups)

    def _ranked(self, scored: Scored, points: CalibrationPoints) -> Calibrated:
        held, pairs, groups = scored.held, scored.pairs, scored.groups
        assert held is not None
        assert pairs is not None
        found = PlusPredictor(scored.model, scored.fits, list(held.by_part(pairs)))
        if groups is None:
            return found
        return found.for_groups(groups[torch.cat([test for _, test in pairs])])
