"""The default beside published figures, as a small chart."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sharpgp.plots.style import BLUE, GREY, INK, ORANGE, plain
from sharpgp_benchmarks.published_rows import OURS, ratios, score_of


def published_figure(found: pd.DataFrame, titles: Mapping[str, str]) -> Figure:
    """CRPS of ours relative to each method's: a panel for each table, a dot for each case.

    Parameters
    ----------
    found : DataFrame
        Of :func:`sharpgp_benchmarks.published_rows.read_results`.
    titles : mapping
        From the name of a table to what its panel is called.

    Examples
    --------
    >>> rows = [
    ...     ["uci", "yacht", 308, OURS, 0.1, 0.9, 1.0, 5],
    ...     ["uci", "yacht", 308, "b", 0.2, 0.8, 1.0, 5],
    ... ]
    >>> from sharpgp_benchmarks.published_rows import COLUMNS
    >>> figure = published_figure(pd.DataFrame(rows, columns=COLUMNS), {"uci": "UCI"})
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['b']
    """
    tables = list(dict.fromkeys(found["table"]))
    each = {table: ratios(found[found["table"] == table]) for table in tables}
    heights = [part["method"].nunique() + 1.2 for part in each.values()]
    figure = Figure(figsize=(7.2, 0.27 * sum(heights) + 0.9), layout="constrained")
    panels = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights)[:, 0]
    for ax, (table, part) in zip(panels, each.items(), strict=True):
        order = part.groupby("method")["ratio"].median().sort_values().index
        for k, method in enumerate(order):
            rows = part[part["method"] == method]
            colours = [BLUE if ratio < 1 else ORANGE for ratio in rows["ratio"]]
            ax.scatter(rows["ratio"], np.full(len(rows), k), s=16, c=colours, alpha=0.65, lw=0)
            ax.plot(2 * [rows["ratio"].median()], [k - 0.32, k + 0.32], color=INK, lw=1.6)
            if "coverage_90" in rows:
                cover = f"{100 * rows['coverage_90'].mean():.0f} %"
                ax.text(1.02, k, cover, transform=ax.get_yaxis_transform(), va="center", fontsize=8)
        score = score_of(found[found["table"] == table])
        share = "90" if score == "crps" else "95"
        ours = found[(found["table"] == table) & (found["method"] == OURS)]
        covers = 100 * ours[f"coverage_{share}"].mean()
        title = f"{titles.get(table, table)} (sharpgp covers {covers:.0f} % at {share} %)"
        plain(ax, title=title)
        if score == "crps":
            ax.text(
                1.02, -0.9, "covers", transform=ax.get_yaxis_transform(), fontsize=8, color=GREY
            )
        ax.axvline(1, color=GREY, lw=0.8)
        ax.set_yticks(range(len(order)), order, fontsize=9, color=INK)
        ax.set_ylim(len(order) - 0.4, -0.6)
        ax.set_xscale("log")
        ticks = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.4, 2]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.set_xlim(min(0.28, 0.95 * part["ratio"].min()), max(1.5, 1.05 * part["ratio"].max()))
    what = "CRPS" if score_of(found) == "crps" else "95 % interval score"
    panels[-1].set_xlabel(
        f"{what} of sharpgp relative to the method's; a dot per data set, a bar at the median",
        fontsize=9,
        color=INK,
    )
    return figure
