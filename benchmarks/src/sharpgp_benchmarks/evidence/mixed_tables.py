"""Tables with categories and gaps: as they are, encoded by hand, and beside boosted trees.

The sets of :mod:`sharpgp_benchmarks.mixed_sets` lose a share of their values at random.  On each
split the same estimator (``--base``) is fitted on the frame, and on what a scikit-learn pipeline
makes of it: one-hot columns with a lengthscale each, and medians.  ``default`` is the estimator as
it comes, on the frame.  Beside them boosted trees that take categories and gaps, with conformal
intervals from a quarter of the rows: of constant width about the mean, or about two quantiles.
LightGBM and CatBoost are left out where they are not installed.  90 % intervals; means over the
splits, in units of the target's standard deviation.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sharpgp import SharpGPRegressor, through
from sharpgp._validation import check_choice
from sharpgp.metrics import interval_coverage, interval_score
from sharpgp_benchmarks import mixed_sets
from sharpgp_benchmarks.evidence.common import Clock, numbers, without_warnings
from sharpgp_benchmarks.evidence.run import header, measured, row
from sharpgp_benchmarks.peers.predictions import conformal_quantile

COVERAGE = 0.9
LEVELS = (0.05, 0.95)


def by_hand() -> Any:
    """What a careful user would write without this library's frames."""
    text = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="none"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    return make_column_transformer(
        (text, make_column_selector(dtype_exclude="number")),
        (SimpleImputer(strategy="median"), make_column_selector(dtype_include="number")),
    )


def judge(model: Any, X: Any, y: np.ndarray) -> list[float]:
    """CRPS, coverage and interval score, and the number of hyperparameters."""
    found = through(model)
    lower, upper = found.predict_interval(X, COVERAGE).T
    crps = float(np.mean(found.predict_dist(X).crps(y)))
    scores = [interval_coverage(y, lower, upper), interval_score(y, lower, upper, COVERAGE)]
    return [crps, *scores, float(len(found.model.posterior_.names))]


# --- boosted trees --------------------------------------------------------------------------------


def scikit_learn(level: float | None, text: list[str]) -> Any:
    """Of scikit-learn; for a quantile, or the mean."""
    loss = {} if level is None else {"loss": "quantile", "quantile": level}
    settings: dict[str, Any] = {"categorical_features": "from_dtype", "random_state": 0, **loss}
    return HistGradientBoostingRegressor(**settings)


def lightgbm(level: float | None, text: list[str]) -> Any:
    """LightGBM; for a quantile, or the mean."""
    from lightgbm import LGBMRegressor

    loss = {} if level is None else {"objective": "quantile", "alpha": level}
    return LGBMRegressor(random_state=0, n_jobs=1, verbosity=-1, **loss)


def catboost(level: float | None, text: list[str]) -> Any:
    """CatBoost; for a quantile, or the mean."""
    from catboost import CatBoostRegressor

    loss = {} if level is None else {"loss_function": f"Quantile:alpha={level}"}
    settings = {"thread_count": 1, "allow_writing_files": False, "verbose": False}
    return CatBoostRegressor(cat_features=text, random_seed=0, **settings, **loss)


#: By name of the package: a model for a quantile, or for the mean, given the columns of text.
BOOSTED: dict[str, Callable[[float | None, list[str]], Any]] = {
    "sklearn": scikit_learn,
    "lightgbm": lightgbm,
    "catboost": catboost,
}


#: What can be fitted.
FITS = ("frame", "pipeline", "default", *BOOSTED)


def as_categories(package: str, train: Any, test: Any) -> tuple[Any, Any, list[str]]:
    """The frames with text as a package wants it, and the names of these columns."""
    text = [name for name in train.columns if train[name].dtype.kind not in "fiu"]
    parts = [part.copy() for part in (train, test)]
    for name in text:
        known = sorted(train[name].dropna().unique())
        for part in parts:
            if package == "catboost":
                part[name] = part[name].astype(object).fillna("none").astype(str)
            else:
                part[name] = part[name].astype("category").cat.set_categories(known)
    return parts[0], parts[1], text


def boosted(
    package: str, quantiles: bool, train: Any, y: np.ndarray, test: Any, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Interval ends [T] of boosted trees with split conformal intervals."""
    train, test, text = as_categories(package, train, test)
    rows = np.random.default_rng(seed).permutation(len(y))
    cal, fit = rows[: len(y) // 4], rows[len(y) // 4 :]
    asked = LEVELS if quantiles else (None, None)
    models = [
        BOOSTED[package](level, text).fit(train.iloc[fit], y[fit]) for level in dict.fromkeys(asked)
    ]
    low, high = models[0], models[-1]
    beyond = np.maximum(
        low.predict(train.iloc[cal]) - y[cal], y[cal] - high.predict(train.iloc[cal])
    )
    radius = conformal_quantile(beyond, COVERAGE)
    lower, upper = low.predict(test) - radius, high.predict(test) + radius
    return np.minimum(lower, upper), np.maximum(lower, upper)


# --- the study ------------------------------------------------------------------------------------


def estimators(base: str, calibration: str, seed: int) -> dict[str, Any]:
    """The estimator on the frame, behind a pipeline, and as it comes."""
    settings: dict[str, Any] = {"base": base, "calibration": calibration, "random_state": seed}
    return {
        "frame": SharpGPRegressor(**settings),
        "pipeline": make_pipeline(by_hand(), SharpGPRegressor(**settings)),
        "default": SharpGPRegressor(random_state=seed),
    }


def one(
    name: str,
    share: float,
    seed: int,
    base: str,
    calibration: str,
    fits: list[str],
    packages: list[str],
    data_home: str | None,
) -> dict[str, list[float]]:
    """Figures and processor seconds of every model on one split of one set."""
    models = estimators(base, calibration, seed)
    whole, y = mixed_sets.load(name, data_home)
    frame = mixed_sets.with_gaps(whole, share, seed)
    fit, test = np.split(np.random.default_rng(seed).permutation(len(y)), [int(0.8 * len(y))])
    train, target, asked, truth = frame.iloc[fit], y[fit], frame.iloc[test], y[test]
    found: dict[str, list[float]] = {}
    for kind, model in models.items():
        if kind not in fits:
            continue
        with without_warnings(), Clock() as clock:
            model.fit(train, target)
            figures = judge(model, asked, truth)
        found[kind] = [*figures, clock.cpu]
    nothing = float("nan")
    for package in packages:
        for kind in ("constant", "quantiles"):
            with without_warnings(), Clock() as clock:
                ends = boosted(package, kind == "quantiles", train, target, asked, seed)
            score = interval_score(truth, *ends, COVERAGE)
            figures = [nothing, interval_coverage(truth, *ends), score, nothing]
            found[f"{package}, {kind}"] = [*figures, clock.cpu]
    return found


def main(
    datasets: str = ",".join(mixed_sets.SETS),
    gaps: str = "0,10,30",
    fits: str = ",".join(FITS),
    base: str = "rbf",
    calibration: str = "exact",
    repeats: int = 5,
    workers: int = 1,
    data_home: str | None = None,
) -> None:
    """Print the table; ``gaps`` in per cent."""
    names, chosen = datasets.split(","), fits.split(",")
    for option, given, known in (("datasets", names, mixed_sets.SETS), ("fits", chosen, FITS)):
        for one_of in given:
            check_choice(one_of, option, known)
    asked = [name for name in BOOSTED if name in chosen]
    packages = [name for name in asked if find_spec(name)]
    if missing := [name for name in asked if name not in packages]:
        print(f"left out, as they are not installed: {', '.join(missing)}\n")
    header("set", "gaps", "fit on", "CRPS", "coverage", "score", "hyperparameters", "fit, s")
    cases = [(name, share) for name in names for share in numbers(gaps)]
    how = (base, calibration, chosen, packages, data_home)
    tasks = [(name, gap / 100, seed, *how) for name, gap in cases for seed in range(repeats)]
    judged = measured(one, tasks, workers=workers)
    for i, (name, share) in enumerate(cases):
        runs = judged[i * repeats : (i + 1) * repeats]
        for kind in runs[0]:
            crps, covered, score, size, cpu = np.mean([run[kind] for run in runs], axis=0)
            cells = [f"{crps:.3f}", f"{covered:.1%}", f"{score:.3f}", f"{size:.0f}"]
            row(name, f"{share}%", kind, *cells, f"{cpu:.1f}")
