"""Tables in files: models of them, predictions as a stream."""

# ruff: noqa: E402 - an error that names the extra comes before one that names pyarrow
from sharpgp._extras import need

need("cli", "pyarrow")

from sharpgp.tabular.models import SavedModel, fit_file, load_model
from sharpgp.tabular.streamed.fit import fit_files

__all__ = ["SavedModel", "fit_file", "fit_files", "load_model"]
