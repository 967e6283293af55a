"""The regression benchmark: every method on the same splits and base models.

Run with ``sharpgp bench regression``.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from sharpgp import metrics
from sharpgp._validation import as_count, check_choice
from sharpgp.calibration import known_methods
from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.recalibrator import make_recalibrator
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.compute import choose_device
from sharpgp.gp.posterior import DataPosterior
from sharpgp.gp.sparse.training import train_sparse
from sharpgp.gp.training import train
from sharpgp.policy import INDUCING, SEARCHED_ROWS
from sharpgp.toy import Split
from sharpgp.toy import split as split_rows
from sharpgp_benchmarks import datasets
from sharpgp_benchmarks.methods.kuleshov22 import Kuleshov22, Network
from sharpgp_benchmarks.task import OF_METHOD, Outcome, Task
from sharpgp_benchmarks.undertrained import undertrain

BASES = ("trained", "undertrained")
#: Sets of the paper's table that an exact GP can take whole.
SMALL = ("boston", "yacht", "mpg", "wine", "concrete")
#: Methods in the order of the paper's table, then those beyond it.
ORDER = (
    "paper", "kuleshov18", "vovk20", "marx22", "kuleshov22", "vanilla",
    "exact", "cv", "fully_bayesian", "capone22",
)  # fmt: skip
#: Methods that take minutes and run on request only.
SLOW = ("fully_bayesian", "capone22")
#: Repetitions of methods that take long, unless more are asked for by name.
FEWER_REPEATS = {"kuleshov22": 20, "fully_bayesian": 5, "capone22": 5}
#: Training points that hardly trained GPs get at most, unless more are asked for: they are exact.
MAX_UNDERTRAINED = 2000
#: Settings of the paper's method that a run can choose.
PAPER_SETTINGS = ("levels", "family", "objective", "subset", "restarts", "effort")
#: Setting of the network: the set that it is pretrained on.
PRETRAINED_ON = "pretrained_on"
#: Sets whose target the paper reports in its own units.
RAW_UNITS = ("kin8nm",)


def all_methods() -> list[str]:
    """Registered methods, in the order of the table."""
    position = {name: i for i, name in enumerate(ORDER)}
    return sorted(known_methods(), key=lambda name: (position.get(name, len(ORDER)), name))


def fractions(dataset: str, split: str | None = None) -> tuple[float, float]:
    """Shares of the training and the calibration part: the paper's, or those of ``split``.

    Examples
    --------
    >>> fractions("boston"), fractions("facebook1")
    ((0.6, 0.2), (0.08, 0.02))
    >>> fractions("facebook1", "60/20/20")
    (0.6, 0.2)
    """
    if split is not None:
        shares = split.split("/")
        if len(shares) != 3 or not all(share.isdigit() and int(share) > 0 for share in shares):
            raise InvalidInputError(
                f"split: expected training/calibration/test such as 60/20/20, found {split!r}"
            )
        total = sum(map(int, shares))
        return int(shares[0]) / total, int(shares[1]) / total
    return (0.08, 0.02) if dataset.startswith("facebook") else (0.6, 0.2)


def plan(
    names: Sequence[str] = SMALL,
    methods: Sequence[str] | None = None,
    *,
    repeats: int = 100,
    repeats_of: Mapping[str, int] | None = None,
    base: str = "trained",
    max_train: int | None = None,
    inducing: int | None = None,
    split: str | None = None,
    of_method: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Task]:
    """Tasks of a run, by data set, then seed, then method.

    Parameters
    ----------
    names : sequence of str
        Data sets.
    methods : sequence of str, optional
        Without it, all but the slow ones; ``["all"]`` for all.
    repeats : int
        Splits per data set.
    repeats_of : mapping, optional
        Other numbers of splits by method; by default, fewer for those that take long.
    base : {"trained", "undertrained"}
    max_train : int, optional
        Larger training parts are cut down to a random subset of this size; without it, only
        those of hardly trained GPs, to :data:`MAX_UNDERTRAINED`.
    inducing : int, optional
        Inducing inputs of sparse GPs; without it, the estimator's rule: exact up to 3,000
        training points, 300 inducing inputs beyond.
    split : str, optional
        Such as ``"60/20/20"``, in place of the paper's.
    of_method : mapping, optional
        Settings of single methods, such as ``{"paper": {"effort": 2}}``.  That of ``kuleshov22``
        may be :data:`PRETRAINED_ON`: the set that its network is pretrained on, as in the paper.

    Examples
    --------
    >>> len(plan(["boston"], ["kuleshov18", "kuleshov22"], repeats=50))
    70
    """
    known = all_methods()
    if methods is None:
        methods = [method for method in known if method not in SLOW]
    elif list(methods) == ["all"]:
        methods = known
    for method in (*methods, *(repeats_of or {}), *(of_method or {})):
        check_choice(method, "methods", known)
    for name in names:
        check_choice(name, "datasets", datasets.names())
    check_choice(base, "base", BASES)
    counts = {
        m: repeats if m not in FEWER_REPEATS else min(repeats, FEWER_REPEATS[m]) for m in methods
    }
    counts.update({m: count for m, count in (repeats_of or {}).items() if m in counts})
    for what, count in {"repeats": repeats, **counts}.items():
        if count < 1:
            raise InvalidInputError(f"repeats: expected at least 1, found {count} ({what})")
    if max_train is not None and max_train < 2:
        raise InvalidInputError(f"max_train: expected at least 2, found {max_train}")
    tasks = []
    for name in names:
        settings: dict[str, Any] = {"base": base}
        n_train = round(fractions(name, split)[0] * datasets.size(name)[0])
        most = MAX_UNDERTRAINED if max_train is None and base == "undertrained" else max_train
        if most is not None and n_train > most:
            settings["max_train"] = n_train = most
        if base == "trained" and (inducing is not None or n_train > SEARCHED_ROWS["cpu"]):
            m = INDUCING if inducing is None else as_count(inducing, "inducing", least=1)
            settings["inducing"] = min(m, n_train)
        if split is not None:
            settings["split"] = split
        for seed in range(max(counts.values(), default=0)):
            chosen = [method for method in methods if seed < counts[method]]
            tasks += [
                Task("regression", name, method, seed, settings | _own(of_method, method, name))
                for method in chosen
            ]
    return tasks


def _own(
    of_method: Mapping[str, Mapping[str, Any]] | None, method: str, dataset: str
) -> dict[str, Any]:
    """The entry of a task's settings with those of its method; no set pretrains its own network."""
    own = dict((of_method or {}).get(method, {}))
    if own.get(PRETRAINED_ON) == dataset:
        own[PRETRAINED_ON] = next(other for other in SMALL if other != dataset)
    return {OF_METHOD: own} if own else {}


def run_task(task: Task, context: Mapping[str, Any]) -> Outcome:
    """Calibrate one base model with one method, and measure it on the test part."""
    problem = make_problem(
        task.dataset,
        task.seed,
        task.settings["base"],
        task.settings.get("max_train"),
        context.get("data_home"),
        task.settings.get("inducing"),
        task.settings.get("split"),
        context.get("device") or "cpu",
    )
    part = problem.part
    own = dict(task.settings.get(OF_METHOD, {}))
    other = own.pop(PRETRAINED_ON, None)
    recalibrator = make_recalibrator(task.method, random_state=task.seed, **own)
    if other is not None:
        assert isinstance(recalibrator, Kuleshov22)
        recalibrator.start = pretrained(other, task.settings["base"], context.get("data_home"))
    calibrated = recalibrator.fit(problem.posterior, part.X_cal, part.y_cal)
    return Outcome(measure(calibrated, part.X_test, part.y_test), problem.info)


@lru_cache(maxsize=4)
def pretrained(dataset: str, base: str, data_home: str | None) -> Network:
    """The network after its pretraining on one set, one split of it, for all tasks."""
    problem = make_problem(dataset, 0, base, None, data_home)
    method = Kuleshov22(random_state=0)
    start = method.pretrained_on(problem.posterior, problem.part.X_cal, problem.part.y_cal).start
    assert start is not None
    return start


def measure(calibrated: Calibrated, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Metrics by name, with the 95 % interval of the paper's table and the symmetric band.

    The paper's interval lies between the quantiles 0.025 and 0.975; ``predict_interval`` would
    round their ranks outward.  Width and coverage always come from the same two ends.
    """
    report = dict(calibrated.calibration_report(X, y))
    ends = {
        "": calibrated.predict_quantiles(X, [0.025, 0.975]),
        "_symmetric": calibrated.predict_interval(X, 0.95, symmetric=True),
    }
    for suffix, pair in ends.items():
        lower, upper = pair.cpu().numpy().T
        report[f"width_95{suffix}"] = metrics.interval_width(lower, upper)
        report[f"coverage_95{suffix}"] = metrics.interval_coverage(y, lower, upper)
        report[f"interval_score_95{suffix}"] = metrics.interval_score(y, lower, upper, 0.95)
    return report


@dataclass(frozen=True)
class Problem:
    """One split in reporting units, its base model, and facts for the table."""

    part: Split
    posterior: DataPosterior
    info: Mapping[str, Any]


@lru_cache(maxsize=2)
def make_problem(
    dataset: str,
    seed: int,
    base: str,
    max_train: int | None,
    data_home: str | None,
    inducing: int | None = None,
    split: str | None = None,
    device: str = "cpu",
) -> Problem:
    """Load, split and train; the last ones are kept, as all methods of a batch share them."""
    data = datasets.load(dataset, data_home)
    y = data.y if dataset in RAW_UNITS else (data.y - data.y.mean()) / data.y.std()
    train_share, cal_share = fractions(dataset, split)
    part = split_rows(data.X, y, train=train_share, cal=cal_share, random_state=seed)
    X_train, y_train = part.X_train, part.y_train
    if max_train is not None:  # rows are shuffled already
        X_train, y_train = X_train[:max_train], y_train[:max_train]
    where = choose_device(device, len(y_train))
    tensors = torch.from_numpy(X_train).to(where), torch.from_numpy(y_train).to(where)
    posterior: DataPosterior
    if base == "undertrained":
        posterior = undertrain(*tensors, dataset)
    elif inducing is not None:
        posterior = train_sparse(*tensors, n_inducing=inducing, random_state=seed, prior=None)[0]
    else:
        posterior = train(*tensors, random_state=seed, prior=None)[0]
    table = np.ascontiguousarray(np.column_stack([data.X, data.y]))
    info = {
        "n_train": len(y_train),
        "n_train_available": len(part.y_train),
        "n_cal": len(part.y_cal),
        "n_test": len(part.y_test),
        "data": hashlib.sha256(table.tobytes()).hexdigest()[:16],
    }
    return Problem(part, posterior, info)
