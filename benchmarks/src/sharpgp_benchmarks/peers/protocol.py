"""How a data set becomes a case, and what a method answers with."""

import time
from dataclasses import dataclass, field

import numpy as np

from sharpgp.toy import Split
from sharpgp_benchmarks.datasets import Dataset
from sharpgp_benchmarks.peers.botorch_gp import BoTorchRegressor

COVERAGES = (0.9, 0.95)
MOST_TEST = 2000
FOLDS = 10

# Names of the bands, and what the argument that asks for a symmetric one is given.
DEFAULT: dict[str, bool | None] = {"default": None}
BOTH: dict[str, bool | None] = {"symmetric": True, "centred": False}


@dataclass
class Prediction:
    """Interval ends [T, 2, K] of the K coverages, by the name of the band, and the CRPS.

    A method without a distribution has no CRPS.
    """

    bands: dict[str, np.ndarray]
    crps: float | None = None


@dataclass
class Case:
    """One split of a data set, and the GPs that several methods share."""

    parts: Split
    seed: int
    device: str
    unit: float  # the target's standard deviation
    charged: float = 0.0  # seconds of shared fits that an earlier method has waited for
    _gps: dict[str, tuple[BoTorchRegressor, float]] = field(default_factory=dict)

    @property
    def together(self) -> tuple[np.ndarray, np.ndarray]:
        """Training and calibration part as one."""
        p = self.parts
        return np.concatenate([p.X_train, p.X_cal]), np.concatenate([p.y_train, p.y_cal])

    def gp(self, which: str) -> BoTorchRegressor:
        """BoTorch's GP on the ``"train"`` part or on ``"all"`` rows but the test part."""
        if which in self._gps:
            self.charged += self._gps[which][1]
        else:
            start = time.perf_counter()
            data = self.together if which == "all" else (self.parts.X_train, self.parts.y_train)
            fitted = BoTorchRegressor(self.device).fit(*data)
            self._gps[which] = fitted, time.perf_counter() - start
        return self._gps[which][0]


def sizes(n: int, most: int) -> tuple[int, int]:
    """Training and calibration rows out of ``n``, with at most ``most`` training rows.

    Examples
    --------
    >>> sizes(308, 2000)
    (185, 59)
    """
    n_train = min(round(0.6 * n), most)
    return n_train, 20 * round((round(n_train / 3) + 1) / 20) - 1


def make_case(data: Dataset, seed: int, most: int, device: str) -> Case:
    """Shuffle by the seed; 60/20/20 with at most ``most`` training rows and 2,000 test rows."""
    ends = np.cumsum([*sizes(len(data.y), most), MOST_TEST])
    order = np.random.default_rng(seed).permutation(len(data.y))[: ends[-1]]
    train, cal, test = np.split(order, ends[:2])
    X, y = data.X, data.y
    parts = Split(X[train], y[train], X[cal], y[cal], X[test], y[test])
    return Case(parts, seed, device, float(y.std()))
