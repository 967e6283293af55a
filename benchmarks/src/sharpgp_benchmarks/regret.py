"""Figures and comparisons of optimisations, from result files alone.

``sharpgp bench table RESULTS --figures FOLDER`` draws the figure, ``sharpgp bench regret RESULTS``
prints the comparison.
"""

from pathlib import Path
from statistics import median, quantiles

from sharpgp._files import make_folder
from sharpgp.exceptions import InvalidInputError
from sharpgp_benchmarks.optimisation import tables
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.task import Result

#: Names of the methods in the legend, in this order.
LABELS = {
    "calibrated": "calibrated UCB",
    "calibrated_1": "calibrated, factor 1",
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
    """Write cumulative and simple regret, one row per function.

    ``bo_regret.png`` is of the paper's protocol, ``optimisation_regret.png`` of optimisations from
    small designs, each where there are results of it.
    """
    from sharpgp_benchmarks.regret_figure import regret_figure

    small = tables.regrets_of(tables.collected(Store(results).results()))
    found = {
        "bo_regret.png": (regrets_of(results), LABELS),
        "optimisation_regret.png": (small, None),
    }
    drawn = [name for name, (regrets, _) in found.items() if regrets]
    if not drawn:
        raise InvalidInputError(
            f"results: expected a folder with optimisations, found none in {results}; "
            "run sharpgp bench bo first"
        )
    make_folder(out)
    for name in drawn:
        regret_figure(*found[name]).savefig(out / name, dpi=150)
    return drawn


#: Methods that differ in the bound alone.
PAIRS = (
    ("calibrated", "ucb"),
    ("calibrated_1", "ucb"),
    ("recalibrated", "ucb_retrained"),
    ("recalibrated", "calibrated"),
)


def compare(results: str | Path) -> str:
    """Repetition by repetition: how often one method's regret is below another's, and by how much.

    Also what the calibrated bounds were at the end of each run: ``beta`` and their lengthscales,
    relative to those of the base GP, as quartiles over repetitions.

    Examples
    --------
    >>> import tempfile
    >>> from sharpgp_benchmarks.task import Task
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder).prepare()
    ...     for method, regret in (("calibrated", [1.0, 1.0]), ("ucb", [2.0, 1.0])):
    ...         task = Task("bo", "ackley", method, 0, {"iterations": 2})
    ...         store.write(Result(task, "ok", info={"regret": regret}))
    ...     print(compare(folder))
    ackley: calibrated against ucb, 1 repetition(s)
      cumulative regret lower in 1, equal in 0, median ratio 0.667
      simple regret     lower in 0, equal in 1, median ratio 1
    """
    runs: dict[tuple[str, str], dict[int, Result]] = {}
    for result in Store(results).results():
        if result.task.experiment == "bo" and result.status == "ok":
            key = result.task.dataset, result.task.method
            runs.setdefault(key, {})[result.task.seed] = result
    lines = []
    for function in ORDER:
        for ours, theirs in PAIRS:
            first, second = (runs.get((function, name), {}) for name in (ours, theirs))
            seeds = sorted(first.keys() & second.keys())
            if not seeds:
                continue
            lines.append(f"{function}: {ours} against {theirs}, {len(seeds)} repetition(s)")
            for what, measure in (("cumulative", sum), ("simple", min)):
                a, b = ([measure(run[s].info["regret"]) for s in seeds] for run in (first, second))
                lower = sum(x < y for x, y in zip(a, b, strict=True))
                equal = sum(x == y for x, y in zip(a, b, strict=True))
                ratio = median(x / y for x, y in zip(a, b, strict=True))
                lines.append(
                    f"  {what + ' regret':17} lower in {lower}, equal in {equal}, "
                    f"median ratio {ratio:.3g}"
                )
        for method in ("calibrated", "recalibrated"):
            facts = [run.info for run in runs.get((function, method), {}).values()]
            facts = [info for info in facts if "beta" in info]
            if len(facts) > 1:
                shown = [
                    "{:.2g}, {:.2g}, {:.2g}".format(*quantiles([i[key] for i in facts], n=4))
                    for key in ("beta", "lengthscale_ratio")
                ]
                lines.append(
                    f"  {method}: quartiles of beta {shown[0]}; of lengthscales, relative to the "
                    f"base GP's, {shown[1]}"
                )
    small = tables.compare(Store(results).results())
    return "\n".join([*lines, *([small] if small else [])])
