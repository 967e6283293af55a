"""This library and the peers a user would pick instead, on the same splits in one run.

Run with ``python benchmarks/peers.py --data-home FOLDER --out results.csv``.  Every result is
appended to the file as soon as it is known, and what the file holds is not computed again: start
a new file after changing a method.  ``--table`` only prints what the file holds.

Protocol.  The rows of a data set are shuffled by the seed into training (60 %, at most ``--most``),
calibration (a third of that, to the nearest ``C`` with ``C + 1`` a multiple of 20, so that every
conformal method's 95 % interval ends at a whole rank) and test rows (the rest, at most 2,000).
Methods that hold data out calibrate on the calibration part; methods that do not (``cv``, CV+,
leave-one-out, plain GPs) are given training and calibration part together.  Widths, interval scores
and CRPS are in standard deviations of the data set's target.  Seconds are wall time of fitting,
calibrating and predicting, with the fit of a GP that several methods share counted for each.

Peers are used as their documentation says.  Where they can take any GP they get BoTorch's.

- MAPIE 1.6's split ``StdConformityScore`` takes the lower end of the interval at rank
  ``floor(0.95 (C + 1))`` in place of ``ceil``: one rank too low unless ``C + 1`` is a multiple of
  20.  It is reported as it is.  ``crepes-norm`` and ``botorch-split`` are the same method with the
  right rank.
- crepes adds ``beta=0.01`` to every difficulty, in the target's units; 0 is given here, because
  GP standard deviations are not near 0 and the targets' units differ.
- scikit-learn's GP needs ``n^2 d`` memory for its gradient: beyond ``SKLEARN_SIZE`` its
  hyperparameters come from fewer rows, and it is then conditioned on all.
- ``mapie-cv+gp`` (J+GP) fits ten GPs from scratch; it is left out beyond ``CV_GP_ROWS`` rows.
- RK (``kuleshov18``) and CQR have a symmetric and a centred interval.  Each data set's table shows
  the one with the better interval score on average over seeds, which favours RK and CQR: the
  choice looks at test data.  ``exact``, ``cv`` and ``paper`` are shown with their default interval.
"""

import argparse
import csv
import io
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from botorch.cross_validation import loo_cv
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from crepes import WrapRegressor
from crepes.extras import DifficultyEstimator
from gpytorch.mlls import ExactMarginalLogLikelihood
from mapie.conformity_scores import StdConformityScore
from mapie.regression import (
    ConformalizedQuantileRegressor,
    CrossConformalRegressor,
    SplitConformalRegressor,
)
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sharpgp import SharpGPRegressor, datasets, metrics

COVERAGE = 0.95
DATASETS = ("boston", "yacht", "mpg", "wine", "concrete", "kin8nm", "facebook1")
OURS = ("exact", "cv", "loo", "paper", "rk", "vanilla")
MOST_TEST = 2000
FOLDS = 10
CV_GP_ROWS = 1000
SKLEARN_SIZE = 2e7
KEY = ["dataset", "most", "seed", "method"]
VALUES = ["width", "coverage", "score", "crps", "seconds"]
COLUMNS = [*KEY, "band", "n_train", "n_cal", "n_test", *VALUES, "error"]

# Names of the bands, and what the argument that asks for a symmetric one is given.
DEFAULT: dict[str, bool | None] = {"default": None}
BOTH: dict[str, bool | None] = {"symmetric": True, "centred": False}


@dataclass
class Prediction:
    """Interval ends [T, 2] by the name of the band, and the CRPS where there is a distribution."""

    bands: dict[str, np.ndarray]
    crps: float = float("nan")


class BoTorchRegressor(RegressorMixin, BaseEstimator):
    """A SingleTaskGP with normalised inputs and standardised target, as a scikit-learn estimator.

    Standard deviations are those of an observation, noise included.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def fit(self, X: np.ndarray, y: np.ndarray) -> "BoTorchRegressor":
        X, Y = self._tensor(X), self._tensor(y).unsqueeze(-1)
        self.n_features_in_ = X.shape[1]
        self.model_ = SingleTaskGP(
            X, Y, input_transform=Normalize(X.shape[1]), outcome_transform=Standardize(1)
        )
        fit_gpytorch_mll(ExactMarginalLogLikelihood(self.model_.likelihood, self.model_))
        return self

    def predict(
        self, X: np.ndarray, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            posterior = self.model_.posterior(self._tensor(X), observation_noise=True)
            mean = posterior.mean.flatten().cpu().numpy()
            std = posterior.variance.flatten().sqrt().cpu().numpy()
        return (mean, std) if return_std else mean

    def loo_scores(self) -> np.ndarray:
        """Leave-one-out z-scores of the training points, without refits."""
        with torch.no_grad():
            result = loo_cv(self.model_)
            z = (result.observed_Y - result.posterior.mean) / result.posterior.variance.sqrt()
        return z.flatten().cpu().numpy()

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.asarray(array), dtype=torch.float64, device=self.device)


@dataclass
class Task:
    """One split of a data set, and the GPs that several methods share."""

    parts: datasets.Split
    seed: int
    device: str
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


def make_task(data: datasets.Dataset, seed: int, most: int, device: str) -> Task:
    """Shuffle by the seed; 60/20/20 with at most ``most`` training rows and 2,000 test rows."""
    n = len(data.y)
    n_train = min(round(0.6 * n), most)
    n_cal = 20 * round((round(n_train / 3) + 1) / 20) - 1
    ends = np.cumsum([n_train, n_cal, MOST_TEST])
    order = np.random.default_rng(seed).permutation(n)[: ends[-1]]
    train, cal, test = np.split(order, ends[:2])
    X, y = data.X, data.y
    parts = datasets.Split(X[train], y[train], X[cal], y[cal], X[test], y[test])
    return Task(parts, seed, device)


# --- this library -----------------------------------------------------------------------------


def sharp(task: Task, calibration: str, bands: dict[str, bool | None] = DEFAULT) -> Prediction:
    """A method of this library with its default settings."""
    p = task.parts
    model = SharpGPRegressor(calibration=calibration, device=task.device, random_state=task.seed)
    if calibration in ("cv", "loo", "vanilla"):
        model.fit(*task.together)
    else:
        model.fit(p.X_train, p.y_train, p.X_cal, p.y_cal)
    ends = {
        name: model.predict_interval(p.X_test, COVERAGE, symmetric=kind)
        for name, kind in bands.items()
    }
    return Prediction(ends, float(model.predict_dist(p.X_test).crps(p.y_test).mean()))


# --- peers ------------------------------------------------------------------------------------


def mapie_split(task: Task, base: str, score: str | StdConformityScore) -> Prediction:
    """MAPIE's split conformal prediction of absolute or standardised residuals."""
    p = task.parts
    if base == "gp":
        estimator = task.gp("train")
    else:
        estimator = HistGradientBoostingRegressor(random_state=task.seed).fit(p.X_train, p.y_train)
    model = SplitConformalRegressor(estimator, COVERAGE, score, prefit=True)
    model.conformalize(p.X_cal, p.y_cal)
    return Prediction({"default": model.predict_interval(p.X_test)[1][:, :, 0]})


def mapie_cv(task: Task, base: str) -> Prediction:
    """MAPIE's CV+ of gradient boosting, or of a GP with standardised residuals (J+GP)."""
    X, y = task.together
    if base == "gb":
        estimator, score = HistGradientBoostingRegressor(random_state=task.seed), "absolute"
    elif len(y) <= CV_GP_ROWS:
        estimator, score = BoTorchRegressor(task.device), StdConformityScore()
    else:
        raise RuntimeError(f"left out: {FOLDS} GP fits of more than {CV_GP_ROWS} rows")
    model = CrossConformalRegressor(estimator, COVERAGE, score, method="plus", cv=FOLDS)
    model.fit_conformalize(X, y)
    return Prediction({"default": model.predict_interval(task.parts.X_test)[1][:, :, 0]})


def mapie_cqr(task: Task) -> Prediction:
    """MAPIE's conformalised quantile regression with gradient boosting."""
    p = task.parts
    base = HistGradientBoostingRegressor(loss="quantile", quantile=0.5, random_state=task.seed)
    model = ConformalizedQuantileRegressor(base, confidence_level=COVERAGE)
    model.fit(p.X_train, p.y_train).conformalize(p.X_cal, p.y_cal)
    ends = {
        name: model.predict_interval(p.X_test, symmetric_correction=kind)[1][:, :, 0]
        for name, kind in BOTH.items()
    }
    return Prediction(ends)


def crepes(task: Task, cps: bool) -> Prediction:
    """crepes, normalised by the GP's standard deviation: regressor or predictive system."""
    p, gp = task.parts, task.gp("train")
    difficulty = DifficultyEstimator()
    difficulty.fit(f=lambda X: gp.predict(X, return_std=True)[1], beta=0.0)
    model = WrapRegressor(gp)
    model.calibrate(p.X_cal, p.y_cal, de=difficulty, cps=cps, seed=task.seed)
    ends = {"default": model.predict_int(p.X_test, confidence=COVERAGE)}
    if not cps:
        return Prediction(ends)
    return Prediction(ends, crps_of_table(p.y_test, model.predict_cpds(p.X_test)))


def botorch_conformal(task: Task, scores: str) -> Prediction:
    """By hand: symmetric band at the conformal rank of the holdout's or leave-one-out ``|z|``.

    The distribution behind the CRPS has the quantiles of ``z``.
    """
    p = task.parts
    gp = task.gp("all" if scores == "loo" else "train")
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


def botorch_vanilla(task: Task) -> Prediction:
    """BoTorch's GP as it is."""
    gp = task.gp("all")
    return gaussian(*gp.predict(task.parts.X_test, return_std=True), task.parts.y_test)


def sklearn_vanilla(task: Task) -> Prediction:
    """scikit-learn's GP as it is, with ARD RBF kernel and white noise."""
    X, y = task.together
    d = X.shape[1]
    kernel = ConstantKernel() * RBF(np.ones(d)) + WhiteKernel()
    gp = GaussianProcessRegressor(kernel, normalize_y=True, random_state=task.seed)
    model = make_pipeline(StandardScaler(), gp)
    rows = int((SKLEARN_SIZE / d) ** 0.5)
    model.fit(X[:rows], y[:rows])
    if rows < len(y):
        fixed = clone(gp).set_params(kernel=model[-1].kernel_, optimizer=None)
        model = make_pipeline(StandardScaler(), fixed).fit(X, y)
    return gaussian(*model.predict(task.parts.X_test, return_std=True), task.parts.y_test)


def gaussian(mean: np.ndarray, std: np.ndarray, y: np.ndarray) -> Prediction:
    """Gaussian interval, and the CRPS in closed form."""
    half, z = norm.ppf((1 + COVERAGE) / 2) * std, (y - mean) / std
    crps = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    return Prediction({"default": np.stack([mean - half, mean + half], 1)}, float(crps.mean()))


def crps_of_table(y: np.ndarray, quantiles: np.ndarray) -> float:
    """CRPS of distributions with quantiles [T, C] at the levels ``j/(C+1)``."""
    C = quantiles.shape[1]
    return metrics.crps(y, np.sort(quantiles, axis=1), np.arange(1, C + 1) / (C + 1))


METHODS: dict[str, Callable[[Task], Prediction]] = {
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


# --- results ----------------------------------------------------------------------------------


def measure(method: str, task: Task, unit: float) -> list[dict[str, object]]:
    """One row per band: the metrics in units of the target, or the error that was raised."""
    y = task.parts.y_test
    sizes = {"n_train": len(task.parts.y_train), "n_cal": len(task.parts.y_cal), "n_test": len(y)}
    task.charged, start, error = 0.0, time.perf_counter(), ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prediction = METHODS[method](task)
    except Exception as raised:
        error = " ".join(f"{type(raised).__name__}: {raised}".split())[:200]
    common = sizes | {"seconds": time.perf_counter() - start + task.charged, "error": error}
    if error:
        return [common]
    rows = []
    for band, ends in prediction.bands.items():
        lower, upper = ends.T
        miss = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
        score = float(np.mean(upper - lower + 2 / (1 - COVERAGE) * miss))
        width, coverage = float(np.mean(upper - lower)), float(np.mean(miss == 0))
        values = (width / unit, coverage, score / unit, prediction.crps / unit)
        rows.append({"band": band} | common | dict(zip(VALUES, values, strict=False)))
    return rows


def append(path: Path, rows: list[dict[str, object]]) -> None:
    """Append all rows in one write, the header first where the file is new."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    if not path.exists() or path.stat().st_size == 0:
        writer.writeheader()
    writer.writerows(rows)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, text.getvalue().encode())
    finally:
        os.close(file)


def read(path: Path) -> pd.DataFrame:
    """All rows of the file; a line that was cut off in the middle is removed from it."""
    content = path.read_bytes() if path.exists() else b""
    end = content.rfind(b"\n") + 1
    if end < len(content):
        os.truncate(path, end)
    if end == 0:
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(path, dtype={"error": str, "band": str})


def run(arguments: argparse.Namespace) -> None:
    """Compute the rows that the file does not hold, ``--jobs`` splits at a time."""
    done = set(read(arguments.out)[KEY].itertuples(index=False, name=None))
    splits = [(name, seed) for seed in range(arguments.seeds) for name in arguments.datasets]
    one = partial(run_split, arguments=arguments, done=done)
    if arguments.jobs == 1:
        for split in splits:
            one(split)
        return
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        for _ in pool.imap_unordered(one, splits):
            pass


def run_split(split: tuple[str, int], arguments: argparse.Namespace, done: set[tuple]) -> None:
    """All methods that are not done yet on one split of one data set."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    name, seed = split
    data = datasets.load(name, data_home=arguments.data_home)
    task = make_task(data, seed, arguments.most, arguments.device)
    for method in arguments.methods:
        key = (name, arguments.most, seed, method)
        if key in done:
            continue
        rows = measure(method, task, float(data.y.std()))
        append(arguments.out, [dict(zip(KEY, key, strict=True)) | row for row in rows])
        seconds, error = rows[0]["seconds"], rows[0]["error"]
        print(f"{name} {seed} {method} {seconds:.1f} s {error}", file=sys.stderr)


def better_band(rows: pd.DataFrame) -> pd.DataFrame:
    """Of methods with two bands, the rows of the one with the better mean score on a data set."""
    groups = ["dataset", "method", "band"]
    best = rows.groupby(groups)["score"].mean().groupby(groups[:2]).idxmin()
    return rows[pd.MultiIndex.from_frame(rows[groups]).isin(best)]


def summarise(arguments: argparse.Namespace) -> None:
    """Print a table for each data set, and what they have in common."""
    rows = read(arguments.out)
    rows = rows[(rows["most"] == arguments.most) & (rows["seed"] < arguments.seeds)]
    methods = [m for m in METHODS if m in {*arguments.methods, "rk"}]
    rows = rows[rows["dataset"].isin(arguments.datasets) & rows["method"].isin(methods)]
    failed = rows[rows["error"].notna()].groupby(["dataset", "method"])["error"].agg(list)
    rows = better_band(rows[rows["error"].isna()])
    for name, group in rows.groupby("dataset", sort=False):
        sizes = group[["n_train", "n_cal", "n_test"]].iloc[0].tolist()
        print("\n{}: {} training, {} calibration, {} test rows".format(name, *sizes))
        by_method = group.groupby("method")
        table = by_method[VALUES].mean()
        table["seeds"], table["band"] = by_method.size(), by_method["band"].first()
        show(table, methods)
    for (name, method), errors in failed.items():
        print(f"{name}: {method} failed {len(errors)} times, first with {errors[0]}")
    if "rk" in set(rows["method"]):
        show_overall(rows, methods)


def show_overall(rows: pd.DataFrame, methods: list[str]) -> None:
    """Print geometric means over data sets relative to RK on the same seeds, and coverages."""
    rk = rows[rows["method"] == "rk"]
    paired = rows.merge(rk, on=["dataset", "seed"], suffixes=("", "_rk"))
    means = paired.groupby(["method", "dataset"])[VALUES + [f"{v}_rk" for v in VALUES]].mean()
    by_method = means.groupby("method")
    ratios = ("width", "score", "crps", "seconds")
    logs = pd.DataFrame({v: np.log(means[v] / means[f"{v}_rk"]) for v in ratios})
    table = np.exp(logs.groupby("method").mean())
    table["coverage"], table["lowest"] = by_method["coverage"].mean(), by_method["coverage"].min()
    table["sets"] = by_method.size()
    print("\nGeometric means over data sets, relative to RK on the same seeds; mean coverage")
    show(table, methods)
    for mine in [m for m in ("exact", "cv") if m in set(rows["method"])]:
        compare(rows, mine)


def compare(rows: pd.DataFrame, mine: str) -> None:
    """Print on how many sets a method is below every peer, each on the seeds that both have."""
    own = rows[rows["method"] == mine][["dataset", "seed", "score"]]
    both = rows[~rows["method"].isin(OURS)].merge(
        own, on=["dataset", "seed"], suffixes=("", "_own")
    )
    if not len(both):
        return
    means = both.groupby(["dataset", "method"])[["score", "score_own"]].mean()
    ratio = (means["score_own"] / means["score"]).unstack("dataset")
    lost = [f"{n} (to {ratio[n].idxmax()})" for n in ratio if ratio[n].max() > 1]
    print(f"{mine}: interval score below every peer's", end=" ")
    print(f"on {ratio.shape[1] - len(lost)} of {ratio.shape[1]} sets", *lost, sep="; not on ")
    against = np.exp(np.log(ratio).mean(axis=1)).sort_values(ascending=False)
    print("  relative to each:", ", ".join(f"{name} {v:.2f}" for name, v in against.items()))


def show(table: pd.DataFrame, methods: list[str]) -> None:
    """Print a table with the methods in their usual order."""
    formats = {name: "{:.1%}".format for name in ("coverage", "lowest")}
    formats |= {"seconds": "{:.2f}".format, "crps": "{:.4f}".format}
    table = table.loc[[m for m in methods if m in table.index]]
    table.index.name = None
    print(table.to_string(formatters=formats, float_format="{:.3f}".format))


def comma_separated(text: str) -> list[str]:
    """The parts of a list on the command line."""
    return text.split(",")


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", type=comma_separated, default=list(DATASETS))
    parser.add_argument("--methods", type=comma_separated, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--most", type=int, default=2000, help="most training rows")
    parser.add_argument("--data-home", default=None, help="or environment variable SHARPGP_DATA")
    parser.add_argument("--device", default="cpu", help="for the GPs of sharpgp and BoTorch")
    parser.add_argument("--jobs", type=int, default=1, help="splits at a time, a process each")
    parser.add_argument("--table", action="store_true", help="only print what the file holds")
    parser.add_argument("--out", type=Path, default=Path("results.csv"))
    arguments = parser.parse_args()
    if unknown := set(arguments.methods) - set(METHODS):
        parser.error(f"unknown methods {sorted(unknown)}; known: {', '.join(METHODS)}")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    status = 0
    try:
        if not arguments.table:
            run(arguments)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        status = 130
    summarise(arguments)
    sys.exit(status)


if __name__ == "__main__":
    main()
