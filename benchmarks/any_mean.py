"""What the GP of a regressor's residuals is for: the spread, or a correction of the mean, too.

Run with ``python benchmarks/any_mean.py [--data-home FOLDER] [--sets boston,yacht] [--seeds 3]``.

On 60/20/20 splits of at most 600 points, in units of the target's standard deviation, ``exact``
calibrates 95 % bands around

- the GP's own mean;
- three regressors ``m``, with ``sigma^2 = s^2`` (spread), ``s^2 + g^2`` (spread and miss, the
  library's choice), or around ``m + g`` with ``s^2`` (corrected), where ``g`` and ``s`` are mean
  and standard deviation of a GP of the regressor's out-of-fold residuals;
- and, for comparison, bands of constant width around the regressor (``marx22``).
"""

import argparse
import warnings

import numpy as np
import torch
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sharpgp import Exact, Marx22, datasets
from sharpgp.gp import train
from sharpgp.gp.centred import CentredPosterior
from sharpgp.means import ScikitMean

REGRESSORS = {
    "ridge": make_pipeline(StandardScaler(), Ridge()),
    "gradient boosting": GradientBoostingRegressor(random_state=0),
    "random forest": RandomForestRegressor(min_samples_leaf=2, random_state=0),
}


class SpreadOnly(CentredPosterior):
    """``sigma`` without the square of what the GP expects the regressor to miss."""

    def sigma(self, theta: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
        return self.base.sigma(theta, X)

    def loo(self, theta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sigma = self.base.loo(theta)[1]
        return self.centre.expand_as(sigma), sigma


class Corrected(SpreadOnly):
    """The GP's mean of the residuals is added to the regressor's predictions."""

    def mean(self, X: torch.Tensor) -> torch.Tensor:
        return self.regression(X) + self.base.mean(X)

    def loo(self, theta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, sigma = self.base.loo(theta)
        return self.centre + mean, sigma


def problems(X: torch.Tensor, y: torch.Tensor):
    """Names, posteriors and methods for one training part."""
    yield ("gp", ""), train(X, y)[0], Exact(random_state=0)
    for name, regressor in REGRESSORS.items():
        mean, centre = ScikitMean(regressor).fitted(X, y)
        gp, _ = train(X, y - centre)
        whole = CentredPosterior(mean, gp, centre)
        yield (name, "constant width"), whole, Marx22()
        yield (name, "spread"), SpreadOnly(mean, gp, centre), Exact(random_state=0)
        yield (name, "spread and miss"), whole, Exact(random_state=0)
        yield (name, "corrected"), Corrected(mean, gp, centre), Exact(random_state=0)


def figures(calibrated, X: torch.Tensor, y: torch.Tensor) -> list[float]:
    low, high = calibrated.predict_interval(X, 0.95, symmetric=True).T
    missed = (low - y).clamp(min=0) + (y - high).clamp(min=0)
    rmse = (calibrated.predict_mean(X) - y).square().mean().sqrt()
    inside = (missed == 0).double().mean()
    score = (high - low + 40 * missed).mean()
    return [float(v) for v in (rmse, inside, (high - low).mean(), score)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-home")
    parser.add_argument("--sets", default="boston,yacht,concrete,wine")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'set':10}{'mean':20}{'sigma':18}{'RMSE':>8}{'coverage':>10}{'width':>8}{'score':>8}")
    for name in arguments.sets.split(","):
        data = datasets.load(name, data_home=arguments.data_home)
        X, y = torch.from_numpy(data.X), torch.from_numpy(data.y)
        y = (y - y.mean()) / y.std()
        found: dict[tuple[str, str], list[list[float]]] = {}
        for seed in range(arguments.seeds):
            rows = torch.from_numpy(np.random.default_rng(seed).permutation(len(y)))[:600]
            first, second = int(0.6 * len(rows)), int(0.8 * len(rows))
            fit, cal, test = rows[:first], rows[first:second], rows[second:]
            for key, posterior, method in problems(X[fit], y[fit]):
                calibrated = method.fit(posterior, X[cal], y[cal])
                found.setdefault(key, []).append(figures(calibrated, X[test], y[test]))
        for (mean, sigma), runs in found.items():
            rmse, inside, width, score = np.mean(runs, axis=0)
            numbers = f"{rmse:8.3f}{inside:10.1%}{width:8.3f}{score:8.3f}"
            print(f"{name:10}{mean:20}{sigma:18}{numbers}", flush=True)


if __name__ == "__main__":
    main()
