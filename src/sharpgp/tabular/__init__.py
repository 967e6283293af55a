"""Tables in files: models of them, predictions as a stream."""

from sharpgp._extras import need

need("cli", "pyarrow")  # an error that names the extra comes before one that names pyarrow

from sharpgp.tabular.models import (  # noqa: E402
    SavedModel,
    fit_file,
    fit_files,
    fit_rows,
    load_model,
)

__all__ = ["SavedModel", "fit_file", "fit_files", "fit_rows", "load_model"]
