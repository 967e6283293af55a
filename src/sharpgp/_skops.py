"""Objects of scikit-learn as text, by skops: their state and no code (extra ``skops``)."""

import base64
from collections.abc import Sequence
from typing import Any

from sharpgp._extras import need
from sharpgp.exceptions import SavedModelError

#: Types in everyday pipelines that skops does not know: they hold settings and run no code.
_HARMLESS = (
    "builtins.object",
    "numpy.dtype",
    "sklearn.compose._column_transformer.make_column_selector",
)


def is_estimator(value: Any) -> bool:
    """Whether a value is derived from scikit-learn's ``BaseEstimator``, which is not imported.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> is_estimator(Ridge()), is_estimator(Ridge)
    (True, False)
    """
    names = ((cls.__module__, cls.__name__) for cls in type(value).__mro__)
    return ("sklearn.base", "BaseEstimator") in names


def written(value: Any, where: str) -> str:
    """An estimator as text; ``where`` names it in the error if skops cannot write it."""
    need("skops", "skops")
    from skops.io import dumps

    try:
        return base64.b64encode(dumps(value)).decode()
    except Exception as error:  # skops lets through whatever an estimator's own state raises
        name, reason = type(value).__name__, str(error).splitlines()[0] if str(error) else error
        raise SavedModelError(f"cannot save {where}: skops cannot write {name}: {reason}") from None


def read(text: str, trusted: Sequence[str] = ()) -> Any:
    """The estimator that :func:`written` gave; types that skops does not trust are named.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> read(written(Ridge(alpha=2.0), "base"))
    Ridge(alpha=2.0)
    """
    need("skops", "skops")
    from skops.io import get_untrusted_types, loads

    data = base64.b64decode(text)
    known = {*_HARMLESS, *trusted}
    unknown = sorted(set(get_untrusted_types(data=data)) - known)
    if unknown:
        raise SavedModelError(
            f"expected types that skops trusts, found {', '.join(unknown)}; if you trust the file, "
            "name them in trusted="
        )
    return loads(data, trusted=sorted(known))
