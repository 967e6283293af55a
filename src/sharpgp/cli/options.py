"""Texts of options: parsed and checked before the slow libraries are loaded.

These take seconds to load, and nobody who mistyped a name should wait for them.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from sharpgp._extras import BASES as BASE_POINTS
from sharpgp._extras import LABORATORY_METHODS, METHODS, entry_point_names
from sharpgp._validation import as_count, check_choice
from sharpgp.exceptions import InvalidInputError
from sharpgp.names import BASES, CALIBRATIONS, EFFORTS, KERNELS


def check_settings(
    *, calibration: str, effort: str, approximation: str, cal_size: float, seed: int
) -> None:
    """Raise for settings that are wrong for any table."""
    if calibration not in LABORATORY_METHODS.values():  # others name what is missing
        check_choice(calibration, "calibration", (*CALIBRATIONS, *entry_point_names(METHODS)))
    check_choice(effort, "effort", EFFORTS)
    if not re.fullmatch(r"auto|exact|(sparse|neighbours)(:0*[1-9]\d*)?", approximation):
        raise InvalidInputError(
            "approximation: expected auto, exact, sparse, neighbours, sparse:500 or "
            f"neighbours:100, found {approximation!r}"
        )
    if not 0 < cal_size < 1:
        raise InvalidInputError(f"cal_size: expected a fraction in (0, 1), found {cal_size:g}")
    as_count(seed, "random_state", least=0)


def check_place(device: str, engine: str = "local", *of_cluster: Any) -> None:
    """Raise for an unknown device or engine, or for cluster options without a cluster."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise InvalidInputError(f"device: expected 'auto', 'cpu' or 'cuda', found {device!r}")
    from sharpgp.tabular.cluster import ENGINES

    check_choice(engine, "engine", ENGINES)
    if engine == "local" and any(of_cluster):
        raise InvalidInputError("address and workers: expected the engine ray or dask, found local")


def base_of(text: str) -> str | list[str]:
    """What ``base=`` takes: a name, or several separated by commas; a plus adds kernels up.

    Examples
    --------
    >>> base_of("auto"), base_of("rbf+matern12, extra_trees")
    ('auto', ['rbf+matern12', 'extra_trees'])
    """
    names = [name.strip() for name in text.split(",")]
    bases = (*(["auto"] if len(names) == 1 else []), *BASES, *entry_point_names(BASE_POINTS))
    for name in names:
        first, *others = name.split("+")
        for part in (first, *others):
            check_choice(part, "base", KERNELS if others else bases)
    return names if len(names) > 1 else names[0]


def calibration_of(text: str, by: str | None, time: str | None, groups: str | None) -> Any:
    """Value for ``calibration=``: a name, or a method told of a column."""
    given = {"by": by, "time": time, "groups": groups}
    if len(named := [name for name, column in given.items() if column is not None]) > 1:
        raise InvalidInputError(f"{' and '.join(named)}: expected one of them")
    for option, column, method in (("by", by, "exact"), ("time", time, "cv")):
        if column is not None and text not in ("auto", method):
            raise InvalidInputError(f"{option}: expected --calibration {method}, found {text}")
    if by is not None:
        from sharpgp import Exact

        return Exact(by=by)
    if time is not None:
        from sharpgp import CrossValidated

        return CrossValidated(folds="ordered")
    return text


def approximation_of(text: str) -> Any:
    """Value for ``approximation=``: a name, or one with a number after a colon."""
    from sharpgp import Neighbours, Sparse

    name, colon, number = text.partition(":")
    return {"sparse": Sparse, "neighbours": Neighbours}[name](int(number)) if colon else name


def bounds_of(text: str) -> Any:
    """Value for ``y_bounds=``: auto, none, or one or two numbers with a comma.

    Examples
    --------
    >>> bounds_of("0,"), bounds_of("0,1"), bounds_of("auto"), bounds_of("none")
    ((0.0, None), (0.0, 1.0), 'auto', None)
    """
    if text in ("auto", "none"):
        return None if text == "none" else text
    try:
        ends = tuple(float(part) if part.strip() else None for part in text.split(","))
    except ValueError:
        ends = ()
    given = [end for end in ends if end is not None]
    if len(ends) != 2 or not all(low < high for low, high in pairwise(given)):
        raise InvalidInputError(
            "y-bounds: expected auto, none, 'low,high' with low < high, 'low,' or ',high', such as "
            f"'0,1', found {text!r}"
        )
    return ends


def numbers_of(text: str | None) -> list[float]:
    """Comma-separated numbers.

    Examples
    --------
    >>> numbers_of("0.05, 0.5"), numbers_of(None)
    ([0.05, 0.5], [])
    """
    try:
        return [float(part) for part in text.split(",")] if text else []
    except ValueError:
        raise InvalidInputError(
            f"quantiles: expected comma-separated numbers, found {text!r}"
        ) from None


def check_writable(out: Path) -> None:
    """Raise now rather than after minutes of work."""
    if str(out) != "-" and not out.parent.is_dir():
        raise InvalidInputError(f"out: expected a folder that exists, found {out.parent}")
    if out.is_dir():
        raise InvalidInputError(f"out: expected a file to write, found the folder {out}")
