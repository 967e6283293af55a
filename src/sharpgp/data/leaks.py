"""Columns that give the target away: one, a category, or two by difference, sum, ratio, product."""

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
from scipy.stats import rankdata

from sharpgp.data.column import OTHER
from sharpgp.data.encoding import Encoded
from sharpgp.data.suspicions import TWIN_SHARE, Suspicion, share_explained
from sharpgp.exceptions import warn

#: Two columns are suspected above this share: an identity is exact up to rounding, while people,
#: prices and weather, measured twice, agree less well.
PAIR_SHARE = 0.999
# Coefficients of an identity are equal, up to this.
_EQUAL = 0.02
# Most columns of which all pairs are examined: those that follow the target best.
_MAX_PAIRED = 40
CURE = "Would you know it before you predict? If not, leave it out."


def leaks(
    numbers: Mapping[str, np.ndarray],
    y: np.ndarray,
    target: str,
    *,
    dates: Mapping[str, np.ndarray] | None = None,
    categories: Mapping[str, np.ndarray] | None = None,
) -> list[Suspicion]:
    """Columns (n,) that give the targets (n,) away; the clearest first.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> start, stay = rng.uniform(0, 99, (2, 60))
    >>> leaks({}, stay, "stay", dates={"in": start, "out": start + stay})[0].says
    "'in' and 'out' together explain 100.00 % of stay, by their difference."
    """
    found = [
        (share, f"{name!r} alone explains {100 * share:.2f} % of {target}.")
        for name, data in numbers.items()
        if (share := share_explained(data, y)) > TWIN_SHARE
    ]
    found += [
        (share, f"{name!r} alone explains {100 * share:.2f} % of {target}.")
        for name, labels in (categories or {}).items()
        if (share := share_of_levels(labels, y)) > TWIN_SHARE
    ]
    if not found:
        found = [
            (
                share,
                f"{a!r} and {b!r} together explain {100 * share:.2f} % of {target}, "
                f"by their {how}.",
            )
            for share, a, b, how in _pairs({**numbers, **(dates or {})}, y)
        ]
    best = sorted(found, key=lambda one: -one[0])
    return [Suspicion("leak", says, CURE) for _, says in best]


def leaks_of(rows: Encoded, y: np.ndarray, target: str) -> list[Suspicion]:
    """The same for the columns of a table."""
    read = rows.encoding.decode(rows.features)
    kinds: dict[str, dict[str, np.ndarray]] = {"number": {}, "date": {}, "text": {}}
    for name, values in read.items():
        if values.holds in kinds:
            kinds[values.holds][name] = values.data
    return leaks(kinds["number"], y, target, dates=kinds["date"], categories=kinds["text"])


def warn_of_leaks(rows: Encoded, y: np.ndarray) -> None:
    """Warn of the clearest leak of a table with several columns."""
    found = leaks_of(rows, y, "y") if len(rows.encoding.columns) > 1 else []
    if found:
        warn(f"X: {found[0].says.removesuffix('.')}; {CURE[0].lower()}{CURE[1:]}", UserWarning)


def share_of_levels(labels: np.ndarray, y: np.ndarray) -> float:
    """Share of the variance that the means of levels explain, each row by the other rows'.

    Rows whose level no other row has tell nothing, and neither do those of levels that training has
    not seen.

    Examples
    --------
    >>> share_of_levels(np.array(["a", "a", "b", "b"]), np.array([0.0, 0.1, 1.0, 1.1])) > 0.95
    True
    """
    _, level = np.unique(labels.astype(str), return_inverse=True)
    told = (np.bincount(level)[level] > 1) & (labels.astype(str) != OTHER)
    if told.sum() < len(y) / 2:
        return 0.0
    _, level = np.unique(level[told], return_inverse=True)
    y, n = y[told], np.bincount(level)
    total = float(((y - y.mean()) ** 2).sum())
    if total == 0 or len(n) > len(y) / 2:
        return 0.0
    others = (np.bincount(level, weights=y)[level] - y) / (n[level] - 1)
    return 1 - float(((y - others) ** 2).sum()) / total


def _pairs(
    columns: Mapping[str, np.ndarray], y: np.ndarray
) -> Iterator[tuple[float, str, str, str]]:
    """Pairs whose difference, sum, ratio or product is the target: share, names, which."""
    whole = {name: data for name, data in columns.items() if np.isfinite(data).all()}
    whole = {name: data for name, data in whole.items() if np.ptp(data) > 0}
    if len(y) < 10 or np.ptp(y) == 0:
        return
    follow = {name: -abs(np.corrcoef(rankdata(d), rankdata(y))[0, 1]) for name, d in whole.items()}
    chosen = sorted(whole, key=follow.__getitem__)[:_MAX_PAIRED]
    whole = {name: data for name, data in whole.items() if name in chosen}
    positive = {name: np.log(data) for name, data in whole.items() if (data > 0).all()}
    ways = [(whole, y, ("sum", "difference"))]
    if (y > 0).all():
        ways.append((positive, np.log(y), ("product", "ratio")))
    for table, of, (same, opposite) in ways:
        if len(table) < 2:
            continue
        names = list(table)
        X = np.column_stack([table[name] for name in names])
        r = np.corrcoef(np.column_stack([X, of]), rowvar=False)
        deviation = X.std(axis=0)
        for i, j in combinations(range(len(names)), 2):
            a, b, ab = r[i, -1], r[j, -1], r[i, j]
            if 1 - ab**2 < 1e-9:
                continue
            first, second = (a - b * ab) / (1 - ab**2), (b - a * ab) / (1 - ab**2)
            share = min(a * first + b * second, 1.0)
            slopes = first / deviation[i], second / deviation[j]
            alike = abs(abs(slopes[0] / slopes[1]) - 1) < _EQUAL if slopes[1] else False
            if share > PAIR_SHARE and alike:
                how = same if slopes[0] * slopes[1] > 0 else opposite
                yield share, names[i], names[j], how
