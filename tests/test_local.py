"""The posterior from landmarks and neighbours against the exact one, and conditioning by hand."""

from functools import partial

import numpy as np
import pytest
import torch
from gpytorch import kernels

from helpers import FakePosterior, marked, method, wavy
from sharpgp import Neighbours, SharpGPRegressor, persistence
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import train
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.by_name import NamedKernel, make_covariance
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.local import conditionals, nearest
from sharpgp.gp.local.conditionals import symmetric_solve
from sharpgp.gp.local.nearest import Nearest
from sharpgp.gp.local.posterior import LocalPosterior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.wrappers.target_warp import WarpedPosterior, train_warped
from sharpgp.names import KERNELS
from sharpgp.rows import Rows
from tolerances import rounding

THETA = torch.tensor([0.8, 0.5, 0.3, 1.3, 0.05], dtype=torch.float64)
#: Every kind of covariance that has neighbours.
COVARIANCES = {kind: kind for kind in KERNELS} | {
    "sum": "laplace+matern32",
    "tied": NamedKernel("matern32", ties=(0, 1, 1)),
    "tied additive": NamedKernel("additive", ties=(0, 1, 1)),
    "known noise": "rbf",
}


def setting(kind="rbf", n=60):
    draw = torch.Generator().manual_seed(0)
    X = 3.0 + 2.0 * torch.randn(n, 3, dtype=torch.float64, generator=draw)
    y = X[:, 0].sin() + 0.1 * torch.randn(n, dtype=torch.float64, generator=draw)
    S = 3.0 + 2.0 * torch.randn(15, 3, dtype=torch.float64, generator=draw)
    covariance = make_covariance(COVARIANCES[kind], X.shape[1])
    units = {"x_units": covariance.units(X), "y_units": Affine.standardising(y)}
    if kind == "known noise":
        X, S = (Rows(some, 0.1 + some[:, 0].square()) for some in (X, S))
    inverse = 0.3 + 0.5 * torch.rand(covariance.n_inverse, dtype=torch.float64, generator=draw)
    rest = covariance.n_theta - covariance.n_inverse - 1
    theta = torch.cat([inverse, THETA[-2].expand(rest) / rest, THETA[-1:]])
    return (X, y, covariance, theta), units, S


def levels(gp):
    return torch.stack([gp.theta_R, 1.5 * gp.theta_R])


def tolerance(gp):
    """What rounding makes of answers that need the inverse of the covariance of all points."""
    X = gp.X_standardised
    K = max((gp.covariance.matrix(t[None], X)[0] for t in levels(gp)), key=torch.norm)
    share = rounding(K + float(gp.theta_R[-1]) * torch.eye(len(K), dtype=K.dtype))
    return {"rtol": share, "atol": share * float(gp.y_units.scale)}


def same(found, expected, **close):
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **close)


@pytest.mark.parametrize(
    ("neighbours", "landmarks"), [(60, 0), (1000, 0), (1000, 17), (1, 60), (5, 1000)]
)
@pytest.mark.parametrize("kind", COVARIANCES)
def test_all_points_is_the_exact_gp(kind, neighbours, landmarks):
    given, units, S = setting(kind)
    exact = ExactPosterior(*given, **units)
    gp = LocalPosterior(*given, neighbours=neighbours, landmarks=landmarks, **units)
    close, theta = tolerance(exact), levels(gp)
    torch.testing.assert_close(gp.mean(S), exact.mean(S), **close)
    torch.testing.assert_close(gp.sigma(theta, S), exact.sigma(theta, S), **close)
    # Neighbours of all rows are as many: those of a landmark are one too few where all others are.
    rows = torch.arange(60)
    if 0 < landmarks < 60:
        rows = rows[~among(rows, gp.landmark_rows)]
    same((part[:, rows] for part in gp.loo(theta)), (p[:, rows] for p in exact.loo(theta)), **close)
    same(gp.moments(theta, S), exact.moments(theta, S), **close)
    assert gp.log_likelihood() == pytest.approx(exact.log_likelihood(), rel=close["rtol"])


def by_hand(gp, x, landmarks, candidates):
    """An exact GP of landmarks and of the points nearest to ``x``, found by brute force."""
    X, y, units = gp.rows, gp.y_train, {"x_units": gp.x_units, "y_units": gp.y_units}
    apart = (
        gp.x_units.forward(X.X[candidates])
        - gp.x_units.forward(Rows.of(x).X if isinstance(x, Rows) else x)
    ).mul(gp.covariance.relevance(gp.theta_R))
    near = candidates[apart.norm(dim=-1).argsort()[: gp.neighbours]]
    rows = torch.cat([landmarks, near])
    return ExactPosterior(X[rows], y[rows], gp.covariance, gp.theta_R, **units)


def among(rows, wanted):
    """Which rows are among some."""
    return (rows[:, None] == wanted).any(-1)


@pytest.mark.parametrize("landmarks", [0, 1, 20])
@pytest.mark.parametrize("most_in_tree", [0, 4])
@pytest.mark.parametrize("kind", ["matern32", "additive", "tied additive", "known noise"])
def test_predictions_are_conditioning_by_hand(kind, most_in_tree, landmarks, monkeypatch):
    monkeypatch.setattr(nearest, "MOST_IN_TREE", most_in_tree)
    given, units, S = setting(kind)
    gp = LocalPosterior(*given, neighbours=7, landmarks=landmarks, **units)
    theta, close = levels(gp), tolerance(gp)
    chosen, every = gp.landmark_rows, torch.arange(60)
    assert len(chosen.unique()) == landmarks
    rest = every[~among(every, chosen)]
    expected = [
        by_hand(gp, x, chosen, rest).moments(theta, S[k : k + 1])
        for k, x in enumerate(Rows.of(S).X)
    ]
    expected = (torch.cat(part, -1) for part in zip(*expected, strict=True))
    same(gp.moments(theta, S), expected, **close)


@pytest.mark.parametrize("kind", ["matern32", "additive", "known noise"])
def test_leaving_out_is_predicting_without(kind):
    """Landmarks, too: each row by a GP that has never had it."""
    given, units, _ = setting(kind)
    gp = LocalPosterior(*given, neighbours=7, landmarks=20, **units)
    theta, close, every = levels(gp), tolerance(gp), torch.arange(60)
    chosen, found = gp.landmark_rows, gp.loo(theta)
    for i in [*range(0, 60, 9), *chosen[:4].tolist()]:
        rest = every[~among(every, chosen) & (every != i)]
        x = gp.rows[i : i + 1]
        expected = by_hand(gp, x, chosen[chosen != i], rest).moments(theta, x)
        same([part[:, i] for part in found], [part[:, 0] for part in expected], **close)


@pytest.mark.parametrize("landmarks", [0, 40])
def test_batches_and_what_is_kept_do_not_matter(landmarks, monkeypatch):
    """``w`` of all rows is kept where it is small; blocks of points are as large as fits."""
    given, units, S = setting("matern52", n=120)
    gp = LocalPosterior(*given, neighbours=7, landmarks=landmarks, **units)
    close, theta = tolerance(gp), levels(gp)
    expected = *gp.moments(theta, S), *gp.loo(theta)
    one_by_one = [gp.moments(theta, S[i : i + 1]) for i in range(len(S))]
    same((torch.cat(part, -1) for part in zip(*one_by_one, strict=True)), expected[:2], **close)
    monkeypatch.setattr(conditionals, "block_entries", lambda device: 0)
    again = gp.conditioned_on(gp.X_train, gp.y_train)
    same((*again.moments(theta, S), *again.loo(theta)), expected, **close)


def test_only_what_predictions_ask_is_kept():
    """Of the rows that are no landmarks, what landmarks say of them; and no inverse."""
    given, units, S = setting()
    gp = LocalPosterior(*given, neighbours=8, landmarks=20, **units)
    gp.mean(S), gp.loo(gp.theta_R[None])
    kept = vars(gp._at(gp.theta_R[None]))
    assert kept["_white"].shape == (1, 60 - 20, 20)
    assert "_inverse" not in kept


def test_seeds_draw_landmarks():
    given, units, S = setting()
    one, same_one, other = (
        LocalPosterior(*given, neighbours=5, landmarks=9, seed=seed, **units) for seed in (1, 1, 2)
    )
    assert torch.equal(one.mean(S), same_one.mean(S))
    assert not torch.equal(one.mean(S), other.mean(S))


def test_a_gp_trained_on_a_part_is_conditioned_on_all():
    X, y = map(torch.from_numpy, wavy(400))
    trained, _ = train(X[:100], y[:100])
    gp = LocalPosterior.from_trained(trained, X, y, landmarks=50, neighbours=30, seed=3)
    expected = trained.conditioned_on(X, y)
    S = torch.from_numpy(wavy(50, seed=5)[0])
    assert torch.equal(gp.theta_R, trained.theta_R)
    assert gp.training == trained.training
    error, before = ((some.mean(S) - expected.mean(S)).abs().max() for some in (gp, trained))
    assert float(error) < 0.5 * float(before)


@pytest.mark.parametrize("landmarks", [0, 4])
@pytest.mark.parametrize("kind", ["matern52", "tied additive"])
def test_gradients_in_theta_and_inputs(kind, landmarks):
    given, units, S = setting(kind, n=8)
    gp = LocalPosterior(*given, neighbours=3, landmarks=landmarks, **units)
    S = S[:1].clone().requires_grad_()
    theta = levels(gp).requires_grad_()
    assert torch.autograd.gradcheck(gp.moments, (theta, S))
    assert torch.autograd.gradcheck(gp.loo, (theta,))


def test_what_is_kept_does_not_hide_a_gradient():
    given, units, S = setting(n=20)
    gp = LocalPosterior(*given, neighbours=5, **units)
    gp.sigma(levels(gp), S)
    assert gp.sigma(levels(gp).clone().requires_grad_(), S).requires_grad
    assert gp.moments(levels(gp), S.clone().requires_grad_())[0].requires_grad


def test_symmetric_solve_has_its_gradients():
    draw = torch.Generator().manual_seed(0)
    A, B = torch.randn(2, 3, 4, 4, dtype=torch.float64, generator=draw)
    A, B = (A @ A.mT + torch.eye(4)).requires_grad_(), B.requires_grad_()
    assert torch.autograd.gradcheck(lambda A, B: symmetric_solve(0.5 * (A + A.mT), B), (A, B))


@pytest.mark.parametrize("most_in_tree", [0, 2])
def test_searches_are_brute_force(most_in_tree, monkeypatch):
    monkeypatch.setattr(nearest, "MOST_IN_TREE", most_in_tree)
    draw = torch.Generator().manual_seed(0)
    points = torch.rand(50, 2, dtype=torch.float64, generator=draw) * torch.tensor([2, 5])
    search, apart = Nearest(points), torch.cdist(points, points)
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
    found = Nearest(points).others(3)
    assert found.shape == (9, 3)
    assert not (found == torch.arange(9)[:, None]).any()
    assert all(len(set(row)) == 3 for row in found.tolist())


def test_one_point_is_left_to_the_prior():
    X, y = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    theta = torch.tensor([1.0, 2.0, 0.25], dtype=torch.float64)
    mean, sigma = LocalPosterior(X, y, Stationary("rbf", 1), theta).loo(theta[None])
    assert (mean.item(), sigma.item()) == (0.0, 1.5)


def test_vecchia_is_close_to_the_likelihood_with_some_neighbours():
    """By the chain rule it is exact; nearest points tell nearly all that earlier ones do."""
    given, units, _ = setting("matern32", n=200)
    exact = ExactPosterior(*given, **units).log_likelihood()
    errors = [
        abs(LocalPosterior(*given, neighbours=m, **units).log_likelihood() - exact)
        for m in (3, 10, 40)
    ]
    assert errors[2] < errors[0]
    assert errors[2] < 0.01


def test_training_and_its_refits():
    X, y = map(torch.from_numpy, wavy(150))
    gp = LocalPosterior.from_trained(train(X, y, most=100)[0], X, y, landmarks=10, neighbours=20)
    assert gp.training.status == "converged"
    assert gp.n_neighbours == 20
    assert gp.n_inducing is None
    residual = y - gp.loo(gp.theta_R[None])[0][0]
    assert float(residual.std()) < 0.7 * float(y.std())
    again = gp.retrained(X[:100], y[:100])
    assert (again.n_train, again.n_neighbours, again.landmarks) == (100, 20, 10)
    assert again.training.most == 100
    assert gp.conditioned_on(X[:19], y[:19]).n_neighbours == 9


def test_a_wrapper_stays_around_it():
    X, y = map(torch.from_numpy, wavy(90))
    warped = train_warped(X, y.exp(), Stationary("rbf", X.shape[1]))
    local = partial(LocalPosterior.from_trained, landmarks=80, neighbours=5)
    gp = warped.conditioned_by(local, X[:80], y[:80].exp())
    exact = warped.conditioned_on(X[:80], y[:80].exp())
    assert isinstance(gp, WarpedPosterior)
    assert isinstance(gp.base, LocalPosterior)
    same(gp.mean_and_sigma(X[80:]), exact.mean_and_sigma(X[80:]), rtol=1e-6, atol=1e-6)
    with pytest.raises(InvalidInputError, match="found FakePosterior; use train"):
        LocalPosterior.from_trained(FakePosterior(), X, y, landmarks=5, neighbours=5)


def test_other_kernels_are_named_in_the_error():
    X, y = map(torch.from_numpy, wavy(30))
    trained, _ = train(X, y, kernels.ScaleKernel(kernels.RQKernel()))
    with pytest.raises(InvalidInputError, match="for neighbours, found FromGPyTorch; use approx"):
        LocalPosterior.from_trained(trained, X, y, landmarks=5, neighbours=5)


def test_an_additive_gp_has_neighbours():
    X, y = wavy(60)
    model = SharpGPRegressor(base="additive", approximation=Neighbours(8), calibration="loo")
    assert model.fit(X, y).posterior_.n_neighbours == 8


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
    gp = LocalPosterior(*given, neighbours=30, **units)
    before, answers = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            answers.append((gp.mean(S), gp.sigma(levels(gp), S), *gp.loo(levels(gp))))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*answers, strict=True))


def test_among_many_points_neighbours_are_nearly_the_nearest(monkeypatch):
    """The k-th one found is at most twice as far away as the k-th one is."""
    points = torch.randn(400, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    search = Nearest(points * torch.tensor([1.0, 0.5, 2.0, 1.0], dtype=torch.float64))

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
