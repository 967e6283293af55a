"""Blocks of results as plain text, Markdown, LaTeX and CSV."""

import csv
import io
import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from sharpgp._validation import check_choice
from sharpgp.exceptions import InvalidInputError
from sharpgp_benchmarks.published import REFERENCE
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.tables import METRICS, Block, Cell, label, summarise

#: How to read the tables, by experiment; ``{REFERENCE}`` alone for those without an entry.
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
_COLUMNS = (
    "setting", "dataset", "sizes", "method", "metric",
    "mean", "standard_error", "repetitions", "in_print",
)  # fmt: skip
_LATEX = {
    "%": r"\%",
    "±": r"$\pm$",
    " x 1000": r" $\times 10^3$",
    "_": r"\_",
    "&": r"\&",
    "#": r"\#",
}


def as_text(blocks: Sequence[Block]) -> str:
    """Columns for a terminal."""
    out: list[str] = []
    for heading, group in groupby(blocks, key=lambda block: block.heading):
        out += [heading, "=" * len(heading), ""]
        for block in group:
            lines = rows(block)
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            out.append(caption(block))
            for first, *others in lines:
                cells = [c.rjust(w) for c, w in zip(others, widths[1:], strict=True)]
                out.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
            out += [*(f"note: {note}" for note in block.notes), ""]
    return "\n".join([*out, reading(blocks), ""])


def as_md(blocks: Sequence[Block]) -> str:
    """Markdown, one table per data set."""
    out: list[str] = []
    for heading, group in groupby(blocks, key=lambda block: block.heading):
        out += [f"## {heading.capitalize()}", ""]
        for block in group:
            head, *body = rows(block)
            rule = ["---", *["--:"] * (len(head) - 1)]
            out += [f"**{caption(block)}**", ""]
            out += [f"| {' | '.join(row)} |" for row in (head, rule, *body)]
            out += ["", *(f"Note: {note}\n" for note in block.notes)]
    return "\n".join([*out, reading(blocks), ""])


def as_latex(blocks: Sequence[Block]) -> str:
    """LaTeX with booktabs, one table per setting."""
    out: list[str] = []
    for heading, group in groupby(blocks, key=lambda block: block.heading):
        members = list(group)
        methods = max((list(block.cells) for block in members), key=len)
        out += [
            f"% {heading}",
            rf"\begin{{tabular}}{{ll{'r' * len(methods)}}}",
            r"\toprule",
            " & ".join(["Data set", "Metric", *map(_tex, map(label, methods))]) + r" \\",
        ]
        for block in members:
            out.append(r"\midrule")
            for i, (first, *others) in enumerate(rows(block, methods)[1:]):
                cells = [block.dataset if i == 0 else "", first, *others]
                out.append(" & ".join(map(_tex, cells)) + r" \\")
        out += [r"\bottomrule", r"\end{tabular}"]
        out += [f"% {caption(block)}" for block in members]
        out += [f"% {block.dataset}: {note}" for block in members for note in block.notes]
        out.append("")
    return "\n".join([*out, f"% {reading(blocks)}", ""])


def as_csv(blocks: Sequence[Block]) -> str:
    """One line per cell, all digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for block in blocks:
        for method, row in block.cells.items():
            for metric in block.metrics:
                if metric in row:
                    cell = row[metric]
                    where = [block.heading, block.dataset, block.sizes, method, metric]
                    error = "" if math.isnan(cell.error) else repr(cell.error)
                    figure = "" if cell.printed is None else repr(cell.printed)
                    writer.writerow([*where, repr(cell.mean), error, cell.count, figure])
    return text.getvalue()


def from_csv(file: Path) -> list[Block]:
    """The blocks that :func:`as_csv` wrote; their notes are not in it."""
    if not file.is_file():
        raise InvalidInputError(
            f"summary: expected a file, found none at {file}; "
            "write it with sharpgp bench table RESULTS --format csv"
        )
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        if tuple(reader.fieldnames or ()) != _COLUMNS:
            raise InvalidInputError(
                f"summary: expected the columns {', '.join(_COLUMNS)}, found others in {file}; "
                "write it with sharpgp bench table RESULTS --format csv"
            )
        cells: dict[tuple[str, str, str], dict[str, dict[str, Cell]]] = {}
        for line in reader:
            block = cells.setdefault((line["setting"], line["dataset"], line["sizes"]), {})
            block.setdefault(line["method"], {})[line["metric"]] = Cell(
                float(line["mean"]),
                float(line["standard_error"] or "nan"),
                int(line["repetitions"]),
                float(line["in_print"]) if line["in_print"] else None,
            )
    found = []
    for where, rows_of in cells.items():
        counts = {
            method: max(cell.count for cell in row.values()) for method, row in rows_of.items()
        }
        found.append(Block(*where, rows_of, counts, ()))
    return found


def reading(blocks: Sequence[Block]) -> str:
    """How to read the tables of the experiments that the blocks are from."""
    kinds = dict.fromkeys(block.heading.split(",")[0] for block in blocks)
    known = [READING[kind] for kind in kinds if kind in READING]
    return " ".join(known or [READING["regression"]])


def rows(block: Block, methods: Sequence[str] | None = None) -> list[list[str]]:
    """Heading and body; a row of printed figures follows each metric that has some."""
    methods = list(methods or block.cells)
    lines = [["", *map(label, methods)]]
    for metric in block.metrics:
        name, factor = METRICS[metric]
        row = [block.cells.get(method, {}).get(metric) for method in methods]
        lines.append([name, *(_shown(cell, factor) for cell in row)])
        figures = [None if cell is None else cell.printed for cell in row]
        if any(figure is not None for figure in figures):
            shown = ["" if figure is None else f"{figure * factor:.3g}" for figure in figures]
            lines.append([f"{name.split(' x ')[0]} in print", *shown])
    lines.append(["repetitions", *(str(block.counts.get(method, "")) for method in methods)])
    return lines


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


def caption(block: Block) -> str:
    """Name of the set and sizes of its parts."""
    return f"{block.dataset}: {block.sizes}" if block.sizes else block.dataset


def _tex(text: str) -> str:
    for plain, escaped in _LATEX.items():
        text = text.replace(plain, escaped)
    return text


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
