"""The demonstration: every method on two small problems: a table, two figures and a report."""

import csv
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_diabetes

from sharpgp import _progress as progress
from sharpgp import metrics, plots
from sharpgp._extras import METHODS, entry_point_names
from sharpgp._files import make_folder
from sharpgp.calibration import Calibrated, known_methods
from sharpgp.calibration.recalibrator import make_recalibrator
from sharpgp.diagnostics import diagnose
from sharpgp.exceptions import CalibrationWarning, SharpGPError
from sharpgp.gp.compute import threads_for
from sharpgp.gp.training import train
from sharpgp.report import render_report
from sharpgp.toy import Split, make_toy, split

_ORDER = (
    "vanilla",
    "kuleshov18",
    "vovk20",
    "marx22",
    "paper",
    "exact",
    "cv+",
    "cv",
)
_LEVELS = metrics.ECE_LEVELS[1:-1]
#: Metric, heading and format of each column of the table.
_COLUMNS = {
    "ece": ("ECE", "ece"),
    "ece_floor": ("floor", "ece"),
    "std": ("STD", ".3f"),
    "nll": ("NLL", ".3f"),
    "width_95": ("width", ".3f"),
    "coverage_95": ("coverage", ".1%"),
    "interval_score_95": ("score", ".3f"),
    "crps": ("CRPS", ".3f"),
    "seconds": ("seconds", ".2f"),
}
READING = (
    "ECE and its floor are in thousandths; width, coverage and interval score are those of 95 % "
    "intervals; seconds are for calibration alone. A perfect predictor's ECE is at the floor, not "
    "at zero, and a width means nothing without its coverage: interval score and CRPS weigh the "
    "two, and smaller is better. The paper's mode can be sharper because it also chooses the "
    "kernel on the calibration points; for the same reason it tends to cover less than it says "
    "when they are few, by one or two points at 95 %."
)


@dataclass
class Problem:
    """One data set: its splits, and what was found on them."""

    name: str
    splits: list[Split]
    #: Metrics by method, one report per split.
    reports: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    #: Predictors on the first split, by method.
    first: dict[str, Calibrated] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None

    @property
    def title(self) -> str:
        """Name and sizes."""
        one = self.splits[0]
        sizes = f"{len(one.y_train)} training, {len(one.y_cal)} calibration, {len(one.y_test)} test"
        return f"{self.name}: mean of {len(self.splits)} splits into {sizes} points"

    def means(self) -> dict[str, dict[str, float]]:
        """Metrics by method, averaged over the splits."""
        return {
            method: {key: float(np.mean([r[key] for r in reports])) for key in reports[0]}
            for method, reports in self.reports.items()
        }


def methods(everything: bool = False) -> list[str]:
    """Names of the methods to compare: the library's own, or also those of other distributions.

    Examples
    --------
    >>> methods()[0]
    'vanilla'
    """
    others = () if everything else entry_point_names(METHODS)
    chosen = [name for name in known_methods() if name not in others]
    return sorted(chosen, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


def problems() -> list[Problem]:
    """The toy problem and scikit-learn's diabetes data, targets in standard deviations.

    Examples
    --------
    >>> [problem.name for problem in problems()]
    ['toy', 'diabetes']
    """
    diabetes = load_diabetes()
    y = diabetes.target / diabetes.target.std()
    return [
        Problem("toy", [make_toy(random_state=seed) for seed in range(3)]),
        Problem(
            "diabetes",
            [split(diabetes.data, y, random_state=seed) for seed in range(2)],
            feature_names=tuple(diabetes.feature_names),
        ),
    ]


def compare(problem: Problem, chosen: list[str]) -> Iterator[str]:
    """Calibrate one base model per split with every method; yields the name of each step."""
    for seed, part in enumerate(problem.splits):
        yield "base GP"
        posterior, _ = train(torch.from_numpy(part.X_train), torch.from_numpy(part.y_train))
        for method in chosen:
            yield method
            start = time.perf_counter()
            try:
                recalibrator = make_recalibrator(method, random_state=seed)
                calibrated = recalibrator.fit(posterior, part.X_cal, part.y_cal)
            except SharpGPError as error:
                problem.failures[method] = str(error)
                continue
            seconds = time.perf_counter() - start
            report = {**calibrated.calibration_report(part.X_test, part.y_test), "seconds": seconds}
            problem.reports.setdefault(method, []).append(report)
            problem.first.setdefault(method, calibrated)


def run(out: Path, *, console: Console, quiet: bool = False, everything: bool = False) -> None:
    """Run the demonstration: tables on ``console``, files in the folder ``out``.

    Parameters
    ----------
    out : Path
        Created if missing; gets ``results.csv``, ``results.md``, ``toy_intervals.png``,
        ``reliability.png`` and ``report.html``.
    console : rich Console
    quiet : bool
        No progress display; there is none without a terminal, either.
    everything : bool
        Include methods of other distributions.
    """
    make_folder(out)
    start, chosen, compared = time.perf_counter(), methods(everything), problems()
    steps = sum(len(problem.splits) for problem in compared) * (1 + len(chosen))
    with progress.show_progress(-1 if quiet else 1), _quiet(), threads_for(0):
        progress.start_phase("comparing", "step", steps)
        for problem in compared:
            for step in compare(problem, chosen):
                progress.name_step(f"{problem.name}: {step}")
                progress.advance()
    for problem in compared:
        console.print(_table(problem), "")
        for method, reason in problem.failures.items():
            console.print(f"{method}: not run on {problem.name} ({reason})", markup=False)
    console.print(READING, "")
    with _quiet(), threads_for(0):
        written = _write(out, compared)
    console.print(f"Wrote {', '.join(written)} to {out}/", markup=False, soft_wrap=True)
    console.print(f"Took {time.perf_counter() - start:.0f} s", highlight=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings about levels beyond the calibration points: the table shows them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        yield


def _cells(method: str, mean: Mapping[str, float]) -> list[str]:
    return [method, *(_shown(mean[key], form) for key, (_, form) in _COLUMNS.items())]


def _shown(value: float, form: str) -> str:
    return f"{1e3 * value:.2f}" if form == "ece" else format(value, form)


def _headings() -> list[str]:
    return ["method", *(heading for heading, _ in _COLUMNS.values())]


def _table(problem: Problem) -> Table:
    table = Table(title=problem.title, title_justify="left", title_style="bold", box=None)
    for heading in _headings():
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for method, mean in problem.means().items():
        table.add_row(*_cells(method, mean))
    return table


def _write(out: Path, compared: list[Problem]) -> list[str]:
    with (out / "results.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [
            {"data": problem.name, "method": method, "splits": len(problem.reports[method]), **mean}
            for problem in compared
            for method, mean in problem.means().items()
        ]
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = []
    for problem in compared:
        lines += [f"## {problem.title}", "", *_markdown(problem), ""]
    (out / "results.md").write_text("\n".join([*lines, READING, ""]), encoding="utf-8")
    toy = compared[0]
    plots.toy_figure(toy.first, toy.splits[0]).savefig(out / "toy_intervals.png", dpi=150)
    _reliability_figure(compared).savefig(out / "reliability.png", dpi=150)
    (out / "report.html").write_text(_report(compared[-1]), encoding="utf-8")
    return ["results.csv", "results.md", "toy_intervals.png", "reliability.png", "report.html"]


def _report(problem: Problem) -> str:
    """The calibration report of ``cv`` on the first split; if it failed, of the last method."""
    part, method = problem.splits[0], "cv" if "cv" in problem.first else list(problem.first)[-1]
    found = diagnose(
        problem.first[method],
        part.X_test,
        part.y_test,
        feature_names=problem.feature_names,
        method=method,
    )
    return render_report(found, title=f"Calibration report: {problem.name}")


def _markdown(problem: Problem) -> list[str]:
    headings = _headings()
    rows = [headings, ["---", *["--:"] * (len(headings) - 1)]]
    rows += [_cells(method, mean) for method, mean in problem.means().items()]
    return [f"| {' | '.join(row)} |" for row in rows]


def _reliability_figure(compared: list[Problem]) -> Figure:
    figure = Figure(figsize=(4.2 * len(compared), 4.4), layout="constrained")
    for ax, problem in zip(np.atleast_1d(figure.subplots(1, len(compared))), compared, strict=True):
        part = problem.splits[0]
        for i, (method, calibrated) in enumerate(problem.first.items()):
            plots.reliability(
                ax,
                part.y_test,
                calibrated.predict_quantiles(part.X_test, _LEVELS).numpy(),
                _LEVELS,
                len(part.y_cal),
                label=method,
                color=plots.CYCLE[i % len(plots.CYCLE)],
                band=i == 0,
            )
        sizes = f"{len(part.y_cal)} calibration, {len(part.y_test)} test points"
        ax.set_title(problem.name, loc="left", fontsize=10, fontweight="bold", color=plots.INK)
        ax.set_title(sizes, loc="right", fontsize=9, color=plots.GREY)
    figure.axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure
