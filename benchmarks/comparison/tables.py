"""Tables of what the file of results holds: by data set, and what the sets have in common."""

from argparse import Namespace

import numpy as np
import pandas as pd

from comparison.methods import METHODS, OURS
from comparison.results import VALUES, read


def better_band(rows: pd.DataFrame) -> pd.DataFrame:
    """Of methods with two bands, the rows of the one with the better mean score on a data set."""
    groups = ["dataset", "method", "band"]
    best = rows.groupby(groups)["score"].mean().groupby(groups[:2]).idxmin()
    return rows[pd.MultiIndex.from_frame(rows[groups]).isin(best)]


def summarise(arguments: Namespace) -> None:
    """Print a table for each data set, and what they have in common."""
    rows = read(arguments.out)
    rows = rows[(rows["most"] == arguments.most) & (rows["seed"] < arguments.seeds)]
    methods = [m for m in METHODS if m in {*arguments.methods, "rk"}]
    rows = rows[rows["dataset"].isin(arguments.datasets) & rows["method"].isin(methods)]
    failed = rows[rows["error"].notna()].groupby(["dataset", "method"])["error"].agg(list)
    rows = better_band(rows[rows["error"].isna()])
    if arguments.brief:
        show_by_set(rows, methods)
    for name, group in () if arguments.brief else rows.groupby("dataset", sort=False):
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


def paired_with_rk(rows: pd.DataFrame) -> pd.DataFrame:
    """Means by method and data set, and of RK (``_rk``) on the seeds that the method has."""
    rk = rows[rows["method"] == "rk"]
    paired = rows.merge(rk, on=["dataset", "seed"], suffixes=("", "_rk"))
    by_method = paired.groupby(["method", "dataset"])
    means = by_method[VALUES + [f"{v}_rk" for v in VALUES]].mean()
    means["seeds"] = by_method.size()
    return means


def show_by_set(rows: pd.DataFrame, methods: list[str]) -> None:
    """Print a line for each data set: interval scores relative to RK's, coverages and seeds."""
    means = paired_with_rk(rows)
    columns = {}
    for method in [m for m in methods if m in means.index.unique("method")]:
        own = means.loc[method]
        columns[method, "score"] = (own["score"] / own["score_rk"]).map("{:.3f}".format)
        columns[method, "covers"] = own["coverage"].map("{:.1%}".format)
        columns[method, "seeds"] = own["seeds"].map("{:.0f}".format)
    table = pd.DataFrame(columns).loc[rows["dataset"].unique()].fillna("")
    table.index.name = None
    print(table.to_string())


def show_overall(rows: pd.DataFrame, methods: list[str]) -> None:
    """Print geometric means over data sets relative to RK on the same seeds, and coverages."""
    means = paired_with_rk(rows)
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
