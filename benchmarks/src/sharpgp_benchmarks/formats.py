"""Blocks of results as pandas tables: plain text, Markdown, LaTeX, HTML and CSV."""

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import pandas as pd

from sharpgp._validation import check_choice
from sharpgp.exceptions import InvalidInputError
from sharpgp_benchmarks.published import REFERENCE
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.tables import METRICS, Block, Cell, label, summarise

#: How to read the tables, by experiment; that of regressions for those without an entry.
READING = {
    "regression": (
        "Mean ± standard error over repetitions; rows 'in print' repeat the figures of table 1 in "
        f"{REFERENCE}. 95 % CI is the centred interval between the quantiles 0.025 and 0.975, "
        "coverage the share of test points in it; 95 % band is the symmetric one from absolute "
        "z-scores. Widths are in standard deviations of the target (kin8nm: in its units). A "
        "perfectly calibrated predictor's ECE is at the floor on average, not at zero."
    ),
    "bounds": (
        "Mean ± standard error over repetitions; rows 'in print' repeat the figures of the "
        f"supplement of {REFERENCE}. The 100 % interval of a calibrated method lies between the "
        "quantiles at the outermost ranks 1 and C of its calibration scores, so that a new point "
        "lies outside with probability 2/(C+1); that of a uniform bound is its band that holds at "
        "all test points at once with probability 0.99. Lengths are in standard deviations of the "
        "target. Rows 'theorem' have the rigorous factors, which are 1 in practice."
    ),
    "peers": (
        "Mean ± standard error over repetitions, in standard deviations of the target. Of methods "
        "with two intervals, 95 % CI is the centred one and 95 % band the symmetric one; of the "
        "others, 95 % CI is their default. sharpgp bench peers-table relates all of it to RK."
    ),
    "bo": (
        "Mean ± standard error over repetitions, after so many iterations or after all. Simple "
        "regret is the distance of the best point asked for from the maximum, cumulative regret "
        "the sum of the distances of all; the initial design, the same for all methods, does not "
        "count."
    ),
}
_COLUMNS = [
    "setting", "dataset", "sizes", "method", "metric",
    "mean", "standard_error", "repetitions", "in_print",
]  # fmt: skip


# ------------------------------------------------------------------ tables of text


def markdown(frame: pd.DataFrame) -> str:
    """A table in Markdown; pandas' own needs a further package.

    Examples
    --------
    >>> print(markdown(pd.DataFrame({"width": ["1.5"]}, index=["boston"])))
    |  | width |
    | --- | --: |
    | boston | 1.5 |
    """
    head = [[frame.index.name or "", *frame.columns], ["---", *["--:"] * frame.shape[1]]]
    lines = [*head, *frame.reset_index().to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def html(frame: pd.DataFrame) -> str:
    """A table in HTML that scrolls where it is wide; rows of printed figures have a class."""
    text = frame.to_html(border=0, na_rep="", classes="numbers")
    text = text.replace('<tr style="text-align: right;">', "<tr>")
    lines = text.split("<tr>\n")
    kinds = ('<tr class="print">\n' if " in print</th>" in line else "<tr>\n" for line in lines[1:])
    rows = (kind + line for kind, line in zip(kinds, lines[1:], strict=True))
    return f'<div class="wide">{lines[0]}{"".join(rows)}</div>'


def frame_of(block: Block) -> pd.DataFrame:
    """A row for each metric, then one of printed figures where there are some; methods across."""
    rows: dict[str, list[str]] = {}
    for metric in block.metrics:
        name, factor = METRICS[metric]
        cells = [row.get(metric) for row in block.cells.values()]
        rows[name] = [_shown(cell, factor) for cell in cells]
        figures = [None if cell is None else cell.printed for cell in cells]
        if any(figure is not None for figure in figures):
            shown = ["" if figure is None else f"{figure * factor:.3g}" for figure in figures]
            rows[f"{name.split(' x ')[0]} in print"] = shown
    rows["repetitions"] = [str(block.counts.get(method, "")) for method in block.cells]
    columns = [label(method) for method in block.cells]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def _shown(cell: Cell | None, factor: float) -> str:
    """Two digits of the standard error, and as many decimals of the mean."""
    if cell is None:
        return ""
    mean, error = cell.mean * factor, cell.error * factor
    if not error > 1e-9 * abs(mean):  # one repetition, or a constant
        return f"{mean:.3g}"
    if mean >= 1e7:
        return f"{mean:.1e} ± {error:.0e}"
    decimals = min(max(1 - math.floor(math.log10(error)), 0), 4)
    return f"{mean:.{decimals}f} ± {error:.{decimals}f}"


# ------------------------------------------------------------------ forms of a run


def as_text(blocks: Sequence[Block]) -> str:
    """Columns for a terminal."""

    def table(block: Block) -> str:
        notes = [f"note: {note}" for note in block.notes]
        return "\n".join([caption(block), frame_of(block).to_string(), *notes, ""])

    return _in_sections(blocks, lambda heading: f"{heading}\n{'=' * len(heading)}\n", table)


def as_md(blocks: Sequence[Block]) -> str:
    """Markdown, one table per data set."""

    def table(block: Block) -> str:
        notes = [f"Note: {note}\n" for note in block.notes]
        return "\n".join([f"**{caption(block)}**\n", f"{markdown(frame_of(block))}\n", *notes])

    return _in_sections(blocks, lambda heading: f"## {heading.capitalize()}\n", table)


def as_latex(blocks: Sequence[Block]) -> str:
    """LaTeX with booktabs, one table per data set."""

    def table(block: Block) -> str:
        notes = [f"% {note}" for note in block.notes]
        frame = frame_of(block)
        text = frame.to_latex(escape=True, column_format="l" + "r" * frame.shape[1])
        return "\n".join([f"% {caption(block)}", text.replace("±", r"$\pm$").rstrip(), *notes, ""])

    return _in_sections(blocks, lambda heading: f"% {heading}", table, "% ")


def _in_sections(
    blocks: Sequence[Block],
    title: Callable[[str], str],
    table: Callable[[Block], str],
    comment: str = "",
) -> str:
    parts = []
    for heading, group in groupby(blocks, key=lambda block: block.heading):
        parts += [title(heading), *map(table, group)]
    return "\n".join([*parts, f"{comment}{reading(blocks)}\n"])


def as_csv(blocks: Sequence[Block]) -> str:
    """One line per cell, all digits."""
    lines = [
        [block.heading, block.dataset, block.sizes, method, metric, *vars(row[metric]).values()]
        for block in blocks
        for method, row in block.cells.items()
        for metric in block.metrics
        if metric in row
    ]
    text: str = pd.DataFrame(lines, columns=_COLUMNS).to_csv(index=False, lineterminator="\n")
    return text


def from_csv(file: Path) -> list[Block]:
    """The blocks that :func:`as_csv` wrote; their notes are not in it."""
    hint = "write it with sharpgp bench table RESULTS --format csv"
    if not file.is_file():
        raise InvalidInputError(f"summary: expected a file, found none at {file}; {hint}")
    table = pd.read_csv(file, dtype=str, keep_default_na=False)  # numbers below, to the last digit
    if list(table.columns) != _COLUMNS:
        raise InvalidInputError(
            f"summary: expected the columns {', '.join(_COLUMNS)}, found others in {file}; {hint}"
        )
    found = []
    for (setting, dataset, sizes), lines in table.groupby(_COLUMNS[:3], sort=False):
        cells: dict[str, dict[str, Cell]] = {}
        for line in lines.itertuples():
            mean, error = float(line.mean), float(line.standard_error or "nan")
            figure = float(line.in_print) if line.in_print else None
            cell = Cell(mean, error, int(line.repetitions), figure)
            cells.setdefault(line.method, {})[line.metric] = cell
        counts = {method: max(c.count for c in row.values()) for method, row in cells.items()}
        found.append(Block(setting, dataset, sizes, cells, counts, ()))
    return found


def reading(blocks: Sequence[Block]) -> str:
    """How to read the tables of the experiments that the blocks are from."""
    kinds = dict.fromkeys(block.heading.split(",")[0] for block in blocks)
    known = [READING[kind] for kind in kinds if kind in READING]
    return " ".join(known or [READING["regression"]])


def caption(block: Block) -> str:
    """Name of the set and sizes of its parts."""
    return f"{block.dataset}: {block.sizes}" if block.sizes else block.dataset


#: Writers of tables by name.
FORMATS = {"text": as_text, "md": as_md, "latex": as_latex, "csv": as_csv}


def render(results: str | Path, form: str = "text") -> str:
    """Table of all results in a folder; the same results give the same bytes.

    Parameters
    ----------
    results : path
        Folder that a run has written.
    form : {"text", "md", "latex", "csv"}
    """
    check_choice(form, "format", FORMATS)
    blocks = summarise(Store(results).results())
    if not blocks:
        raise InvalidInputError(
            f"results: expected a folder with results, found none in {results}; "
            "run sharpgp bench regression first"
        )
    return FORMATS[form](blocks)
