"""How long a fit takes, by the number of rows, the base and the calibration.

The rows of ``choosing``, with as many features as asked for: five that matter and others of noise.
Each cell is the range of processor seconds over the numbers of features, one draw each.
"""

import numpy as np

from sharpgp import SharpGPRegressor
from sharpgp_benchmarks.evidence.choosing import draw
from sharpgp_benchmarks.evidence.common import Clock, numbers
from sharpgp_benchmarks.evidence.run import header, measured, row


def seconds(base: str, calibration: str, n: int, n_features: int) -> float:
    """Processor seconds of one fit; ``base="low"`` stands for ``effort="low"``."""
    rng = np.random.default_rng(n_features)
    X, y = draw(n, rng)
    X = np.hstack([X, rng.uniform(0, 1, (n, max(0, n_features - X.shape[1])))])[:, :n_features]
    chosen = {"effort": "low"} if base == "low" else {"base": base}
    with Clock() as clock:
        SharpGPRegressor(**chosen, calibration=calibration, random_state=0).fit(X, y)
    return clock.cpu


def spoken(times: list[float]) -> str:
    """A range of seconds with two digits.

    Examples
    --------
    >>> spoken([3.21, 12.6]), spoken([0.51, 0.512]), spoken([95.0, 222.0])
    ('3.2 to 13 s', '0.51 s', '95 to 220 s')
    """
    ends = [f"{float(f'{end:.2g}'):g}" for end in (min(times), max(times))]
    return f"{' to '.join(dict.fromkeys(ends))} s"


def main(
    rows: str = "100,300,1000",
    features: str = "6,10,20",
    bases: str = "auto,low,rbf",
    methods: str = "exact,loo,cv",
) -> None:
    """Print the table."""
    header("rows", "`base=`", *(f"`{method}`" for method in methods.split(",")))
    for n in numbers(rows):
        for base in bases.split(","):
            cells = [
                spoken(measured(seconds, [(base, method, n, d) for d in numbers(features)]))
                for method in methods.split(",")
            ]
            row(n, f"`{base}`", *cells)
