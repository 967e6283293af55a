"""Numbers and places as words."""

from sharpgp.report.numbers import ROWS, Numbers


def percent(share: float) -> str:
    """Three digits of a share, in percent.

    Examples
    --------
    >>> percent(0.9512), percent(0.95)
    ('95.1 %', '95 %')
    """
    return f"{100 * share:.3g} %"


def numeral(n: int) -> str:
    """A count with commas.

    Examples
    --------
    >>> numeral(1200)
    '1,200'
    """
    return f"{n:,}"


def count(n: int, of: int) -> str:
    """``None``, ``All`` or the number."""
    return "None" if n == 0 else "All" if n == of else str(n)


def place_of(name: str, bins: list[Numbers], i: int) -> str:
    """Words for group ``i`` along a feature, along the rows, or along widths ("").

    Examples
    --------
    >>> bins = [{"from": 0.0, "to": 1.5, "ends": ["0", "1.5"], "n": 3}]
    >>> bins += [{"from": 1.5, "to": 4.0, "ends": ["1.5", "4"], "n": 3}]
    >>> place_of("dose_mg", bins, 1), place_of("", bins, 0)
    ('dose_mg 1.5 to 4', 'the narrowest intervals')
    """
    if not name and len(bins) > 1 and i in (0, len(bins) - 1):
        return "the narrowest intervals" if i == 0 else "the widest intervals"
    if name == ROWS:
        # A group excludes its lower edge, except the first group.
        first = bins[i]["from"] + (i > 0)
        return f"rows {first:.0f} to {bins[i]['to']:.0f}"
    if bins[i].get("category"):
        return f"{name} = {bins[i]['ends'][0]}"
    ends = " to ".join(bins[i]["ends"])
    return f"intervals of width {ends}" if not name else f"{name} {ends}"


def place_of_gaps(pattern: str) -> str:
    """Rows that lack the same columns, in words.

    Examples
    --------
    >>> place_of_gaps("pH"), place_of_gaps("complete")
    ('rows without pH', 'rows without gaps')
    """
    return {"complete": "rows without gaps", "others": "rows with rare gaps"}.get(
        pattern, f"rows without {pattern}"
    )
