"""The candidates for mean and spread, each used throughout, beside the choice between them.

For each data set and seed, a GP is trained on ``--rows`` rows; every candidate of
``sharpgp.models.spread_choice`` is calibrated on a third as many, as ``exact`` does, and the rest
of the rows (at most 1,000) judge its symmetric 95 % band and its CRPS. The table has ratios to
plain ``sigma(theta_R, x)`` (RK) of means over seeds: the interval score by data set, and geometric
means over the sets of interval score and CRPS, with the coverage.
"""

from dataclasses import replace

import numpy as np
import torch

from sharpgp import metrics
from sharpgp._ranks import whole_rank
from sharpgp.gp import train
from sharpgp.gp.posterior import Posterior
from sharpgp.models import spread_choice as parts
from sharpgp.models.folds import together
from sharpgp.models.gaussian import GaussianModel, learn_gaussian
from sharpgp.models.heteroscedastic import ScaleModel
from sharpgp_benchmarks.evidence.common import Part, cut, judged, sets

COVERAGE = 0.95


def candidates(posterior: Posterior) -> dict[str, GaussianModel]:
    """Every candidate that the library chooses from, and the choice."""
    found = {}
    makers = {
        "plain": lambda: parts._as_trained(posterior),
        "searched": lambda: parts._searched(posterior, together(posterior.X_train), 0),
        "warped": lambda: parts._warped(posterior),
    }
    for name, make in makers.items():
        candidate = make()
        scale = ScaleModel(posterior.X_train, candidate.residuals / candidate.sigma)
        for share in (0.0, 0.5, 1.0):
            choice = replace(candidate.choice, share=share)
            model = scale if share > 0 else None
            chosen = parts.Chosen(candidate.posterior, candidate.theta, choice, model)
            found[f"{name}, b = {share:g}"] = GaussianModel(chosen)
    return found | {"chosen": learn_gaussian(posterior, 0)}


def judge(model: GaussianModel, cal: Part, test: Part, unit: float) -> tuple[float, float, float]:
    """Interval score, CRPS and coverage on the test part."""
    with torch.no_grad():
        z = ((cal[1] - model.location(cal[0])) / model.spread(cal[0])).sort().values
        mean, sigma = model.location(test[0]), model.spread(test[0])
    C = len(z)
    half = z.abs().sort().values[whole_rank(COVERAGE, C, up=True) - 1] * sigma
    coverage, _, score = judged(torch.stack([mean - half, mean + half], 1), test[1], COVERAGE)
    table = mean.unsqueeze(-1) + sigma.unsqueeze(-1) * z
    crps = metrics.crps(test[1].numpy(), table.numpy(), np.arange(1, C + 1) / (C + 1))
    return score / unit, crps / unit, coverage


def main(
    datasets: str = "boston,yacht,mpg,wine,concrete,kin8nm,facebook1",
    rows: int = 177,
    seeds: int = 3,
    data_home: str | None = None,
) -> None:
    """Print the table."""
    loaded = sets(datasets, data_home)
    results: dict[str, list[np.ndarray]] = {}
    for data in loaded:
        of_set: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(seeds):
            fit, *held_out = cut(data, seed, [rows, rows // 3, 1000])
            for label, model in candidates(train(*fit)[0]).items():
                of_set.setdefault(label, []).append(judge(model, *held_out, float(data.y.std())))
        for label, found in of_set.items():
            results.setdefault(label, []).append(np.mean(found, axis=0))
    base = np.array(results["plain, b = 0"])
    print(
        " " * 18
        + "".join(f"{name:>10s}" for name in [*datasets.split(","), "score", "CRPS", "coverage"])
    )
    for label, figures in results.items():
        ratio = np.array(figures) / base
        line = "".join(f"{value:10.3f}" for value in ratio[:, 0])
        line += "".join(f"{value:10.3f}" for value in np.exp(np.log(ratio[:, :2]).mean(0)))
        print(f"{label:18s}{line}{np.array(figures)[:, 2].mean():10.1%}", flush=True)
