"""From means, quantiles or draws to the intervals and the CRPS that are compared."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm

from sharpgp import metrics
from sharpgp_benchmarks.peers.protocol import COVERAGES, Prediction

#: Levels of models that give any number of quantiles, for the CRPS; with the ends of all intervals.
LEVELS = np.sort([*np.arange(1, 20) / 20, 0.025, 0.975])


def gaussian(mean: np.ndarray, std: np.ndarray, y: np.ndarray) -> Prediction:
    """Gaussian intervals, and the CRPS in closed form."""
    z = (y - mean) / std
    crps = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    radius = norm.ppf((1 + np.array(COVERAGES)) / 2)
    return Prediction({"default": around(mean, std, radius)}, float(crps.mean()))


def around(mean: np.ndarray, std: np.ndarray, radius: Sequence[float] | np.ndarray) -> np.ndarray:
    """Ends [T, 2, K] of the intervals ``mean -+ radius std`` for K radii."""
    half = std[:, None] * np.asarray(radius)
    return np.stack([mean[:, None] - half, mean[:, None] + half], axis=1)


def of_draws(draws: np.ndarray, y: np.ndarray) -> Prediction:
    """Intervals between the quantiles of draws [T, S], and their CRPS."""
    alpha = 1 - np.array(COVERAGES)
    ends = [np.quantile(draws, side, axis=1).T for side in (alpha / 2, 1 - alpha / 2)]
    return Prediction({"default": np.stack(ends, axis=1)}, crps_of_table(y, draws))


def crps_of_table(y: np.ndarray, quantiles: np.ndarray) -> float:
    """CRPS of distributions with quantiles [T, C] at the levels ``j/(C+1)``."""
    C = quantiles.shape[1]
    return metrics.crps(y, np.sort(quantiles, axis=1), np.arange(1, C + 1) / (C + 1))


def conformal_quantile(scores: np.ndarray, coverage: float) -> float:
    """The score at the rank ``ceil(coverage (C + 1))`` of ``C``, infinity beyond the last.

    Examples
    --------
    >>> conformal_quantile(np.arange(1.0, 20.0), 0.95)
    19.0
    """
    rank = int(np.ceil(np.round(coverage * (len(scores) + 1), 9)))
    return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else np.inf


def conformalised(
    q_cal: np.ndarray, y_cal: np.ndarray, q_test: np.ndarray, y_test: np.ndarray
) -> Prediction:
    """Conformalised quantile regression, and the CRPS of the model's own quantiles.

    The band "symmetric" moves both ends by one score, ``max(lower - y, y - upper)``; "centred"
    moves each by a score of its own, at half the share of misses.

    Parameters
    ----------
    q_cal, q_test : arrays [C, L], [T, L]
        Quantiles at :data:`LEVELS`.
    y_cal, y_test : arrays [C], [T]
    """
    q_cal, q_test = np.sort(q_cal, axis=1), np.sort(q_test, axis=1)
    bands: dict[str, list[np.ndarray]] = {"symmetric": [], "centred": []}
    for coverage in COVERAGES:
        low, high = (
            int(np.argmin(np.abs(LEVELS - side)))
            for side in ((1 - coverage) / 2, (1 + coverage) / 2)
        )
        below, above = q_cal[:, low] - y_cal, y_cal - q_cal[:, high]
        both = conformal_quantile(np.maximum(below, above), coverage)
        each = [conformal_quantile(score, (1 + coverage) / 2) for score in (below, above)]
        for name, (down, up) in {"symmetric": (both, both), "centred": each}.items():
            bands[name].append(np.stack([q_test[:, low] - down, q_test[:, high] + up], axis=1))
    ends = {name: np.stack(found, axis=2) for name, found in bands.items()}
    return Prediction(ends, metrics.crps(y_test, q_test, LEVELS))
