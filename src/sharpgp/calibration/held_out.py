"""Predictors that keep the points they were calibrated on, and can be calibrated on others."""

from abc import abstractmethod

import torch
from torch import Tensor

from sharpgp.calibration.by_level import LevelPredictor
from sharpgp.calibration.newest import newest


class HeldOutPredictor(LevelPredictor):
    """Its own quantile function, from calibration points ``X_cal`` [C, d], ``y_cal`` [C]."""

    X_cal: Tensor
    y_cal: Tensor

    @abstractmethod
    def calibrated_on(self, X: Tensor, y: Tensor) -> "HeldOutPredictor":
        """The same with other calibration points; what the method learned elsewhere is kept."""

    def labelled_data(self) -> tuple[Tensor, Tensor]:
        """Training points, then calibration points."""
        X, y = self.posterior.X_train, self.posterior.y_train
        return torch.cat([X, self.X_cal]), torch.cat([y, self.y_cal])

    @property
    def can_be_rescored(self) -> bool:
        """New calibration points can join the others."""
        return True

    def _rescored(self, X: Tensor, y: Tensor, keep: int | None) -> "HeldOutPredictor":
        return self.calibrated_on(newest(self.X_cal, X, keep), newest(self.y_cal, y, keep))
