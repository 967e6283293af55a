"""The nearest-neighbour posterior against the exact one, and against conditioning by hand."""

import numpy as np
import pytest
import torch

from helpers import marked, method, wavy
from sharpgp import Neighbours, SharpGPRegressor, persistence
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import nearest
from sharpgp.gp.conditionals import symmetric_solve
from sharpgp.gp.covariance import STATIONARY, Stationary
from sharpgp.gp.exact import ExactPosterior
from sharpgp.gp.nearest import Nearest
from sharpgp.gp.neighbour_training import train_neighbours
from sharpgp.gp.neighbours import NeighbourPosterior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.sizes import approximation_for
from sharpgp.gp.sparse_training import train_chosen
from tolerances import rounding

THETA = torch.tensor([0.8, 0.5, 0.3, 1.3, 0.05], dtype=torch.float64)
LEVELS = torch.stack([THETA, 1.5 * THETA])


def setting(kind="rbf", n=60):
    draw = torch.Generator().manual_seed(0)
    X = 3.0 + 2.0 * torch.randn(n, 3, dtype=torch.float64, generator=draw)
    y = X[:, 0].sin() + 0.1 * torch.randn(n, dtype=torch.float64, generator=draw)
    units = {"x_units": Affine.standardising(X), "y_units": Affine.standardising(y)}
    S = 3.0 + 2.0 * torch.randn(15, 3, dtype=torch.float64, generator=draw)
    return (X, y, Stationary(kind, 3), THETA), units, S


def tolerance(gp):
    """What rounding makes of answers that need the inverse of the covariance of all points."""
    K = max((gp.covariance.matrix(t[None], gp.X_standardised)[0] for t in LEVELS), key=torch.norm)
    share = rounding(K + float(THETA[-1]) * torch.eye(len(K), dtype=K.dtype))
    return {"rtol": share, "atol": share * float(gp.y_units.scale)}


@pytest.mark.parametrize("m", [60, 1000])
@pytest.mark.parametrize("kind", sorted(STATIONARY))
def test_all_points_as_neighbours_is_the_exact_gp(kind, m):
    given, units, S = setting(kind)
    exact, near = ExactPosterior(*given, **units), NeighbourPosterior(*given, m=m, **units)
    close = tolerance(exact)
    torch.testing.assert_close(near.mean(S), exact.mean(S), **close)
    torch.testing.assert_close(near.sigma(LEVELS, S), exact.sigma(LEVELS, S), **close)
    for ours, expected in zip(near.loo(LEVELS), exact.loo(LEVELS), strict=True):
        torch.testing.assert_close(ours, expected, **close)
    for ours, expected in zip(near.moments(LEVELS, S), exact.moments(LEVELS, S), strict=True):
        torch.testing.assert_close(ours, expected, **close)
    assert near.log_likelihood() == pytest.approx(exact.log_likelihood(), rel=close["rtol"])


@pytest.mark.parametrize("most_in_tree", [0, 3])
def test_few_neighbours_are_conditioning_by_hand(most_in_tree, monkeypatch):
    """Each point is predicted by an exact GP of its nearest points, found by brute force."""
    monkeypatch.setattr(nearest, "MOST_IN_TREE", most_in_tree)
    given, units, S = setting("matern32")
    X, y, covariance, theta = given
    gp = NeighbourPosterior(*given, m=7, **units)
    close = tolerance(gp)

    def by_hand(x, candidates):
        apart = ((X[candidates] - x) / units["x_units"].scale * theta[:3]).norm(dim=-1)
        rows = candidates[apart.argsort()[:7]]
        return ExactPosterior(X[rows], y[rows], covariance, theta, **units)

    everyone = torch.arange(len(y))
    local = [by_hand(x, everyone) for x in S]
    means = torch.cat([one.mean(x[None]) for one, x in zip(local, S, strict=True)])
    sigmas = torch.cat([one.sigma(LEVELS, x[None]) for one, x in zip(local, S, strict=True)], -1)
    torch.testing.assert_close(gp.mean(S), means, **close)
    torch.testing.assert_close(gp.sigma(LEVELS, S), sigmas, **close)
    mean, sigma = gp.loo(LEVELS)
    for i in range(0, len(y), 9):
        one = by_hand(X[i], everyone[everyone != i])
        expected = one.moments(LEVELS, X[i : i + 1])
        torch.testing.assert_close(mean[:, i], expected[0][:, 0], **close)
        torch.testing.assert_close(sigma[:, i], expected[1][:, 0], **close)


def test_gradients_in_theta_and_inputs():
    given, units, S = setting("matern52", n=6)
    gp = NeighbourPosterior(*given, m=3, **units)
    S = S[:1].clone().requires_grad_()
    theta = LEVELS.clone().requires_grad_()
    assert torch.autograd.gradcheck(gp.moments, (theta, S))
    assert torch.autograd.gradcheck(gp.loo, (theta,))


def test_what_is_kept_does_not_hide_a_gradient():
    given, units, S = setting(n=20)
    gp = NeighbourPosterior(*given, m=5, **units)
    gp.sigma(LEVELS, S)
    assert gp.sigma(LEVELS.clone().requires_grad_(), S).requires_grad
    assert gp.moments(LEVELS, S.clone().requires_grad_())[0].requires_grad


def test_symmetric_solve_has_its_gradients():
    draw = torch.Generator().manual_seed(0)
    A, B = torch.randn(2, 3, 4, 4, dtype=torch.float64, generator=draw)
    A, B = (A @ A.mT + torch.eye(4)).requires_grad_(), B.requires_grad_()
    assert torch.autograd.gradcheck(lambda A, B: symmetric_solve(0.5 * (A + A.mT), B), (A, B))


@pytest.mark.parametrize("most_in_tree", [0, 2])
def test_searches_are_brute_force(most_in_tree, monkeypatch):
    monkeypatch.setattr(nearest, "MOST_IN_TREE", most_in_tree)
    draw = torch.Generator().manual_seed(0)
    points, relevance = torch.rand(50, 2, dtype=torch.float64, generator=draw), torch.tensor([2, 5])
    search, scaled = Nearest(points, relevance), points * relevance
    apart = torch.cdist(scaled, scaled)
    order = torch.randperm(50, generator=draw)
    place = order.argsort()

    def same(found, distances):
        expected = distances.argsort(-1)[:, : found.shape[1]]
        assert torch.equal(found.sort(-1).values, expected.sort(-1).values)

    same(search.to(points[:9], 4), apart[:9])
    same(search.others(5), apart + torch.diag(torch.full((50,), torch.inf)))
    later = order[10:]
    hidden = torch.where(place >= place[later, None], torch.inf, 0.0)
    same(search.earlier(order, later, 6), apart[later] + hidden)


@pytest.mark.parametrize("most_in_tree", [0, 2])
def test_no_point_is_its_own_neighbour_among_copies(most_in_tree, monkeypatch):
    monkeypatch.setattr(nearest, "MOST_IN_TREE", most_in_tree)
    points = torch.ones(9, 2, dtype=torch.float64)
    found = Nearest(points, torch.ones(2, dtype=torch.float64)).others(3)
    assert found.shape == (9, 3)
    assert not (found == torch.arange(9)[:, None]).any()
    assert all(len(set(row)) == 3 for row in found.tolist())


def test_one_point_is_left_to_the_prior():
    X, y = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    theta = torch.tensor([1.0, 2.0, 0.25], dtype=torch.float64)
    mean, sigma = NeighbourPosterior(X, y, Stationary("rbf", 1), theta).loo(theta[None])
    assert (mean.item(), sigma.item()) == (0.0, 1.5)


def test_vecchia_is_close_to_the_likelihood_with_some_neighbours():
    """By the chain rule it is exact; nearest points tell nearly all that earlier ones do."""
    given, units, _ = setting("matern32", n=200)
    exact = ExactPosterior(*given, **units).log_likelihood()
    errors = [
        abs(NeighbourPosterior(*given, m=m, **units).log_likelihood() - exact) for m in (3, 10, 40)
    ]
    assert errors[2] < errors[0]
    assert errors[2] < 0.01


def test_training_and_its_refits():
    X, y = map(torch.from_numpy, wavy(150))
    gp, result = train_neighbours(X, y, m=20)
    assert result.status == "converged"
    assert gp.n_neighbours == 20
    assert gp.n_inducing is None
    residual = y - gp.loo(gp.theta_R[None])[0][0]
    assert float(residual.std()) < 0.7 * float(y.std())
    again = gp.retrained(X[:100], y[:100])
    assert (again.n_train, again.n_neighbours) == (100, 20)
    assert gp.conditioned_on(X[:9], y[:9]).n_neighbours == 9


def test_names_and_sizes():
    assert approximation_for(100, "cpu", "neighbours") == Neighbours(128)
    X, y = map(torch.from_numpy, wavy(40))
    assert train_chosen(X, y, approximation=Neighbours(7))[0].n_neighbours == 7
    with pytest.raises(InvalidInputError, match="Neighbours: m: expected"):
        approximation_for(100, "cpu", Neighbours(0))


def test_other_kernels_are_named_in_the_error():
    X, y = wavy(60)
    with pytest.raises(InvalidInputError, match="for neighbours, found Additive; use approx"):
        SharpGPRegressor(base="additive", approximation="neighbours").fit(X, y)


@pytest.mark.parametrize("name", marked(["cv", "exact", "paper", "vanilla"], slow=["cv", "paper"]))
def test_the_estimator(name, tmp_path):
    X, y = wavy(56)
    model = SharpGPRegressor(
        base="rbf", calibration=method(name), approximation=Neighbours(8), random_state=0
    ).fit(X, y)
    assert model.posterior_.n_neighbours == 8
    ends = model.predict_interval(X[:20], 0.9)
    assert np.isfinite(ends).all()
    persistence.save(model, tmp_path / "model")
    again = persistence.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_interval(X[:20], 0.9), ends)


def test_answers_do_not_depend_on_threads():
    given, units, S = setting(n=200)
    gp = NeighbourPosterior(*given, m=30, **units)
    before, answers = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            answers.append((gp.mean(S), gp.sigma(LEVELS, S), *gp.loo(LEVELS)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*answers, strict=True))


def test_among_many_points_neighbours_are_nearly_the_nearest(monkeypatch):
    """The k-th one found is at most twice as far away as the k-th one is."""
    points = torch.randn(400, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    search = Nearest(points, torch.tensor([1.0, 0.5, 2.0, 1.0], dtype=torch.float64))

    def distances(found):
        return torch.linalg.vector_norm(search.points[:50, None] - search.points[found], dim=-1)

    nearest_ones = distances(search.others(12, torch.arange(50))).sort().values
    monkeypatch.setattr(nearest, "MOST_SEARCHED_EXACTLY", 0)
    found = search.others(12, torch.arange(50))
    assert not (found == torch.arange(50)[:, None]).any()
    assert all(len(set(row)) == 12 for row in found.tolist())
    ratio = distances(found).sort().values / nearest_ones
    assert float(ratio.max()) <= 2.0
    assert 1.0 <= float(ratio.mean()) < 1.2
