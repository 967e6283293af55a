"""One iteration of Bayesian optimisation: calibrated bound against BoTorch's own UCB.

Both condition a GP with the same hyperparameters on one more point and search the same domain with
the same ``optimize_acqf``.  Printed are medians over iterations from 100 observations on, the
ratio, and the time of one value and gradient at a batch of four points.  A search may take more or
fewer steps, so the two ratios differ.  Also: whether the factor of the covariance is worth
updating, and a step of whole loops from 100 observations on, which train their models anew.
"""

from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.test_functions import Ackley
from torch import Tensor

from sharpgp import Exact, Kuleshov18, Recalibrator, Sharp
from sharpgp.bo import CalibratedUpperConfidenceBound, as_botorch
from sharpgp.calibration import Calibrated
from sharpgp.gp.training import train
from sharpgp_benchmarks.evidence.common import seconds
from sharpgp_benchmarks.optimisation.methods import METHODS as LOOPS
from sharpgp_benchmarks.optimisation.problems import problem_of

METHODS: dict[str, Callable[[], Recalibrator]] = {
    "paper, one level": lambda: Sharp(levels=0.97),
    "paper, 25 levels": Sharp,
    "kuleshov18": Kuleshov18,
    "exact": Exact,
}


def search(acquisition: AcquisitionFunction, bounds: Tensor) -> None:
    """Look for the best next point."""
    optimize_acqf(
        acquisition, bounds, q=1, num_restarts=4, raw_samples=64, options={"maxiter": 100}
    )


def ours(model: Calibrated, X: Tensor, y: Tensor, bounds: Tensor, delta: float) -> None:
    """Condition and search with the calibrated bound."""
    later = model.condition_on_observations(X, y)
    search(CalibratedUpperConfidenceBound(later, delta), bounds)


def theirs(model: Any, X: Tensor, y: Tensor, bounds: Tensor) -> None:
    """Condition and search with BoTorch's bound."""
    # With one more point, hyperparameters kept: a model of the same modules, as BoTorch's
    # tutorials do; ``condition_on_observations`` takes longer here.
    later = SingleTaskGP(
        torch.cat([model.raw_X, X]),
        torch.cat([model.raw_y, y])[:, None],
        likelihood=model.likelihood,
        covar_module=model.covar_module,
        mean_module=model.mean_module,
        outcome_transform=None,
        input_transform=model.input_transform,
    ).eval()
    search(UpperConfidenceBound(later, beta=4.0), bounds)


def median(times: list[float]) -> float:
    """The middle one."""
    return float(torch.tensor(times).median())


def value_and_gradient(acquisition: AcquisitionFunction, X: Tensor) -> None:
    """One evaluation at a batch of points."""
    X = X.clone().requires_grad_()
    torch.autograd.grad(acquisition(X.unsqueeze(1)).sum(), X)


def main(repeats: int = 15, device: str = "cpu") -> None:
    """Print a line for each acquisition function."""
    torch.manual_seed(0)
    function = Ackley(dim=2, negate=True).double().to(device)
    bounds = function.bounds
    X = bounds[0] + torch.rand(140, 2, dtype=torch.float64, device=device) * (bounds[1] - bounds[0])
    y = function(X) + 0.1 * torch.randn(140, dtype=torch.float64, device=device)
    posterior, _ = train(X[:60], y[:60])
    whole = posterior.conditioned_on(X[:100], y[:100])
    base = as_botorch(whole)
    base.raw_X, base.raw_y = X[:100], y[:100]
    new, values = X[100:101], y[100:101]

    print(f"100 observations, 2 features, {device}, {torch.get_num_threads()} thread(s)")
    print(f"{'':18}{'iteration':>12}{'ratio':>8}{'gradient':>12}{'ratio':>8}")
    points, rows = X[101:105], {}
    for name in (None, *METHODS):
        if name is None:
            name, acquisition = "BoTorch's UCB", UpperConfidenceBound(base, beta=4.0)
            call = lambda: theirs(base, new, values, bounds)  # noqa: E731
        else:
            model = METHODS[name]().fit(posterior, X[60:100], y[60:100])
            model = model.condition_on_observations(X[60:100], y[60:100])
            acquisition = CalibratedUpperConfidenceBound(model, 0.97)
            call = lambda model=model: ours(model, new, values, bounds, 0.97)  # noqa: E731
        call()
        value_and_gradient(acquisition, points)
        rows[name] = (
            median([seconds(call, device) for _ in range(repeats)]),
            median(
                [
                    seconds(lambda a=acquisition: value_and_gradient(a, points), device)
                    for _ in range(10 * repeats)
                ]
            ),
        )
    first = rows["BoTorch's UCB"]
    for name, (iteration, gradient) in rows.items():
        print(
            f"{name:18}{1e3 * iteration:9.1f} ms{iteration / first[0]:8.2f}"
            f"{1e3 * gradient:9.2f} ms{gradient / first[1]:8.2f}"
        )

    Ky = whole.covariance.matrix(whole.theta_R[None], whole.X_standardised)
    Ky = Ky + 0.1 * torch.eye(100, dtype=torch.float64, device=device)
    factor = [seconds(lambda: torch.linalg.cholesky(Ky), device) for _ in range(200)]
    print(f"factorising 100 x 100 from scratch: {1e3 * median(factor):.3f} ms of an iteration")
    whole_loops(repeats)


def whole_loops(steps: int) -> None:
    """Print what a step of each loop takes, training included, from 100 observations on."""
    problem = problem_of("hartmann6")
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(100, problem.d, generator=generator, dtype=torch.float64)
    print(f"\nhartmann6 from 100 observations on, retrained: median and mean of {steps} steps")
    first = None
    for name in ("botorch_logei", "logei", "ucb", "thompson"):
        loop, times = LOOPS[name](problem, X, problem.function(X), 0), []
        for _ in range(steps):
            found: list[Tensor] = []
            times.append(seconds(lambda loop=loop, found=found: found.append(loop.ask()), "cpu"))
            loop.tell(found[0], problem.function(found[0]))
        mean = sum(times) / len(times)
        first = first or (median(times), mean)
        print(
            f"{name:18}{1e3 * median(times):9.1f} ms{median(times) / first[0]:8.2f}"
            f"{1e3 * mean:9.1f} ms{mean / first[1]:8.2f}"
        )
