"""Tables in files: reading, encoding of columns, predictions as a stream."""

# ruff: noqa: E402 - an error that names the extra comes before one that names pyarrow
from sharpgp._extras import need

need("cli", "pyarrow")

from sharpgp.tabular.encoding import Column, TableEncoding
from sharpgp.tabular.models import SavedModel, fit_file, load_model

__all__ = ["Column", "SavedModel", "TableEncoding", "fit_file", "load_model"]
