"""More rows never hurt: the default from few rows to many, on the same test rows.

A problem's rows are drawn once: each rung has the rows of the one before, and further ones. Ratios
are of a rung's CRPS and the lowest before it, so above 1 more rows have hurt. Times are processor
seconds on a CPU, wall-clock seconds on a GPU.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sharpgp import SharpGPRegressor, metrics
from sharpgp.plots.style import GREY, INK, plain
from sharpgp_benchmarks.evidence.common import GENERATED, Clock, numbers, sets
from sharpgp_benchmarks.evidence.run import header, measured, out_folder, row

COLUMNS = ("CRPS", "ratio", "95 % score", "covers 90", "covers 95", "fit, s", "1,000 rows, s")
#: Rows of a generated problem.
MOST = 110_000
Rows = tuple[np.ndarray, np.ndarray]


def draw(name: str, n: int, n_test: int, seed: int, data_home: str | None) -> tuple[Rows, Rows]:
    """The first ``n`` training rows, and test rows that are the same for every ``n``."""
    if name in GENERATED:
        X, y = GENERATED[name](MOST, seed)
    else:
        (data,) = sets(name, data_home)
        order = np.random.default_rng(seed).permutation(len(data.y))
        X, y = data.X[order], data.y[order]
    return (X[n_test:][:n], y[n_test:][:n]), (X[:n_test], y[:n_test])


def case(
    name: str, n: int, seed: int, n_test: int, device: str, data_home: str | None, base: str
) -> list[float]:
    """CRPS, 95 % score, coverages of 90 and 95 %, seconds of the fit and of 1,000 test rows."""
    (X, y), (X_test, y_test) = draw(name, n, n_test, seed, data_home)
    with Clock(device) as fitting:
        model = SharpGPRegressor(base=base, random_state=seed, device=device).fit(X, y)
    with Clock(device) as predicting:
        model.predict_interval(X_test)
    law = model.predict_dist(X_test)
    ends = {level: law.interval(level) for level in (0.9, 0.95)}
    cover = [metrics.interval_coverage(y_test, *pair.T) for pair in ends.values()]
    score = metrics.interval_score(y_test, *ends[0.95].T, 0.95)
    used = [clock.wall if device == "cuda" else clock.cpu for clock in (fitting, predicting)]
    return [float(np.mean(law.crps(y_test))), score, *cover, used[0], 1000 * used[1] / len(y_test)]


def main(
    data: str = "robot arm,smooth 8d,simulated,rough,heteroscedastic",
    rows: str = "300,600,1000,1400,2000,3000,5000,10000,15000,30000,100000",
    repeats: int = 1,
    test_rows: int = 2000,
    device: str = "cpu",
    base: str = "auto",
    workers: int = 1,
    data_home: str | None = None,
) -> None:
    """Print the table, and draw it beside the results where there is a folder for them."""
    names, rungs = data.split(","), sorted(numbers(rows))
    tasks = [
        (name, n, seed, test_rows, device, data_home, base)
        for n in rungs
        for name in names
        for seed in range(repeats)
    ]
    answers = measured(case, tasks, workers=workers)
    means = {
        key: np.mean([a for a, t in zip(answers, tasks, strict=True) if t[:2] == key], axis=0)
        for key in dict.fromkeys(task[:2] for task in tasks)
    }
    header("problem", "rows", *COLUMNS)
    lines = []
    for name in names:
        lowest = np.inf
        for n in rungs:
            crps, score, *cover, fit, predict = means[name, n]
            ratio = crps / lowest if np.isfinite(lowest) else 1.0
            lowest = min(lowest, crps)
            shown = [f"{crps:.4g}", f"{ratio:.3f}", f"{score:.4g}"]
            shown += [f"{100 * share:.1f}" for share in cover]
            row(name, n, *shown, f"{fit:.1f}", f"{predict:.2f}")
            lines.append([name, n, crps, *cover, fit])
    found = pd.DataFrame(lines, columns=["problem", "rows", "crps", "cover_90", "cover_95", "fit"])
    if (folder := out_folder()) is not None:
        ladder_figure(found).savefig(folder / "ladder.svg")


def ladder_figure(found: pd.DataFrame) -> Figure:
    """CRPS relative to the fewest rows, coverage and seconds, by the number of rows."""
    figure = Figure(figsize=(9.0, 2.9), layout="constrained")
    panels = figure.subplots(1, 3)
    for name, part in found.groupby("problem", sort=False):
        rows = part["rows"]
        panels[0].plot(rows, part["crps"] / part["crps"].iloc[0], marker="o", ms=3, label=name)
        for level, style in ((90, "--"), (95, "-")):
            (line,) = panels[1].plot(rows, 100 * part[f"cover_{level}"], style, marker="o", ms=3)
            line.set_color(panels[0].lines[-1].get_color())
        panels[2].plot(rows, part["fit"], marker="o", ms=3)
    for level in (90, 95):
        panels[1].axhline(level, color=GREY, lw=0.8)
    plain(panels[0], title="CRPS, relative to the fewest rows")
    plain(panels[1], title="covered of 90 and 95 %")
    plain(panels[2], title="processor seconds of a fit")
    panels[0].set_yscale("log")
    panels[2].set_yscale("log")
    panels[0].legend(frameon=False, fontsize=7, labelcolor=INK)
    for ax in panels:
        ax.set_xscale("log")
        ax.set_xlabel("rows", fontsize=9, color=INK)
    return figure
