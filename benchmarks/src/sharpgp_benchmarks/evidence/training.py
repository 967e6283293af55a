"""Training a named kernel here and with BoTorch's fit of the same model, in one run.

Both train a zero-mean GP with an ARD squared-exponential kernel and no priors on the same
standardised data.
"""

import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood

from sharpgp.gp import train
from sharpgp.gp.scaling import Affine
from sharpgp.gp.training import NOISE_FLOOR
from sharpgp_benchmarks.evidence.common import Clock, sets, train_cal_test
from sharpgp_benchmarks.evidence.run import header, measured, row


def botorch_fit(X: torch.Tensor, y: torch.Tensor) -> tuple[float, float, str]:
    """Seconds, log likelihood per point and outcome of ``fit_gpytorch_mll``."""
    Z, t = Affine.standardising(X).forward(X), Affine.standardising(y).forward(y)
    likelihood = GaussianLikelihood(noise_constraint=GreaterThan(NOISE_FLOOR)).double()
    kernel = ScaleKernel(RBFKernel(ard_num_dims=X.shape[1])).double()
    model = SingleTaskGP(
        Z,
        t[:, None],
        likelihood=likelihood,
        covar_module=kernel,
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    mll = ExactMarginalLogLikelihood(likelihood, model)
    outcome = "ok"
    with Clock() as clock:
        try:
            fit_gpytorch_mll(mll)
        except ModelFittingError:
            outcome = "gave up"
    mll.train()
    with torch.no_grad():
        return clock.wall, float(mll(model(Z), t)), outcome


def main(
    datasets: str = "boston,yacht,mpg,concrete", seeds: int = 3, data_home: str | None = None
) -> None:
    """Print the table."""
    header("set", "seed", "N", "log likelihood", "BoTorch's", "outcome", "s", "BoTorch's", "ratio")
    for data in sets(datasets, data_home):
        for seed in range(seeds):
            (found,) = measured(both, [(data.name, seed, data_home)])
            n, ours, theirs, outcome, here, there = found
            times = [f"{here:.2f}", f"{there:.2f}", f"{there / here:.1f}"]
            row(data.name, seed, n, f"{ours:.4f}", f"{theirs:.4f}", outcome, *times)


def both(
    name: str, seed: int, data_home: str | None
) -> tuple[int, float, float, str, float, float]:
    """Rows, log likelihood here and with BoTorch, the outcome there, and the seconds of both."""
    (data,) = sets(name, data_home)
    X, y = train_cal_test(data, seed)[0]
    with Clock() as clock:
        _, result = train(X, y)
    there, likelihood, outcome = botorch_fit(X, y)
    return len(y), result.log_likelihood, likelihood, outcome, clock.wall, there
