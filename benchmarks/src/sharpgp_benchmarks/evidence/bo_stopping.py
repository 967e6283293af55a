"""Whether loops that ``stop`` would end could have gained more, and what it saves.

The problems of ``sharpgp bench bo --suite small``: loops ask for 110 points, and ``remaining`` is
asked every five runs.  An amount is a share of the way from the median of the design to the
optimum.  A loop stops at the first answer of at most 5 %, up to 60 points; printed are how many do,
how many of these gain more than the amount in the 50 runs after, noise left out, and what share of
60 points is saved on average.
"""

import csv
import math
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from time import monotonic
from typing import NamedTuple

import torch

from sharpgp_benchmarks.optimisation.loops import Calibrated
from sharpgp_benchmarks.optimisation.problems import PROBLEMS, problem_of

#: Amounts, as shares of the way from the median of the design to the optimum.
SHARES = (0.1, 0.03, 0.01)
#: Points between two answers, points until which a loop may stop, and runs that come after.
EVERY, LAST, MORE = 5, 60, 50


class Answer(NamedTuple):
    """What ``remaining`` said after some points, and what came true."""

    problem: str
    seed: int
    asked: int
    share: float
    probability: float
    gain: float


def main(
    problems: str = ",".join(PROBLEMS),
    repeats: int = 9,
    processes: int = 1,
    seconds: float = math.inf,
    out: str = "",
) -> None:
    """Print a line for each amount; ``out`` is a CSV file of all answers.

    No loop is begun after so many seconds.
    """
    cases = [(name, seed) for seed in range(repeats) for name in problems.split(",")]
    answers: list[Answer] = []
    ends = partial(_loop, deadline=monotonic() + seconds)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(ends, *case) for case in cases]):
            answers += future.result()
    if out:
        with open(out, "w", newline="") as file:
            csv.writer(file).writerows([Answer._fields, *sorted(answers)])
    for line in table(answers):
        print(line)


def table(answers: Sequence[Answer], probability: float = 0.05) -> list[str]:
    """A line for each amount.

    Examples
    --------
    >>> said = [Answer("f", seed, 5, 0.1, 0.02 * seed, 3.0 - seed) for seed in range(4)]
    >>> print(table(said)[1])
         10%         4          3     2 (67%)       27%    92%
    """
    lines = [f"{'amount':>8}{'loops':>10}{'stopped':>11}{'could gain':>12}{'s.e.':>10}{'saved':>7}"]
    for share in sorted({one.share for one in answers}, reverse=True):
        loops: dict[tuple[str, int], list[Answer]] = {}
        for one in sorted(answers):
            if one.share == share:
                loops.setdefault((one.problem, one.seed), []).append(one)
        stops = [
            next((one for one in each if one.probability <= probability), None)
            for each in loops.values()
        ]
        stopped = [one for one in stops if one is not None]
        gained = sum(one.gain > 1.0 for one in stopped)
        n = max(1, len(stopped))
        error = math.sqrt(max(gained / n * (1 - gained / n), 0.0) / n)
        saved = sum(LAST - one.asked for one in stopped) / (LAST * n)
        lines.append(
            f"{share:>8.0%}{len(loops):>10}{len(stopped):>11}"
            f"{f'{gained} ({gained / n:.0%})':>12}{error:>10.0%}{saved:>7.0%}"
        )
    return lines


def _loop(name: str, seed: int, deadline: float) -> list[Answer]:
    """Answers along one loop; gains are in units of the amount."""
    if monotonic() > deadline:
        return []
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    problem = problem_of(name, os.environ.get("SHARPGP_DATA"))
    generator = torch.Generator().manual_seed(seed)
    X = problem.design(generator)
    truth = problem.function(X).tolist()
    scale = problem.optimum - float(torch.tensor(truth).median())
    torch.manual_seed(seed)
    loop = Calibrated(problem, X, problem.observe(X, generator), seed)
    said = []
    for asked in range(LAST + MORE):
        if asked and asked % EVERY == 0 and asked <= LAST:
            for share in SHARES:
                found = loop.loop.remaining(share * scale, MORE, among=problem.rows)
                said.append((asked, share, found))
        x = loop.ask()
        truth += problem.function(x).tolist()
        loop.tell(x, problem.observe(x, generator))
    answers = []
    for asked, share, found in said:
        n = len(X) + asked
        gain = (max(truth[n : n + MORE]) - max(truth[:n])) / (share * scale)
        answers.append(Answer(name, seed, asked, share, found, gain))
    return answers
