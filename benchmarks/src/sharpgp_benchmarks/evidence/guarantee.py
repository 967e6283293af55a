"""What ``exact`` promises, simulated, with the paper's mode beside it.

Data with a known distribution, noise of uneven size; one GP is trained on ``--points`` points, and
mean and spread are learned from these. For each number ``C`` of calibration points, ``--draws``
times, ``C`` calibration points and one test point are drawn anew. The table has, for quantiles and
for both kinds of interval, the bounds that the statement gives, the share of hits with its distance
from the bounds in standard errors, and the same share for the paper's mode, which chooses ``theta``
on the calibration points: ``--fits`` calibrations with 2,000 test points each, and the standard
error over calibrations.
"""

import math

import numpy as np
import torch
from torch import Tensor

from sharpgp import Sharp
from sharpgp._ranks import q_lin, supported, whole_rank
from sharpgp.gp import train
from sharpgp.gp.posterior import Posterior
from sharpgp.models.gaussian.gaussian_model import GaussianModel, learn_gaussian
from sharpgp_benchmarks.evidence.common import judged
from sharpgp_benchmarks.evidence.run import header, row

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
COVERAGES = (0.5, 0.8, 0.9, 0.95)


def sample(n: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Four features, noise ten times as large on one side."""
    X = rng.uniform(-2, 2, (n, 4))
    noise = np.where(X[:, 0] > 0, 0.5, 0.05) * rng.standard_t(5, n)
    return torch.from_numpy(X), torch.from_numpy(np.sin(2 * X[:, 1]) + 0.3 * X[:, 2] + noise)


def scores(model: GaussianModel, draws: int, n: int, rng: np.random.Generator) -> Tensor:
    """z-scores [draws, n] of fresh points."""
    parts = []
    for _ in range(math.ceil(draws * n / 20_000)):
        X, y = sample(20_000, rng)
        parts.append((y - model.location(X)) / model.law(X).spread)
    return torch.cat(parts)[: draws * n].reshape(draws, n)


def of_exact(z: Tensor, C: int) -> dict[str, tuple[float, float, float]]:
    """Lower bound, upper bound and share of hits by what was asked."""
    found = {}
    past, new = z[:, :C], z[:, C]
    for delta in LEVELS:
        if not bool(supported(torch.tensor([delta], dtype=z.dtype), C)):
            continue
        quantile = q_lin(torch.full((len(z),), delta, dtype=z.dtype), past)
        low = whole_rank(delta, C, up=False) / (C + 1)
        high = whole_rank(delta, C, up=True) / (C + 1)
        found[f"quantile {delta:g}"] = low, high, float((new <= quantile).double().mean())
    ordered, magnitudes = past.sort(dim=1).values, past.abs().sort(dim=1).values
    for coverage in COVERAGES:
        k = whole_rank(coverage, C, up=True)
        if k <= C:
            share = float((new.abs() <= magnitudes[:, k - 1]).double().mean())
            found[f"band {coverage:g}"] = coverage, coverage + 1 / (C + 1), share
        low = whole_rank((1 - coverage) / 2, C, up=False)
        high = whole_rank((1 + coverage) / 2, C, up=True)
        if low >= 1 and high <= C:
            inside = (ordered[:, low - 1] <= new) & (new <= ordered[:, high - 1])
            share = float(inside.double().mean())
            found[f"centred {coverage:g}"] = coverage, coverage + 2 / (C + 1), share
    return found


def of_paper(
    posterior: Posterior, C: int, fits: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Share of hits in each of ``fits`` calibrations, by what was asked."""
    found: dict[str, list[float]] = {}
    for _ in range(fits):
        calibrated = Sharp().fit(posterior, *sample(C, rng))
        X, y = sample(2_000, rng)
        levels = [d for d in LEVELS if 1 / (C + 1) <= d <= C / (C + 1)]
        for d, q in zip(levels, calibrated.predict_quantiles(X, levels).T, strict=True):
            found.setdefault(f"quantile {d:g}", []).append(float((y <= q).double().mean()))
        for coverage in COVERAGES:
            for kind, symmetric in (("band", True), ("centred", False)):
                ends = calibrated.predict_interval(X, coverage, symmetric=symmetric)
                found.setdefault(f"{kind} {coverage:g}", []).append(judged(ends, y)[0])
    return {name: np.array(shares) for name, shares in found.items()}


def main(points: int = 80, draws: int = 20_000, fits: int = 40) -> None:
    """Print a table for each ``C``."""
    rng = np.random.default_rng(0)
    posterior, _ = train(*sample(points, rng))
    model = learn_gaussian(posterior, seed=0)
    print(f"spread: {model.choice}\n")
    worst = 0.0
    header("C", "asked", "bounds", "exact", "off by, standard errors", "paper", "standard error")
    for C in (20, 50, 100):
        exact = of_exact(scores(model, draws, C + 1, rng), C)
        paper = of_paper(posterior, C, fits, rng)
        for name, (low, high, share) in exact.items():
            error = math.sqrt(max(share * (1 - share), 1e-4) / draws)
            off = max(low - share, share - high, 0.0) / error
            worst = max(worst, off)
            theirs = paper[name]
            spread_of_fits = theirs.std(ddof=1) / math.sqrt(len(theirs))
            bounds = f"{low:.4f} to {high:.4f}"
            paper_s = [f"{theirs.mean():.4f}", f"{spread_of_fits:.4f}"]
            row(C, name, bounds, f"{share:.4f}", f"{off:.1f}", *paper_s)
    print(f"\nexact is off by at most {worst:.1f} standard errors")
