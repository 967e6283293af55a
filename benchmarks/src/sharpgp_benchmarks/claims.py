"""What the paper claims, in our words, and whether results bear it out."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sharpgp_benchmarks.published import printed
from sharpgp_benchmarks.tables import Block, Cell, label

#: Methods that only rescale the base GP's spread, or do without it.
RESCALED = ("kuleshov18", "vovk20", "marx22")
#: How far a mean may lie from a printed figure that has two digits and no error.
NEAR = 0.1

#: Cells by method and metric.
Cells = Mapping[str, Mapping[str, Cell]]
#: Tables by experiment, regime and data set.
Tables = Mapping[tuple[str, str, str], Block]


#: Repetitions that a verdict takes: a standard error of fewer says nothing.
LEAST_REPETITIONS = 3
REPRODUCED, FAILED, NOT_RUN = "reproduced.", "not reproduced.", "not run."
TOO_FEW = "too few repetitions."


@dataclass(frozen=True)
class Claim:
    """A claim, the verdict on it, and the numbers that the verdict rests on."""

    says: str
    verdict: str
    detail: str

    @property
    def kind(self) -> str:
        """``yes``, ``no``, ``some``, or empty without a verdict."""
        known = {REPRODUCED: "yes", FAILED: "no", NOT_RUN: "", TOO_FEW: ""}
        return known.get(self.verdict, "some")


def judged(blocks: Iterable[Block]) -> list[Claim]:
    """Every claim with its verdict, from what has at least :data:`LEAST_REPETITIONS` repetitions.

    Examples
    --------
    >>> {claim.verdict for claim in judged([])}
    {'not run.'}
    """
    tables = {
        (block.heading.split(",")[0], _regime(block.heading), block.dataset): block
        for block in blocks
    }
    enough = {place: _repeated(block) for place, block in tables.items()}
    claims = []
    for says, judge in CLAIMS.items():
        found, detail = judge(enough)
        if found == NOT_RUN:
            hint, detail = judge(tables)
            found = NOT_RUN if hint == NOT_RUN else TOO_FEW
        claims.append(Claim(says, found, detail))
    return claims


def counted(claims: Sequence[Claim]) -> str:
    """How many claims reproduce, in one sentence.

    Examples
    --------
    >>> counted([Claim("", REPRODUCED, ""), Claim("", FAILED, ""), Claim("", TOO_FEW, "")])
    '1 of 3 claims reproduces; 1 does not, 1 has too few repetitions.'
    """
    kinds = [claim.kind for claim in claims]
    yes = kinds.count("yes")
    others = {
        "does so in some cases only": kinds.count("some"),
        "does not": kinds.count("no"),
        "has too few repetitions": [claim.verdict for claim in claims].count(TOO_FEW),
        "was not run": [claim.verdict for claim in claims].count(NOT_RUN),
    }
    plural = {"does": "do", "has": "have", "was": "were"}
    rest = []
    for words, count in others.items():
        verb, _, what = words.partition(" ")
        if count:
            rest.append(f"{count} {verb if count == 1 else plural[verb]} {what}")
    ends = f"; {', '.join(rest)}" if rest else ""
    verb = "reproduces" if yes == 1 else "reproduce"
    return f"{yes} of {len(claims)} claims {verb}{ends}."


def _repeated(block: Block) -> Block:
    """The methods of a block that were run often enough."""
    counts = {method: n for method, n in block.counts.items() if n >= LEAST_REPETITIONS}
    cells = {method: row for method, row in block.cells.items() if method in counts}
    return replace(block, cells=cells, counts=counts)


def verdict(found: Mapping[str, bool]) -> str:
    """In words, from what was found in each case.

    Examples
    --------
    >>> verdict({"boston": True, "mpg": False})
    'only when: boston.'
    """
    if not found:
        return NOT_RUN
    if all(found.values()):
        return REPRODUCED
    held = [case for case, holds in found.items() if holds]
    return f"only when: {', '.join(held)}." if held else FAILED


def _regime(heading: str) -> str:
    return "undertrained" if "base undertrained" in heading else "trained"


def _regression(tables: Tables, methods: Sequence[str] = ()) -> dict[str, tuple[Block, Cells]]:
    """Tables of the regressions that have all these methods and the paper's, by case.

    The paper's method is under ``"paper"``, whatever its settings; the first of them, if several.
    """
    found: dict[str, tuple[Block, Cells]] = {}
    for (experiment, regime, dataset), block in tables.items():
        ours = next((name for name in block.cells if name.split()[0] == "paper"), None)
        if experiment == "regression" and ours and block.cells[ours]:
            cells = {**block.cells, "paper": block.cells[ours]}
            if all(cells.get(method) for method in methods):
                found[f"{dataset} ({regime})"] = block, cells
    return found


def _error(cell: Cell) -> float:
    return 0.0 if math.isnan(cell.error) else cell.error


def _shown(cell: Cell) -> str:
    return f"{cell.mean:.3g} " + (
        "(one repetition)" if math.isnan(cell.error) else f"± {cell.error:.2g}"
    )


def _calibrated(tables: Tables) -> tuple[str, str]:
    found, worst = {}, 0.0
    for case, (_, cells) in _regression(tables, RESCALED).items():
        ours = cells["paper"]["ece"]
        best = min((cells[method]["ece"] for method in RESCALED), key=lambda cell: cell.mean)
        found[case] = ours.mean <= 1.1 * best.mean + 2 * math.hypot(_error(ours), _error(best))
        worst = max(worst, ours.mean / best.mean)
    return verdict(found), f"Largest ratio to the best of RK, RV and RM: {worst:.2f}." * bool(found)


def _sharper(tables: Tables) -> tuple[str, str]:
    found, lines = {}, []
    for case, (_, cells) in _regression(tables, RESCALED).items():
        ours = cells["paper"]
        found[case] = all(
            ours[metric].mean < cells[method][metric].mean
            for method in RESCALED
            for metric in ("width_95", "std")
        )
        rk = cells["kuleshov18"]
        lines.append(
            f"{case} {ours['width_95'].mean / rk['width_95'].mean:.2f} of RK's width at "
            f"{ours['coverage_95'].mean:.1%} against {rk['coverage_95'].mean:.1%}, and "
            f"{ours['interval_score_95'].mean / rk['interval_score_95'].mean:.2f} of its score"
        )
    return verdict(found), _listed(lines)


def _better(tables: Tables) -> tuple[str, str]:
    found = {
        case: all(
            cells["paper"]["interval_score_95"].mean < cells[method]["interval_score_95"].mean
            for method in RESCALED
        )
        for case, (_, cells) in _regression(tables, RESCALED).items()
    }
    return verdict(found), ""


def _printed_widths(tables: Tables) -> tuple[str, str]:
    found, lines = {}, []
    for case, (block, _) in _regression(tables).items():
        figure = printed(case.split()[0], "paper", "width_95")
        if figure is None:
            continue
        for method, row in block.cells.items():
            if method.split()[0] == "paper" and row:
                name = f"{case}, {label(method)}"
                width = row["width_95"]
                found[name] = abs(width.mean / figure - 1.0) <= NEAR
                lines.append(
                    f"{name} {width.mean:.2f} ± {_error(width):.2f} at "
                    f"{row['coverage_95'].mean:.1%} (in print {figure:g})"
                )
    return verdict(found), _listed(lines)


def _base_widths(tables: Tables) -> tuple[str, str]:
    found, lines = {}, []
    for case, (_, cells) in _regression(tables, ("kuleshov18", "vanilla")).items():
        for method in ("kuleshov18", "vanilla"):
            figure = printed(case.split()[0], method, "width_95")
            if figure is not None:
                width = cells[method]["width_95"].mean
                found[f"{label(method)} on {case}"] = abs(width / figure - 1.0) <= 2 * NEAR
                lines.append(f"{label(method)} on {case} {width:.2f} (in print {figure:g})")
    return verdict(found), _listed(lines)


def _network(tables: Tables) -> tuple[str, str]:
    found, lines = {}, []
    for case, (_, cells) in _regression(tables).items():
        for method, row in cells.items():
            if method.split()[0] == "kuleshov22" and row:
                ours = cells["paper"]
                found[case] = (
                    row["width_95"].mean < ours["width_95"].mean
                    and row["ece"].mean > ours["ece"].mean
                )
                lines.append(
                    f"{case} width {row['width_95'].mean:.2f} against "
                    f"{ours['width_95'].mean:.2f}, ECE {1e3 * row['ece'].mean:.1f} against "
                    f"{1e3 * ours['ece'].mean:.1f} (x 1000)"
                )
    return verdict(found), _listed(lines)


def _guarantee(tables: Tables) -> tuple[str, str]:
    found, lines = {}, []
    for case, (block, _) in _regression(tables).items():
        size = re.search(r"(\d+) calibration", block.sizes)
        if size is None:
            continue
        for method, row in block.cells.items():
            name, cell = method.split()[0], row.get("coverage_95")
            if name not in ("paper", "exact", "kuleshov18") or cell is None:
                continue
            if name == "paper":  # each of two levels within 1 / (C + 1)
                least = 0.95 - 2.0 / (int(size[1]) + 1) - 2.0 * _error(cell)
                found[f"{case} {label(method)}"] = cell.mean >= least
            lines.append(f"{case} {label(method)} {cell.mean:.1%} ± {_error(cell):.1%}")
    return verdict(found), _listed(lines)


def _bounds(metric: str) -> Callable[[Tables], tuple[str, str]]:
    def judge(tables: Tables) -> tuple[str, str]:
        found, lines = {}, []
        for (experiment, _, dataset), block in tables.items():
            cells = {method.split()[0]: row for method, row in block.cells.items()}
            if experiment == "bounds" and cells.get("paper") and cells.get("capone22"):
                ours, theirs = cells["paper"][metric].mean, cells["capone22"][metric].mean
                found[dataset] = ours < theirs
                lines.append(f"{dataset} {ours:.3g} against {theirs:.3g}")
        return verdict(found), _listed(lines)

    return judge


def _regret(function: str, metric: str, lower: bool) -> Callable[[Tables], tuple[str, str]]:
    def judge(tables: Tables) -> tuple[str, str]:
        block = tables.get(("bo", "trained", function))
        cells = {} if block is None else block.cells
        if not (cells.get("calibrated") and cells.get("ucb")):
            return NOT_RUN, ""
        theirs = cells["ucb"][metric]
        found, lines = {}, [f"UCB {_shown(theirs)}"]
        for method in ("calibrated", "calibrated_1"):
            if cells.get(method):
                ours = cells[method][metric]
                found[method] = (ours.mean < theirs.mean) == lower
                lines.append(f"{method} {_shown(ours)}")
        return verdict(found), _listed(lines)

    return judge


def _listed(lines: Sequence[str]) -> str:
    return f"{'; '.join(lines)}." if lines else ""


#: The claims, and what judges each.
CLAIMS: dict[str, Callable[[Tables], tuple[str, str]]] = {
    "The method's calibration error is hardly above the best of RK, RV and RM:": _calibrated,
    "It is sharper than RK, RV and RM, in 95 % interval and standard deviation:": _sharper,
    "It stays ahead of them where misses are charged for (interval score):": _better,
    "Its 95 % intervals are as wide as printed (within 10 %):": _printed_widths,
    "The base GP's and RK's 95 % intervals are as wide as printed (within 20 %):": _base_widths,
    "The network is sharper and less well calibrated:": _network,
    "Coverage holds up to a rank at each end, as the theorem says (judged for the method itself; "
    "those whose theta saw no calibration point stand beside it):": _guarantee,
    "Its 100 % intervals are shorter than uniform error bounds:": _bounds("length_100"),
    "They are violated less often:": _bounds("violation_rate"),
    "On Ackley the calibrated bound has the lower cumulative regret:": _regret(
        "ackley", "cumulative_regret", True
    ),
    "On Ackley it has the lower simple regret:": _regret("ackley", "simple_regret", True),
    "On Rosenbrock it has the lower cumulative regret:": _regret(
        "rosenbrock", "cumulative_regret", True
    ),
    "On Rosenbrock it has the higher simple regret:": _regret("rosenbrock", "simple_regret", False),
}
