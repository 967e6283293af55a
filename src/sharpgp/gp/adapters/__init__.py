"""Trained models of other libraries as posteriors."""

from sharpgp.gp.adapters.dispatch import as_posterior
from sharpgp.gp.adapters.fitc import FitcPosterior
from sharpgp.gp.adapters.input_maps import MappedPosterior
from sharpgp.gp.adapters.variational import VariationalPosterior

__all__ = ["FitcPosterior", "MappedPosterior", "VariationalPosterior", "as_posterior"]
