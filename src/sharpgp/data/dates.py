"""Dates as features: time in days, and a circle for every season that the data go through."""

import numpy as np

#: Length in days of each season.
SEASONS = {"day": 1.0, "week": 7.0, "year": 365.2425}
# Data must span this many seasons: one season cannot be told from a trend.
_MIN_SEASONS = {"day": 2, "week": 2, "year": 1}


def seasons_of(days: np.ndarray) -> tuple[str, ...]:
    """Seasons (year, week, day) that dates (n,), in days, span often enough.

    Examples
    --------
    >>> seasons_of(np.arange(800.0)), seasons_of(np.arange(0.0, 3.0, 1 / 24))
    (('week', 'year'), ('day',))
    """
    span = float(np.ptp(days))
    found = []
    for name, length in SEASONS.items():
        within = np.unique(np.floor(days) % 7 if name == "week" else days % length)
        if span >= _MIN_SEASONS[name] * length and len(within) > 1:
            found.append(name)
    return tuple(found)


def on_circle(days: np.ndarray, season: str) -> np.ndarray:
    """Sine and cosine (n, 2) of the time within a season.

    Examples
    --------
    >>> on_circle(np.array([0.0, 7.0]), "week").round(12).tolist()
    [[0.0, 1.0], [-0.0, 1.0]]
    """
    angle = 2.0 * np.pi * days / SEASONS[season]
    return np.column_stack([np.sin(angle), np.cos(angle)])
