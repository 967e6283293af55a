"""Parser of numbers and dates written as text, for features and targets.

A column is read in one way, which is learned from its training rows and kept: a decimal mark and a
unit, or a format of dates.  Where its texts fit two ways that disagree, the user is asked.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product

import numpy as np

from sharpgp._stored import stored
from sharpgp.data.reading import Values, days_of
from sharpgp.exceptions import InvalidInputError

#: Texts that mark a missing value. "None" is not one: as a category it says more than a gap.
MISSING = (
    *("", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "NULL", "null"),
    # A spreadsheet's errors, in English, German and French.
    *("#DIV/0!", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!", "#NV", "#BEZUG!", "#WERT!"),
    *("#ZAHL!", "#NOM?", "#NOMBRE!", "#VALEUR!"),
)
# Different texts, absolute and as a share of the rows, beyond which no category could be learned.
_MANY, _MOST_DIFFERENT = 20, 0.5
_CODES = (
    "EUR|USD|GBP|CHF|JPY|CNY|SEK|NOK|DKK|PLN|CZK|HUF|INR|AUD|CAD|NZD|BRL|MXN|ZAR|S?Fr\\.?|kr\\.?"
)
# Money, sign, digits with marks, exponent, deviation, unit: $ 1,234.50, -3e5, 5.1±0.2, 120.5 km/h;
# and what accounts write: 12.- or 12,-- for no cents, 12.50- and (12.50) for less than nothing.
_NUMBER = re.compile(
    rf"(?P<sign>[-+−]?)\s*(?P<money>(?:[A-Z]{{0,3}}[$€£¥₹]|{_CODES})?)\s*(?P<minus>[-+−]?)"
    r"(?P<body>[\d.,](?:[\d.,'’]|[\s'’](?=\d{3}))*)(?P<power>(?:[eE][-+]?\d+)?)"
    r"(?P<after>(?:\s*(?:±|\+/?-)\s*[\d.,]+|[-−–—]{1,2})?)"
    r"\s*(?P<unit>(?:(?:[^\W\d_]|[%‰°€$£¥₹\"″′]).{0,15})?)"
)
# A number by each decimal mark; groups of three digits have one of the other marks between them.
_BY_MARK = {
    mark: re.compile(
        rf"(?=.*\d)(\d*|[1-9]\d{{0,2}}(?P<group>[{other}\s'’])\d{{3}}((?P=group)\d{{3}})*)"
        rf"(\{mark}\d*)?"
    )
    for mark, other in ((".", ","), (",", "."))
}
_ISO = "iso"
_DAYS = (
    *("%Y/%m/%d", "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y"),
    *("%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%d %B %Y"),
    *("%B %d, %Y", "%d. %b %Y", "%d. %B %Y", "%Y-%m", "%b %Y", "%B %Y"),
)
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_FORMATS = (_ISO, *(day + time for day, time in product(_DAYS, _TIMES)))


@stored("Written")
@dataclass(frozen=True)
class Written:
    """Format of a column of text: numbers with decimal mark and unit, or dates.

    Attributes
    ----------
    decimal : str
        ``"."`` or ``","``; empty for dates.
    unit : str
        What stands around the number, such as ``"$"`` or ``"kg"``.
    dates : str
        Format of ``strptime``, or ``"iso"``; empty for numbers.
    example : str
        A text of the training rows, for messages.
    """

    decimal: str = ""
    unit: str = ""
    dates: str = ""
    example: str = ""

    @property
    def reading(self) -> str:
        """The example, and what it is read as."""
        read = (
            _date(self.example, self.dates) if self.dates else _number(self.example, self.decimal)
        )
        return (
            f"{self.example!r} = {read:%Y-%m-%d}"
            if self.dates
            else f"{self.example!r} = {read:.15g}"
        )

    def read(self, name: str, values: Values, first_row: int) -> Values:
        """Parse texts into numbers or dates; errors name the row.

        Examples
        --------
        >>> texts = Values("text", np.array(["1.234,5 kg", "7 kg", ""]), np.array([False] * 3))
        >>> Written(",", "kg").read("weight", texts, 0).data.tolist()
        [1234.5, 7.0, nan]
        """
        values = without(values, MISSING)
        known: dict[str, float] = {}
        for text in dict.fromkeys(_present(values)):
            if self.dates:
                day = _date(text, self.dates)
                number = None if day is None else float(days_of([day])[0])
            else:
                number = _number(text, self.decimal) if _unit(text) in (self.unit, "") else None
            if number is None:
                row = first_row + int(np.argmax(values.data == text))
                raise InvalidInputError(
                    f"column {name!r}: expected {'dates' if self.dates else 'numbers'} as in "
                    f"training, such as {self.example!r}, found {text!r} in row {row}"
                )
            known[text] = number
        data = np.array([known.get(text, np.nan) for text in values.data], dtype=np.float64)
        whole = not self.dates and bool((data[~values.missing] % 1 == 0).all())
        return Values("date" if self.dates else "number", data, np.isnan(data), whole=whole)


def without(values: Values, marks: Collection[str]) -> Values:
    """Mark these texts as missing; numbers are compared as numbers.

    Examples
    --------
    >>> numbers = Values("number", np.array([1.0, -999.0]), np.array([False, False]))
    >>> without(numbers, ["-999"]).data.tolist()
    [1.0, nan]
    """
    if not marks or values.holds == "date":
        return values
    if values.holds == "text":
        found = np.array([text.strip() in marks for text in values.data], dtype=bool)
        data = values.data
    else:
        as_numbers = [_number(str(mark), ".") for mark in marks]
        found = np.isin(values.data, [number for number in as_numbers if number is not None])
        data = np.where(found, np.nan, values.data)
    return replace(values, data=data, missing=values.missing | found)


def learn(
    name: str, values: Values, first_row: int, decimal: str | None = None, dates: str | None = None
) -> Written | None:
    """Learn how a column writes numbers or dates; None for other text.

    Parameters
    ----------
    name : str
        Of the column, for errors about texts that fit no way, or several.
    values : Values
    first_row : int
    decimal, dates : str, optional
        What to take where texts fit several ways.

    Examples
    --------
    >>> texts = Values("text", np.array(["$1,234.50", "$7.00"]), np.array([False, False]))
    >>> learn("price", texts, 0)
    Written(decimal='.', unit='$', dates='', example='$1,234.50')
    """
    if not _is_plain_text(values):
        return None
    different = list(dict.fromkeys(_present(without(values, MISSING))))
    if not any(char.isdigit() for text in different for char in text):
        return None
    of_numbers = _numbers(name, values, different, first_row, decimal)
    return of_numbers or _dates(name, values, different, first_row, dates)


def _numbers(
    name: str, values: Values, different: list[str], first_row: int, decimal: str | None
) -> Written | None:
    """Common unit and decimal mark of all texts; an error if only most have them."""
    marks = {text: _decimals(text) for text in different}
    units = {text: _unit(text) for text in different if marks[text]}
    if any(_is_code(text) for text in units):
        return None
    kinds = Counter(units.values()).most_common()
    if not kinds:
        return None
    unit, size = kinds[0]
    of_kind = [text for text in units if units[text] == unit]
    others = [text for text in different if units.get(text) != unit]
    two = len(kinds) == 2 and len(units) == len(different) > _MANY
    if others and not (size > len(others) or two):
        return None
    if others:
        found, other = units.get(others[0]), of_kind[0]
        if found is None:
            wanted = f"numbers, such as {other!r}" if unit else "numbers"
            raise _refused(name, values, others[0], first_row, wanted, "correct it")
        wanted = f"numbers of one unit, such as {other!r}"
        raise _refused(name, values, others[0], first_row, wanted, "convert them to the same unit")
    possible = [mark for mark in ".," if all(mark in marks[text] for text in of_kind)]
    if not possible:
        comma, point = (next(text for text in of_kind if mark not in marks[text]) for mark in ".,")
        wanted = f"one decimal mark, as in {point!r}"
        raise _refused(name, values, comma, first_row, wanted, "write all of them alike")
    marked = [text for text in of_kind if "," in text or "." in text]
    if len(possible) == 2 and marked and decimal is None:
        mark, other = (",", ".") if "," in marked[0] else (".", ",")
        thousands, fraction = (f"{_number(marked[0], one):.15g}" for one in (other, mark))
        as_fraction = ".str.replace(',', '.')" if mark == "," else ".astype(float)"
        cure = (
            f"it may be {thousands}, with .str.replace({mark!r}, ''), or {fraction}, with "
            f"{as_fraction}"
        )
        raise _refused(name, values, marked[0], first_row, "one way to read it", cure)
    mark = decimal if decimal in possible else possible[0]
    return Written(mark, unit, example=max(of_kind, key=len))


def _dates(
    name: str, values: Values, different: list[str], first_row: int, asked: str | None
) -> Written | None:
    """Common date format of all texts; an error if only most have it, or two fit."""
    formats = [form for form in _FORMATS if any(_day(text, form) for text in different[:20])]
    formats = [asked] if asked and all(_date(text, asked) for text in different) else formats
    read = {form: [_date(text, form) for text in different] for form in formats}
    if not read:
        return None
    best = max(read, key=lambda form: sum(map(bool, read[form])))
    days = read[best]
    if not all(days):
        if sum(map(bool, days)) * 2 <= len(days):
            return None
        odd, even = days.index(None), next(k for k, day in enumerate(days) if day)
        wanted = f"dates, such as {different[even]!r}"
        raise _refused(name, values, different[odd], first_row, wanted, "correct it")
    for form, other in read.items():
        if all(other) and other != days:
            k = next(k for k, day in enumerate(days) if day != other[k])
            raise _refused(
                name,
                values,
                different[k],
                first_row,
                "one way to read it",
                f"it may be {days[k]:%Y-%m-%d}, with pandas.to_datetime(..., format={best!r}), "
                f"or {other[k]:%Y-%m-%d}, with format={form!r}",
            )
    return Written(dates=best, example=different[0])


def are_days(written: Iterable[str]) -> bool:
    """Whether texts are days such as 20240131.

    Examples
    --------
    >>> are_days(["20240131", "20231201"]), are_days(["20240131", "20241301"])
    (True, False)
    """
    return all(_day(text, "%Y%m%d") is not None for text in written)


def differ_in_most_rows(values: Values) -> bool:
    """Whether texts differ in too many rows to be categories."""
    if not _is_plain_text(values):
        return False
    present = _present(values)
    different = len(set(present))
    return different > _MANY and different > _MOST_DIFFERENT * len(present)


def nearly_equal(values: Values) -> tuple[str, str] | None:
    """Two texts that differ only by case or surrounding spaces, or None."""
    seen: dict[str, str] = {}
    for text in sorted(set(_present(values))) if _is_plain_text(values) else ():
        other = seen.setdefault(" ".join(text.split()).casefold(), text)
        if other != text:
            return other, text
    return None


def _refused(
    name: str, values: Values, found: str, first_row: int, wanted: str, cure: str
) -> InvalidInputError:
    row = first_row + int(np.argmax(values.data == found))
    more = f", take it out with missing=[{found!r}]" if cure == "correct it" else ""
    return InvalidInputError(
        f"column {name!r}: expected {wanted}, found {found!r} in row {row}; {cure}{more}, or make "
        "the column categorical"
    )


def _decimals(text: str) -> str:
    """Decimal marks with which a text is a number; empty if none."""
    found = _matched(text)
    return "".join(mark for mark in ".," if found and _BY_MARK[mark].fullmatch(found["body"]))


def _matched(text: str) -> re.Match[str] | None:
    plain = text.strip()
    return _NUMBER.fullmatch(plain[1:-1] if _in_brackets(plain) else plain)


def _in_brackets(plain: str) -> bool:
    return plain[:1] == "(" and plain[-1:] == ")"


def _unit(text: str) -> str:
    found = _matched(text)
    return found["money"] + found["unit"] if found else ""


def _number(text: str, decimal: str) -> float | None:
    found = _matched(text)
    if not (found and _BY_MARK[decimal].fullmatch(found["body"])):
        return None
    kept = re.sub(rf"[^\d{decimal}]", "", found["body"]).replace(",", ".")
    size = float(kept + found["power"])
    owed = found["after"] in ("-", "−") and found["body"][-1] not in ".,"
    negative = {found["sign"], found["minus"]} & {"-", "−"} or owed or _in_brackets(text.strip())
    return -size if negative else size


def _is_code(text: str) -> bool:
    """Whether digits are a code, with a leading zero: 0041, 007."""
    plain = text.strip()
    return plain.isdigit() and len(plain) > 1 and plain[0] == "0"


def _date(text: str, form: str) -> datetime | None:
    """Parse a date in a format, or in the unambiguous ISO format."""
    return _day(text, form) or _day(text, _ISO)


def _day(text: str, form: str) -> datetime | None:
    try:
        day = (
            datetime.fromisoformat(text.strip())
            if form == _ISO
            else datetime.strptime(text.strip(), form)
        )
    except ValueError:
        return None
    return day.replace(tzinfo=None)


def _is_plain_text(values: Values) -> bool:
    return values.holds == "text" and not values.declared


def _present(values: Values) -> list[str]:
    present: list[str] = values.data[~values.missing].tolist()
    return present
