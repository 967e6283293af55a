"""The page of ``sharpgp bench paper``: claims with verdicts, printed numbers beside ours."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pandas as pd

from sharpgp._files import make_folder
from sharpgp.exceptions import MissingExtraError
from sharpgp_benchmarks import regret, toy
from sharpgp_benchmarks.claims import LEAST_REPETITIONS, Claim, counted, judged
from sharpgp_benchmarks.formats import as_md as tables_as_md
from sharpgp_benchmarks.formats import caption, frame_of, from_csv, html, markdown, reading
from sharpgp_benchmarks.paper import THOROUGH
from sharpgp_benchmarks.published import REFERENCE, printed
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.tables import Block, summarise

#: Files of the page: Markdown, and one HTML file that holds its figures.
MARKDOWN, HTML = "paper.md", "paper.html"
#: What each figure shows.
CAPTIONS = {
    "toy.png": "99 % intervals of all methods on the toy problem, as in the paper's second figure.",
    "toy_95.png": "95 % intervals of the base GP and of the sharp one, on the same problem.",
    "toy_overconfident.png": "The same from too few training points, where the base GP covers less "
    "than 80 %, as the caption of the paper's first figure says.",
    "bo_regret.png": "Cumulative and simple regret, medians and quartiles over repetitions.",
}
#: Of verdicts: reproduced, not, in some cases, none.
COLOURS = {"yes": "#1c6b46", "no": "#b3400e", "some": "#7a5600", "": "#4f5c69"}
#: The setting that tells a thorough search of two levels from the others.
ALONE = f"levels={'/'.join(map(str, THOROUGH['levels']))}"
#: Columns of the table of widths: heading, method, whether with :data:`ALONE`, whether in print.
WIDTHS = (
    ("base GP", "vanilla", False, True),
    ("RK", "kuleshov18", False, True),
    ("paper", "paper", False, True),
    ("its 95 % levels alone, thorough search", "paper", True, False),
    ("exact", "exact", False, False),
)
_STYLE = """
body { margin: 0 auto; max-width: 76rem; padding: 1rem 1.25rem 3rem; color: #1b2530;
  font: 1rem/1.5 system-ui, sans-serif; background: #f6f7f9; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } h3 { font-size: 1rem; }
.wide { overflow-x: auto; background: #fff; border: 1px solid #d9dfe5; border-radius: .5rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
td, th { padding: .25rem .6rem; text-align: right; white-space: nowrap; }
th:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
th { font-weight: 600; vertical-align: bottom; white-space: normal; }
tr.print td, tr.print th { color: #4f5c69; background: #eef1f4; }
tr + tr { border-top: 1px solid #eef1f4; }
.claim { background: #fff; border: 1px solid #d9dfe5; border-left: 6px solid #4f5c69;
  border-radius: .4rem; padding: .5rem .9rem; margin: .6rem 0; }
.claim.yes { border-left-color: #1c6b46; } .claim.no { border-left-color: #b3400e; }
.claim.some { border-left-color: #7a5600; } .claim ul { margin: .3rem 0; font-size: .92rem; }
figure { margin: 1rem 0; } img { max-width: 100%; } figcaption, .note { color: #4f5c69; }
"""


@dataclass(frozen=True)
class Page:
    """What the page says, before it has a form."""

    blocks: Sequence[Block]
    claims: Sequence[Claim]
    missing: Sequence[str]
    figures: Sequence[str]
    note: str

    @property
    def title(self) -> str:
        """Heading of the page."""
        return f"{REFERENCE}: what reproduces"

    @property
    def introduction(self) -> str:
        """How to read it, and how far to trust it."""
        return (
            "Each printed figure beside ours, with coverage, the floor of the calibration error "
            "and standard errors. A verdict is for the results in this folder: reproduced on every "
            "set and in every regime that was run, only when on some, not reproduced on none. "
            f"Fewer than {LEAST_REPETITIONS} repetitions give none."
        )


def write_page(
    results: Path, missing: Mapping[str, str], summaries: Sequence[str | Path] = ()
) -> str:
    """Write the page in both forms beside the results; returns what to tell the user.

    ``summaries``, tables as CSV files, stand in for the results, but for the figure of regrets.
    """
    of_run = summarise(Store(results).results()) if not summaries else []
    blocks = [*of_run, *(block for file in summaries for block in from_csv(Path(file)))]
    figures, note = _figures(results, any(block.heading.startswith("bo") for block in of_run))
    page = Page(blocks, judged(blocks), list(missing.values()), figures, note)
    (results / MARKDOWN).write_text(as_md(page), encoding="utf-8")
    (results / HTML).write_text(as_html(page, results / "figures"), encoding="utf-8")
    return f"Wrote {results / HTML} and {results / MARKDOWN}"


def widths(blocks: Sequence[Block]) -> pd.DataFrame:
    """95 % widths at a glance: printed, and reached at which coverage."""
    rows: dict[str, dict[str, str]] = {}
    for block in blocks:
        kind, _, regime = block.heading.partition(", base ")
        if kind != "regression":
            continue
        row = rows.setdefault(f"{block.dataset}, {regime.split(',')[0]}", {})
        for name, method, alone, in_print in WIDTHS:
            if in_print:
                figure = printed(block.dataset, method, "width_95")
                row[f"{name} in print"] = "" if figure is None else f"{figure:g}"
            row[name] = _width(block, method, alone)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("set, base GP")


def as_md(page: Page) -> str:
    """The page as Markdown: verdicts in colour, numbers folded."""
    lines = [
        f"# {page.title}",
        "",
        f"**{counted(page.claims)}**",
        "",
        page.introduction,
        "",
        "## The claims",
        "",
        *(f"{_md_claim(claim)}\n" for claim in page.claims),
        *(f"- Not run: {reason}" for reason in page.missing),
        "",
        "## Widths of 95 % intervals, and their coverage",
        "",
        markdown(widths(page.blocks)),
        "",
        "## The figures",
        "",
        *(f"![{figure}](figures/{figure})\n\n{CAPTIONS[figure]}\n" for figure in page.figures),
        page.note,
        "",
        "## All numbers",
        "",
        "<details><summary>The tables</summary>",
        "",
        tables_as_md(page.blocks).replace("\n## ", "\n### "),
        "",
        "</details>",
        "",
    ]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines))


def as_html(page: Page, figures: Path) -> str:
    """The page as one HTML file, figures included."""
    body = [
        f"<h1>{escape(page.title)}</h1>",
        f"<p><strong>{escape(counted(page.claims))}</strong></p>",
        f"<p>{escape(page.introduction)}</p>",
        "<h2>The claims</h2>",
        *map(_html_claim, page.claims),
        *(f'<p class="note">Not run: {escape(reason)}</p>' for reason in page.missing),
        "<h2>Widths of 95 % intervals, and their coverage</h2>",
        html(widths(page.blocks)),
        "<h2>The figures</h2>",
        *(_html_figure(figures / name) for name in page.figures),
        f"<p>{escape(page.note)}</p>" if page.note else "",
        "<h2>All numbers</h2><details><summary>The tables</summary>",
    ]
    heading = ""
    for block in page.blocks:
        if block.heading != heading:
            heading = block.heading
            body.append(f"<h3>{escape(heading.capitalize())}</h3>")
        body += [f"<h4>{escape(caption(block))}</h4>", html(frame_of(block))]
        body += [f'<p class="note">Note: {escape(note)}</p>' for note in block.notes]
    body.append(f'<p class="note">{escape(reading(page.blocks))}</p></details>')
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(page.title)}</title>\n<style>{_STYLE}</style>\n"
        + "\n".join(filter(None, body))
        + "\n</html>\n"
    )


def _width(block: Block, method: str, alone: bool) -> str:
    """Width and coverage of a method, whatever its other settings."""
    for name, cells in block.cells.items():
        if name.split()[0] == method and (ALONE in name) == alone and "width_95" in cells:
            return f"{cells['width_95'].mean:.3g} ({100 * cells['coverage_95'].mean:.1f} %)"
    return ""


def _md_claim(claim: Claim) -> str:
    verdict = f'<strong style="color:{COLOURS[claim.kind]}">{escape(claim.verdict)}</strong>'
    return f"- {claim.says} {verdict}{_folded(claim)}"


def _html_claim(claim: Claim) -> str:
    return (
        f'<div class="claim {claim.kind}"><strong>{escape(claim.says)}</strong> '
        f"{escape(claim.verdict)}{_folded(claim)}</div>"
    )


def _folded(claim: Claim) -> str:
    """The numbers behind a verdict, which a click shows."""
    if not claim.detail:
        return ""
    items = "".join(f"<li>{escape(item)}</li>" for item in claim.detail.rstrip(".").split("; "))
    return f"<details><summary>The numbers</summary><ul>{items}</ul></details>"


def _html_figure(file: Path) -> str:
    data = base64.b64encode(file.read_bytes()).decode()
    text = escape(CAPTIONS[file.name])
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{text}">'
        f"<figcaption>{text}</figcaption></figure>"
    )


def _figures(results: Path, optimised: bool) -> tuple[list[str], str]:
    """Names of the figures drawn, or why there are none; that of regrets from optimisations."""
    folder = results / "figures"
    make_folder(folder)
    try:
        return [*toy.draw(folder), *(regret.draw(results, folder) if optimised else [])], ""
    except MissingExtraError as error:
        return [], f"No figures: {error}"
