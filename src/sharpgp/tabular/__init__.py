"""Tables in files: models of them, predictions as a stream."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sharpgp._extras import need

if TYPE_CHECKING:
    from sharpgp.tabular.models import SavedModel, fit_file, fit_files, fit_rows, load_model

need("cli", "pyarrow")  # an error that names the extra comes before one that names pyarrow

__all__ = ["SavedModel", "fit_file", "fit_files", "fit_rows", "load_model"]

# As in the package itself, slow imports wait until they are needed.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.models"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
