"""How optimisations compare, from result files alone: ``sharpgp bench regret RESULTS``."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median, quantiles

import pandas as pd
from scipy.stats import rankdata, wilcoxon

from sharpgp_benchmarks.optimisation.methods import METHODS, OURS
from sharpgp_benchmarks.optimisation.problems import PROBLEMS
from sharpgp_benchmarks.task import Result

#: What ours are tested against.
RIVAL = "botorch_logei"
#: What methods are ranked by, with their headings.
RANKED = {
    "simple_regret": "simple regret",
    "area": "area",
    "cumulative_regret": "cumulative",
}
#: Below this, a difference over repetitions is called significant.
SIGNIFICANT = 0.05

#: Results by problem, method and seed.
Runs = Mapping[str, Mapping[str, Mapping[int, Result]]]


def collected(results: Iterable[Result]) -> Runs:
    """Runs of all methods, by problem, method and seed; those with the most iterations."""
    good = [r for r in results if r.task.experiment == "optimisation" and r.status == "ok"]
    length = max((r.task.settings["iterations"] for r in good), default=0)
    table: dict[str, dict[str, dict[int, Result]]] = {}
    for name in PROBLEMS:
        for method in METHODS:
            for r in good:
                same = r.task.dataset == name and r.task.method == method
                if same and r.task.settings["iterations"] == length:
                    table.setdefault(name, {}).setdefault(method, {})[r.task.seed] = r
    return table


def regrets_of(runs: Runs) -> dict[str, dict[str, list[list[float]]]]:
    """Regret of the best design point and of every point asked for, by problem and method."""
    return {
        problem: {
            method: [[r.info["start"], *r.info["regret"]] for _, r in sorted(by_seed.items())]
            for method, by_seed in methods.items()
        }
        for problem, methods in runs.items()
    }


def ranks(runs: Runs, metric: str) -> dict[str, float]:
    """Mean rank of each method, over repetitions and then over problems; 1 is best.

    Repetitions count where every method has one.

    Examples
    --------
    >>> from sharpgp_benchmarks.task import Task
    >>> runs = {
    ...     "branin": {
    ...         m: {0: Result(Task("optimisation", "branin", m, 0), "ok", {"area": v})}
    ...         for m, v in (("logei", 1.0), ("random", 2.0))
    ...     }
    ... }
    >>> {name: float(rank) for name, rank in ranks(runs, "area").items()}
    {'logei': 1.0, 'random': 2.0}
    """
    methods = everywhere(runs)
    by_problem: list[list[float]] = []
    for by_method in runs.values():
        seeds = set.intersection(*(set(by_method[m]) for m in methods))
        each = [rankdata([by_method[m][s].metrics[metric] for m in methods]) for s in seeds]
        if each:
            by_problem.append([fmean(column) for column in zip(*each, strict=True)])
    means = [fmean(column) for column in zip(*by_problem, strict=True)]
    return dict(zip(methods, means, strict=True))


def everywhere(runs: Runs) -> list[str]:
    """Methods that were run on every problem, in the order of the tables."""
    return [m for m in METHODS if runs and all(m in by_method for by_method in runs.values())]


def paired(
    ours: Mapping[int, Result], theirs: Mapping[int, Result], metric: str
) -> tuple[float, float, str]:
    """Median of the ratio, ours to theirs, over repetitions, its p-value, and the verdict.

    By Wilcoxon's signed-rank test, two-sided; ties of all give 1.  The verdict is "better" or
    "worse" where the p-value is below 5 %, and empty otherwise.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    a, b = ([run[s].metrics[metric] for s in seeds] for run in (ours, theirs))
    ratios = [x / y if y else 1.0 if x == y else float("inf") for x, y in zip(a, b, strict=True)]
    differ = [x - y for x, y in zip(a, b, strict=True)]
    p = float(wilcoxon(differ).pvalue) if any(differ) else 1.0
    ranked = rankdata([abs(x) for x in differ])
    balance = sum(rank * (x > 0) - rank * (x < 0) for rank, x in zip(ranked, differ, strict=True))
    verdict = "" if p >= SIGNIFICANT else "better" if balance < 0 else "worse"
    return median(ratios), p, verdict


def seconds_at(runs: Runs, method: str, last: int = 10) -> float:
    """Median seconds of a step, over the last steps of all runs."""
    return median(
        second
        for by_method in runs.values()
        for r in by_method[method].values()
        for second in r.info["seconds"][-last:]
    )


def compare(results: Iterable[Result]) -> str:
    """Ranks over problems, regrets by problem, and paired tests against BoTorch's LogEI."""
    runs = collected(results)
    if not runs:
        return ""
    parts = [_overall(runs)]
    parts += [_by_problem(runs, metric) for metric in RANKED]
    parts += [_tests(runs, metric) for metric in RANKED]
    return "\n\n".join(part for part in parts if part)


def _overall(runs: Runs) -> str:
    methods = everywhere(runs)
    table = pd.DataFrame(
        {name: pd.Series(ranks(runs, metric)) for metric, name in RANKED.items()}, index=methods
    ).map("{:.2f}".format)
    for name, metric in {"80 % covers": "coverage_80", "95 % covers": "coverage_95"}.items():
        table[name] = [_mean_over(runs, method, metric) for method in methods]
    table["s a step"] = [f"{seconds_at(runs, method):.2f}" for method in methods]
    counts = [len(next(iter(by_method.values()))) for by_method in runs.values()]
    note = f"{len(runs)} problems, {min(counts)} to {max(counts)} repetitions; mean rank, 1 is best"
    return f"{note}\n{table.to_string()}"


def _mean_over(runs: Runs, method: str, metric: str) -> str:
    each = [
        fmean(r.metrics[metric] for r in by_method[method].values())
        for by_method in runs.values()
        if all(metric in r.metrics for r in by_method[method].values())
    ]
    return f"{100 * fmean(each):.1f} %" if each else "-"


def _by_problem(runs: Runs, metric: str) -> str:
    table = {
        problem: {m: _band([r.metrics[metric] for r in by[m].values()]) for m in everywhere(runs)}
        for problem, by in runs.items()
    }
    return f"{RANKED[metric]}, median (quartiles)\n{_text(table)}"


def _band(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.3g}"
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return f"{middle:.3g} ({low:.2g} to {high:.2g})"


def _tests(runs: Runs, metric: str) -> str:
    """Wilcoxon's test of each of ours against the rival, problem by problem, and a count."""
    ours = [m for m in everywhere(runs) if m.split("_")[0] in OURS]
    if RIVAL not in everywhere(runs) or not ours:
        return ""
    table: dict[str, dict[str, str]] = {}
    verdicts: dict[str, list[str]] = {method: [] for method in ours}
    for problem, by_method in runs.items():
        for method in ours:
            ratio, p, verdict = paired(by_method[method], by_method[RIVAL], metric)
            verdicts[method].append(verdict)
            cell = f"x {ratio:.2g}, p {p:.2g} {verdict}".rstrip()
            table.setdefault(problem, {})[method] = cell
    table[f"of {len(runs)}, p < {SIGNIFICANT:g}"] = {
        m: f"{verdicts[m].count('better')} better, {verdicts[m].count('worse')} worse" for m in ours
    }
    return f"{RANKED[metric]} against {RIVAL}\n{_text(table)}"


def _text(table: Mapping[str, Mapping[str, str]]) -> str:
    return str(pd.DataFrame.from_dict(table, orient="index").to_string())
