"""Diagnostics of predictions whose faults are known, because they were put there."""

import numpy as np
from scipy.stats import norm

from sharpgp.diagnostics import COVERAGES, Diagnostics
from sharpgp.distribution import PredictiveDistribution
from sharpgp.metrics import ECE_LEVELS, calibration_report


def predictions(
    y, *, sigma=1.0, method="exact", n_cal=400, d=3, names=None, curves=None, X=None, **more
):
    """Gaussian predictions N(0, sigma^2) beside the observations ``y``."""
    n = len(y)
    sigma = np.broadcast_to(np.asarray(sigma, dtype=float), (n,))
    inner = ECE_LEVELS[1:-1]
    quantiles = norm.ppf(inner) * sigma[:, None]
    half = norm.ppf((1 + np.array(COVERAGES)) / 2) * sigma[:, None]
    fine = norm.cdf(np.linspace(-5, 5, 101))
    dist = PredictiveDistribution(fine, norm.ppf(fine)[:, None] * sigma, numpy=True)
    k = COVERAGES.index(0.95)
    X = np.random.default_rng(1).normal(size=(n, d)) if X is None else X
    return Diagnostics(
        method=method,
        n_train=500,
        n_cal=n_cal,
        X=X,
        y=y,
        feature_names=tuple(names or (f"x{j}" for j in range(d))),
        mean=np.zeros(n),
        pit=norm.cdf(y / sigma),
        atoms=np.zeros(n, dtype=bool),
        row=np.arange(n) + 1,
        n_given=n,
        coverages=np.array(COVERAGES),
        lower=-half,
        upper=half,
        backed=(True,) * len(COVERAGES),
        curves=curves,
        report=calibration_report(
            y,
            mean=np.zeros(n),
            dist=dist,
            quantiles=quantiles,
            interval=np.stack([-half[:, k], half[:, k]], axis=1),
            n_cal=n_cal,
            X=X,
        ),
        **more,
    )
