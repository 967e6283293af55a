"""BoTorch's GP, as a user of it has one, for the peers that can take any GP."""

from typing import Any

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.mlls import ExactMarginalLogLikelihood
from sklearn.base import BaseEstimator, RegressorMixin


class BoTorchRegressor(RegressorMixin, BaseEstimator):
    """A SingleTaskGP with normalised inputs and standardised target, as a scikit-learn estimator.

    Standard deviations are those of an observation, noise included.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def fit(self, X: np.ndarray, y: np.ndarray) -> "BoTorchRegressor":
        """Train the GP by maximum likelihood, with BoTorch's priors."""
        self.n_features_in_ = d = X.shape[1]
        self.model_ = SingleTaskGP(
            self._tensor(X),
            self._tensor(y).unsqueeze(-1),
            input_transform=Normalize(d),
            outcome_transform=Standardize(1),
        )
        fit_gpytorch_mll(ExactMarginalLogLikelihood(self.model_.likelihood, self.model_))
        return self

    def predict(self, X: np.ndarray, return_std: bool = False) -> Any:
        """Mean [n], and the standard deviation [n] on request."""
        with torch.no_grad():
            posterior: Any = self.model_.posterior(self._tensor(X), observation_noise=True)
            mean = posterior.mean.flatten().cpu().numpy()
            std = posterior.variance.flatten().sqrt().cpu().numpy()
        return (mean, std) if return_std else mean

    def loo_scores(self) -> np.ndarray:
        """Leave-one-out z-scores of the training points, without refits; needs BoTorch 0.17."""
        from botorch.cross_validation import loo_cv

        with torch.no_grad():
            result: Any = loo_cv(self.model_)
            z = (result.observed_Y - result.posterior.mean) / result.posterior.variance.sqrt()
        return z.flatten().cpu().numpy()

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.asarray(array), dtype=torch.float64, device=self.device)
