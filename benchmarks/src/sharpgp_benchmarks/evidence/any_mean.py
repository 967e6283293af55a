"""What the GP of a regressor's residuals is for: the spread, or a correction of the mean, too.

On 60/20/20 splits of at most 600 points, in units of the target's standard deviation, ``exact``
calibrates 95 % bands around

- the GP's own mean;
- three regressors ``m``, with ``sigma^2 = s^2`` (spread), ``s^2 + g^2`` (spread and miss, the
  library's choice), or around ``m + g`` with ``s^2`` (corrected), where ``g`` and ``s`` are mean
  and standard deviation of a GP of the regressor's out-of-fold residuals;
- and, for comparison, bands of constant width around the regressor (``marx22``).
"""

from collections.abc import Iterator

import numpy as np
import torch
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from sharpgp import Exact, Marx22, Recalibrator
from sharpgp.gp import train
from sharpgp.gp.centred import CentredPosterior
from sharpgp.gp.posterior import Posterior
from sharpgp.models.regressor import ScikitMean
from sharpgp_benchmarks.evidence.common import judged, sets

REGRESSORS = {
    "ridge": make_pipeline(StandardScaler(), Ridge()),
    "gradient boosting": GradientBoostingRegressor(random_state=0),
    "random forest": RandomForestRegressor(min_samples_leaf=2, random_state=0),
}


class SpreadOnly(CentredPosterior):
    """``sigma`` without the square of what the GP expects the regressor to miss."""

    def sigma(self, theta: Tensor, X: Tensor) -> Tensor:
        return self.base.sigma(theta, X)

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        sigma = self.base.loo(theta)[1]
        return self.centre.expand_as(sigma), sigma


class Corrected(SpreadOnly):
    """The GP's mean of the residuals is added to the regressor's predictions."""

    def mean(self, X: Tensor) -> Tensor:
        return self.regression(X) + self.base.mean(X)

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        mean, sigma = self.base.loo(theta)
        return self.centre + mean, sigma


def problems(X: Tensor, y: Tensor) -> Iterator[tuple[tuple[str, str], Posterior, Recalibrator]]:
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


def main(
    datasets: str = "boston,yacht,concrete,wine", seeds: int = 3, data_home: str | None = None
) -> None:
    """Print RMSE, coverage, width and interval score by set, mean and sigma."""
    print(f"{'set':10}{'mean':20}{'sigma':18}{'RMSE':>8}{'coverage':>10}{'width':>8}{'score':>8}")
    for data in sets(datasets, data_home):
        X, y = torch.from_numpy(data.X), torch.from_numpy(data.y)
        y = (y - y.mean()) / y.std()
        found: dict[tuple[str, str], list[list[float]]] = {}
        for seed in range(seeds):
            rows = torch.from_numpy(np.random.default_rng(seed).permutation(len(y)))[:600]
            first, second = int(0.6 * len(rows)), int(0.8 * len(rows))
            fit, cal, test = rows[:first], rows[first:second], rows[second:]
            for key, posterior, method in problems(X[fit], y[fit]):
                calibrated = method.fit(posterior, X[cal], y[cal])
                ends = calibrated.predict_interval(X[test], 0.95, symmetric=True)
                rmse = (calibrated.predict_mean(X[test]) - y[test]).square().mean().sqrt()
                found.setdefault(key, []).append([float(rmse), *judged(ends, y[test])])
        for (mean, sigma), runs in found.items():
            error, inside, width, score = np.mean(runs, axis=0)
            figures = f"{error:8.3f}{inside:10.1%}{width:8.3f}{score:8.3f}"
            print(f"{data.name:10}{mean:20}{sigma:18}{figures}", flush=True)
