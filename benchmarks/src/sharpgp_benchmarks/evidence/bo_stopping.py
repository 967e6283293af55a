"""Whether loops that ``stop`` would end could have gained more, and what it saves.

The problems of ``sharpgp bench bo --suite small``: ``stop`` is asked before every point, and a loop
goes on as if it had not been.  An amount is a share of the way from the median of the design to the
optimum.  Printed are how many loops are ended within 60 points, how many of these gain more than
the amount in the 50 runs after, noise left out, and what share of 60 points is saved on average.
A loop that is closer to the optimum than the amount cannot gain it, and is not continued.
"""

import math
from collections.abc import Sequence
from itertools import product

import torch

from sharpgp_benchmarks.evidence.run import header, measured, row, table
from sharpgp_benchmarks.optimisation.loops import Calibrated
from sharpgp_benchmarks.optimisation.problems import PROBLEMS, problem_of

#: Amounts, as shares of the way from the median of the design to the optimum; largest first.
SHARES = (0.1, 0.03, 0.01)
#: Points within which a loop may stop, and runs that come after.
LAST, MORE = 60, 50

#: Share, points asked for when the loop was ended (-1: it was not), and whether it gained more.
Ended = tuple[float, int, bool]


def main(
    problems: str = ",".join(PROBLEMS), repeats: int = 9, last: int = LAST, workers: int = 1
) -> None:
    """Print a line for each amount, and one for each problem."""
    names = problems.split(",")
    cases = [(name, seed, last) for seed, name in product(range(repeats), names)]
    loops = measured(endings, cases, workers=workers)
    header("amount", "loops", "stopped", "could gain more", "standard error", "points saved")
    for share in SHARES:
        stopped, gained, saved = stops(loops, share, last)
        rate = gained / max(stopped, 1)
        error = math.sqrt(rate * (1.0 - rate) / max(stopped, 1))
        cells = f"{gained} ({rate:.1%})", f"{error:.1%}", f"{saved:.0%}"
        row(f"{share:.0%}", len(loops), stopped, *cells)
    rows = []
    for name in names:
        own = [loop for case, loop in zip(cases, loops, strict=True) if case[0] == name]
        found = [stops(own, share, last) for share in SHARES]
        rows.append((name, len(own), *(f"{stopped}, {gained}" for stopped, gained, _ in found)))
    head = "problem", "loops", *(f"{share:.0%}" for share in SHARES)
    table("By problem: stopped, and of these could gain more", head, rows)


def stops(
    loops: Sequence[Sequence[Ended]], share: float, last: int = LAST
) -> tuple[int, int, float]:
    """Loops that stop, those of them that gain more than the amount later, and what is saved.

    Examples
    --------
    >>> stops([[(0.1, 15, True)], [(0.1, -1, False)]], 0.1)
    (1, 1, 0.375)
    """
    found = [one for loop in loops for one in loop if one[0] == share]
    stopped = [one for one in found if one[1] >= 0]
    saved = sum(last - asked for _, asked, _ in stopped) / (last * max(len(found), 1))
    return len(stopped), sum(gained for _, _, gained in stopped), saved


def endings(name: str, seed: int, last: int = LAST) -> list[Ended]:
    """When one loop would have been ended for each amount, and what came true."""
    problem = problem_of(name)
    generator = torch.Generator().manual_seed(seed)
    X = problem.design(generator)
    truth = problem.function(X).tolist()
    scale = problem.optimum - float(torch.tensor(truth).median())
    torch.manual_seed(seed)
    loop = Calibrated(problem, X, problem.observe(X, generator), seed)
    ended: dict[float, int] = {}

    def gain_after(share: float) -> bool | None:
        """Whether more was gained; None as long as it still may be."""
        n, amount = len(X) + ended[share], share * scale
        best, later = max(truth[:n]), truth[n : n + MORE]
        gained = max(later, default=-math.inf) > best + amount
        known = gained or len(later) == MORE or problem.optimum <= best + amount
        return gained if known else None

    for asked in range(last + MORE):
        # What is not worth going on for the larger amount may be for the next.
        for share in SHARES[len(ended) :] if asked <= last else ():
            if not loop.loop.stop(amount=share * scale, runs=MORE, among=problem.rows):
                break
            ended[share] = asked
        all_ended = asked >= last or len(ended) == len(SHARES)
        if all_ended and all(gain_after(share) is not None for share in ended):
            break
        x = loop.ask()
        truth += problem.function(x).tolist()
        loop.tell(x, problem.observe(x, generator))
    gained = {share: bool(gain_after(share)) for share in ended}
    return [(share, ended.get(share, -1), gained.get(share, False)) for share in SHARES]
