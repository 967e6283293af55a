"""A small regression problem, and splits into training, calibration and test parts."""

from dataclasses import dataclass

import numpy as np

from sharpgp.exceptions import InvalidInputError


@dataclass(frozen=True)
class Split:
    """A regression problem in three parts: training, calibration and test."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_cal: np.ndarray
    y_cal: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def make_toy(
    n_train: int = 40, n_cal: int = 200, n_test: int = 1000, random_state: int | None = 0
) -> Split:
    r"""Generate a one-dimensional problem with crowded and nearly empty regions.

    .. math:: y = \sin(\tfrac32 x) + \tfrac12 \sin(\tfrac x2) + 0.15\,\varepsilon,
              \qquad \varepsilon \sim N(0, 1)

    Seven in eight inputs fall into three narrow clusters and the others anywhere in
    :math:`[-5, 5]`. All three parts are drawn alike, as calibration assumes.

    Parameters
    ----------
    n_train, n_cal, n_test : int
        Sizes of the parts.
    random_state : int or None

    Examples
    --------
    >>> toy = make_toy(n_train=30, n_cal=20, n_test=10, random_state=0)
    >>> toy.X_train.shape, toy.y_cal.shape, toy.X_test.shape
    ((30, 1), (20,), (10, 1))
    """
    sizes = {"n_train": n_train, "n_cal": n_cal, "n_test": n_test}
    for name, size in sizes.items():
        if not isinstance(size, int | np.integer) or size < 1:
            raise InvalidInputError(f"{name}: expected a whole number >= 1, found {size!r}")
    rng = np.random.default_rng(random_state)
    n = sum(sizes.values())
    centre = rng.choice([-3.6, -0.6, 3.2], n)
    x = np.where(rng.random(n) < 1 / 8, rng.uniform(-5, 5, n), centre + rng.normal(0, 0.5, n))
    y = np.sin(1.5 * x) + 0.5 * np.sin(x / 2) + 0.15 * rng.normal(size=n)
    return _three_parts(x[:, None], y, np.arange(n), n_train, n_cal)


def split(
    X: np.ndarray, y: np.ndarray, *, train: float = 0.6, cal: float = 0.2, random_state: int = 0
) -> Split:
    """Shuffle rows into training, calibration and test parts; the test part gets the rest.

    Examples
    --------
    >>> parts = split(np.zeros((10, 2)), np.arange(10.0), random_state=0)
    >>> len(parts.y_train), len(parts.y_cal), len(parts.y_test)
    (6, 2, 2)
    """
    if not (min(train, cal) > 0 and train + cal < 1):
        raise InvalidInputError(
            f"train and cal: expected fractions that leave some rows, found {train} and {cal}"
        )
    order = np.random.default_rng(random_state).permutation(len(y))
    return _three_parts(X, y, order, round(train * len(y)), round(cal * len(y)))


def _three_parts(
    X: np.ndarray, y: np.ndarray, order: np.ndarray, n_train: int, n_cal: int
) -> Split:
    train, cal, test = np.split(order, [n_train, n_train + n_cal])
    if min(len(train), len(cal), len(test)) == 0:
        raise InvalidInputError(f"split: expected at least 5 rows, found {len(y)}")
    return Split(X[train], y[train], X[cal], y[cal], X[test], y[test])
