"""How far the points that an optimisation asks for are from what was predicted of them.

Functions that are not among the problems of ``sharpgp bench bo``, one optimisation each, from 2.5
points an input.  By the number of points asked for so far: quantiles of the scores
``(result - mean) / deviation``, and what intervals at 80 and 95 % covered, those of the GP as
trained and those that were stated, which allow for surprises (:mod:`sharpgp.bo.small_sample`).
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from botorch.test_functions import synthetic
from scipy.stats import norm
from torch import Tensor

from sharpgp_benchmarks.evidence.run import header, measured, row
from sharpgp_benchmarks.optimisation.loops import Calibrated
from sharpgp_benchmarks.optimisation.problems import Problem, of_botorch

FUNCTIONS = {
    "griewank3": partial(of_botorch, synthetic.Griewank, dim=3),
    "styblinski4": partial(of_botorch, synthetic.StyblinskiTang, dim=4),
    "camel2": partial(of_botorch, synthetic.SixHumpCamel),
    "dixon5": partial(of_botorch, synthetic.DixonPrice, dim=5),
    "beale2": partial(of_botorch, synthetic.Beale),
    "cosine8": partial(of_botorch, synthetic.Cosine8, negate=False),
    "shekel4": partial(of_botorch, synthetic.Shekel),
    "rastrigin3": partial(of_botorch, synthetic.Rastrigin, dim=3),
    "dropwave2": partial(of_botorch, synthetic.DropWave),
    "camel3": partial(of_botorch, synthetic.ThreeHumpCamel),
    "powell4": partial(of_botorch, synthetic.Powell, dim=4),
    "holder2": partial(of_botorch, synthetic.HolderTable),
    "levy6": partial(of_botorch, synthetic.Levy, dim=6),
    "michalewicz2": partial(of_botorch, synthetic.Michalewicz, dim=2),
}
#: Those that are run with noise, too, a tenth of their deviation.
NOISY = ("styblinski4", "camel2", "rastrigin3", "holder2")
#: Points asked for, by which the tables are split.
WINDOWS = (0, 5, 10, 20, 30, 45)


def main(
    functions: str = ",".join(FUNCTIONS), iterations: int = 45, acquisition: str = "logei"
) -> None:
    """Print quantiles of scores, and coverages."""
    chosen = functions.split(",")
    problems = [(name, False) for name in chosen] + [
        (name, True) for name in chosen if name in NOISY
    ]
    runs = measured(asked, [(*problem, iterations, acquisition) for problem in problems])
    scores, levels = (np.array(values) for values in zip(*runs, strict=True))
    shares = (0.025, 0.1, 0.5, 0.9, 0.975)
    print(f"{len(problems)} optimisations; quantiles of scores, and coverage at 80 and 95 %\n")
    header("asked", *(f"{share:.1%}" for share in shares), "GP as trained", "stated")
    for first, last in pairwise(WINDOWS):
        z, level = scores[:, first:last].ravel(), levels[:, first:last].ravel()
        if z.size:
            quantiles = [f"{q:.1f}" for q in np.quantile(z, shares)]
            window = f"{first + 1}-{min(last, iterations)}"
            row(window, *quantiles, _covered(norm.cdf(z)), _covered(level))
    row("all", *[""] * len(shares), _covered(norm.cdf(scores)), _covered(levels))


def _covered(levels: np.ndarray) -> str:
    return " ".join(f"{np.mean(np.abs(levels - 0.5) <= half):.1%}" for half in (0.4, 0.475))


def asked(
    name: str, noisy: bool, iterations: int, acquisition: str
) -> tuple[list[float], list[float]]:
    """Scores and levels of the points that were asked for."""
    problem = _with_noise(FUNCTIONS[name]()) if noisy else FUNCTIONS[name]()
    generator = torch.Generator().manual_seed(100)
    X = problem.design(generator)
    loop = Calibrated(problem, X, problem.observe(X, generator), 100, acquisition=acquisition)
    for _ in range(iterations):
        x = loop.ask()
        loop.tell(x, problem.observe(x, generator))
    runs = loop.loop.record.runs[len(X) :]
    return [run.score for run in runs], [run.level for run in runs]


def _with_noise(problem: Problem) -> Problem:
    lower, upper = problem.bounds
    U = torch.rand(2000, problem.d, generator=torch.Generator().manual_seed(0), dtype=lower.dtype)
    deviation = 0.1 * float(problem.function(lower + U * (upper - lower)).std())

    def noise(U: Tensor, draws: Tensor) -> Tensor:
        return deviation * draws

    return replace(problem, noise=noise)
