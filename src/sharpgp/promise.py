r"""What a fitted model promises: to whom, how surely, by which theorem, on what premises.

Nothing is claimed here that ``docs/method.md`` does not prove.  Where no theorem holds, the promise
says so, and what would give one.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom, mannwhitneyu, norm, rankdata

from sharpgp._ranks import points_needed, whole_rank
from sharpgp._validation import as_coverage, as_numpy
from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.predictors.cv_plus import PlusPredictor
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.tolerance import covered_at_least, covered_by_groups
from sharpgp.data.column import MAX_CATEGORIES
from sharpgp.exchangeability import moved_features, names_of_features, one_per_group
from sharpgp.rows import Inputs, Rows

Floats = NDArray[np.float64]
Table = list[tuple[str, ...]]
#: Confidence of the bound for one fitted model.
CONFIDENCE = 0.95
#: A premise with a smaller p-value is in doubt.
DOUBT = 0.01
_PAGE = "docs/method.md#"
_INPUTS = ("at new inputs", "at known inputs")
# Rows that are compared with one another.
_MAX_COMPARED = 1000
_ROWS_TWICE = "every row trains and calibrates"
_SEARCHED = "what it searches is chosen on the rows that calibrate"
_MODEL_RIGHT = "it holds if prior and GP are right"
# Methods without a theorem for finite samples, and why.
_WHY_NONE = {
    **{"cv": _ROWS_TWICE, "loo": _ROWS_TWICE, "paper": _SEARCHED, "kuleshov22": _SEARCHED},
    **dict.fromkeys(("vanilla", "fully_bayesian", "capone22"), _MODEL_RIGHT),
}


@dataclass(frozen=True)
class Line:
    """What is promised to one population.

    Attributes
    ----------
    population : str
    coverage : float or None
        What intervals cover on average over calibration sets; a lower bound if there is a theorem.
        None where nothing is known.
    units : int
        How many calibrate.
    counted : str
        What these are: ``"rows"``, ``"groups"`` or ``"inputs"``.
    bound : float or None
        What the intervals of this fitted model cover at least, with :data:`CONFIDENCE`.
    theorem, link : str or None
        Its name, and its place in the documentation.
    rows : int or None
        How many of the rows of ``X`` belong to the population.
    """

    population: str
    coverage: float | None
    units: int
    counted: str
    bound: float | None = None
    theorem: str | None = None
    link: str | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Premise:
    """What a theorem needs, what was found, and the p-value of a test; None if none was made."""

    name: str
    found: str
    p_value: float | None = None

    @property
    def doubtful(self) -> bool:
        """Whether the test speaks against it."""
        return self.p_value is not None and self.p_value < DOUBT


@dataclass(frozen=True)
class Promise:
    """What a model promises; prints as text, shows in notebooks.

    Attributes
    ----------
    coverage : float or tuple of float
        What was asked for.
    method : str
    lines : tuple of Line
    premises : tuple of Premise
    would_give : str or None
        Why there is no theorem, and what would give one.
    """

    coverage: float | tuple[float, ...]
    method: str
    lines: tuple[Line, ...]
    premises: tuple[Premise, ...]
    would_give: str | None

    @property
    def holds(self) -> bool:
        """Whether there is a theorem for every line, and no premise is in doubt."""
        return self.would_give is None and not any(one.doubtful for one in self.premises)

    def as_dict(self) -> dict[str, Any]:
        """Plain fields, for JSON."""
        return asdict(self) | {"holds": self.holds}

    def _tables(self) -> tuple[Table, Table]:
        none = "no statement"
        promised: Table = [("for", "on average", "this model, 95 %", "calibrated by", "theorem")]
        for one in self.lines:
            sure = "at least" if one.theorem else "about"
            promised.append(
                (
                    one.population + ("" if one.rows is None else f" ({one.rows:,} of X)"),
                    none if one.coverage is None else f"{sure} {100 * one.coverage:.3g}%",
                    none if one.bound is None else f"at least {one.bound:.1%}",
                    f"{one.units:,} {one.counted}",
                    one.theorem or "none",
                )
            )
        tested: Table = [("premise", "found", "p")]
        for premise in self.premises:
            p = "not tested" if premise.p_value is None else f"{premise.p_value:.2g}"
            tested.append((premise.name, premise.found, p + " !" * premise.doubtful))
        return promised, tested

    def _notes(self) -> list[str]:
        doubtful = ", ".join(one.name for one in self.premises if one.doubtful)
        notes = [f"In doubt: {doubtful}. Coverage may be lower."] if doubtful else []
        return notes + ([f"No theorem: {self.would_give}."] if self.would_give else [])

    def __str__(self) -> str:
        levels = " and ".join(f"{100 * one:.3g}%" for one in as_coverage(self.coverage)[0])
        parts = [f"Promise of {levels} intervals, calibration {self.method}"]
        for table in self._tables():
            wide = [max(map(len, column)) for column in zip(*table, strict=True)]
            rows = ["  ".join(map(str.ljust, row, wide)).rstrip() for row in table]
            parts.append("\n".join(rows))
        return "\n\n".join(parts + self._notes())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same, for notebooks and the report."""
        place = {one.theorem: f" title='{one.link}'" for one in self.lines if one.link}
        out = ""
        for head, *rows in self._tables():
            cells = [[f"<th>{name}</th>" for name in head]]
            cells += [[f"<td{place.get(t, '')}>{escape(t)}</td>" for t in row] for row in rows]
            body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
            out += f"<table class='plain promise'>{body}</table>"
        return out + "".join(f"<p>{escape(note)}</p>" for note in self._notes())


def promise_of(
    predictor: Calibrated,
    method: str,
    X: Inputs | None = None,
    *,
    coverage: float | Sequence[float] = 0.9,
    encoding: Any = None,
    by_group: Calibrated | None = None,
) -> Promise:
    """The promise of a predictor, to rows like those that calibrated it, or to the rows ``X``.

    ``by_group`` answers known groups, which ``X`` does not name.

    Examples
    --------
    >>> from sharpgp import Exact
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 400, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> found = promise_of(Exact().fit(train(X[::2], y[::2])[0], X[1::2], y[1::2]), "exact")
    >>> found.lines[0].theorem, round(found.lines[0].bound, 3), found.lines[0].units
    ('exchangeable rows', 0.864, 200)
    """
    asked, single = as_coverage(coverage)
    lines = [line for level in asked for line in _lines(predictor, method, level)]
    n_parts, why = len(lines) // len(asked), None
    if lacking := next((line for line in lines if line.theorem is None), None):
        level = asked[lines.index(lacking) // n_parts]
        band, centred = points_needed(level), points_needed((1.0 + level) / 2.0)
        if method in _WHY_NONE:
            why = f"{_WHY_NONE[method]}; calibration='exact' has one, for independent rows"
        elif lacking.units < centred:
            why = f"{lacking.units} {lacking.counted} calibrate; {level:.3g} takes {band}"
            why += f", or {centred} where intervals are centred"
        else:
            why = "rows that calibrate also train, or groups have weights"
    if X is None and isinstance(by_group, ScoredPredictor):
        known = by_group.by_part()[-1]
        name, counted = "rows of known groups", _counted(known)
        lines += [Line(name, level, known.n_cal, counted) for level in asked]
        why = why or "known groups have none"
    if X is not None:
        rows, unseen = Rows.of(X), _unseen(Rows.of(X), encoding)
        part = torch.zeros(len(rows), dtype=torch.long)
        if isinstance(predictor, ScoredPredictor):
            part = predictor.part_of(rows).cpu()
        usual = ~np.any([*unseen.values(), np.zeros(len(rows), bool)], axis=0)
        count = np.bincount(part.numpy()[usual], minlength=n_parts).tolist() * len(asked)
        lines = [
            replace(one, rows=n) for one, n in zip(lines, count, strict=True) if n or not len(rows)
        ]
        for name, mask in unseen.items():
            population = f"rows with an unseen level of {name!r}"
            lines.append(Line(population, None, 0, "levels", rows=int(mask.sum())))
            how = f"unseen levels of {name!r} need that column as groups= instead"
            why = how if why is None else f"{why}; {how}"
    found: Any = asked[0] if single else tuple(asked)
    return Promise(found, method, tuple(lines), tuple(_premises(predictor, X, encoding)), why)


def _unseen(rows: Rows, encoding: Any) -> dict[str, NDArray[np.bool_]]:
    """Rows with a level that no row of the fit has, by column."""
    found: dict[str, NDArray[np.bool_]] = {}
    first, X = 0, as_numpy(rows.X)
    for column in () if encoding is None else encoding.columns:
        own = X[:, first : first + len(column.features)]
        first += len(column.features)
        if column.kind == "category" and len(column.categories) < MAX_CATEGORIES:
            other = np.isclose(own, column.other).all(axis=1)
            found |= {column.name: other} if other.any() else {}
    return found


class Wager:
    """Bets against a promise: capital that grows only where more is missed than promised.

    While misses have at most the probability ``1 - bound``, given all before,
    ``P(max_t M_t >= 1 / alpha) <= alpha`` however long one looks (Ville's inequality).

    Examples
    --------
    >>> kept, broken = Wager(0.85), Wager(0.85)
    >>> for t in range(200):
    ...     kept.observe([t % 10 == 0])
    ...     broken.observe([t % 3 == 0])
    >>> kept.p_value > 0.1, broken.p_value < 0.001
    (True, True)
    """

    def __init__(self, bound: float) -> None:
        self._missed = 1.0 - bound
        self._stakes = np.array([0.1, 0.3, 0.9]) / self._missed
        self._log_capital = np.zeros(len(self._stakes))
        self.p_value = 1.0

    def observe(self, missed: Iterable[bool]) -> None:
        """Add steps, in order."""
        for one in missed:
            self._log_capital += np.log1p(self._stakes * (float(one) - self._missed))
            self.p_value = min(self.p_value, 1.0 / float(np.exp(self._log_capital).mean()))


def _lines(predictor: Calibrated, method: str, coverage: float) -> list[Line]:
    if isinstance(predictor, ScoredPredictor):
        names = [f"rows of class {k + 1}" for k in range(predictor.parts.n_classes - 1)]
        names.append("other rows" if names else "rows")
        if len(predictor.parts) == 1:
            names = ["new rows"]
        if predictor.parts.known is not None:
            names = [f"{name} {place}" for place in _INPUTS for name in names]
        pairs = zip(predictor.by_part(), names, strict=True)
        return [_line(part, method, coverage, name) for part, name in pairs]
    line = Line("new rows", coverage, predictor.n_cal or 0, "rows")
    if isinstance(predictor, PlusPredictor):
        worst, place = predictor.worst_case(coverage), "the-default-learn-condition-score"
        return [replace(line, coverage=worst, theorem="CV+", link=_PAGE + place)]
    return [line]


def _line(part: ScoredPredictor, method: str, coverage: float, population: str) -> Line:
    n, one = part.n_cal, part.scores.new_ones(1)
    band = bool(part.is_band(0, coverage, None, one))
    counted = _counted(part)
    theorem, place = "exchangeable rows", "what-is-guaranteed"
    if population != "new rows":
        theorem, place = "rows of a class", "seen-or-new"
    bound: float | None = None
    if part.groups is not None:
        population, theorem = "rows of new groups", "new groups"
    if part.weights is not None:
        population, theorem = f"shifted {population}", "covariate shift"
        place = "after-the-fit-updates-shift-drift"
        theorem = "" if part.groups is not None else theorem  # none is known for both
    elif part.groups is not None:
        tails = 1 if band else 2
        missed = (1.0 - coverage) / tails, (1.0 - CONFIDENCE) / tails
        bound = 1.0 - tails * (1.0 - covered_by_groups(1.0 - missed[0], n, 1.0 - missed[1]))
    elif part.units is None:
        k = whole_rank(coverage, n, up=True)
        if not band:
            k = whole_rank((1.0 + coverage) / 2.0, n, up=True)
            k -= whole_rank((1.0 - coverage) / 2.0, n, up=False)
        bound = covered_at_least(k, n, CONFIDENCE)
    _, _, backed = part.ranks.interval_ends(coverage, one)
    backed = part.ranks.radius(coverage, one)[1] if band else backed
    if part.in_training or not bool(backed.all()) or method in _WHY_NONE or not theorem:
        return Line(population, coverage, n, counted)
    return Line(population, coverage, n, counted, bound, theorem, f"{_PAGE}{place}")


def _counted(part: ScoredPredictor) -> str:
    return "rows" if part.counted == "points" else part.counted


def _premises(predictor: Calibrated, X: Inputs | None, encoding: Any) -> list[Premise]:
    """Tests of what the theorems need, on scores in the order of the rows, and on inputs."""
    ranked = predictor.each_once()
    if ranked is None or len(ranked.scores) < 8:
        return [Premise("new rows are like these", "no scores, or too few, to test")]
    ours = one_per_group(ranked.groups, len(ranked.scores))
    z, y, rows = (as_numpy(one)[ours] for one in (ranked.scores, ranked.y_cal, ranked.X_cal))
    found = [_order(z), _neighbours(z), _hidden_copies(rows, y)]
    names = names_of_features(encoding, rows.shape[1])
    gaps = (rows[:, ["missing" in name for name in names]] > 0.5).any(axis=1)
    if 5 <= gaps.sum() <= len(gaps) - 5:
        each = [mannwhitneyu(one[gaps], one[~gaps]).pvalue for one in (z, np.abs(z))]
        p = min(1.0, 2.0 * float(min(each)))
        found.append(Premise("errors do not depend on gaps", f"{gaps.sum()} rows with gaps", p))
    if ranked.weights is not None:
        found.append(_weights(ranked, X))
    elif X is not None and len(X):
        name, p = next(iter(moved_features(rows, as_numpy(Rows.of(X).X), names, level=2.0).items()))
        found.append(Premise("inputs of X are like these", f"{name!r} differs most", p))
    return found


def _correlation(one: Floats, other: Floats) -> float:
    """Rank correlation; 0 if either is constant."""
    u, v = (rankdata(values) - (len(one) + 1) / 2 for values in (one, other))
    return float(u @ v / max(math.sqrt((u @ u) * (v @ v)), 1e-300))


def _order(z: Floats) -> Premise:
    """Rank correlation of errors, and of their sizes, with the order of the rows."""
    r, of_sizes = (_correlation(one, np.arange(float(len(z)))) for one in (z, np.abs(z)))
    size = max(abs(r), abs(of_sizes)) * math.sqrt(len(z) - 1)
    shown = f"correlation of errors with it {r:.2f}, of sizes {of_sizes:.2f}"
    p = min(1.0, 4.0 * float(norm.sf(size)))
    return Premise("the order of rows does not matter", shown, p)


def _neighbours(z: Floats) -> Premise:
    """Correlation of errors that follow one another; in random order its variance is 1/n."""
    r = _correlation(z[1:], z[:-1])
    p = float(norm.sf((r + 1.0 / len(z)) * math.sqrt(len(z))))
    return Premise("errors are independent", f"correlation of neighbouring rows {r:.2f}", p)


def _hidden_copies(X: Floats, y: Floats) -> Premise:
    """Pairs of rows that share y to the last digit, and all but at most two columns."""
    name = "no copies behind a column"
    few = np.sort(np.random.default_rng(0).permutation(len(y))[:_MAX_COMPARED])
    X, y = X[few], y[few]
    X = X[:, np.ptp(X, axis=0) > 0]
    if X.shape[1] < 3 or len(np.unique(y)) < 0.5 * len(y):
        return Premise(name, "too few columns, or values of y, to tell")
    i, j = np.triu_indices(len(y), 1)
    alike = sum((column[i] == column[j]).astype(np.int16) for column in X.T) >= X.shape[1] - 2
    same = y[i] == y[j]
    both, by_chance = int((same & alike).sum()), max(float(same[~alike].mean()), 1.0 / len(i))
    p = float(binom.sf(both - 1, int(alike.sum()), by_chance)) if both else 1.0
    return Premise(name, f"{both} pairs share y and all but at most two columns", p)


def _weights(ranked: ScoredPredictor, X: Inputs | None) -> Premise:
    """Whether weighted inputs have the means of ``X``, in the column that differs most."""
    name = "weights are those of the shift"
    if X is None or ranked.weights is None:
        return Premise(name, f"{ranked.n_effective:.0f} effective of {len(ranked.scores)} rows")
    w, old, new = as_numpy(ranked.weights), as_numpy(ranked.X_cal), as_numpy(Rows.of(X).X)
    mean = np.average(old, axis=0, weights=w)
    error = np.square(w / w.sum()) @ np.square(old - mean) + new.var(axis=0) / len(new)
    size = float((np.abs(mean - new.mean(axis=0)) / np.sqrt(error + 1e-300)).max())
    p = min(1.0, 2.0 * old.shape[1] * float(norm.sf(size)))
    return Premise(name, f"column that differs most: {size:.1f} standard errors", p)
