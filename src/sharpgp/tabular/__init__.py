"""Tables in files: reading, encoding of columns, predictions as a stream."""

from sharpgp.tabular.encoding import Column, TableEncoding
from sharpgp.tabular.models import SavedModel, fit_file, load_model

__all__ = ["Column", "SavedModel", "TableEncoding", "fit_file", "load_model"]
