"""Figures of optimisations, from result files alone."""

from pathlib import Path

from sharpgp.exceptions import InvalidInputError
from sharpgp.experiments.store import Store, writable

#: Names of the methods in the legend, in this order.
LABELS = {
    "calibrated": "calibrated UCB",
    "recalibrated": "calibrated, every 10",
    "ucb": "UCB",
    "ucb_retrained": "UCB, every 10",
    "logei": "LogEI",
    "random": "random",
}
#: Functions in the order of the rows; the first two are the paper's figure.
ORDER = ("ackley", "rosenbrock", "branin", "hartmann6")


def regrets_of(results: str | Path) -> dict[str, dict[str, list[list[float]]]]:
    """Regret of every point that was asked for, by function, method and repetition."""
    found: dict[tuple[str, str], list[tuple[int, list[float]]]] = {}
    for result in Store(results).results():
        task = result.task
        if task.experiment == "bo" and result.status == "ok":
            found.setdefault((task.dataset, task.method), []).append(
                (task.seed, result.info["regret"])
            )
    table: dict[str, dict[str, list[list[float]]]] = {}
    for function in ORDER:
        for method in LABELS:
            if runs := found.get((function, method)):
                length = max(len(run) for _, run in runs)
                kept = [run for _, run in sorted(runs) if len(run) == length]
                table.setdefault(function, {})[method] = kept
    return table


def draw(results: str | Path, out: Path) -> list[str]:
    """Write ``bo_regret.png``: cumulative and simple regret, one row per function."""
    from sharpgp import plots

    regrets = regrets_of(results)
    if not regrets:
        raise InvalidInputError(
            f"results: expected a folder with optimisations, found none in {results}; "
            "run sharpgp bench bo first"
        )
    writable(out)
    plots.regret_figure(regrets, LABELS).savefig(out / "bo_regret.png", dpi=150)
    return ["bo_regret.png"]
