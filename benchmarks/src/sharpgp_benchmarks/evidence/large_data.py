"""Large data on a CPU: growth, memory and speed of sparse and exact GPs.

``--parts`` names some of them; without it, all run.  Times are wall-clock seconds, with those of
the processor beside them: other work on a shared machine counts into the former only.
"""

import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from sharpgp import Exact, Sharp
from sharpgp.gp import SparsePosterior, train_sparse
from sharpgp.gp.exact import in_blocks as inplace
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.sparse import elbo as bound
from sharpgp.gp.sparse import whitening, woodbury
from sharpgp.gp.sparse.elbo_training import maximise_bound
from sharpgp.gp.sparse.inducing import cluster_centres
from sharpgp.toy import Split, split
from sharpgp_benchmarks.evidence.common import Clock, judged, run_parts, sets
from sharpgp_benchmarks.evidence.run import table

D = 8
#: About what training ends with on :func:`simulate`.
THETA = torch.tensor([[0.8, 0.8, 0.8, 0.5, 0.5, 0.5, 0.1, 0.1, 1.0, 0.02]], dtype=torch.float64)


def simulate(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A smooth function of eight features, with noise that depends on one of them."""
    draw = torch.Generator().manual_seed(seed)
    X = torch.rand(n, D, dtype=torch.float64, generator=draw) * 2.0 - 1.0
    f = torch.sin(3.0 * X[:, 0]) * X[:, 1] + X[:, 2].square() + 0.5 * X[:, 3:6].sum(-1).cos()
    noise = 0.05 + 0.1 * (X[:, 6] > 0)
    return X, f + noise * torch.randn(n, dtype=torch.float64, generator=draw)


def tensors(part: Split) -> list[torch.Tensor]:
    """The six arrays of a split."""
    arrays = (part.X_train, part.y_train, part.X_cal, part.y_cal, part.X_test, part.y_test)
    return [torch.from_numpy(array) for array in arrays]


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Slope of the logarithms of the times, from a straight line through all of them."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def kin8nm(data_home: str | None) -> None:
    """Fit and calibrate the sparse GP, and its growth in N and in M."""
    (data,) = sets("kin8nm", data_home)
    part = split(data.X, data.y, train=0.6, cal=0.2, random_state=0)
    X, y, X_cal, y_cal, X_test, y_test = tensors(part)
    with Clock() as training:
        posterior, result = train_sparse(X, y, n_inducing=300)
    rows = [["training", training.wall, training.cpu, result.evaluations, "", ""]]
    for name, method in (("Sharp, 25 levels", Sharp(levels=25)), ("Exact", Exact())):
        with Clock() as clock:
            calibrated = method.fit(posterior, X_cal, y_cal)
        inside, width, _ = judged(calibrated.predict_interval(X_test, 0.95), y_test)
        evaluations = getattr(calibrated, "evaluations", "")
        rows.append([name, clock.wall, clock.cpu, evaluations, inside, width])
    table(
        f"kin8nm, N = {len(y)}, C = {len(y_cal)}, M = 300",
        ["step", "wall s", "processor s", "evaluations", "coverage at 95 %", "width at 95 %"],
        rows,
    )


def growth(_: str | None) -> None:
    """One evaluation of bound, variance and leave-one-out with gradients, by N and by M."""
    rows, by_n, by_m = [], [], []
    sizes = [(n, 300) for n in (5_000, 10_000, 20_000)]
    sizes += [(10_000, m) for m in (150, 600)]
    for n, m in sizes:
        data, theta, Z = sparse_problem(n, m, "cpu")
        seconds = [_processor_seconds(action) for action in evaluations(data, theta, Z)]
        rows.append([n, m, *seconds])
        if m == 300:
            by_n.append((n, seconds))
        if n == 10_000:
            by_m.append((m, seconds))
    for label, series in (("exponent in N", by_n), ("exponent in M", by_m)):
        series = sorted(series)
        places, times = zip(*series, strict=True)
        rows.append([label, "", *(exponent(places, [t[i] for t in times]) for i in range(3))])
    table(
        "One evaluation with its gradient, in processor seconds (one thread)",
        ["N", "M", "bound", "sigma at 1,000 points", "leave-one-out"],
        rows,
    )


def _processor_seconds(action: Callable[[], object]) -> float:
    action()
    times = []
    for _ in range(3):
        with Clock() as clock:
            action()
        times.append(clock.cpu)
    return min(times)


def sparse_problem(
    n: int, m: int, device: str
) -> tuple[whitening.Data, torch.Tensor, torch.Tensor]:
    """Data, hyperparameters and inducing inputs as training ends with."""
    X, y = (a.to(device) for a in simulate(n))
    return whitening.Data(Stationary("rbf", D), X, y - y.mean()), THETA.to(device), X[:m].clone()


def evaluations(
    data: whitening.Data, theta: torch.Tensor, Z: torch.Tensor
) -> list[Callable[[], object]]:
    """Bound, variance and leave-one-out, each with its gradient."""
    covariance, S = data.covariance, data.X[:1000]
    theta = theta.clone().requires_grad_()
    Z = Z.clone().requires_grad_()

    def likelihood() -> object:
        return torch.autograd.grad(bound.variational_bound(data, theta, Z).sum(), (theta, Z))

    def sigma() -> object:
        prior = covariance.diag(theta, S) + theta[:, -1:]
        variance = woodbury.sparse_variance(data, theta, Z.detach(), S, prior)
        return torch.autograd.grad(variance.sum(), theta)

    def loo() -> object:
        prior = covariance.diag(theta, data.X)
        _, variance = woodbury.sparse_leave_one_out(data, theta, Z.detach(), prior)
        return torch.autograd.grad(variance.sum(), theta)

    return [likelihood, sigma, loo]


def _apart(call: str) -> None:
    """Run a function of this file in a process of its own, whose peak memory is then its own."""
    code = f"from sharpgp_benchmarks.evidence import large_data; large_data.{call}"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    print(out.stdout, end="", flush=True)


def memory(_: str | None) -> None:
    """Peak memory of a whole fit with 100,000 training rows."""
    _apart("fit_many(100_000)")


def loo_memory(_: str | None) -> None:
    """Peak memory of one leave-one-out evaluation of an exact GP, with its gradient."""
    for n in (6_000, 10_000, 14_000, 20_000):
        _apart(f"leave_one_out_once({n})")


def leave_one_out_once(n: int) -> None:
    """Evaluate once; the matrix of the data has 8 n^2 bytes."""
    X, y = simulate(n)
    theta = THETA.clone().requires_grad_()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    with Clock() as clock:
        residual, variance = inplace.loo_of(Stationary("rbf", D), theta, X, y - y.mean())
        (residual.square() / variance + variance.log()).sum().backward()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    matrix = 8 * n**2 / 2**30
    table(
        f"One leave-one-out evaluation with its gradient, exact GP, N = {n:,}",
        ["wall s", "processor s", "one matrix, GiB", "peak GiB", "matrices beyond what was in use"],
        [[clock.wall, clock.cpu, matrix, peak, (peak - before) / matrix]],
    )


def fit_many(n: int) -> None:
    """Train and calibrate with few evaluations, whose number memory does not depend on."""
    X, y = simulate(n + n // 4)
    data = whitening.Data(Stationary("rbf", D), X[:n], y[:n] - y[:n].mean())
    theta = THETA[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    with Clock() as clock:
        Z = cluster_centres(data.X, 300, theta[:D])
        theta, Z, _ = maximise_bound(data, theta, Z, most=2)
        posterior = SparsePosterior(X[:n], y[:n], data.covariance, theta, Z)
        method = Sharp(levels=[0.025, 0.5, 0.975], family="shared", subset=1000)
        predictor = method.fit(posterior, X[n:], y[n:])
        posterior.loo(theta[None])
        predictor.predict_interval(X[n:], 0.95)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    table(
        f"Train, leave one out, calibrate and predict, N = {n:,}, C = {n // 4:,}, M = 300",
        ["processor s", "GiB of the process before", "peak GiB"],
        [[clock.cpu, before, peak]],
    )


def predict(_: str | None) -> None:
    """A million rows at 95 %."""
    _apart("predict_many(1_000_000)")


def predict_many(n: int) -> None:
    """Predict, and print how far the memory in use rose meanwhile."""
    X, y = simulate(2500)
    posterior, _ = train_sparse(X[:2000], y[:2000], n_inducing=300)
    X_new, rows = simulate(n, seed=1)[0], []
    for method in (Sharp(levels=25), Exact()):
        predictor = method.fit(posterior, X[2000:], y[2000:])
        # Linux forgets the peak of a process when asked to.
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        with Clock() as clock:
            ends = predictor.predict_interval(X_new, 0.95)
        grown, width = _status("VmHWM") - before, float(ends.diff().mean())
        rows.append([type(method).__name__, clock.wall, clock.cpu, grown, width])
    table(
        f"{n:,} rows predicted at 95 %, M = 300",
        ["calibration", "wall s", "processor s", "GiB beyond the input", "mean width"],
        rows,
    )


def _status(entry: str) -> float:
    """An entry of this process's status, in GiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(entry)) / 2**20


PARTS: dict[str, Callable[..., None]] = {
    "kin8nm": kin8nm,
    "growth": growth,
    "memory": memory,
    "loo_memory": loo_memory,
    "predict": predict,
}


def main(parts: str = "", data_home: str | None = None) -> None:
    """Print a table for each part."""
    run_parts(PARTS, parts, data_home)
