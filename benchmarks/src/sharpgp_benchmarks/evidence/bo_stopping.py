"""Whether loops that ``stop`` would end could have gained more, and what it saves.

The problems of ``sharpgp bench bo --suite small``: loops ask for 110 points, and ``remaining`` is
asked every five runs.  An amount is a share of the way from the median of the design to the
optimum.  A loop stops at the first answer of at most 5 %, up to 60 points; printed are how many do,
how many of these gain more than the amount in the 50 runs after, noise left out, and what share of
60 points is saved on average.
"""

import math
from collections.abc import Sequence
from itertools import product

import torch

from sharpgp_benchmarks.evidence.run import header, measured, row
from sharpgp_benchmarks.optimisation.loops import Calibrated
from sharpgp_benchmarks.optimisation.problems import PROBLEMS, problem_of

#: Amounts, as shares of the way from the median of the design to the optimum.
SHARES = (0.1, 0.03, 0.01)
#: Points between two answers, points until which a loop may stop, and runs that come after.
EVERY, LAST, MORE = 5, 60, 50

#: Points asked for, share, probability, and what was gained, in units of the amount.
Answer = tuple[int, float, float, float]


def main(
    problems: str = ",".join(PROBLEMS), repeats: int = 9, last: int = LAST, workers: int = 1
) -> None:
    """Print a line for each amount."""
    cases = [(name, seed, last) for seed, name in product(range(repeats), problems.split(","))]
    loops = measured(answers, cases, workers=workers)
    header("amount", "loops", "stopped", "could gain more", "standard error", "points saved")
    for share in SHARES:
        stopped, gained, saved = stops(loops, share, last)
        rate = gained / max(stopped, 1)
        error = math.sqrt(rate * (1.0 - rate) / max(stopped, 1))
        cells = f"{gained} ({rate:.0%})", f"{error:.0%}", f"{saved:.0%}"
        row(f"{share:.0%}", len(loops), stopped, *cells)


def stops(
    loops: Sequence[Sequence[Answer]], share: float, last: int = LAST, probability: float = 0.05
) -> tuple[int, int, float]:
    """Loops that stop, those of them that gain more than the amount later, and what is saved.

    Examples
    --------
    >>> stops([[(5, 0.1, 0.3, 9.0), (15, 0.1, 0.01, 2.0)], [(5, 0.1, 0.9, 3.0)]], 0.1)
    (1, 1, 0.75)
    """
    first = [
        next((one for one in loop if one[1] == share and one[2] <= probability), None)
        for loop in loops
    ]
    stopped = [one for one in first if one is not None]
    saved = sum(last - one[0] for one in stopped) / (last * max(len(stopped), 1))
    return len(stopped), sum(one[3] > 1.0 for one in stopped), saved


def answers(name: str, seed: int, last: int = LAST) -> list[Answer]:
    """Answers along one loop, and what came true."""
    problem = problem_of(name)
    generator = torch.Generator().manual_seed(seed)
    X = problem.design(generator)
    truth = problem.function(X).tolist()
    scale = problem.optimum - float(torch.tensor(truth).median())
    torch.manual_seed(seed)
    loop = Calibrated(problem, X, problem.observe(X, generator), seed)
    said = []
    for asked in range(last + MORE):
        if asked and asked % EVERY == 0 and asked <= last:
            for share in SHARES:
                found = loop.loop.remaining(share * scale, MORE, among=problem.rows)
                said.append((asked, share, found))
        x = loop.ask()
        truth += problem.function(x).tolist()
        loop.tell(x, problem.observe(x, generator))
    found = []
    for asked, share, probability in said:
        n = len(X) + asked
        gain = (max(truth[n : n + MORE]) - max(truth[:n])) / (share * scale)
        found.append((asked, share, probability, gain))
    return found
