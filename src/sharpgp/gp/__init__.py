"""Floor 1: what a GP can answer under given hyperparameters."""

from sharpgp.gp.posterior import ExactPosterior, Posterior
from sharpgp.gp.training import TrainingResult, train

__all__ = ["ExactPosterior", "Posterior", "TrainingResult", "train"]
