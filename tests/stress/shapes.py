"""Data sets drawn from a list of nasty shapes: every one a kind of features and a kind of target.

All rows of a data set are exchangeable: whatever was done to them, they are shuffled at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Features = Callable[[np.random.Generator, int], np.ndarray]
Target = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def _some(rng: np.random.Generator) -> int:
    return int(rng.integers(1, 6))


def _plain(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, _some(rng)))


def _bent_units(rng: np.random.Generator, n: int) -> np.ndarray:
    X = _plain(rng, n)
    return X * 10.0 ** rng.uniform(-150, 150, X.shape[1])


def _one_hot(rng: np.random.Generator, n: int) -> np.ndarray:
    k = int(rng.integers(2, 6))
    return np.eye(k)[rng.integers(0, k, n)]


def _clusters(rng: np.random.Generator, n: int) -> np.ndarray:
    centres = rng.normal(size=(int(rng.integers(2, 6)), 2))
    return centres[rng.integers(0, len(centres), n)] + 1e-12 * rng.normal(size=(n, 2))


def _duplicates(rng: np.random.Generator, n: int) -> np.ndarray:
    X = rng.normal(size=(max(2, n // 4), _some(rng)))
    return X[rng.integers(0, len(X), n)]


def _collinear(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 1)) @ rng.normal(size=(1, 5))


def _nearly_collinear(rng: np.random.Generator, n: int) -> np.ndarray:
    return _collinear(rng, n) + 1e-9 * rng.normal(size=(n, 5))


def _repeated_column(rng: np.random.Generator, n: int) -> np.ndarray:
    X = _plain(rng, n)
    return np.column_stack([X, X[:, :1]])


def _constant_column(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.column_stack([_plain(rng, n), np.full(n, 10.0 ** rng.uniform(-20, 20))])


def _nearly_constant(rng: np.random.Generator, n: int) -> np.ndarray:
    odd = np.zeros(n)
    odd[0] = 1.0
    return np.column_stack([_plain(rng, n), 5.0 + 1e-10 * odd])


def _outlier_in_x(rng: np.random.Generator, n: int) -> np.ndarray:
    X = _plain(rng, n)
    X[0, 0] = 1e6
    return X


def _steps(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.sort(np.cumsum(np.exp(rng.normal(0, 4, (n, 1))), axis=0), axis=0)


FEATURES: dict[str, Features] = {
    "plain": _plain,
    "one feature": lambda rng, n: rng.uniform(-3, 3, (n, 1)),
    "200 features": lambda rng, n: rng.normal(size=(n, 200)),
    "fewer rows than features": lambda rng, n: rng.normal(size=(n, n + 5)),
    "integers": lambda rng, n: rng.integers(-5, 6, (n, _some(rng))),
    "booleans": lambda rng, n: rng.integers(0, 2, (n, 4)).astype(bool),
    "one hot": _one_hot,
    "duplicate rows": _duplicates,
    "clusters of 1e-12": _clusters,
    "collinear": _collinear,
    "nearly collinear": _nearly_collinear,
    "repeated column": _repeated_column,
    "constant column": _constant_column,
    "nearly constant column": _nearly_constant,
    "units from 1e-150 to 1e150": _bent_units,
    "far from zero": lambda rng, n: 1e9 + _plain(rng, n),
    "heavy tails": lambda rng, n: rng.standard_cauchy((n, _some(rng))),
    "outlier": _outlier_in_x,
    "growing steps": _steps,
    "float32": lambda rng, n: _plain(rng, n).astype(np.float32),
}


def _signal(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """A smooth function of standardised features, of unit variance or so."""
    X = np.asarray(X, dtype=np.float64)
    magnitude = np.abs(X).max(0)
    Z = X / np.where(magnitude > 0, magnitude, 1.0)
    spread = Z.std(0)
    Z = (Z - Z.mean(0)) / np.where(spread > 0, spread, 1.0)
    direction = rng.normal(size=Z.shape[1]) / np.sqrt(Z.shape[1])
    return np.sin(2.0 * Z @ direction) + 0.5 * (Z @ direction)


def _smooth(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    return _signal(rng, X) + 0.2 * rng.normal(size=len(X))


def _one_differs(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    y = np.zeros(len(X))
    y[: max(2, len(X) // 5)] = 1.0 + rng.normal(size=max(2, len(X) // 5))
    return y


def _outlier(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    y = _smooth(rng, X)
    y[0] += 1e6 * y.std()
    return y


def _uneven_noise(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    f = _signal(rng, X)
    return f + np.exp(2.0 * f) * rng.normal(size=len(X))


TARGETS: dict[str, Target] = {
    "smooth": _smooth,
    "noiseless": _signal,
    "nearly noiseless": lambda rng, X: _signal(rng, X) + 1e-9 * rng.normal(size=len(X)),
    "pure noise": lambda rng, X: rng.normal(size=len(X)),
    "unit 1e-150": lambda rng, X: 1e-150 * _smooth(rng, X),
    "unit 1e150": lambda rng, X: 1e150 * _smooth(rng, X),
    "far from zero": lambda rng, X: 1e9 + _smooth(rng, X),
    "outlier of 1e6 deviations": _outlier,
    "heavy tails": lambda rng, X: _signal(rng, X) + rng.standard_cauchy(len(X)),
    "uneven noise": _uneven_noise,
    "counts": lambda rng, X: rng.poisson(np.exp(_signal(rng, X))),
    "two values": lambda rng, X: (_smooth(rng, X) > 0).astype(float),
    "mostly zero": _one_differs,
    "exponential": lambda rng, X: np.exp(5.0 * _signal(rng, X)),
    "float32": lambda rng, X: _smooth(rng, X).astype(np.float32),
}

#: Kinds of target whose values repeat: coverage can then only be too high.
TIED = ("counts", "two values", "mostly zero")


@dataclass(frozen=True)
class Case:
    """One generated data set, in three parts, and what it was made from."""

    number: int
    features: str
    target: str
    X: np.ndarray
    y: np.ndarray
    X_cal: np.ndarray
    y_cal: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def name(self) -> str:
        return f"case {self.number}: {self.features}; {self.target}; {len(self.y)} rows"

    @property
    def tied(self) -> bool:
        """Whether scores may repeat."""
        return self.target in TIED


def draw(number: int, seed: int = 0) -> Case:
    """Data set by number: kinds in turn, so that any 300 in a row hold every pair of them."""
    rng = np.random.default_rng([seed, number])
    kinds = list(FEATURES)
    features = kinds[number % len(kinds)]
    target = list(TARGETS)[(number // len(kinds)) % len(TARGETS)]
    N, C, T = int(rng.integers(10, 81)), int(rng.integers(8, 60)), 40
    X = FEATURES[features](rng, N + C + T)
    y = TARGETS[target](rng, X)
    order = rng.permutation(N + C + T)
    parts = np.split(order, [N, N + C])
    return Case(number, features, target, *(a[part] for part in parts for a in (X, y)))
