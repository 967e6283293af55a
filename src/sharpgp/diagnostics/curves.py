"""Learned ``beta`` and ``theta`` by level, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sharpgp._validation import as_numpy
from sharpgp.calibration.predictors.base import Calibrated

Floats = NDArray[np.float64]

#: Most knots of a curve; a figure cannot show more.
MAX_KNOTS = 200


@dataclass(frozen=True)
class LevelCurves:
    """``beta(delta)`` (K,) and ``theta(delta) / theta_R`` (K, P) at the levels ``delta`` (K,).

    ``names`` labels the entries of ``theta``; a feature's inverse lengthscale carries its name.
    ``scores``: whether ``beta`` multiplies a standard deviation; otherwise it is in target units.
    """

    delta: Floats
    beta: Floats
    theta: Floats
    names: tuple[str, ...]
    scores: bool = True

    @property
    def moved(self) -> NDArray[np.bool_]:
        """Mask (P,) of the entries of ``theta`` that differ from the trained ones."""
        return np.array([not np.allclose(column, 1.0) for column in self.theta.T])

    @property
    def by_level(self) -> bool:
        """Whether ``theta`` depends on the level."""
        return not np.allclose(self.theta, self.theta[:1])

    @property
    def gauss(self) -> Floats | None:
        """``beta`` (K,) of a Gaussian; None unless ``beta`` multiplies one standard deviation."""
        return np.asarray(ndtri(self.delta)) if self.scores and not self.by_level else None


def level_curves(calibrated: Calibrated, feature_names: Sequence[str] = ()) -> LevelCurves | None:
    """The calibrated curves of a predictor as arrays; None if it has none.

    If one spread serves all levels (``exact``, ``cv``), ``theta`` is the GP's.

    Examples
    --------
    >>> import torch
    >>> from sharpgp import Vanilla
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 30, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, X[:, 0].sin())
    >>> level_curves(Vanilla().fit(posterior, None, None)) is None
    True
    """
    posterior = calibrated.gp
    if posterior is None:
        return None
    each = calibrated.each_once()
    if each is not None:
        delta, beta = each.ranks.level, each.ranks.z
        theta = posterior.theta_R.expand(len(delta), -1)
        scores = each.model.normalised
    elif (curves := getattr(calibrated, "curves", None)) is not None:
        delta, beta, theta, scores = curves.delta, curves.beta, curves.theta, True
    else:
        return None
    knots = len(delta)
    kept = np.unique(np.linspace(0, knots - 1, min(knots, MAX_KNOTS)).round().astype(np.int64))
    return LevelCurves(
        delta=as_numpy(delta)[kept],
        beta=as_numpy(beta)[kept],
        theta=as_numpy(theta / posterior.theta_R)[kept],
        names=tuple(_theta_name(name, feature_names) for name in posterior.names),
        scores=scores,
    )


def _theta_name(name: str, feature_names: Sequence[str]) -> str:
    """``inverse_lengthscale_3`` with the name of feature 3; the others in words."""
    stem, _, number = name.rpartition("_")
    if stem == "inverse_lengthscale" and number.isdecimal() and int(number) < len(feature_names):
        return f"1/lengthscale of {feature_names[int(number)]}"
    return name.replace("_", " ")
