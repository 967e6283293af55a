"""CV+ and leave-one-out: what each point is compared with, and what that is worth."""

import math

import numpy as np
import pytest
import torch

from sharpgp import CrossValidated, CVPlus, LeaveOneOut
from sharpgp.calibration.intervals import prefers_band
from sharpgp.calibration.predictors.cv_plus import PlusPredictor
from sharpgp.gp import train
from sharpgp.gp.compute import side_by_side, threads_for
from sharpgp.models.laws import Normal
from sharpgp.models.model import Model


def data(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 1))
    return torch.from_numpy(X), torch.from_numpy(np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n))


class Constant(Model):
    """A fit that predicts the mean of its data, and their deviation as the spread."""

    def __init__(self, y: torch.Tensor) -> None:
        self.level, self.deviation = y.mean(), y.std()

    def law(self, X: torch.Tensor) -> Normal:
        return Normal(self.level.expand(len(X)), self.deviation.expand(len(X)))

    def extended(self, X: torch.Tensor, y: torch.Tensor) -> "Constant":
        raise NotImplementedError

    updated = extended
    gp = n_features = device = rows = y_train = None


def plus_of(y: torch.Tensor, folds: int) -> PlusPredictor:
    parts = torch.arange(len(y)).chunk(folds)
    fits, scores = [], []
    for part in parts:
        fit = Constant(y[~torch.isin(torch.arange(len(y)), part)])
        fits.append(fit)
        scores.append((y[part] - fit.level) / fit.deviation)
    return PlusPredictor(Constant(y), fits, scores)


def test_band_is_the_textbook_one():
    """Barber et al., section 3, point by point and with a loop."""
    y = data(23, seed=0)[1]
    plus, X = plus_of(y, folds=5), torch.zeros(1, 1, dtype=torch.float64)
    for coverage in (0.5, 0.8, 0.9):
        below, above = [], []
        for fit, scores in zip(plus.fits, plus.scores, strict=True):
            for z in scores:
                below.append((fit.level - z.abs() * fit.deviation).item())
                above.append((fit.level + z.abs() * fit.deviation).item())
        lower, upper = plus.band(X, coverage)
        top = sorted(above)[math.ceil(coverage * 24 - 1e-9) - 1]
        bottom = sorted(below)[math.floor((1 - coverage) * 24 + 1e-9) - 1]
        assert upper.item() == pytest.approx(top, rel=1e-12)
        assert lower.item() == pytest.approx(bottom, rel=1e-12)


def test_quantiles_are_order_statistics():
    y = data(19, seed=1)[1]
    plus, X = plus_of(y, folds=4), torch.zeros(2, 1, dtype=torch.float64)
    pooled = plus._pooled(X, plus.scores)[0].sort().values
    delta = torch.tensor([0.05, 0.5, 0.525, 0.95], dtype=torch.float64)
    expected = torch.stack([pooled[0], pooled[9], (pooled[9] + pooled[10]) / 2, pooled[18]])
    torch.testing.assert_close(plus.quantiles(X, delta)[:, 1], expected)


@pytest.mark.parametrize(
    ("n", "folds", "draws"),
    [
        (20, 5, 600),
        pytest.param(20, 5, 1500, marks=pytest.mark.slow),
        pytest.param(40, 10, 1500, marks=pytest.mark.slow),
    ],
)
def test_coverage_over_many_draws(n, folds, draws):
    """At least the worst case; nominal, in fact, for a stable fit."""
    rng = np.random.default_rng(2)
    hits, X = 0, torch.zeros(1, 1, dtype=torch.float64)
    for _ in range(draws):
        y = torch.from_numpy(rng.standard_exponential(n + 1))
        plus = plus_of(y[:n], folds)
        lower, upper = plus.band(X, 0.8)
        hits += int(lower.item() <= y[n].item() <= upper.item())
    error = math.sqrt(0.16 / draws)
    assert hits / draws > plus.worst_case(0.8)
    assert abs(hits / draws - 0.8) < 1 / (n + 1) + 4 * error


def test_centred_intervals_end_at_whole_ranks():
    """Of 19 points, 80 % centred are ranks 2 and 18; levels beyond the ranks stay as they are."""
    plus = plus_of(data(19, seed=0)[1], folds=4)
    assert plus.centred_levels(0.8) == (2 / 20, 18 / 20)
    assert plus.centred_levels(0.75) == (2 / 20, 18 / 20)  # 2.5 and 17.5, moved outward
    assert plus.centred_levels(0.99) == pytest.approx((0.005, 0.995))


def test_worst_case():
    y = data(100, seed=3)[1]
    assert plus_of(y, folds=10).worst_case(0.9) == pytest.approx(0.8 - 0.9 / 11)
    assert plus_of(y, folds=2).worst_case(0.9) == pytest.approx(0.8 - 1 / 51)


def test_ends_do_not_change_places():
    """Where fits disagree more than points scatter, the textbook's band at 2 % is inside out."""
    y = torch.cat([torch.zeros(10), torch.full((10,), 9.0)]).double() + 0.1 * data(20, seed=0)[1]
    plus, X = plus_of(y, folds=2), torch.zeros(1, 1, dtype=torch.float64)
    ends = torch.stack([torch.cat(plus.band(X, c)) for c in (0.02, 0.2, 0.5, 0.9)])
    assert (ends[:, 0] <= ends[:, 1]).all()
    assert (ends[:, 0].diff() <= 0).all()
    assert (ends[:, 1].diff() >= 0).all()


def test_every_fit_of_plus_is_without_its_part():
    X, y = data(45, seed=4)
    posterior, _ = train(X, y)
    plus = CVPlus(folds=3, random_state=0).fit(posterior)
    assert [fit.posterior.n_train for fit in plus.fits] == [30, 30, 30]
    order = torch.randperm(45, generator=torch.Generator().manual_seed(0))
    for part, fit, z in zip(order.chunk(3), plus.fits, plus.scores, strict=True):
        assert not torch.isin(y[part], fit.posterior.y_train).any()
        torch.testing.assert_close(z, fit.score(X[part], y[part]))
    ends = plus.predict_interval(X, 0.8)
    assert 0.7 < ((ends[:, 0] <= y) & (y <= ends[:, 1])).double().mean() < 0.95
    levels = plus.predict_quantiles(X, [0.1, 0.5, 0.9])
    assert (levels.diff(dim=1) >= 0).all()


def test_leave_one_out_scores_are_those_of_the_one_fit():
    X, y = data(50, seed=5)
    posterior, _ = train(X, y)
    loo = LeaveOneOut(random_state=0).fit(posterior)
    fit = loo.model
    mean, sigma = fit.posterior.loo(fit.posterior.theta_R[None])
    total = sigma[0] * fit.unit
    if fit.scale is not None:
        total = total * (0.5 * fit.choice.share * fit.scale.log_square_loo()).exp()
    torch.testing.assert_close(loo.scores, (y - mean[0]) / total)
    same = LeaveOneOut(random_state=0).fit(posterior)
    assert torch.equal(same.scores, loo.scores)


def test_results_do_not_depend_on_the_number_of_threads():
    X, y = data(60, seed=6)
    posterior, _ = train(X, y)
    before, scores = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            scores.append(CrossValidated(folds=4, random_state=0).fit(posterior).scores)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(scores[0], scores[1])
    assert torch.equal(scores[0], scores[2])


def test_side_by_side_runs_in_threads_of_one_thread_each():
    import threading

    before = torch.get_num_threads()
    barrier = threading.Barrier(2, timeout=20)

    def work(item: int) -> tuple[int, int]:
        barrier.wait()  # passes only if two run at once
        return item, torch.get_num_threads()

    try:
        torch.set_num_threads(2)
        with threads_for(10):
            assert side_by_side(work, [1, 2]) == [(1, 1), (2, 1)]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert side_by_side(lambda item: 2 * item, [1, 2], in_turn=True) == [2, 4]


def test_bands_for_few_points_and_intervals_for_skewed_ones():
    rng = np.random.default_rng(7)
    even, skewed = torch.from_numpy(rng.normal(size=800)), torch.from_numpy(rng.gamma(1, 1, 800))
    skewed = skewed - skewed.mean()
    assert prefers_band(even, 50)
    assert prefers_band(skewed, 8)  # too few points for two tails of 10 %
    assert not prefers_band(skewed, 400)
