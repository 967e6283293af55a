"""Columns that say whether a time is complete or only a lower bound."""

import re
from collections.abc import Mapping

import numpy as np

from sharpgp.data.encoding import Encoded
from sharpgp.data.reading import Values
from sharpgp.data.suspicions import Suspicion
from sharpgp.exceptions import warn

# Names of such columns in tables of R's packages on survival, and of the times beside them.
_SIGN = re.compile(
    r"status|.*stat|event|.*cens.*|d(ied|ead|eath)|delta|relapse|fail(ed|ure)?|ereignis|zensiert",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"time|surv|days|weeks|months|years|durat|follow|tenure|lifetime|zeit|dauer", re.IGNORECASE
)
# Levels of such a column: it happened, it did not, something else did; different times, at least.
_MAX_LEVELS, _MIN_TIMES = 3, 10


def censoring(columns: Mapping[str, Values], target: str, y: np.ndarray) -> list[Suspicion]:
    """Finding about a column that says which targets (n,) are censored times, by its name.

    Examples
    --------
    >>> status = Values("number", np.arange(20.0) % 2, np.zeros(20, dtype=bool))
    >>> [one.says for one in censoring({"status": status}, "days", np.arange(20.0))]
    ["'status' seems to say which values of days are censored: so long at least, not that long."]
    """
    known = y[np.isfinite(y)]
    if not _TIME.search(target) or len(np.unique(known)) < _MIN_TIMES or known.min() < 0:
        return []
    for name, values in columns.items():
        levels = len(np.unique(values.data[~values.missing].astype(str)))
        if _SIGN.fullmatch(name) and 2 <= levels <= _MAX_LEVELS:
            says = f"{name!r} seems to say which values of {target} are censored: so long at least,"
            cure = "This is not modelled: intervals are for the times as they were recorded."
            return [Suspicion("target", f"{says} not that long.", cure)]
    return []


def warn_of_censoring(rows: Encoded, target: str, y: np.ndarray) -> None:
    """Warn of the same in rows to train on."""
    for one in censoring(rows.encoding.decode(rows.features), target, y):
        warn(f"{one.says} {one.cure}", UserWarning)
