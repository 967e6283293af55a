"""A sparse GP trained in batches, on all rows at once, and gpytorch's SVGP of the same size.

All three get the same rows, standardised, the same number of inducing inputs and a Gaussian
likelihood; what they predict is judged before any calibration. SVGP is gpytorch's: a Cholesky
variational distribution, inducing inputs from k-means that are then learned, Adam at 0.01 in
batches of 1,024 rows; its row is printed after several numbers of epochs. Times are processor
seconds of one thread.

    OMP_NUM_THREADS=1 python benchmarks/minibatch.py --data facebook1 --data-home DATA
"""

import argparse
import math
import time

import gpytorch
import numpy as np
import torch

from sharpgp import datasets
from sharpgp.gp import sparse_training
from sharpgp.gp.inducing import cluster_centres
from sharpgp.gp.scaling import Affine

COLUMNS = ("training, s", "NLL", "RMSE", "coverage at 95 %", "width at 95 %")


def rows_of(name, n, data_home):
    """Training and test rows, the target in standard deviations."""
    if name == "simulated":
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (n + 5000, 8))
        f = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2 + np.cos(3 * X[:, 3] + X[:, 4] * X[:, 5])
        y = f + (0.05 + 0.1 * (X[:, 6] > 0)) * rng.normal(size=len(X))
        arrays = X[:n], y[:n], X[n:], y[n:]
    else:
        data = datasets.load(name, data_home=data_home)
        y = (data.y - data.y.mean()) / data.y.std()
        part = datasets.split(data.X, y, train=0.6, cal=0.2, random_state=0)
        arrays = part.X_train, part.y_train, part.X_test, part.y_test
    return [torch.from_numpy(array) for array in arrays]


def judge(mean, sigma, y):
    """Gaussian NLL, RMSE, and the 95 % interval's coverage and width."""
    z = (y - mean) / sigma
    nll = (0.5 * z.square() + sigma.log() + 0.5 * math.log(2 * math.pi)).mean()
    inside = (z.abs() <= 1.959964).double().mean()
    found = nll, (y - mean).square().mean().sqrt(), inside, 2 * 1.959964 * sigma.mean()
    return [float(value) for value in found]


def ours(X, y, X_test, y_test, m, most_full_batch):
    sparse_training.MOST_FULL_BATCH = {"cpu": most_full_batch}
    start = time.process_time()
    posterior, _ = sparse_training.train_sparse(X, y, n_inducing=m)
    seconds = time.process_time() - start
    sigma = posterior.sigma(posterior.theta_R[None], X_test)[0]
    return [seconds, *judge(posterior.mean(X_test), sigma, y_test)]


class SVGP(gpytorch.models.ApproximateGP):
    def __init__(self, inducing):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
        strategy = gpytorch.variational.VariationalStrategy(
            self, inducing, distribution, learn_inducing_locations=True
        )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=inducing.shape[1])
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, X):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))


def svgp(X, y, X_test, y_test, m, epochs, batch=1024):
    """Yield a row after each number of epochs."""
    x_units, y_units = Affine.standardising(X), Affine.standardising(y)
    S, t, S_test = x_units.forward(X), y_units.forward(y), x_units.forward(X_test)
    spent, start = 0.0, time.process_time()
    torch.manual_seed(0)
    one = torch.ones(X.shape[1], dtype=torch.float64)
    model = SVGP(cluster_centres(S, m, one)).double()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model.covar_module.base_kernel.lengthscale = math.sqrt(X.shape[1])
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(t))
    parameters = [*model.parameters(), *likelihood.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.01)
    for epoch in range(1, max(epochs) + 1):
        for rows in torch.randperm(len(t)).split(batch):
            optimiser.zero_grad()
            (-bound(model(S[rows]), t[rows])).backward()
            optimiser.step()
        if epoch in epochs:
            spent += time.process_time() - start
            model.eval()
            with torch.no_grad():
                parts = [likelihood(model(block)) for block in S_test.split(2000)]
            mean = y_units.back(torch.cat([part.mean for part in parts]))
            sigma = torch.cat([part.variance for part in parts]).sqrt() * y_units.scale
            model.train()
            yield epoch, [spent, *judge(mean, sigma, y_test)]
            start = time.process_time()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="simulated")
    parser.add_argument("--data-home", default=None)
    parser.add_argument("--rows", type=int, default=25_000, help="of simulated data")
    parser.add_argument("--inducing", type=int, default=300)
    parser.add_argument("--epochs", type=int, nargs="+", default=[10, 20, 40])
    parser.add_argument("--full", action="store_true", help="also on all rows at once")
    given = parser.parse_args()
    data, m = rows_of(given.data, given.rows, given.data_home), given.inducing
    print(f"{given.data}, N = {len(data[1]):,}, M = {m}, {torch.get_num_threads()} thread(s)\n")
    print("| training | " + " | ".join(COLUMNS) + " |")
    print("| --- |" + " --: |" * len(COLUMNS))

    def show(label, row):
        seconds, nll, rmse, coverage, width = row
        cells = [f"{seconds:.0f}", f"{nll:.4f}", f"{rmse:.4f}", f"{coverage:.1%}", f"{width:.3f}"]
        print(f"| {label} | {' | '.join(cells)} |", flush=True)

    show("`train_sparse`, in batches", ours(*data, m, 20_000))
    for epoch, row in svgp(*data, m, given.epochs):
        show(f"gpytorch's SVGP, {epoch} epochs", row)
    if given.full:
        show("`train_sparse`, all rows at every step", ours(*data, m, 10**9))


if __name__ == "__main__":
    main()
