"""Calibration without a holdout: every point trains and every point calibrates."""

from typing import Any, Self

import torch
from torch import Tensor

from sharpgp._stored import stored
from sharpgp._validation import as_count
from sharpgp.calibration.exact import SpreadPredictor
from sharpgp.calibration.levels import Levels
from sharpgp.calibration.recalibrator import Recalibrator, register
from sharpgp.calibration.spread import conditioned_spread, learn_spread, refit_spread
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.posterior import Posterior


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


@register("cv")
class CrossValidated(Recalibrator):
    r"""Every point trains, every point calibrates: ``beta`` from cross-validated z-scores.

    The whole pipeline (mean, ``theta``, scale model) is fitted on all data for prediction, and
    from scratch without each of ``folds`` parts in turn; the z-scores of the parts left out are
    pooled, and ``beta(delta) = q_lin(delta, z)``.  (Started from the full fit, the refits would
    stay close to it and so know the parts that they leave out.)  Predictions from all
    data are at least as good as those from a part, so coverage is nominal in practice; there is
    no finite-sample guarantee.

    Parameters
    ----------
    folds : int
        Number of parts.
    levels, random_state
        As in every recalibrator; the seed draws the parts.

    Notes
    -----
    ``fit(posterior, None, None)`` uses the posterior's own training data.  Given calibration
    data, it first trains the GP again on both together, so that nothing is wasted.

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
    """

    needs_calibration = False

    def __init__(
        self, *, folds: int = 10, levels: Levels = None, random_state: int | None = None
    ) -> None:
        super().__init__(levels=levels, random_state=random_state)
        self.folds = folds

    def _fit(self, posterior: Posterior, X: Tensor, y: Tensor) -> CrossValidatedPredictor:
        full = posterior
        if len(y):
            everything = torch.cat([full.X_train, X]), torch.cat([full.y_train, y])
            full = full.retrained(*everything, warm=True)
        X, y = full.X_train, full.y_train
        folds = min(as_count(self.folds, "folds", least=2), len(y))
        if len(y) < 4:
            raise InvalidInputError(
                f"cv: expected at least 4 points to cross-validate with, found {len(y)}; add data"
            )
        spread = learn_spread(full, self.seed)
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(self.seed))
        scores, residuals = torch.empty_like(y), torch.empty_like(y)
        for part in order.to(y.device).chunk(folds):
            rest = torch.ones_like(y, dtype=torch.bool)
            rest[part] = False
            fit = full.retrained(X[rest], y[rest])
            residuals[part] = y[part] - fit.mean(X[part])
            scores[part] = residuals[part] / refit_spread(spread, fit)(X[part])
        return CrossValidatedPredictor(full, spread, X, residuals, scores)

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
