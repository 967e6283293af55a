"""Own methods and the peers', each from a case to its prediction."""

from collections.abc import Callable
from functools import partial

import numpy as np
from crepes import WrapRegressor
from crepes.extras import DifficultyEstimator
from mapie.conformity_scores import StdConformityScore
from mapie.regression import (
    ConformalizedQuantileRegressor,
    CrossConformalRegressor,
    SplitConformalRegressor,
)
from scipy.stats import norm
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sharpgp import SharpGPRegressor, metrics
from sharpgp.studies.peers.botorch_gp import BoTorchRegressor
from sharpgp.studies.peers.protocol import BOTH, COVERAGE, DEFAULT, Case, Prediction

OURS = ("exact", "cv", "loo", "paper", "rk", "vanilla")
FOLDS = 10
CV_GP_ROWS = 1000
SKLEARN_SIZE = 2e7


def sharp(case: Case, calibration: str, bands: dict[str, bool | None] = DEFAULT) -> Prediction:
    """A method of this library with its default settings."""
    p = case.parts
    model = SharpGPRegressor(calibration=calibration, device=case.device, random_state=case.seed)
    if calibration in ("cv", "loo", "vanilla"):
        model.fit(*case.together)
    else:
        model.fit(p.X_train, p.y_train, p.X_cal, p.y_cal)
    ends = {
        name: model.predict_interval(p.X_test, COVERAGE, symmetric=kind)
        for name, kind in bands.items()
    }
    return Prediction(ends, float(model.predict_dist(p.X_test).crps(p.y_test).mean()))


def mapie_split(case: Case, base: str, score: str | StdConformityScore) -> Prediction:
    """MAPIE's split conformal prediction of absolute or standardised residuals."""
    p = case.parts
    if base == "gp":
        estimator = case.gp("train")
    else:
        estimator = HistGradientBoostingRegressor(random_state=case.seed).fit(p.X_train, p.y_train)
    model = SplitConformalRegressor(estimator, COVERAGE, score, prefit=True)
    model.conformalize(p.X_cal, p.y_cal)
    return Prediction({"default": model.predict_interval(p.X_test)[1][:, :, 0]})


def mapie_cv(case: Case, base: str) -> Prediction:
    """MAPIE's CV+ of gradient boosting, or of a GP with standardised residuals (J+GP)."""
    X, y = case.together
    if base == "gb":
        estimator, score = HistGradientBoostingRegressor(random_state=case.seed), "absolute"
    else:
        estimator, score = BoTorchRegressor(case.device), StdConformityScore()
    model = CrossConformalRegressor(estimator, COVERAGE, score, method="plus", cv=FOLDS)
    model.fit_conformalize(X, y)
    return Prediction({"default": model.predict_interval(case.parts.X_test)[1][:, :, 0]})


def mapie_cqr(case: Case) -> Prediction:
    """MAPIE's conformalised quantile regression with gradient boosting."""
    p = case.parts
    base = HistGradientBoostingRegressor(loss="quantile", quantile=0.5, random_state=case.seed)
    model = ConformalizedQuantileRegressor(base, confidence_level=COVERAGE)
    model.fit(p.X_train, p.y_train).conformalize(p.X_cal, p.y_cal)
    ends = {
        name: model.predict_interval(p.X_test, symmetric_correction=kind)[1][:, :, 0]
        for name, kind in BOTH.items()
    }
    return Prediction(ends)


def crepes(case: Case, cps: bool) -> Prediction:
    """crepes, normalised by the GP's standard deviation: regressor or predictive system."""
    p, gp = case.parts, case.gp("train")
    difficulty = DifficultyEstimator()
    difficulty.fit(f=lambda X: gp.predict(X, return_std=True)[1], beta=0.0)
    model = WrapRegressor(gp)
    model.calibrate(p.X_cal, p.y_cal, de=difficulty, cps=cps, seed=case.seed)
    ends = {"default": model.predict_int(p.X_test, confidence=COVERAGE)}
    if not cps:
        return Prediction(ends)
    return Prediction(ends, crps_of_table(p.y_test, model.predict_cpds(p.X_test)))


def botorch_conformal(case: Case, scores: str) -> Prediction:
    """By hand: symmetric band at the conformal rank of the holdout's or leave-one-out ``|z|``.

    The distribution behind the CRPS has the quantiles of ``z``.
    """
    p = case.parts
    gp = case.gp("all" if scores == "loo" else "train")
    if scores == "loo":
        z = np.sort(gp.loo_scores())
    else:
        mean, std = gp.predict(p.X_cal, return_std=True)
        z = np.sort((p.y_cal - mean) / std)
    rank = int(np.ceil(np.round(COVERAGE * (len(z) + 1), 9)))
    radius = np.sort(np.abs(z))[rank - 1] if rank <= len(z) else np.inf
    mean, std = gp.predict(p.X_test, return_std=True)
    ends = np.stack([mean - radius * std, mean + radius * std], axis=1)
    return Prediction({"default": ends}, crps_of_table(p.y_test, mean[:, None] + z * std[:, None]))


def botorch_vanilla(case: Case) -> Prediction:
    """BoTorch's GP as it is."""
    gp = case.gp("all")
    mean, std = gp.predict(case.parts.X_test, return_std=True)
    return gaussian(mean, std, case.parts.y_test)


def sklearn_vanilla(case: Case) -> Prediction:
    """scikit-learn's GP as it is, with ARD RBF kernel and white noise."""
    X, y = case.together
    d = X.shape[1]
    kernel = ConstantKernel() * RBF(np.ones(d)) + WhiteKernel()
    gp = GaussianProcessRegressor(kernel, normalize_y=True, random_state=case.seed)
    model = make_pipeline(StandardScaler(), gp)
    rows = int((SKLEARN_SIZE / d) ** 0.5)
    model.fit(X[:rows], y[:rows])
    if rows < len(y):
        fixed = clone(gp).set_params(kernel=model[-1].kernel_, optimizer=None)
        model = make_pipeline(StandardScaler(), fixed).fit(X, y)
    mean, std = model.predict(case.parts.X_test, return_std=True)
    return gaussian(mean, std, case.parts.y_test)


def gaussian(mean: np.ndarray, std: np.ndarray, y: np.ndarray) -> Prediction:
    """Gaussian interval, and the CRPS in closed form."""
    half, z = norm.ppf((1 + COVERAGE) / 2) * std, (y - mean) / std
    crps = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    return Prediction({"default": np.stack([mean - half, mean + half], 1)}, float(crps.mean()))


def crps_of_table(y: np.ndarray, quantiles: np.ndarray) -> float:
    """CRPS of distributions with quantiles [T, C] at the levels ``j/(C+1)``."""
    C = quantiles.shape[1]
    return metrics.crps(y, np.sort(quantiles, axis=1), np.arange(1, C + 1) / (C + 1))


METHODS: dict[str, Callable[[Case], Prediction]] = {
    "exact": partial(sharp, calibration="exact"),
    "cv": partial(sharp, calibration="cv"),
    "paper": partial(sharp, calibration="paper"),
    "loo": partial(sharp, calibration="loo"),
    "rk": partial(sharp, calibration="kuleshov18", bands=BOTH),
    "vanilla": partial(sharp, calibration="vanilla"),
    "mapie-split-gb": partial(mapie_split, base="gb", score="absolute"),
    "mapie-split-gp": partial(mapie_split, base="gp", score="absolute"),
    "mapie-std-gp": partial(mapie_split, base="gp", score=StdConformityScore()),
    "mapie-cv+gb": partial(mapie_cv, base="gb"),
    "mapie-cv+gp": partial(mapie_cv, base="gp"),
    "mapie-cqr-gb": mapie_cqr,
    "crepes-norm": partial(crepes, cps=False),
    "crepes-cps": partial(crepes, cps=True),
    "botorch-split": partial(botorch_conformal, scores="holdout"),
    "botorch-loo": partial(botorch_conformal, scores="loo"),
    "botorch-vanilla": botorch_vanilla,
    "sklearn-vanilla": sklearn_vanilla,
}
