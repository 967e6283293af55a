"""A sparse GP trained in batches, on all rows at once, and gpytorch's SVGP of the same size.

All three get the same rows, standardised, the same number of inducing inputs and a Gaussian
likelihood; what they predict is judged before any calibration. SVGP is gpytorch's: a Cholesky
variational distribution, inducing inputs from k-means that are then learned, Adam at 0.01 in
batches of 1,024 rows; its row is printed after several numbers of epochs. Times are processor
seconds of one thread.
"""

import math
from collections.abc import Iterator, Sequence

import gpytorch
import torch
from torch import Tensor

from sharpgp.gp import sparse_training
from sharpgp.gp.inducing import cluster_centres
from sharpgp.gp.scaling import Affine
from sharpgp.toy import split
from sharpgp_benchmarks.evidence.common import (
    Clock,
    Part,
    header,
    judged,
    numbers,
    row,
    sets,
    simulated,
)

COLUMNS = ("training, s", "NLL", "RMSE", "coverage at 95 %", "width at 95 %")
Z_95 = 1.959964


def rows_of(name: str, n: int, data_home: str | None) -> tuple[Part, Part]:
    """Training and test rows, the target in standard deviations."""
    if name == "simulated":
        X, y = (torch.from_numpy(array) for array in simulated(n + 5000, 0))
        return (X[:n], y[:n]), (X[n:], y[n:])
    (data,) = sets(name, data_home)
    part = split(data.X, (data.y - data.y.mean()) / data.y.std(), random_state=0)
    arrays = part.X_train, part.y_train, part.X_test, part.y_test
    X, y, X_test, y_test = (torch.from_numpy(array) for array in arrays)
    return (X, y), (X_test, y_test)


def judge(mean: Tensor, sigma: Tensor, y: Tensor) -> list[float]:
    """Gaussian NLL, RMSE, and the 95 % interval's coverage and width."""
    z = (y - mean) / sigma
    nll = (0.5 * z.square() + sigma.log() + 0.5 * math.log(2 * math.pi)).mean()
    coverage, width, _ = judged(torch.stack([mean - Z_95 * sigma, mean + Z_95 * sigma], 1), y)
    return [float(nll), float((y - mean).square().mean().sqrt()), coverage, width]


def ours(data: Part, test: Part, m: int, most_full_batch: int) -> list[float]:
    """Figures of the sparse GP, in batches beyond so many rows."""
    sparse_training.MOST_FULL_BATCH = {"cpu": most_full_batch}
    with Clock() as clock:
        posterior, _ = sparse_training.train_sparse(*data, n_inducing=m)
    sigma = posterior.sigma(posterior.theta_R[None], test[0])[0]
    return [clock.cpu, *judge(posterior.mean(test[0]), sigma, test[1])]


class SVGP(gpytorch.models.ApproximateGP):
    """gpytorch's, as its documentation makes one."""

    def __init__(self, inducing: Tensor) -> None:
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
        strategy = gpytorch.variational.VariationalStrategy(
            self, inducing, distribution, learn_inducing_locations=True
        )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=inducing.shape[1])
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, X: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Prior at X."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))


def svgp(
    data: Part, test: Part, m: int, epochs: Sequence[int], batch: int = 1024
) -> Iterator[tuple[int, list[float]]]:
    """Figures after each number of epochs."""
    X, y = data
    x_units, y_units = Affine.standardising(X), Affine.standardising(y)
    S, t, S_test = x_units.forward(X), y_units.forward(y), x_units.forward(test[0])
    spent = 0.0
    with Clock() as clock:
        torch.manual_seed(0)
        one = torch.ones(X.shape[1], dtype=torch.float64)
        model = SVGP(cluster_centres(S, m, one)).double()
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        model.covar_module.base_kernel.lengthscale = math.sqrt(X.shape[1])
        bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(t))
        parameters = [*model.parameters(), *likelihood.parameters()]
        optimiser = torch.optim.Adam(parameters, lr=0.01)
    spent += clock.cpu
    for epoch in range(1, max(epochs) + 1):
        with Clock() as clock:
            for rows in torch.randperm(len(t)).split(batch):
                optimiser.zero_grad()
                (-bound(model(S[rows]), t[rows])).backward()
                optimiser.step()
        spent += clock.cpu
        if epoch in epochs:
            model.eval()
            with torch.no_grad():
                parts = [likelihood(model(block)) for block in S_test.split(2000)]
            mean = y_units.back(torch.cat([part.mean for part in parts]))
            sigma = torch.cat([part.variance for part in parts]).sqrt() * y_units.scale
            model.train()
            yield epoch, [spent, *judge(mean, sigma, test[1])]


def main(
    data: str = "simulated",
    rows: int = 25_000,
    inducing: int = 300,
    epochs: str = "10,20,40",
    full: bool = False,
    data_home: str | None = None,
) -> None:
    """Print the table; ``--full`` also trains on all rows at once."""
    parts = rows_of(data, rows, data_home)
    n, threads = len(parts[0][1]), torch.get_num_threads()
    print(f"{data}, N = {n:,}, M = {inducing}, {threads} thread(s)\n")
    header("training", *COLUMNS)

    def show(label: str, found: list[float]) -> None:
        seconds, nll, rmse, coverage, width = found
        row(label, f"{seconds:.0f}", f"{nll:.4f}", f"{rmse:.4f}", f"{coverage:.1%}", f"{width:.3f}")

    show("`train_sparse`, in batches", ours(*parts, inducing, 20_000))
    for epoch, found in svgp(*parts, inducing, numbers(epochs)):
        show(f"gpytorch's SVGP, {epoch} epochs", found)
    if full:
        show("`train_sparse`, all rows at every step", ours(*parts, inducing, 10**9))
