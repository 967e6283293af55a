"""Large data on a GPU: rate, memory and agreement with the CPU of sparse and exact GPs.

``--parts`` names some of them; without it, all run.  Shares are of the rate that products of large
matrices reach in the same run.
"""

from collections.abc import Callable, Sequence

import torch

from sharpgp import LeaveOneOut, Sharp
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import ExactPosterior, SparsePosterior, train, train_sparse
from sharpgp.gp.exact import in_blocks as inplace
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp_benchmarks.evidence.common import Clock, judged, run_parts
from sharpgp_benchmarks.evidence.large_data import THETA, D, evaluations, simulate, sparse_problem
from sharpgp_benchmarks.evidence.run import table


def best(action: Callable[[], object], repeats: int = 3) -> float:
    """Seconds of the fastest of a few runs, after one that does not count."""
    action()
    times = []
    for _ in range(repeats):
        with Clock("cuda") as clock:
            action()
        times.append(clock.wall)
    return min(times)


def ceiling() -> float:
    """Rate of matrix products in float64, FLOP/s."""
    A = torch.randn(8192, 8192, dtype=torch.float64, device="cuda")
    return 2.0 * 8192**3 / best(lambda: A @ A, repeats=5)


def agreement() -> None:
    """Relative difference between CPU and GPU of every quantity and its gradient."""
    X, y = simulate(6000)
    S = simulate(500, seed=1)[0]
    theta, rows = THETA[0], []

    for kind in ("exact", "sparse"):
        answers = []
        for device in ("cpu", "cuda"):
            given = X.to(device), y.to(device), Stationary("rbf", D), theta.to(device)
            gp = (
                ExactPosterior(*given)
                if kind == "exact"
                else SparsePosterior(*given, X[:300].to(device))
            )
            thetas = torch.stack([gp.theta_R, 1.5 * gp.theta_R]).requires_grad_()
            sigma, (loo, loo_sigma) = gp.sigma(thetas, S.to(device)), gp.loo(thetas)
            grads = [torch.autograd.grad(v.sum(), thetas)[0] for v in (sigma, loo_sigma)]
            found = [gp.mean(S.to(device)), sigma, loo, loo_sigma, *grads]
            answers.append([v.detach().cpu() for v in found])
        differences = [
            float(((a - b).abs() / b.abs().max()).max()) for b, a in zip(*answers, strict=True)
        ]
        rows.append([kind, *differences])
    table(
        "CPU against GPU, N = 6,000: greatest difference relative to the greatest value",
        ["GP", "mean", "sigma", "loo mean", "loo sigma", "gradient of sigma", "of loo sigma"],
        rows,
    )


def exact(sizes: Sequence[int] = (20_000, 40_000)) -> None:
    """Parts of one leave-one-out evaluation, evaluations with gradients, and peak memory."""
    rate, covariance, rows = ceiling(), Stationary("rbf", D), []
    print(f"\nmatrix products: {rate / 1e12:.1f} TFLOP/s in float64")
    theta = THETA.cuda().requires_grad_()
    for n in sizes:
        torch.cuda.empty_cache()
        X, y = (a.cuda() for a in simulate(n))
        S = simulate(5000, seed=1)[0].cuda()
        y = y - y.mean()

        def loo(X: torch.Tensor = X, y: torch.Tensor = y) -> object:
            residual, variance = inplace.loo_of(covariance, theta, X, y)
            return torch.autograd.grad((residual.square() / variance).sum(), theta)

        def holdout(X: torch.Tensor = X, S: torch.Tensor = S) -> object:
            prior = covariance.diag(theta, S) + theta[:, -1:]
            return torch.autograd.grad(
                inplace.variance_of(covariance, theta, X, S, prior).sum(), theta
            )

        def likelihood(X: torch.Tensor = X, y: torch.Tensor = y) -> object:
            return torch.autograd.grad(inplace.likelihood_of(covariance, theta, X, y).sum(), theta)

        # Products that cannot be avoided: factor N^3/3, inverse 2N^3/3, gradient N^3 (symmetric).
        work = {"leave-one-out": 2.0 * n**3, "holdout, C = 5,000": n**3 / 3 + 3.0 * n**2 * 5000}
        work["likelihood"] = 1.0 * n**3
        L = inplace.factor_of(covariance, theta[0].detach(), X)[0]
        factor = best(lambda X=X: inplace.factor_of(covariance, theta[0].detach(), X), 2)
        inverse = best(lambda L=L: inplace.invert_factor(L), 2)
        del L
        print(f"N = {n:,}: kernel and factor {factor:.3f} s, inverse {inverse:.3f} s")
        for name, action in zip(work, (loo, holdout, likelihood), strict=True):
            torch.cuda.reset_peak_memory_stats()
            seconds = best(action, 2)
            peak = torch.cuda.max_memory_allocated() / 2**30
            rows.append([f"{n:,}", name, seconds, work[name] / seconds / rate, peak])
    table(
        "One evaluation with its gradient, exact GP, 8 features",
        ["N", "objective", "s", "share of the ceiling", "peak GiB"],
        rows,
    )


def no_holdout(n: int = 20_000) -> None:
    """Train on all points, learn the spread by leave-one-out, and calibrate on the same points."""
    X, y = (a.cuda() for a in simulate(n + 5000))
    X, y, X_test, y_test = X[:n], y[:n], X[n:], y[n:]
    torch.cuda.reset_peak_memory_stats()
    with Clock("cuda") as training:
        posterior, result = train(X, y)
    with Clock("cuda") as calibration:
        predictor = LeaveOneOut().fit(posterior)
    inside, width, _ = judged(predictor.predict_interval(X_test, 0.95), y_test)
    peak = torch.cuda.max_memory_allocated() / 2**30
    table(
        f"Exact GP, N = {n:,}: every point trains and calibrates (leave-one-out)",
        ["training s", "evaluations", "calibration s", "peak GiB", "coverage at 95 %", "width"],
        [[training.wall, result.evaluations, calibration.wall, peak, inside, width]],
    )


def million(n: int = 1_000_000, m: int = 500) -> None:
    """Sparse GP: one evaluation, then training and calibration."""
    rate = ceiling()
    data, theta, Z = sparse_problem(n, m, "cuda")
    # Products that cannot be avoided, forward and backward: whiten, Gram matrix, gradient.
    seconds = [best(action, 2) for action in evaluations(data, theta, Z)]
    shares = [5.0 * n * m**2 / s / rate for s in seconds[:2]] + [9.0 * n * m**2 / seconds[2] / rate]
    table(
        f"One evaluation with its gradient, sparse GP, N = {n:,}, M = {m}",
        ["", "bound", "sigma at 1,000 points", "leave-one-out"],
        [["s", *seconds], ["share of the ceiling", *shares]],
    )
    X, y = (a.cuda() for a in simulate(n + 25_000))
    part = slice(n, n + 20_000)
    torch.cuda.reset_peak_memory_stats()
    with Clock("cuda") as training:
        posterior, result = train_sparse(X[:n], y[:n], n_inducing=m)
    with Clock("cuda") as calibration:
        predictor = Sharp(levels=25).fit(posterior, X[part], y[part])
    inside, width, _ = judged(predictor.predict_interval(X[-5000:], 0.95), y[-5000:])
    peak = torch.cuda.max_memory_allocated() / 2**30
    table(
        f"Sparse GP, N = {n:,}, M = {m}, C = 20,000, Sharp with 25 levels",
        ["step", "s", "evaluations", "peak GiB", "coverage at 95 %", "width"],
        [
            ["training", training.wall, result.evaluations, "", "", ""],
            ["calibration", calibration.wall, predictor.evaluations, peak, inside, width],
        ],
    )


PARTS: dict[str, Callable[..., None]] = {
    "agreement": agreement,
    "exact": exact,
    "no_holdout": no_holdout,
    "million": million,
}


def main(parts: str = "") -> None:
    """Print a table for each part."""
    if not torch.cuda.is_available():
        raise InvalidInputError("gpu: expected a machine with a GPU, found none")
    run_parts(PARTS, parts, device="cuda")
