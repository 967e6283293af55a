"""Own methods and the peers', each from a case to its prediction."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from crepes import WrapRegressor
from crepes.extras import DifficultyEstimator
from mapie.conformity_scores import StdConformityScore
from mapie.regression import (
    ConformalizedQuantileRegressor,
    CrossConformalRegressor,
    SplitConformalRegressor,
)
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sharpgp import SharpGPRegressor
from sharpgp_benchmarks.peers.botorch_gp import BoTorchRegressor
from sharpgp_benchmarks.peers.league import LEAGUE
from sharpgp_benchmarks.peers.predictions import around, conformal_quantile, crps_of_table, gaussian
from sharpgp_benchmarks.peers.protocol import BOTH, COVERAGES, DEFAULT, FOLDS, Case, Prediction

#: Models or calibration of this library: no peers.
OURS = (
    *("default", "default-rounded", "one-gp", "exact", "cv", "loo", "paper", "rk", "vanilla"),
    "ngboost-calibrated",
)
#: Beyond how many rows a peer is left out that fits ten GPs, or inverts a matrix for each test row.
MOST_ROWS = {"mapie-cv+gp": 1000, "gpyconform": 1000}
#: Methods that are for some sets only: those whose targets are a few whole numbers.
ONLY_FOR = {"default-rounded": ("wine", "wine-distinct", "discrete")}
SKLEARN_SIZE = 2e7


def sharp(
    case: Case,
    calibration: str,
    base: str = "auto",
    bands: dict[str, bool | None] = DEFAULT,
    y_bounds: str | None = "auto",
) -> Prediction:
    """A method of this library; those that need no calibration part get all rows."""
    p = case.parts
    settings: dict[str, Any] = {"base": base, "calibration": calibration, "y_bounds": y_bounds}
    model = SharpGPRegressor(**settings, device=case.device, random_state=case.seed)
    if calibration in ("auto", "cv", "loo", "vanilla"):
        model.fit(*case.together)
    else:
        model.fit(p.X_train, p.y_train, p.X_cal, p.y_cal)
    ends = {
        name: model.predict_interval(p.X_test, COVERAGES, symmetric=kind)
        for name, kind in bands.items()
    }
    return Prediction(ends, float(model.predict_dist(p.X_test).crps(p.y_test).mean()))


def rounded(case: Case) -> Prediction:
    """The default's distribution, told that targets are whole numbers."""
    p = case.parts
    model = SharpGPRegressor(device=case.device, random_state=case.seed).fit(*case.together)
    dist = model.predict_dist(p.X_test).rounded()
    return Prediction({"default": dist.interval(COVERAGES)}, float(dist.crps(p.y_test).mean()))


def mapie_split(case: Case, base: str, score: str | StdConformityScore) -> Prediction:
    """MAPIE's split conformal prediction of absolute or standardised residuals."""
    p = case.parts
    if base == "gp":
        estimator = case.gp("train")
    else:
        estimator = HistGradientBoostingRegressor(random_state=case.seed).fit(p.X_train, p.y_train)
    model = SplitConformalRegressor(estimator, COVERAGES, score, prefit=True)
    model.conformalize(p.X_cal, p.y_cal)
    return Prediction({"default": model.predict_interval(p.X_test)[1]})


def mapie_cv(case: Case, base: str) -> Prediction:
    """MAPIE's CV+ of gradient boosting, or of a GP with standardised residuals (J+GP)."""
    X, y = case.together
    if base == "gb":
        estimator, score = HistGradientBoostingRegressor(random_state=case.seed), "absolute"
    else:
        estimator, score = BoTorchRegressor(case.device), StdConformityScore()
    model = CrossConformalRegressor(estimator, COVERAGES, score, method="plus", cv=FOLDS)
    model.fit_conformalize(X, y)
    return Prediction({"default": model.predict_interval(case.parts.X_test)[1]})


def mapie_cqr(case: Case) -> Prediction:
    """MAPIE's conformalised quantile regression with gradient boosting, a model per coverage."""
    p = case.parts
    base = HistGradientBoostingRegressor(loss="quantile", quantile=0.5, random_state=case.seed)
    answers: dict[str, list[np.ndarray]] = {name: [] for name in BOTH}
    for coverage in COVERAGES:
        model = ConformalizedQuantileRegressor(base, confidence_level=coverage)
        model.fit(p.X_train, p.y_train).conformalize(p.X_cal, p.y_cal)
        for name, kind in BOTH.items():
            ends = model.predict_interval(p.X_test, symmetric_correction=kind)[1]
            answers[name].append(ends[:, :, 0])
    return Prediction({name: np.stack(ends, axis=2) for name, ends in answers.items()})


def crepes(case: Case, cps: bool) -> Prediction:
    """crepes, normalised by the GP's standard deviation: regressor or predictive system."""
    p, gp = case.parts, case.gp("train")
    difficulty = DifficultyEstimator()
    difficulty.fit(f=lambda X: gp.predict(X, return_std=True)[1], beta=0.0)
    model = WrapRegressor(gp)
    model.calibrate(p.X_cal, p.y_cal, de=difficulty, cps=cps, seed=case.seed)
    ends = [model.predict_int(p.X_test, confidence=coverage) for coverage in COVERAGES]
    bands = {"default": np.stack(ends, axis=2)}
    if not cps:
        return Prediction(bands)
    return Prediction(bands, crps_of_table(p.y_test, model.predict_cpds(p.X_test)))


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
    mean, std = gp.predict(p.X_test, return_std=True)
    radius = [conformal_quantile(np.abs(z), coverage) for coverage in COVERAGES]
    crps = crps_of_table(p.y_test, mean[:, None] + z * std[:, None])
    return Prediction({"default": around(mean, std, radius)}, crps)


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


METHODS: dict[str, Callable[[Case], Prediction]] = {
    "default": partial(sharp, calibration="auto"),
    "default-rounded": rounded,
    "one-gp": partial(sharp, calibration="cv", base="rbf"),
    "exact": partial(sharp, calibration="exact"),
    "cv": partial(sharp, calibration="cv"),
    "paper": partial(sharp, calibration="paper", y_bounds=None),
    "loo": partial(sharp, calibration="loo"),
    # As published, these know nothing of bounds.
    "rk": partial(sharp, calibration="kuleshov18", base="rbf", bands=BOTH, y_bounds=None),
    "vanilla": partial(sharp, calibration="vanilla", y_bounds=None),
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
    **{name: function for name, (_, function) in LEAGUE.items()},
}
