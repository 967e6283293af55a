"""Training a named kernel here and with BoTorch's fit of the same model, in one run.

Run with ``python benchmarks/training.py [--data-home FOLDER]``.  Both train a zero-mean GP with an
ARD squared-exponential kernel and no priors on the same standardised data.
"""

import argparse
import time
import warnings

import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from calibration_speed import split
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood

from sharpgp.gp import train
from sharpgp.gp.scaling import Affine
from sharpgp.gp.training import NOISE_FLOOR


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
    start = time.perf_counter()
    outcome = "ok"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit_gpytorch_mll(mll)
        except ModelFittingError:
            outcome = "gave up"
    elapsed = time.perf_counter() - start
    mll.train()
    with torch.no_grad():
        return elapsed, float(mll(model(Z), t)), outcome


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-home", default=None)
    parser.add_argument("--datasets", default="boston,yacht,mpg,concrete")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("data set  seed     N  log lik. here  BoTorch  outcome  seconds here  BoTorch  ratio")
    for name in arguments.datasets.split(","):
        for seed in range(arguments.seeds):
            X, y, _, _ = split(name, seed, arguments.data_home)
            start = time.perf_counter()
            _, result = train(X, y)
            here = time.perf_counter() - start
            there, likelihood, outcome = botorch_fit(X, y)
            print(
                f"{name:8s}  {seed:4d}  {len(y):4d}  {result.log_likelihood:13.4f}  "
                f"{likelihood:7.4f}  {outcome:7s}  {here:12.2f}  {there:7.2f}  "
                f"{there / here:5.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
