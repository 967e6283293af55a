"""Numbers as people write them: thousands with commas, no more digits than they carry."""

import math

import numpy as np


def number(value: float, digits: int = 4, *, like: float = 0.0) -> str:
    """A number with ``digits`` significant digits; with ``like``, three digits of that.

    ``like`` is the deviation of the target, so that all its values have the same precision.

    Examples
    --------
    >>> number(599123.4, 3), number(0.0312345), number(3.0), number(1e-7)
    ('599,000', '0.03123', '3', '1e-07')
    >>> number(1411235.0, like=152000.0), number(3.14159, like=0.52)
    ('1,411,000', '3.142')
    """
    value = float(value)
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    size = abs(value) if like == 0 or not math.isfinite(like) else abs(like)
    decimals = (digits if like == 0 else 3) - 1 - math.floor(math.log10(size))
    rounded = round(value, decimals)
    if rounded != 0 and not 1e-5 <= abs(rounded) < 1e15:
        return f"{value:.{digits}g}"
    text = f"{rounded:,.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float) -> str:
    """Three digits of a share, in percent.

    Examples
    --------
    >>> percent(0.9512), percent(0.95)
    ('95.1 %', '95 %')
    """
    return f"{100 * share:.3g} %"


def day(value: float) -> str:
    """Days since 1970 as a date, with the time where there is one.

    Examples
    --------
    >>> day(20089.0), day(20089.5)
    ('2025-01-01', '2025-01-01 12:00')
    """
    whole = math.floor(value)
    minutes = round((value - whole) * 1440)
    text = str(np.datetime64(whole, "D") + np.timedelta64(minutes // 1440, "D"))
    minutes %= 1440
    return f"{text} {minutes // 60:02d}:{minutes % 60:02d}" if minutes else text
