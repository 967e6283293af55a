"""Edges of groups of points as text."""

import numpy as np

from sharpgp.diagnostics.chance import Floats

_DIGITS = (6, 5, 4, 3)


def texts_of(edges: Floats, *, dates: bool = False) -> list[str]:
    """Edges [k] with enough digits to tell them apart; days since 1970 as dates.

    Examples
    --------
    >>> texts_of(np.array([0.123456, 4.0, 15.01])), texts_of(np.array([2001.0, 2004.0, 2008.0]))
    (['0.123', '4', '15'], ['2001', '2004', '2008'])
    >>> texts_of(np.array([0.3, 0.1 + 0.2]))  # they differ by rounding
    ['0.3', '0.3']
    >>> texts_of(np.array([20089.0, 20123.5]), dates=True)
    ['2025-01-01', '2025-02-04']
    """
    if dates:
        return [str(np.datetime64(int(np.floor(day)), "D")) for day in edges]
    # Most digits first: edges equal even then differ by rounding alone.
    finest, *coarser = (_rounded(edges, digits) for digits in _DIGITS)
    alike = [texts for texts in coarser if len(set(texts)) == len(set(finest))]
    return alike[-1] if alike else finest


def _rounded(edges: Floats, digits: int) -> list[str]:
    return [f"{float(f'{edge:.{digits}g}'):.15g}" for edge in edges]
