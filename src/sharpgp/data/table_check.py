"""Check a table before a fit: what a fit would do with it, and what looks wrong."""

import math
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sharpgp._files import replacing
from sharpgp.data import texts
from sharpgp.data.censoring import censoring
from sharpgp.data.encoding import Encoded, TableEncoding, require_columns, text_of_mark
from sharpgp.data.frames import collected
from sharpgp.data.leaks import leaks_of, share_of_levels
from sharpgp.data.reading import NamedColumns, Values, is_frame, names_of, values_of
from sharpgp.data.suspicions import (
    TWIN_SHARE,
    Suspicion,
    is_flattened,
    likely_mark,
    plausible_range,
)
from sharpgp.exceptions import InvalidInputError

#: With fewer rows per lengthscale, the table has too few rows.
MIN_ROWS_PER_LENGTHSCALE = 10
#: A column with at least this many levels, and rows per level, may be the groups.
MIN_GROUPS, MIN_ROWS_PER_GROUP = 10, 2
#: Neighbouring targets are correlated beyond this many standard errors, and beyond the second
#: number, in at least so many rows.
CHAIN, MIN_CHAIN, MIN_ROWS_CHAIN = 5.0, 0.3, 20
#: Kinds of findings, by what they cost whoever overlooks them; so many are shown.
_KINDS = ("leak", "groups", "order", "copies", "target", "values", "columns", "few", "gaps")
MAX_FINDINGS_SHOWN = 5
#: (rows, processor seconds) of a default fit of six columns, log-linear between, and the power of
#: the number of columns: ``sharpgp bench evidence fit_times``, docs/evidence.md.
_FIT_SECONDS = ((60, 3.4), (200, 5.2), (600, 16), (1500, 19), (5000, 70), (10_000, 86))
_COLUMNS, _POWER_OF_COLUMNS, _START = 6, 0.2, 1.5


@dataclass(frozen=True)
class CheckedColumn:
    """One column: what it holds, its features, gaps and typical values."""

    name: str
    becomes: str
    features: int
    missing: int
    looks: str


@dataclass(frozen=True)
class TableCheck:
    """Result of :func:`check`; prints as text, shows as HTML in notebooks.

    Attributes
    ----------
    columns : tuple of CheckedColumn
    findings : tuple of Suspicion
        What would stop a fit comes first, then the most costly.
    n_rows : int
        Rows with a target.
    target : str
    seconds : float
        About how long a default fit would take, on one core.
    """

    columns: tuple[CheckedColumn, ...]
    findings: tuple[Suspicion, ...]
    n_rows: int
    target: str
    seconds: float

    @property
    def fits(self) -> bool:
        """Whether a fit accepts the table."""
        return not any(one.stops for one in self.findings)

    @property
    def shown(self) -> tuple[Suspicion, ...]:
        """The findings that are shown first: at most five, and all that would stop a fit."""
        stop = sum(one.stops for one in self.findings)
        return self.findings[: max(stop, MAX_FINDINGS_SHOWN)]

    @property
    def summary(self) -> str:
        """One line: sizes, and the time of a fit."""
        used = [column for column in self.columns if column.features]
        features = sum(column.features for column in used)
        return (
            f"{self.n_rows:,} rows, {len(used)} of {len(self.columns)} columns used "
            f"({features} features), target {self.target}; a default fit takes "
            f"{_duration(self.seconds)} on one core"
        )

    @property
    def heading(self) -> str:
        """Whether a fit would run, and the number of findings."""
        n = len(self.findings)
        if not self.fits:
            return "A fit would stop here."
        return f"{n} finding{'s' if n > 1 else ''} to look at." if n else "Nothing looks wrong."

    def __str__(self) -> str:
        rows = [("column", "becomes", "features", "missing", "looks like")]
        rows += [
            (one.name, one.becomes, str(one.features), str(one.missing), one.looks)
            for one in self.columns
        ]
        wide = [max(len(row[k]) for row in rows) for k in range(4)]
        lines = [
            f"{a:{wide[0]}}  {b:{wide[1]}}  {c:>{wide[2]}}  {d:>{wide[3]}}  {e}".rstrip()
            for a, b, c, d, e in rows
        ]
        found = [f"{'!' if one.stops else '-'} {_sentences(one)}" for one in self.shown]
        if more := len(self.findings) - len(found):
            found.append(f"{more} of less weight: see the page (--out), or the attribute findings.")
        return "\n".join([self.summary, "", *lines, "", self.heading, *found])

    def _repr_html_(self) -> str:
        """The page without its frame, for notebooks."""
        kind = "well" if not self.findings else "look" if self.fits else "fault"
        each = [
            f'<p class="advice{" look" if one.stops else ""}">{escape(one.says)} '
            f'<span class="sizes">{escape(one.cure)}</span></p>'
            for one in self.findings
        ]
        first, more = each[: len(self.shown)], each[len(self.shown) :]
        items = "".join(first)
        if more:
            items += f"<details><summary>{len(more)} of less weight</summary>"
            items += f"{''.join(more)}</details>"
        found = f"<h2>What looks wrong</h2><article>{items}</article>" if items else ""
        body = "".join(
            f'<tr><th scope="row">{escape(one.name)}</th>'
            f'<td class="text">{escape(one.becomes)}</td>'
            f'<td class="wide">{one.features}</td><td>{one.missing}</td>'
            f'<td class="text wide">{escape(one.looks)}</td></tr>'
            for one in self.columns
        )
        head = "".join(
            f'<th scope="col"{more}>{name}</th>'
            for name, more in (
                ("column", ""),
                ("becomes", ' class="text"'),
                ("features", ' class="wide"'),
                ("missing", ""),
                ("looks like", ' class="text wide"'),
            )
        )
        return (
            f'<div class="verdict {kind}"><p><strong>{escape(self.heading)}</strong> '
            f"{escape(self.summary)}.</p></div>{found}"
            '<h2>What each column becomes</h2><article><div class="scroll"><table>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></article>"
        )

    def html(self, title: str = "Table check") -> str:
        """One self-contained page."""
        style = files("sharpgp.report").joinpath("style.css").read_text(encoding="utf-8")
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(title)}</title><style>{style}</style></head><body><header><div>"
            f"<h1>{escape(title)}</h1></div></header><main>{self._repr_html_()}</main></body></html>"
        )

    def write(self, path: str | os.PathLike[str], title: str = "Table check") -> Path:
        """Write the page to a file."""
        with replacing(path) as temporary:
            temporary.write_text(self.html(title), encoding="utf-8")
        return Path(path)


def check(
    X: ArrayLike,
    y: ArrayLike,
    *,
    groups: str | None = None,
    missing: float | str | Sequence[float | str] = (),
    target: str | None = None,
    decimal: str | None = None,
    dates: str | None = None,
    first_row: int = 0,
) -> TableCheck:
    """Look at a table before any fit: what each column becomes, and what looks wrong.

    Parameters
    ----------
    X : data frame, or array of shape (n, d)
    y : array of shape (n,), or the name of a column of ``X``
    groups : str, optional
        Name of a column that says which rows belong together; it is no feature.
    missing : number, str or a list of these
        Markers of missing values.
    target : str, optional
        Name of the target.
    decimal, dates : str, optional
        How to read texts that could be read in two ways, see
        :meth:`sharpgp.data.TableEncoding.learn`.
    first_row : int
        Number of the first row, for messages.

    Returns
    -------
    TableCheck

    Examples
    --------
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"area": rng.uniform(20, 90, 80), "city": rng.choice(["A", "B"], 80)})
    >>> rent = 12 * table["area"].to_numpy() + rng.normal(0, 50, 80)
    >>> found = check(table.assign(yearly=12 * rent), rent)
    >>> print(found.findings[0].says)
    'yearly' alone explains 100.00 % of y.
    """
    given = (missing,) if isinstance(missing, str | int | float) else tuple(missing)
    marks = tuple(map(text_of_mark, given))
    X = collected(X)
    table: Any = X if is_frame(X) else _as_table(X)
    names = names_of(table)
    label = target or (y if isinstance(y, str) else str(getattr(y, "name", None) or "y"))
    aside = [name for name in (y, groups) if isinstance(name, str)]
    for name in aside:
        require_columns([name], names)
    names = [name for name in names if name not in aside]
    out: list[Suspicion] = []
    of_y = values_of(table, y) if isinstance(y, str) else values_of({"y": y}, "y")
    targets = _targets(label, texts.without(of_y, marks), first_row, decimal, out)
    readable, read, refused = _readable(table, names, marks, first_row, decimal, dates, out)
    settings: dict[str, Any] = {"marks": marks, "decimal": decimal, "dates": dates}
    known = np.isfinite(targets)
    # A fit learns from rows with a target alone.
    columns_read = [values_of(table, name) for name in readable]
    labelled = [one[known] for one in columns_read] if known.any() else columns_read
    both = NamedColumns(labelled, readable), NamedColumns(columns_read, readable)
    encoded = _encoded(*both, first_row, settings, out) if readable else None
    if encoded is not None and known.any():
        usual = np.isfinite(_usual(targets))
        part = Encoded(encoded.features[usual], encoded.missing[usual], encoded.encoding)
        out += leaks_of(part, targets[usual], label)
        out += censoring(read, label, targets)
        out += suspicions(_numbers(encoded), targets, label, first_row)
        for rule in (_copies, _gaps, _few):
            out += rule(encoded, _usual(targets), label)
        # Rows of one group are alike, in whatever order they come.
        if groups is None:
            out += _groups(read, _usual(targets)) or _order(encoded, _usual(targets), label)
    columns = _columns(names, read, refused, encoded, known if known.any() else ~known)
    order = sorted(out, key=lambda one: (not one.stops, _KINDS.index(one.kind)))
    wanted = 0 if encoded is None else len(encoded.encoding.lengthscales)
    seconds = _seconds(int(known.sum()), wanted)
    return TableCheck(tuple(columns), tuple(order), int(known.sum()), label, seconds)


def suspicions(
    columns: dict[str, np.ndarray], y: np.ndarray, target: str, first_row: int = 0
) -> list[Suspicion]:
    """Suspicious values in columns of numbers and in the target.

    Examples
    --------
    >>> [one.says for one in suspicions({"x": np.array([1.0, 2, 3, -999])}, np.arange(4.0), "y")]
    ["'x': one value is -999, far from all others."]
    """
    named = {f"{name!r}": data for name, data in columns.items()} | {target: y}
    return [one for name in named for one in _values(name, named[name], first_row)]


def _usual(y: np.ndarray) -> np.ndarray:
    """Targets without far ones: a single wrong value hides the pattern of the others."""
    return np.where(_far(y), np.nan, y)


def _far(values: np.ndarray) -> np.ndarray:
    """Which values lie far from all others."""
    known = values[np.isfinite(values)]
    low, high = plausible_range(known) if len(known) else (-np.inf, np.inf)
    return np.asarray((values < low) | (values > high))


def _as_table(X: Any) -> NamedColumns:
    array = np.asarray(X)
    if array.ndim != 2:
        raise InvalidInputError(f"X: expected a table of rows and columns, found {array.shape}")
    return NamedColumns(array.T, [f"x{j}" for j in range(array.shape[1])])


def _targets(
    name: str, values: Values, first_row: int, decimal: str | None, out: list[Suspicion]
) -> np.ndarray:
    """Targets as numbers, NaN if missing; findings are added to ``out``."""
    try:
        written = texts.learn(name, values, first_row, decimal)
    except InvalidInputError as error:
        out.append(Suspicion("target", _sentence(str(error)), stops=True))
        return np.full(len(values.data), np.nan)
    if written is not None and not written.dates:
        values = written.read(name, values, first_row)
        out.append(Suspicion("target", f"{name} is text, read as numbers: {written.reading}."))
    if values.holds not in ("number", "boolean"):
        out.append(
            Suspicion("target", f"{name} holds {values.holds}.", "Numbers are expected.", True)
        )
        return np.full(len(values.data), np.nan)
    data = np.where(values.missing, np.nan, values.data)
    known = data[np.isfinite(data)]
    if len(known) < len(data):
        says = f"{name} is missing in {_of(len(data) - len(known), len(data))} rows."
        out.append(Suspicion("target", says, "They are left out."))
    if len(known) and np.ptp(known) == 0:
        out.append(Suspicion("target", f"{name} is {known[0]:g} in every row.", stops=True))
    return data


def _readable(
    table: Any,
    names: Sequence[str],
    marks: tuple[str, ...],
    first_row: int,
    decimal: str | None,
    dates: str | None,
    out: list[Suspicion],
) -> tuple[list[str], dict[str, Values], set[str]]:
    """Columns a fit can read, names of all columns, and columns it would refuse."""
    read: dict[str, Values] = {}
    refused: set[str] = set()
    for name in names:
        try:
            values = texts.without(values_of(table, name), marks)
            read[name] = values
            written = texts.learn(name, values, first_row, decimal, dates)
            read[name] = written.read(name, values, first_row) if written else values
            if read[name].holds == "number" and np.isinf(read[name].data).any():
                row = first_row + int(np.argmax(np.isinf(read[name].data)))
                raise InvalidInputError(f"column {name!r}: found inf in row {row}")
        except InvalidInputError as error:
            out.append(Suspicion("columns", _sentence(str(error)), stops=True))
            refused.add(name)
    return [name for name in names if name not in refused], read, refused


def _encoded(
    labelled: Any, table: Any, first_row: int, settings: dict[str, Any], out: list[Suspicion]
) -> Encoded | None:
    """The table encoded as in a fit to labelled rows; its warnings and errors become findings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            encoding = TableEncoding.learn(labelled, first_row, **settings)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                encoded = encoding.encode(table, first_row)
        except InvalidInputError as error:
            out.append(Suspicion("columns", _sentence(str(error)), stops=True))
            return None
    for one in caught:
        says, _, cure = str(one.message).removeprefix("X: ").partition("; ")
        out.append(Suspicion("columns", _sentence(says), _sentence(cure) if cure else ""))
    return encoded


def _gaps(rows: Encoded, y: np.ndarray, target: str) -> list[Suspicion]:
    share = rows.missing.mean(axis=0)
    mostly = [name for name, part in zip(rows.encoding.names, share, strict=True) if part > 0.5]
    if not mostly:
        return []
    says = f"{', '.join(map(repr, mostly))}: more than half of the values are missing."
    return [Suspicion("gaps", says, "Intervals rest on the rows that have them.")]


def _values(name: str, data: np.ndarray, first_row: int) -> list[Suspicion]:
    """Findings about values: markers of missing ones, far values, values that dwarf the others."""
    known = data[np.isfinite(data)]
    if not len(known):
        return []
    mark = likely_mark(known)
    if mark is not None:
        says = f"{name}: {_count(int((known == mark).sum()))} {mark:g}, far from all others."
        cure = f"If it stands for a missing value, take it out with missing=[{mark:g}]."
        return [Suspicion("values", says, cure)]
    far = np.flatnonzero(_far(data))
    if len(far):
        rest = np.delete(data, far)
        found = ", ".join(f"{data[row]:g} in row {first_row + row}" for row in far)
        between = f"{np.nanmin(rest):g} to {np.nanmax(rest):g}"
        says = f"{name}: {found}, far from all others ({between})."
        return [Suspicion("values", says, "Check it, or leave the row out.")]
    if is_flattened(known):
        says = f"{name}: a few values are so large that all others look the same beside them."
        return [Suspicion("values", says, "Check them, or take logarithms.")]
    return []


def _copies(rows: Encoded, y: np.ndarray, target: str) -> list[Suspicion]:
    both = np.column_stack([rows.features, y])[np.isfinite(y)]
    n = len(both) - len(np.unique(both, axis=0))
    out = []
    if n:
        says = f"{_of(n, len(both))} rows repeat another one in every column and in {target}."
        cure = "Copies count once; separate measurements need a column that tells them apart."
        out.append(Suspicion("copies", says, cure))
    seen: dict[bytes, str] = {}
    for name, data in _numbers(rows).items():
        first = seen.setdefault(data.tobytes(), name)
        if first != name:
            says = f"{name!r} repeats {first!r} in every row."
            out.append(Suspicion("copies", says, "Leave one of them out."))
    return out


def _order(rows: Encoded, y: np.ndarray, target: str) -> list[Suspicion]:
    """Finding if targets follow the ones before in time, by more than the columns explain."""
    known = np.isfinite(y)
    n, least = int(known.sum()), MIN_CHAIN
    if n < MIN_ROWS_CHAIN:
        return []
    least = max(least, CHAIN / math.sqrt(n))
    read = rows.encoding.decode(rows.features)
    orders = {
        name: np.argsort(values.data[known], kind="stable")
        for name, values in read.items()
        if values.holds == "date" or _is_year(values)
    }
    # Rows sorted by a feature, or by the target, are in no order of time.
    by = [data[known] for data in _numbers(rows).values()]
    if not orders and not any(_is_sorted(values) for values in (*by, y[known])):
        orders = {"": np.arange(n)}
    for name, order in orders.items():
        if _alike(y[known][order]) <= least:
            continue
        others = np.delete(rows.features[known], rows.encoding.places.get(name, []), axis=1)
        before = _alike(_unexplained(others, y[known])[order])
        if before > least:
            along = f"along {name!r}" if name else "and rows are in no random order"
            says = (
                f"{target} is like that of the row before, {along}, by more than the other columns "
                f"explain (correlation {before:.2f})."
            )
            first = f"sort the rows by {name!r} and " if name else ""
            ordered = "use calibration=CrossValidated(folds='ordered')."
            cure = f"To predict what comes next, {first}{ordered}"
            return [Suspicion("order", says, cure)]
    return []


def _alike(series: np.ndarray) -> float:
    """Correlation of each value with the one before."""
    return float(np.corrcoef(series[:-1], series[1:])[0, 1]) if np.ptp(series) > 0 else 0.0


def _unexplained(features: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What a forest leaves of the targets (n,), each predicted by trees that have not seen it."""
    from sklearn.ensemble import RandomForestRegressor

    if not features.size:
        return y
    forest = RandomForestRegressor(60, min_samples_leaf=3, oob_score=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = forest.fit(np.nan_to_num(features), y).oob_prediction_
    return np.asarray(y - found)


def _few(rows: Encoded, y: np.ndarray, target: str) -> list[Suspicion]:
    n, wanted = int(np.isfinite(y).sum()), len(rows.encoding.lengthscales)
    if n >= MIN_ROWS_PER_LENGTHSCALE * wanted:
        return []
    says = f"{n} rows are few for {wanted} lengthscales ({len(rows.encoding.columns)} columns)."
    cure = (
        "Expect wide intervals, or leave columns out: aim for "
        f"{MIN_ROWS_PER_LENGTHSCALE} rows for each."
    )
    return [Suspicion("few", says, cure)]


def _is_year(values: Values) -> bool:
    """Whether numbers are years, in order."""
    present = values.data[~values.missing]
    if values.holds != "number" or len(present) < 2:
        return False
    inside = 1800 <= present.min() < present.max() <= 2100
    return bool(inside and (present % 1 == 0).all() and _is_sorted(present))


def _comes_in_blocks(values: Values) -> bool:
    """Whether the rows of each level are adjacent."""
    codes = _codes(values)
    levels = int(codes.max()) + 1
    return len(codes) >= MIN_ROWS_PER_GROUP * levels and int((np.diff(codes) != 0).sum()) < levels


def _groups(read: dict[str, Values], y: np.ndarray) -> list[Suspicion]:
    """Finding about the column that may be the groups, and explains most of the target.

    It determines other columns, or its rows stand one below the other.
    """
    found = []
    codes = {name: _codes(values) for name, values in read.items()}
    known = np.isfinite(y)
    for name, values in read.items():
        if not (values.holds == "text" or values.whole) or values.missing.any():
            continue
        levels = int(codes[name].max()) + 1
        n = len(codes[name])
        if not MIN_GROUPS <= levels <= n / MIN_ROWS_PER_GROUP:
            continue
        share = share_of_levels(codes[name][known], y[known])
        told = [
            other
            for other in read
            if other != name
            and 2 < len(np.unique(codes[other])) <= levels
            and len(np.unique(codes[name] * n + codes[other])) == levels
        ]
        blocks = _comes_in_blocks(values)
        if values.whole and not told:
            blocks = blocks and share > 0 and _are_names(values.data[known], y[known])
        if (told or blocks) and share < TWIN_SHARE:
            why = f"which tells {', '.join(map(repr, told[:3]))}" if told else "one below the other"
            says = f"Rows seem to form {levels} groups by {name!r}, {why}."
            cure = f"If new rows are of new groups, use groups={name!r}."
            found.append((share, Suspicion("groups", says, cure)))
    return [max(found, key=lambda pair: pair[0])[1]] if found else []


def _are_names(numbers: np.ndarray, y: np.ndarray) -> bool:
    """Whether numbers only name rows: means of ``y`` at neighbouring numbers are not alike."""
    _, level = np.unique(numbers, return_inverse=True)
    means = np.bincount(level, weights=y) / np.bincount(level)
    return _alike(means) < 2 / math.sqrt(len(means))


def _codes(values: Values) -> np.ndarray:
    _, codes = np.unique(np.where(values.missing, "", values.data.astype(str)), return_inverse=True)
    return np.asarray(codes)


def _numbers(rows: Encoded) -> dict[str, np.ndarray]:
    """Columns of numbers by name, NaN where missing."""
    read = rows.encoding.decode(rows.features)
    return {name: values.data for name, values in read.items() if values.holds == "number"}


def _is_sorted(values: np.ndarray) -> bool:
    steps = np.diff(values[np.isfinite(values)])
    return bool(len(steps)) and bool((steps >= 0).all() or (steps <= 0).all())


def _columns(
    names: Iterable[str],
    read: dict[str, Values],
    refused: set[str],
    encoded: Encoded | None,
    labelled: np.ndarray,
) -> list[CheckedColumn]:
    known = {} if encoded is None else {one.name: one for one in encoded.encoding.columns}
    out = []
    for name in names:
        values = read.get(name)
        missing = 0 if values is None else int(values.missing[labelled].sum())
        looks = "" if values is None else _looks(values)
        if name in known:
            one = known[name]
            becomes = ", ".join([one.kind, *one.seasons])
            becomes += f" ({one.written.unit})" if one.written and one.written.unit else ""
            out.append(CheckedColumn(name, becomes, len(one.features), missing, looks))
        else:
            becomes = "refused" if name in refused else "left out"
            out.append(CheckedColumn(name, becomes, 0, missing, looks))
    return out


def _looks(values: Values) -> str:
    """Typical values: a range, or the most frequent ones."""
    present = values.data[~values.missing]
    if not len(present):
        return "empty"
    if values.holds == "date":
        ends = (np.datetime64(int(day // 1), "D") for day in (present.min(), present.max()))
        return " to ".join(map(str, ends))
    if values.holds in ("number", "boolean"):
        return f"{present.min():.6g} to {present.max():.6g}"
    found, counts = np.unique(present.astype(str), return_counts=True)
    top = [f"{found[k]:.20}" for k in np.argsort(-counts, kind="stable")[:3]]
    return f"{', '.join(top)}{f' and {len(found) - 3} more' if len(found) > 3 else ''}"


def _seconds(n_rows: int, n_columns: int) -> float:
    """Seconds of a fit, and of loading the library."""
    rows, seconds = (np.log([pair[k] for pair in _FIT_SECONDS]) for k in (0, 1))
    base = math.exp(float(np.interp(math.log(max(n_rows, 1)), rows, seconds)))
    return _START + base * (max(n_columns, 1) / _COLUMNS) ** _POWER_OF_COLUMNS


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(5, 5 * round(seconds / 5))} s"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min"
    return "hours"


def _sentences(one: Suspicion) -> str:
    return f"{one.says} {one.cure}".strip()


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _of(n: int, total: int) -> str:
    return f"{n:,} of {total:,}"


def _count(n: int) -> str:
    return "one value is" if n == 1 else f"{n:,} values are"
