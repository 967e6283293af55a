"""The paper's method: exact on its calibration points, monotone, never worse than theta_R."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from helpers import marked
from sharpgp import Neighbours, Sharp, SharpGPRegressor, Sparse
from sharpgp._ranks import rank
from sharpgp.calibration.methods.sharp.path import (
    MOST_EVALUATIONS,
    centre_of,
    halves,
    keep_order,
    level_weights,
    objective_of,
    solve_path,
)
from sharpgp.calibration.methods.sharp.search.level_search import Budget, Problem, Visited, price
from sharpgp.calibration.methods.sharp.search.objective import pinball, sharpness, smooth_quantile
from sharpgp.calibration.methods.sharp.side import knots_of, shortest_path
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import train
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.covariance import STATIONARY
from tolerances import rounding


def simulate(n: int, d: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    noise = 0.02 + 0.1 * (X[:, 0] > 0)
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.5 * X[:, -1] ** 2 + noise * rng.standard_t(4, size=n)
    return torch.from_numpy(X), torch.from_numpy(100.0 + 20.0 * y)


@pytest.fixture(scope="module", params=marked(sorted(STATIONARY), slow=set(STATIONARY) - {"rbf"}))
def problem(request):
    X, y = simulate(240, 4, seed=1)
    posterior, _ = train(X[:100], y[:100], request.param)
    return posterior, X[100:171], y[100:171], X[171:]


@pytest.fixture(scope="module")
def of_25_levels(problem):
    posterior, X_cal, y_cal, _ = problem
    return Sharp(levels=25).fit(posterior, X_cal, y_cal)


@pytest.fixture(scope="module")
def rbf():
    X, y = simulate(240, 4, seed=2)
    posterior, _ = train(X[:100], y[:100])
    return posterior, X[100:171], y[100:171], X[171:]


def below_trained(calibrated, X_cal, y_cal):
    """Trained levels, and how many calibration points lie below the quantile of each."""
    delta = torch.tensor([r.delta for r in calibrated.results], dtype=torch.float64)
    return delta, (y_cal[:, None] <= calibrated.predict_quantiles(X_cal, delta)).sum(0).tolist()


def test_every_trained_level_holds_exactly_its_share_of_points(problem, of_25_levels):
    _, X_cal, y_cal, _ = problem
    delta, below = below_trained(of_25_levels, X_cal, y_cal)
    assert below == rank(delta, len(y_cal)).floor().long().tolist()


@pytest.mark.slow
@pytest.mark.parametrize("levels", ["all", [0.05, 0.3, 0.95]])
def test_so_does_each_of_all_levels_and_of_a_few(problem, levels):
    posterior, X_cal, y_cal, _ = problem
    delta, below = below_trained(Sharp(levels=levels).fit(posterior, X_cal, y_cal), X_cal, y_cal)
    assert below == rank(delta, len(y_cal)).floor().long().tolist()
    if levels == "all":
        assert below == list(range(1, len(y_cal) + 1))


def test_sharper_than_the_base_and_beta_and_theta_monotone(problem, of_25_levels):
    posterior, X_cal, y_cal, _ = problem
    calibrated = of_25_levels
    results = calibrated.results
    assert np.mean([r.objective <= r.objective_base for r in results]) > 0.75
    assert found_objective(calibrated, posterior, X_cal, y_cal) < 0
    assert np.mean([r.objective / r.objective_base for r in results]) < 0.95
    beta = np.array([r.beta for r in results])
    assert (np.diff(beta) >= 0).all()
    theta = torch.stack([r.theta for r in results])
    upper = theta[torch.from_numpy(beta > 0)]
    lower = theta[torch.from_numpy(beta < 0)]
    assert (upper.diff(dim=0) >= -1e-9 * upper[1:]).all()
    assert (lower.diff(dim=0) <= 1e-9 * lower[1:]).all()
    # A search that starts on a bound and silently does nothing would leave one theta a side.
    assert len(torch.unique(upper, dim=0)) >= 3
    assert calibrated.evaluations <= MOST_EVALUATIONS
    assert sum(r.evaluations for r in results) == calibrated.evaluations


def test_quantiles_never_cross_anywhere(problem, of_25_levels):
    _, X_cal, _, X = problem
    everywhere = torch.cat([X, 10 * X, X_cal])
    levels = torch.linspace(0.02, 0.98, 97, dtype=torch.float64)
    assert (of_25_levels.predict_quantiles(everywhere, levels).diff(dim=1) >= 0).all()


ALONE = "sharpgp.calibration.methods.sharp.path.EVALUATIONS_SINGLE_LEVEL"


@pytest.fixture(scope="module")
def of_two_levels(rbf):
    posterior, X_cal, y_cal, _ = rbf
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ALONE, 40)  # what is asked of it holds after any number of evaluations
        return Sharp(levels=[0.3, 0.7]).fit(posterior, X_cal, y_cal)


def test_objective_is_what_the_quantiles_show(rbf, of_two_levels):
    """beta and the width use the same sigma, noise included."""
    posterior, X_cal, y_cal, _ = rbf
    calibrated = of_two_levels
    for result in calibrated.results:
        distance = calibrated.predict_quantiles(X_cal, result.delta) - posterior.mean(X_cal)
        unit = (y_cal - posterior.mean(X_cal)).abs().mean()
        found = (distance / unit).square().mean().item()
        assert found == pytest.approx(result.objective, rel=1e-6)
        assert (
            distance.abs()
            >= abs(result.beta) * posterior.y_units.scale * result.theta[-1].sqrt() * (1 - 1e-9)
        ).all()


@pytest.mark.parametrize("family", marked(["ard", "scaled", "shared"], slow={"ard"}))
def test_families(rbf, family):
    posterior, X_cal, y_cal, X = rbf
    calibrated = Sharp(levels=9, family=family).fit(posterior, X_cal, y_cal)
    theta = torch.stack([r.theta for r in calibrated.results])
    ratio = theta / posterior.theta_R
    if family == "scaled":
        torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))
    if family == "shared":
        assert len(torch.unique(theta, dim=0)) == 1
    logs = [np.log(r.objective / r.objective_base) for r in calibrated.results]
    assert np.mean(logs) < 0
    assert torch.isfinite(calibrated.predict_quantiles(X, [0.1, 0.9])).all()


def test_one_level_alone_still_gives_the_whole_distribution(rbf, monkeypatch):
    monkeypatch.setattr(ALONE, 40)
    posterior, X_cal, y_cal, X = rbf
    calibrated = Sharp(levels=0.9).fit(posterior, X_cal, y_cal)
    assert [r.delta for r in calibrated.results] == [0.9]
    dist = calibrated.predict_dist(X)
    torch.testing.assert_close(dist.quantile(0.9), calibrated.predict_quantiles(X, 0.9))
    C = len(y_cal)
    for j in (5, 36, 60):
        below = y_cal <= calibrated.predict_quantiles(X_cal, j / (C + 1))
        assert int(below.sum()) == j


def test_levels_beyond_the_outermost_trained_one_stay_exact(rbf, of_two_levels):
    _, X_cal, y_cal, _ = rbf
    C = len(y_cal)
    for j in (1, 4, C - 3, C):
        below = y_cal <= of_two_levels.predict_quantiles(X_cal, j / (C + 1))
        assert int(below.sum()) == j


def test_theta_on_a_subset_beta_on_everything(rbf):
    posterior, X_cal, y_cal, _ = rbf
    calibrated = Sharp(levels=9, subset=40, random_state=3).fit(posterior, X_cal, y_cal)
    for r in calibrated.results:
        below = y_cal <= calibrated.predict_quantiles(X_cal, r.delta)
        assert int(below.sum()) == int(np.floor(r.delta * (len(y_cal) + 1) + 1e-9))
    assert (np.diff([r.beta for r in calibrated.results]) >= 0).all()


def found_objective(calibrated, posterior, X_cal, y_cal) -> float:
    """Mean log ratio of a fit's path to RK's, on all of the data."""
    results = calibrated.results
    problem = calibrated.method._problem(posterior, posterior, X_cal, y_cal - posterior.mean(X_cal))
    delta = torch.tensor([r.delta for r in results], dtype=torch.float64)
    return objective_of(problem, delta, torch.stack([r.theta for r in results]))


@pytest.fixture(scope="module")
def small():
    X, y = simulate(70, 2, seed=6)
    posterior, _ = train(X[:30], y[:30])
    return posterior, X[30:], y[30:]


@pytest.mark.parametrize(
    "settings",
    [
        {"levels": 0.9},
        {"levels": 6, "family": "shared"},
        {"levels": 6},
        pytest.param({"levels": "all"}, marks=pytest.mark.slow),
        pytest.param({"levels": 4, "subset": 20}, marks=pytest.mark.slow),
        pytest.param({"levels": 4, "family": "shared", "subset": 20}, marks=pytest.mark.slow),
        pytest.param({"levels": 4, "family": "scaled"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_more_restarts_and_more_effort_never_end_in_a_worse_path(small, settings, monkeypatch):
    """By construction; with a small budget here, so that there is something left to gain.

    What is compared is what a user sees: the objectives of the results, over those of theta_R.
    """
    monkeypatch.setattr("sharpgp.calibration.methods.sharp.path.MOST_EVALUATIONS", 20)
    monkeypatch.setattr("sharpgp.calibration.methods.sharp.path.LEAST_EVALUATIONS", 20)
    monkeypatch.setattr(ALONE, 20)
    found, evaluations = {}, {}
    for effort, restarts in itertools.product((1, 2), (0, 1, 4)):
        method = Sharp(**settings, effort=effort, restarts=restarts, random_state=5)
        calibrated = method.fit(*small)
        ratios = np.log([r.objective / r.objective_base for r in calibrated.results])
        found[effort, restarts] = ratios.clip(min=-3.0).mean()
        evaluations[effort, restarts] = calibrated.evaluations
    for (e, n), (f, m) in itertools.product(found, found):
        if e <= f and n <= m:
            assert found[f, m] <= found[e, n] + 1e-9
            assert evaluations[f, m] > evaluations[e, n] or (e, n) == (f, m)
    assert found[1, 0] < 0
    again = Sharp(**settings, effort=1, restarts=1, random_state=5).fit(*small)
    assert found_objective(again, *small) == pytest.approx(found[1, 1], abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("approximation", [Sparse(15), Neighbours(12)], ids=["sparse", "local"])
def test_the_search_gains_and_stays_ordered_on_approximate_gps(approximation):
    """Restarts, too, never end in a worse path there."""
    X, y = (one.numpy() for one in simulate(120, 2, seed=6))
    found = []
    for restarts in (0, 1):
        method = Sharp(levels=6, restarts=restarts, random_state=0)
        model = SharpGPRegressor(
            base="rbf", calibration=method, approximation=approximation, random_state=0
        ).fit(X[:80], y[:80])
        results = model.calibrated_.results
        ratios = np.log([one.objective / one.objective_base for one in results])
        found.append(ratios.clip(min=-3.0).mean())
        assert (np.diff(model.predict_quantiles(X[80:], np.linspace(0.05, 0.95, 19))) >= 0).all()
    assert found[1] <= found[0] + 1e-9
    assert found[0] < -0.01


def test_of_two_paths_the_one_with_the_lower_objectives_is_taken(small, monkeypatch):
    """What guides a search weighs levels; it must not decide between its results."""

    class Found:
        def __init__(self, start, price, log_ratio):
            self.price, self.log_ratio, self.at_theta_R = price, np.array(log_ratio), [False] * 2
            self.v = np.stack([start, start])
            self.search = SimpleNamespace(elsewhere=lambda rng: None, evaluations=np.zeros(2, int))
            self.first_pass = lambda budget, rng, start: None

    posterior, X_cal, y_cal = small
    problem = Sharp()._problem(posterior, posterior, X_cal, y_cal - posterior.mean(X_cal))
    start = problem.family.start
    sides = [Found(start + 1, -0.1, [-0.4, -0.4]), Found(start + 2, -0.6, [-0.8, 0.1])]
    half = SimpleNamespace(
        index=torch.arange(2), sign=1, evaluations=9, side=lambda *_: next(waiting)
    )
    monkeypatch.setattr("sharpgp.calibration.methods.sharp.path.halves", lambda *_: [half])
    for restarts in (0, 1):
        waiting = iter(sides)
        found = solve_path(problem, torch.tensor([0.6, 0.9]).double(), restarts=restarts)
        torch.testing.assert_close(found.theta, found.passed[1])


def on_the_way(problem, delta, stops):
    """Log ratio [stops, K] to RK's objective on the best path after so many evaluations."""
    log_ratio = np.empty((len(stops), len(delta)))
    for half in halves(problem, delta):
        side = half.side(problem, delta)
        side.first_pass(Budget(half.evaluations), np.random.default_rng(0))
        seen = side.search.visited  # the first is theta_R, which is free
        for row, stop in enumerate(stops):
            n = 1 + stop * len(half.index) // len(delta)
            part = Visited(seen.v[:n], seen.log_ratio[:n], seen.beta[:n])
            path, _ = shortest_path(part, half.weights)
            log_ratio[row, half.index.numpy()] = np.diag(np.array(part.log_ratio)[path])
    return log_ratio


def test_the_best_path_on_the_way_only_gains_and_ends_where_the_fit_ends(small):
    posterior, X_cal, y_cal = small
    calibrated = Sharp(levels=8).fit(*small)
    problem = calibrated.method._problem(posterior, posterior, X_cal, y_cal - posterior.mean(X_cal))
    delta = torch.tensor([r.delta for r in calibrated.results], dtype=torch.float64)
    found = on_the_way(problem, delta, [0, 10, 40, 10_000])
    weights = level_weights(delta, centre_of(problem.r), len(y_cal))
    paid = price(torch.from_numpy(found)).numpy() @ weights
    assert (found[0] == 0).all()
    assert (np.diff(paid) < 0).all()
    ended = [np.log(r.objective / r.objective_base) for r in calibrated.results]
    theta = torch.stack([posterior.theta_R, *(r.theta for r in calibrated.results)])
    error = max(rounding(A) for A in posterior._covariance_of_data(theta))  # of sigma^2, and beta^2
    np.testing.assert_allclose(found[-1], ended, rtol=0, atol=4 * error)


def test_two_levels_on_two_sides_are_searched_as_each_alone(small, monkeypatch):
    monkeypatch.setattr(ALONE, 20)
    both = Sharp(levels=[0.1, 0.9]).fit(*small).results
    for together, level in zip(both, (0.1, 0.9), strict=True):
        (alone,) = Sharp(levels=level).fit(*small).results
        assert torch.equal(together.theta, alone.theta)
        assert together.evaluations == alone.evaluations


@pytest.mark.slow
def test_one_theta_for_all_levels_also_gains_by_effort_and_restarts(small):
    def mean_log_ratio(effort, restarts):
        method = Sharp(levels=[0.05, 0.2, 0.8, 0.95], family="shared")
        method.effort, method.restarts = effort, restarts
        results = method.fit(*small).results
        return np.mean([np.log(r.objective / r.objective_base) for r in results])

    found = [mean_log_ratio(e, n) for e, n in ((1, 0), (1, 2), (2, 2))]
    assert (np.diff(found) <= 1e-12).all()
    assert found[-1] < found[0]


@pytest.mark.slow
def test_levels_between_knots_are_about_as_sharp_as_the_knots(rbf):
    """All levels of the theorem, at those next to the ones of the default grid."""
    posterior, X_cal, y_cal, _ = rbf
    ratios = {}
    for levels in (25, "all"):
        results = Sharp(levels=levels).fit(posterior, X_cal, y_cal).results
        delta = np.array([r.delta for r in results])
        log_ratio = np.log([r.objective / r.objective_base for r in results])
        shared = [i for i in np.linspace(0.05, 0.95, 19) if abs(i - 0.5) > 0.1]
        ratios[levels] = np.mean([log_ratio[np.abs(delta - one).argmin()] for one in shared])
    assert ratios["all"] < 0.7 * ratios[25]  # both are negative


def test_knots_are_the_ends_and_the_levels_next_to_the_default_grid():
    delta = np.arange(51, 101) / 101
    knots = knots_of(delta)
    assert knots[[0, -1]].tolist() == [0, 49]
    assert len(knots) <= 16
    assert np.diff(knots)[0] > np.diff(knots)[-1]
    for level in (0.55, 0.75, 0.9, 0.95, 0.975):
        assert np.abs(delta[knots] - level).min() == np.abs(delta - level).min()
    assert (knots_of(delta[::-1]) == 49 - knots[::-1]).all()  # either direction


def test_knots_of_a_narrow_range_are_not_left_to_the_default_grid():
    delta = np.linspace(0.91, 0.94, 40)
    knots = knots_of(delta)
    assert len(knots) > 8
    assert knots[[0, -1]].tolist() == [0, 39]


def test_levels_between_two_knots_weigh_as_much_as_one():
    delta = torch.arange(1, 101, dtype=torch.float64) / 101
    plain = (delta - 0.5).square()
    plain = (plain / (plain + 4 * delta * (1 - delta) / 100)).numpy()
    upper = (delta > 0.5).numpy()
    share = level_weights(delta, 0.5, 100)[upper] / plain[upper]
    knots = knots_of(delta.numpy()[upper])
    for first, last in itertools.pairwise(knots):
        assert share[[first, last]] == pytest.approx([1, 1])
        if last - first > 1:
            assert share[first + 1 : last].sum() == pytest.approx(1)


def test_the_smoothed_quantile_has_a_gradient_at_every_score_and_no_kinks():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(40, dtype=torch.float64, generator=generator, requires_grad=True)
    delta = torch.tensor([0.1], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(smooth_quantile(delta, z).sum(), z)
    assert (gradient > 0).all()
    assert gradient.sum().item() == pytest.approx(1.0)
    ranks = torch.arange(1, 41, dtype=torch.float64)
    width = (40 * 0.1 * 0.9) ** 0.5
    weight = torch.exp(-0.5 * ((ranks - 4.1) / width) ** 2)
    expected = (weight * z.detach().sort().values).sum() / weight.sum()
    assert smooth_quantile(delta, z).item() == pytest.approx(expected.item())


@pytest.mark.slow
def test_pinball_objective_lowers_the_pinball_loss(rbf):
    posterior, X_cal, y_cal, _ = rbf
    calibrated = Sharp(levels=[0.1, 0.9], objective="pinball").fit(posterior, X_cal, y_cal)
    r = y_cal - posterior.mean(X_cal)
    for result in calibrated.results:
        level, sigma = (
            torch.tensor([result.delta]).double(),
            posterior.sigma(result.theta[None], X_cal),
        )
        unit = r.abs().mean()
        value, _ = pinball(level, r / unit, sigma / unit)
        assert value.item() == pytest.approx(result.objective)
        assert result.objective <= result.objective_base


def test_unknown_names_list_the_known_ones(rbf):
    posterior, X_cal, y_cal, _ = rbf
    with pytest.raises(InvalidInputError, match="ard, scaled, shared"):
        Sharp(family="isotropic").fit(posterior, X_cal, y_cal)
    with pytest.raises(InvalidInputError, match="sharpness, pinball"):
        Sharp(objective="area").fit(posterior, X_cal, y_cal)


def test_fitting_leaves_the_posterior_as_it_was(rbf):
    posterior, X_cal, y_cal, X = rbf
    theta, mean = posterior.theta_R.clone(), posterior.mean(X).clone()
    Sharp(levels=5).fit(posterior, X_cal, y_cal)
    assert torch.equal(posterior.theta_R, theta)
    assert torch.equal(posterior.mean(X), mean)


@pytest.mark.parametrize("seed", range(20))
def test_shortest_path_is_the_best_of_all_monotone_paths(seed):
    rng = np.random.default_rng(seed)
    n, K = 7, 4
    visited, weights = Visited(), rng.uniform(0.1, 1.0, K)
    for i in range(n):
        visited.v.append(rng.integers(0, 3, 2).astype(float))
        gain = np.zeros(K) if i == 0 else rng.normal(-0.2, 0.5, K)
        visited.log_ratio.append(gain)
        visited.beta.append(np.sort(rng.uniform(-0.2 if i else 0, 1, K)))
    v, gain, beta = np.array(visited.v), np.array(visited.log_ratio), np.array(visited.beta)
    levels = np.array([0, 1, 3]) if seed % 2 else np.arange(K)

    def cost(path: tuple[int, ...]) -> float:
        if any(beta[i, k] < 0 for i, k in zip(path, levels, strict=True)):
            return np.inf
        for (a, k), (b, m) in itertools.pairwise(zip(path, levels, strict=True)):
            if not (v[a] <= v[b]).all() or beta[a, k] > beta[b, m]:
                return np.inf
        gains = gain[list(path), levels]
        return float(weights[levels] @ (gains.clip(min=-3.0) + 3.0 * gains.clip(min=0.0)))

    best = min(itertools.product(range(n), repeat=len(levels)), key=cost)
    path, found = shortest_path(visited, weights, levels)
    assert cost(tuple(path)) == pytest.approx(cost(best))
    assert found == pytest.approx(cost(best))


def test_a_level_that_breaks_the_order_takes_its_neighbours_theta():
    """Of the two thetas the first halves sigma, which doubles beta."""
    r = torch.tensor([-2.0, -1.0, 1.0, 2.0, 3.0], dtype=torch.float64)
    delta = torch.tensor([4 / 6, 5 / 6], dtype=torch.float64)
    theta = torch.tensor([[0.5], [1.0]], dtype=torch.float64)
    problem = Problem(None, sharpness, lambda t: t.expand(-1, len(r)), r)
    theta, beta, _, changed = keep_order(problem, delta, theta)
    assert changed.tolist() == [True, False]
    assert theta.tolist() == [[1.0], [1.0]]
    assert beta.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("seed", marked([3, 34], slow={3}))
def test_neighbours_in_order_up_to_rounding_only(seed):
    """The box between two neighbours may be inside out by a rounding error."""
    X, y = simulate(79, 2, seed)
    posterior, _ = train(X[:40], y[:40])
    assert len(Sharp().fit(posterior, X[40:], y[40:]).results) > 10


@pytest.mark.slow
def test_a_hardly_trained_base_on_a_plateau_is_left_behind():
    """Where noise drowns everything no entry of theta_R matters; the search starts elsewhere."""
    X, y = simulate(240, 4, seed=4)
    trained, _ = train(X[:100], y[:100])
    theta = torch.full_like(trained.theta_R, 0.01)
    theta[-2:] = torch.tensor([1.0, 100.0], dtype=torch.float64)
    units = {"x_units": trained.x_units, "y_units": trained.y_units}
    flat = ExactPosterior(X[:100], y[:100], trained.covariance, theta, **units)
    results = Sharp(levels=[0.05, 0.95]).fit(flat, X[100:171], y[100:171]).results
    assert all(r.objective < 0.95 * r.objective_base for r in results)
