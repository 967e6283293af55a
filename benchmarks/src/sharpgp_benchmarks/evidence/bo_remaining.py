"""What ``remaining`` says along one optimisation: the figure of the guide."""

import numpy as np

from sharpgp.bo import Optimiser
from sharpgp_benchmarks.evidence.run import header, out_folder, row
from sharpgp_benchmarks.optimisation.problems import problem_of


def main(
    problem: str = "hartmann3", amounts: str = "0.3,0.1,0.03", points: int = 60, seed: int = 0
) -> None:
    """Print what each amount would have ended, and draw it into the folder ``--out``, if named."""
    from matplotlib.figure import Figure

    from sharpgp.plots.optimisation import progress, remaining_so_far

    known, each = problem_of(problem), [float(amount) for amount in amounts.split(",")]
    loop = Optimiser(known.bounds.mT, random_state=seed)
    while loop.n_runs < points:
        x = loop.ask()
        loop.tell(x, known.function(loop.record.space.codes(x)))
        for amount in each:
            loop.remaining(amount)
    best = np.maximum.accumulate([run.y for run in loop.record.runs])
    header("amount", "ended after", "best then", "best in the end")
    for amount in each:
        said = [int(n) for n, about, p in loop.record.checks if about == amount and p <= 0.05]
        ended = said[0] if said else points
        row(f"{amount:g}", ended, float(best[ended - 1]), float(best[-1]))
    if (out := out_folder()) is not None:
        figure = Figure(figsize=(7.6, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        progress(loop, left)
        remaining_so_far(loop, right)
        figure.savefig(out / "bo_remaining.svg", metadata={"Date": None})
