"""Tables of results, from result files alone: the paper's layout, its figures beside ours.

Print with ``sharpgp bench table``.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sharpgp_benchmarks.published import DATASETS, printed
from sharpgp_benchmarks.task import OF_METHOD, Result, canonical_json

#: Headings of the methods, in the order of the columns; others follow under their own names.
METHODS = {
    "paper": "ours",
    "kuleshov18": "RK",
    "vovk20": "RV",
    "marx22": "RM",
    "kuleshov22": "NN",
    "vanilla": "B",
}
_BEYOND = (
    "exact", "cv", "fully_bayesian", "capone22",
    "calibrated", "calibrated_1", "recalibrated", "ucb", "ucb_retrained", "logei", "random",
)  # fmt: skip
#: Methods that do not keep the base model that they are given.
_OWN_MODEL = ("cv", "fully_bayesian", "capone22")
#: Iterations of an optimisation whose regrets are shown, besides the last.
SHOWN_REGRETS = (10, 25, 50)
#: Label and factor of the metrics, in the order of the rows.
METRICS = {
    "ece": ("ECE x 1000", 1e3),
    "ece_floor": ("ECE floor x 1000", 1e3),
    "std": ("STD", 1.0),
    "nll": ("NLL", 1.0),
    "width_95": ("95 % CI", 1.0),
    "coverage_95": ("coverage, %", 1e2),
    "interval_score_95": ("interval score", 1.0),
    "width_90": ("90 % CI", 1.0),
    "coverage_90": ("coverage at 90 %, %", 1e2),
    "interval_score_90": ("interval score at 90 %", 1.0),
    "crps": ("CRPS", 1.0),
    "rmse": ("RMSE", 1.0),
    "width_95_symmetric": ("95 % band", 1.0),
    "coverage_95_symmetric": ("its coverage, %", 1e2),
    "seconds": ("seconds", 1.0),
    "violation_rate": ("violations, %", 1e2),
    "length_100": ("100 % interval", 1.0),
    "violation_rate_theorem": ("violations, %, theorem", 1e2),
    "length_100_theorem": ("100 % interval, theorem", 1.0),
    **{f"simple_regret_{t}": (f"simple regret, {t}", 1.0) for t in SHOWN_REGRETS},
    "simple_regret": ("simple regret", 1.0),
    **{f"cumulative_regret_{t}": (f"cumulative regret, {t}", 1.0) for t in SHOWN_REGRETS},
    "cumulative_regret": ("cumulative regret", 1.0),
}


@dataclass(frozen=True)
class Cell:
    """Mean of a metric over repetitions, its standard error, and the paper's figure."""

    mean: float
    error: float
    count: int
    printed: float | None


@dataclass(frozen=True)
class Block:
    """One data set under one setting: cells by method and metric.

    Attributes
    ----------
    heading : str
        The settings in words, common to several blocks.
    dataset, sizes : str
        Name, and sizes of its parts.
    cells : mapping from method to mapping from metric to Cell
        Methods in the order of the columns.
    counts : mapping
        Repetitions by method.
    notes : tuple of str
        Failures and other things that a reader has to know.
    """

    heading: str
    dataset: str
    sizes: str
    cells: Mapping[str, Mapping[str, Cell]]
    counts: Mapping[str, int]
    notes: tuple[str, ...]

    @property
    def metrics(self) -> list[str]:
        """Metrics that any method has, in the order of the rows."""
        return [name for name in METRICS if any(name in row for row in self.cells.values())]


def summarise(results: Iterable[Result]) -> list[Block]:
    """Blocks of cells, ordered by settings and data set.

    Examples
    --------
    >>> from sharpgp_benchmarks.task import Task
    >>> tasks = [Task("regression", "boston", "kuleshov18", s, {"base": "trained"}) for s in (0, 1)]
    >>> widths = [{"width_95": 1.0}, {"width_95": 2.0}]
    >>> results = [Result(t, "ok", m) for t, m in zip(tasks, widths, strict=True)]
    >>> summarise(results)[0].cells["kuleshov18"]["width_95"]
    Cell(mean=1.5, error=0.5, count=2, printed=1.4)
    """
    groups: dict[tuple[str, int, str, str], list[Result]] = {}
    for result in results:
        task = result.task
        settings = {k: v for k, v in task.settings.items() if k != OF_METHOD}
        common = {k: v for k, v in settings.items() if k != "max_train"}
        place = DATASETS.index(task.dataset) if task.dataset in DATASETS else len(DATASETS)
        heading = ", ".join([task.experiment, *(f"{k} {v}" for k, v in sorted(common.items()))])
        own = f"{task.dataset}\n{canonical_json(settings)}"
        groups.setdefault((heading, place, task.dataset, own), []).append(result)
    return [_block(key[0], key[2], groups[key]) for key in sorted(groups)]


def label(method: str) -> str:
    """Heading of a method's column.

    Examples
    --------
    >>> label("kuleshov18"), label("exact"), label("paper effort=2")
    ('RK', 'exact', 'ours effort=2')
    """
    name, *settings = method.split()
    return " ".join([METHODS.get(name, name), *settings])


def _block(heading: str, dataset: str, results: list[Result]) -> Block:
    results = sorted(results, key=lambda r: (_column(r.task.column), r.task.seed, r.task.key))
    cells: dict[str, dict[str, Cell]] = {}
    counts: dict[str, int] = {}
    notes: list[str] = []
    for method in dict.fromkeys(result.task.column for result in results):
        mine = [result for result in results if result.task.column == method]
        good = [result for result in mine if result.status == "ok"]
        failed = [result for result in mine if result.status != "ok"]
        names = [name for name in METRICS if good and name in good[0].metrics]
        cells[method] = {
            name: _cell(
                [r.metrics[name] for r in good], printed(dataset, mine[0].task.method, name)
            )
            for name in names
        }
        counts[method] = len(good)
        if failed:
            first = f"seed {failed[0].task.seed}: {failed[0].error}"
            notes.append(f"{label(method)} failed {len(failed)} of {len(mine)} times ({first})")
    if len(found := {str(r.info["data"]) for r in results if "data" in r.info}) > 1:
        notes.append(f"the results come from {len(found)} different copies of the data")
    own = [label(method) for method in _OWN_MODEL if method in cells]
    if own and results[0].task.settings.get("base") == "undertrained":
        notes.append(f"{' and '.join(own)} train their own models, not undertrained ones")
    return Block(heading, dataset, _sizes(results), cells, counts, tuple(notes))


def _column(method: str) -> tuple[int, str]:
    order = (*METHODS, *_BEYOND)
    name = method.split()[0]
    return (order.index(name) if name in order else len(order), method)


def _cell(values: list[float], figure: float | None) -> Cell:
    n = len(values)
    mean = math.fsum(values) / n
    spread = math.fsum((value - mean) ** 2 for value in values)
    error = math.sqrt(spread / (n - 1) / n) if n > 1 else math.nan
    return Cell(mean, error, n, figure)


def _sizes(results: list[Result]) -> str:
    info = next((result.info for result in results if "n_train" in result.info), None)
    if info is None:
        return ""
    training, available = info["n_train"], info["n_train_available"]
    of = f" of {available}" if available != training else ""
    return f"{training}{of} training, {info['n_cal']} calibration, {info['n_test']} test points"
