"""Floor 1: what a GP can answer under given hyperparameters."""

from sharpgp.gp.choice import train_chosen
from sharpgp.gp.posterior import ExactPosterior, Posterior
from sharpgp.gp.sparse import SparsePosterior
from sharpgp.gp.sparse_training import train_sparse
from sharpgp.gp.training import TrainingResult, train

__all__ = [
    "ExactPosterior",
    "Posterior",
    "SparsePosterior",
    "TrainingResult",
    "train",
    "train_chosen",
    "train_sparse",
]
