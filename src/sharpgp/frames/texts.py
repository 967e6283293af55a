"""What the texts of a column may be, other than categories."""

import re

import numpy as np

from sharpgp.exceptions import InvalidInputError
from sharpgp.frames.reading import Values

# Different texts, absolute and as a share of the rows, from which they read like identifiers.
_MANY, _MOST_DIFFERENT = 20, 0.5
# A date by numbers, such as 2025-01-31 or 31/1/25, alone or with a time of day.
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ]+\d{1,2}:.*)?$")
# A number between a sign for money and a unit, such as $3.50, 12 % or 4.1mm.
_MEASURE = re.compile(r"([^\w\s+.-]?)\s*([+-]?\d+(?:\.\d+)?)\s*([^\d\s.,:/-]*)$")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?$")


def is_identifier(values: Values) -> bool:
    """Whether texts differ in so many rows that they read like names of these rows."""
    if not _is_plain_text(values):
        return False
    present = _present(values)
    different = len(set(present))
    return different > _MANY and different > _MOST_DIFFERENT * len(present)


def are_dates(values: Values) -> bool:
    """Whether all texts are dates by numbers."""
    present = _present(values) if _is_plain_text(values) else []
    return bool(present) and all(_DATE.match(text) for text in present)


def nearly_equal(values: Values) -> tuple[str, str] | None:
    """Two texts that differ by surrounding spaces or capital letters alone, if there are any."""
    seen: dict[str, str] = {}
    for text in sorted(set(_present(values))) if _is_plain_text(values) else ():
        other = seen.setdefault(" ".join(text.split()).casefold(), text)
        if other != text:
            return other, text
    return None


def refuse_odd_numbers(name: str, values: Values, first_row: int) -> None:
    """Raise for numbers as text with a few that are none, such as a question mark for a gap.

    So do numbers with commas or units, which would pass for categories or for names of rows.
    """
    if not _is_plain_text(values):
        return
    different = list(dict.fromkeys(_present(values)))

    def refuse(wanted: str, found: str, cure: str) -> None:
        row = first_row + int(np.argmax(values.data == found))
        raise InvalidInputError(
            f"column {name!r}: expected {wanted}, found {found!r} in row {row}; {cure}, or make "
            "the column categorical"
        )

    commas = [text for text in different if "," in text]
    if commas and all(_is_number(text) or _THOUSANDS.match(text) for text in different):
        plain, point = commas[0].replace(",", ""), commas[0].replace(",", ".", 1)
        cure = f"write {plain!r}"
        if _is_number(point):
            cure += f", or {point!r} if it is a decimal comma"
        refuse("numbers without commas", commas[0], cure)
    if commas and all(_is_number(text.replace(",", ".", 1)) for text in different):
        point = commas[0].replace(",", ".", 1)
        refuse("numbers with a decimal point", commas[0], f"write {point!r}")
    if found := _measured(different):
        refuse("numbers alone", different[0], f"write {found!r}")
    odd = [text for text in different if not _is_number(text)]
    if 0 < len(odd) < len(different) - len(odd):
        refuse("numbers", odd[0], "correct it")


def _measured(different: list[str]) -> str:
    """The first number, if all texts are numbers of one unit, with decimals somewhere; or ""."""
    parts = [_MEASURE.match(text) for text in different]
    if len(parts) <= _MANY or not all(parts):
        return ""
    around = {(part[1], part[3]) for part in parts if part}
    decimals = any(part and "." in part[2] for part in parts)
    if len(around) > 1 or around == {("", "")} or not decimals:
        return ""
    return parts[0][2] if parts[0] else ""


def _is_plain_text(values: Values) -> bool:
    return values.holds == "text" and not values.declared


def _present(values: Values) -> list[str]:
    present: list[str] = values.data[~values.missing].tolist()
    return present


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
