"""Tables of the comparison: by data set, and what the sets have in common, relative to RK."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from sharpgp.exceptions import InvalidInputError
from sharpgp_benchmarks.peers.methods import METHODS, OURS
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.task import Result

# Metrics of an interval by the columns that they fill: 95 % without a suffix, then 90 %.
INTERVALS = {
    "width": "width_95",
    "coverage": "coverage_95",
    "score": "interval_score_95",
    "width_90": "width_90",
    "coverage_90": "coverage_90",
    "score_90": "interval_score_90",
}
VALUES = [*INTERVALS, "crps", "seconds"]
SIZES = ["n_train", "n_cal", "n_test"]
COLUMNS = ["dataset", "most", "seed", "method", "band", *SIZES, *VALUES, "error"]


def read(path: Path) -> pd.DataFrame:
    """A row per task and band, from a folder of results or from a file that ``as_csv`` wrote."""
    if path.is_file():
        known = pd.read_csv(path, dtype={"error": str, "band": str})
        return known.reindex(columns=COLUMNS)  # files may be from before 90 % was measured
    found = [row for result in Store(path).results() for row in rows_of(result)]
    return pd.DataFrame(found, columns=COLUMNS)


def rows_of(result: Result) -> Iterable[dict[str, object]]:
    """A row per band of a result; one with the error of a failed task."""
    task, found = result.task, result.metrics
    if task.experiment != "peers":
        return
    common: dict[str, object] = {"dataset": task.dataset, "most": task.settings["most"]}
    common |= {"seed": task.seed, "method": task.method, "error": result.error}
    if result.status != "ok":
        yield common
        return
    common |= {name: result.info[name] for name in SIZES}
    common |= {name: found.get(name) for name in ("crps", "seconds")}
    two = "width_95_symmetric" in found
    bands = {"symmetric": "_symmetric", "centred": ""} if two else {"default": ""}
    for band, suffix in bands.items():
        values = {column: found.get(metric + suffix) for column, metric in INTERVALS.items()}
        yield common | {"band": band} | values


def as_csv(rows: pd.DataFrame) -> str:
    """All rows, for a file that :func:`read` takes in place of the folder."""
    text = io.StringIO()
    rows.to_csv(text, index=False, float_format="%.6g", quoting=csv.QUOTE_MINIMAL)
    return text.getvalue()


def render(
    rows: pd.DataFrame,
    names: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    most: int = 2000,
    repeats: int | None = None,
    brief: bool = False,
) -> str:
    """A table for each data set, and what they have in common.

    Parameters
    ----------
    rows : DataFrame
        Of :func:`read`.
    names, methods : sequence of str, optional
        Data sets and methods to show; all without it.
    most : int
        Only results with at most so many training rows.
    repeats : int, optional
        Only the first so many seeds.
    brief : bool
        One line for each data set in place of its table.
    """
    rows = rows[rows["most"] == most]
    shown = [m for m in METHODS if methods is None or m in {*methods, "rk"}]
    rows = rows[rows["method"].isin(shown)]
    if repeats is not None:
        rows = rows[rows["seed"] < repeats]
    if names is not None:
        rows = rows[rows["dataset"].isin(names)]
    if rows.empty:
        raise InvalidInputError("results: expected some of sharpgp bench peers, found none")
    failed = rows[rows["error"].notna()].groupby(["dataset", "method"])["error"].agg(list)
    rows = better_band(rows[rows["error"].isna()])
    out = [_by_set(rows, shown)] if brief else []
    for name, group in () if brief else rows.groupby("dataset", sort=False):
        sizes = group[SIZES].iloc[0].astype(int).tolist()
        out.append("\n{}: {} training, {} calibration, {} test rows".format(name, *sizes))
        by_method = group.groupby("method")
        table = by_method[VALUES].mean()
        table["seeds"], table["band"] = by_method.size(), by_method["band"].first()
        out.append(_formatted(table, shown))
    for (name, method), errors in failed.items():
        out.append(f"{name}: {method} failed {len(errors)} times, first with {errors[0]}")
    if "rk" in set(rows["method"]):
        out += _overall(rows, shown)
    return "\n".join(out) + "\n"


def better_band(rows: pd.DataFrame) -> pd.DataFrame:
    """Of methods with two bands, the rows of the one with the better mean score on a data set."""
    groups = ["dataset", "method", "band"]
    best = rows.groupby(groups)["score"].mean().groupby(groups[:2]).idxmin()
    return rows[pd.MultiIndex.from_frame(rows[groups]).isin(best)]


def _paired_with_rk(rows: pd.DataFrame) -> pd.DataFrame:
    """Means by method and data set, and of RK (``_rk``) on the seeds that the method has."""
    rk = rows[rows["method"] == "rk"]
    paired = rows.merge(rk, on=["dataset", "seed"], suffixes=("", "_rk"))
    by_method = paired.groupby(["method", "dataset"])
    means = by_method[VALUES + [f"{v}_rk" for v in VALUES]].mean()
    means["seeds"] = by_method.size()
    return means


def _by_set(rows: pd.DataFrame, methods: list[str]) -> str:
    """A line for each data set: score (95 %) and CRPS relative to RK's, coverages and seeds."""
    means = _paired_with_rk(rows)
    means["score"], means["crps"] = (
        means["score"] / means["score_rk"],
        means["crps"] / means["crps_rk"],
    )
    shown = {"score": "{:.3f}", "crps": "{:.3f}", "coverage": "{:.1%}", "coverage_90": "{:.1%}"}
    shown |= {"seeds": "{:.0f}"}
    titles = {"coverage": "95 %", "coverage_90": "90 %"}
    columns = {
        (method, titles.get(value, value)): means.loc[method, value].map(form.format)
        for method in methods
        if method in means.index.unique("method")
        for value, form in shown.items()
        if means.loc[method, value].notna().any()
    }
    table = pd.DataFrame(columns).loc[rows["dataset"].unique()].fillna("")
    table.index.name = None
    return str(table.to_string())


def _overall(rows: pd.DataFrame, methods: list[str]) -> Iterable[str]:
    """Geometric means over data sets relative to RK on the same seeds, and coverages."""
    means = _paired_with_rk(rows)
    by_method = means.groupby("method")
    ratios = ("width", "score", "width_90", "score_90", "crps", "seconds")
    logs = pd.DataFrame({v: np.log(means[v] / means[f"{v}_rk"]) for v in ratios})
    table = np.exp(logs.groupby("method").mean())
    table.insert(2, "worst", np.exp(logs["score"].groupby("method").max()))
    for level in ("", "_90"):
        shares = by_method[f"coverage{level}"]
        table[f"coverage{level}"] = shares.mean()
        table[f"lowest{level}"], table[f"highest{level}"] = shares.min(), shares.max()
    table["sets"] = by_method.size()
    yield (
        "\nGeometric means over data sets, relative to RK on the same seeds, and the worst set's "
        "score; mean coverage"
    )
    yield _formatted(table, methods)
    mine = ("default", "default-rounded", "exact", "cv")
    for method in [m for m in mine if m in set(rows["method"])]:
        yield from _against_peers(rows, method)


def _against_peers(rows: pd.DataFrame, mine: str) -> Iterable[str]:
    """On how many sets a method is below every peer, each on the seeds that both have."""
    own = rows[rows["method"] == mine][["dataset", "seed", "score"]]
    both = rows[~rows["method"].isin(OURS)].merge(
        own, on=["dataset", "seed"], suffixes=("", "_own")
    )
    if not len(both):
        return
    means = both.groupby(["dataset", "method"])[["score", "score_own"]].mean()
    ratio = (means["score_own"] / means["score"]).unstack("dataset")
    lost = [f"{n} (to {ratio[n].idxmax()})" for n in ratio if ratio[n].max() > 1]
    won = f"on {ratio.shape[1] - len(lost)} of {ratio.shape[1]} sets"
    yield f"{mine}: interval score below every peer's " + "; not on ".join([won, *lost])
    against = np.exp(np.log(ratio).mean(axis=1)).sort_values(ascending=False)
    yield "  relative to each: " + ", ".join(f"{name} {v:.2f}" for name, v in against.items())


def _formatted(table: pd.DataFrame, methods: list[str]) -> str:
    """A table with the methods in their usual order, without columns of which nothing is known."""
    shares = ("coverage", "lowest", "highest")
    formats = {f"{name}{level}": "{:.1%}".format for name in shares for level in ("", "_90")}
    formats |= {"seconds": "{:.2f}".format, "crps": "{:.4f}".format}
    table = table.loc[[m for m in methods if m in table.index]].dropna(axis=1, how="all")
    table.index.name = None
    return str(table.to_string(formatters=formats, float_format="{:.3f}".format))
