"""What a GP predicts under given hyperparameters."""

from sharpgp.gp.conditioning import train_chosen
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.local.posterior import LocalPosterior
from sharpgp.gp.posterior import DataPosterior, Posterior, TrainingResult
from sharpgp.gp.sparse.posterior import SparsePosterior
from sharpgp.gp.sparse.training import train_sparse
from sharpgp.gp.training import train

__all__ = [
    "DataPosterior",
    "ExactPosterior",
    "LocalPosterior",
    "Posterior",
    "SparsePosterior",
    "TrainingResult",
    "train",
    "train_chosen",
    "train_sparse",
]
