"""What every model answers for, whatever it is made of: shapes, held-out rows, refits, files."""

from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from torch import Tensor

from helpers import marked, wavy
from sharpgp import Neighbours, Sparse, persistence
from sharpgp.data.folds import row_labels, split_parts
from sharpgp.gp import train
from sharpgp.models.bagged import AveragedModel
from sharpgp.models.bases import Bases
from sharpgp.models.gaussian.gaussian_model import GaussianModel, learn_gaussian
from sharpgp.models.gaussian.spread_choice import Choice, same_spread
from sharpgp.models.model import Learner
from sharpgp.models.pool import pooled_out_of_fold
from sharpgp.models.splitters import complements
from sharpgp.models.trees.tree_model import TREES, TreeModel

N = 48
X, Y = map(torch.from_numpy, wavy(N, seed=3))
X_NEW, Y_NEW = map(torch.from_numpy, wavy(11, seed=4))
SINGLY = torch.arange(N)


def of(base, **settings):
    def make(X: Tensor, y: Tensor) -> Learner:
        (model,) = Bases(base, seed=0, **settings).learned(X, y).values()
        return model

    return make


def chosen(choice: Choice):
    """A GP with a spread of some kind, whether it is the best or not."""

    def make(X: Tensor, y: Tensor) -> Learner:
        posterior, _ = train(X, y)
        return GaussianModel(same_spread(choice, posterior, X, y), posterior)

    return make


def pool(X: Tensor, y: Tensor) -> Learner:
    models = Bases(["rbf", "matern12", "extra_trees"], seed=0).learned(X, y)
    pairs = complements(len(y), split_parts(torch.arange(len(y)), 3, 0))
    model, _ = pooled_out_of_fold(models, pairs, torch.arange(len(y)), 0)
    return model


def averaged(X: Tensor, y: Tensor) -> Learner:
    model = learn_gaussian(train(X, y)[0])
    pairs = complements(len(y), split_parts(torch.arange(len(y)), 3, 0))
    return AveragedModel.from_out_of_fold(model.out_of_fold(pairs, torch.arange(len(y)), 0))


class Nearest(KNeighborsRegressor):
    """Quantiles of a Gaussian about the mean of the nearest points."""

    def predict_quantiles(self, X, levels):
        return self.predict(X)[:, None] + 0.3 * norm.ppf(np.asarray(levels))


MAKERS = {
    "gaussian": lambda X, y: learn_gaussian(train(X, y)[0]),
    "heteroscedastic": chosen(Choice(share=1.0)),
    "warped": chosen(Choice(warped=True)),
    "additive": of("additive"),
    "sum": of("laplace+matern32"),
    "averaged": averaged,
    "sparse": of("rbf", approximation=Sparse(15)),
    "neighbours": of("rbf", approximation=Neighbours(8)),
    "regressor": of(LinearRegression()),
    "extra_trees": of("extra_trees"),
    "random_forest": of("random_forest"),
    "boosted_trees": of("boosted_trees"),
    "foreign": of(Nearest()),
    "pool": pool,
}


@cache
def made(name: str) -> Learner:
    return MAKERS[name](X, Y)


@pytest.fixture(
    params=marked(
        MAKERS,
        slow={
            *("additive", "averaged", "boosted_trees"),
            *("random_forest", "sparse", "sum", "warped"),
        },
    )
)
def model(request):
    """A model of every kind; it is the same in all tests, and none may change it."""
    found = made(request.param)
    before = found.location(X_NEW), found.law(X_NEW).spread
    yield found
    assert torch.equal(found.location(X_NEW), before[0])
    assert torch.equal(found.law(X_NEW).spread, before[1])


def answers(model: Learner, X: Tensor = X_NEW) -> Tensor:
    return torch.stack([model.location(X), model.law(X).spread])


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


# ------------------------------------------------------------------ answers


@pytest.mark.slow
def test_every_kind_is_here():
    def kinds(cls):
        return {cls}.union(*map(kinds, cls.__subclasses__()))

    concrete = {
        cls
        for cls in kinds(Learner)
        if cls.__module__.startswith("sharpgp.") and not cls.__abstractmethods__
    }
    assert concrete == {type(made(name)) for name in MAKERS}


@pytest.mark.parametrize("rows", [1, 11])
def test_location_and_spread(model, rows):
    location, spread = model.location(X_NEW[:rows]), model.law(X_NEW[:rows]).spread
    assert location.shape == spread.shape == (rows,)
    assert location.dtype == spread.dtype == torch.float64
    assert torch.isfinite(location).all()
    assert (torch.isfinite(spread) & (spread > 0)).all()
    close(torch.stack([location, spread]), answers(model)[:, :rows])
    close(model.law(X_NEW[:rows]).location, location)
    # It has learned something of a smooth function.
    assert (answers(model, X)[0] - Y).square().mean() < 0.8 * Y.var()


def test_data(model):
    assert (model.n_features, model.device.type) == (2, "cpu")
    close(model.X_train, X)
    close(model.y_train, Y)


def test_scores_stand_for_what_they_come_from(model):
    scores = model.score(X_NEW, Y_NEW)
    close(model.value(X_NEW, scores.unsqueeze(0))[0], Y_NEW)
    z = torch.linspace(-40, 40, 33, dtype=torch.float64).unsqueeze(-1)
    steps = model.value(X_NEW, z)
    assert (steps.diff(dim=0) > 0).all()
    found = model.law(X_NEW).score(steps)
    torch.testing.assert_close(found, z.expand(-1, 11), rtol=1e-6, atol=1e-6)


def test_gradients_where_there_is_a_gp_of_its_own_mean(model):
    points = X_NEW.clone().requires_grad_()
    if model.gp is None or "Centred" in type(model.gp).__name__:
        return
    (model.location(points) + model.value(points, torch.ones(1, 1).double())).sum().backward()
    assert torch.isfinite(points.grad).all()
    assert (points.grad != 0).any()


# ------------------------------------------------------------------ held out


def assert_complete(held, n=N):
    assert torch.equal(held.rows, torch.arange(n))
    for values in (held.law.location, held.law.spread, held.scores):
        assert values.shape == (n,)
        assert torch.isfinite(values).all()
    assert (held.law.spread > 0).all()


def one_fit(model):
    """An average is learned again as one fit."""
    return model.model if isinstance(model, AveragedModel) else model


def test_leave_one_out(model):
    held = model.leave_one_out(SINGLY, 0)
    assert_complete(held)
    close(held.scores, held.law.score(Y))
    # Without a point, its own target is farther away than with it.
    assert (Y - held.law.location).abs().mean() > (Y - model.location(X)).abs().mean()


def test_leave_one_out_of_rows_that_belong_together(model):
    """Twice the same input: both are left out at once, and rows stay in order."""
    n, once = N // 2, SINGLY[: N // 2]
    again = torch.cat([once, once])
    twice = model.relearned(X[again], torch.cat([Y[once], Y[once] + 0.3]), again, 0)
    labels = row_labels(twice.X_train)
    assert len(labels.unique()) == n
    held = twice.leave_one_out(labels, 0)
    assert_complete(held, 2 * n)
    close(held.law.location[:n], held.law.location[n:])
    close(held.scores, held.law.score(twice.y_train))


def test_out_of_fold(model):
    pairs = complements(N, split_parts(SINGLY, 4, 0))
    found = model.out_of_fold(pairs, SINGLY, 0)
    held = found.held
    assert type(found.model) is type(one_fit(model))
    assert_complete(held)
    # The refits are those that the tested points were held out from.
    for refit, (_, part) in zip(found.refits, pairs, strict=True):
        close(refit.location(X[part]), held.law.location[part])


@pytest.mark.parametrize("kind", marked(TREES, slow={"boosted_trees", "random_forest"}))
def test_trees_out_of_fold_are_those_of_the_other_points(kind):
    pairs = complements(N, split_parts(SINGLY, 4, 0))
    held = made(kind).out_of_fold(pairs, SINGLY, 0).held
    for rest, part in pairs:
        alone = TreeModel(kind, X[rest], Y[rest], 0, made(kind).cells)
        assert torch.equal(held.law.location[part], alone.location(X[part]))
        assert torch.equal(held.law.spread[part], alone.law(X[part]).spread)


def test_splits_that_do_not_test_every_point(model):
    first = torch.arange(30)
    held = model.out_of_fold([(first, torch.arange(30, 40))], SINGLY, 0).held
    assert held.rows.tolist() == list(range(30, 40))
    assert held.law.location.shape == (10,)


# ------------------------------------------------------------------ other data


def test_relearned(model):
    part = torch.arange(5, N)
    again = model.relearned(X[part], Y[part], torch.arange(len(part)), 0)
    assert type(again) is type(one_fit(model))
    close(again.y_train, Y[part])
    assert not torch.equal(answers(again), answers(model))


@pytest.mark.parametrize(
    "model", marked(MAKERS, slow=set(MAKERS) - {"gaussian", "extra_trees"}), indirect=True
)
def test_the_same_seed_learns_the_same(model):
    part, pairs = torch.arange(5, N), complements(N, split_parts(SINGLY, 4, 0))
    one, other = (model.relearned(X[part], Y[part], SINGLY[: len(part)], 0) for _ in range(2))
    assert torch.equal(answers(one), answers(other))
    one, other = (model.out_of_fold(pairs, SINGLY, 0).held for _ in range(2))
    assert torch.equal(one.law.location, other.law.location)
    assert torch.equal(one.scores, other.scores)


@pytest.mark.parametrize("way", ["extended", "updated"])
def test_further_data(model, way):
    more = getattr(model, way)(X_NEW, Y_NEW + 0.2)
    assert type(more) is type(model)
    assert torch.isfinite(answers(more)).all()
    if model.gp is None:
        assert more is model  # trees are not grown again
        return
    assert more.gp.n_train == N + 11
    if "Centred" not in type(model.gp).__name__:
        closer = (Y_NEW + 0.2 - more.location(X_NEW)).abs().mean()
        assert closer < (Y_NEW + 0.2 - model.location(X_NEW)).abs().mean()


def test_saved_and_loaded(model, tmp_path, request):
    if request.node.callspec.id in ("regressor", "foreign"):
        pytest.skip("an estimator of the user's own has no form without code")
    persistence.save(model, tmp_path / "model.sgp")
    again = persistence.load(tmp_path / "model.sgp")
    assert torch.equal(answers(again), answers(model))
    held, expected = (one.leave_one_out(SINGLY, 0) for one in (again, model))
    close(held.scores, expected.scores)
    close(answers(again.updated(X_NEW, Y_NEW)), answers(model.updated(X_NEW, Y_NEW)))
    pairs = complements(N, split_parts(SINGLY, 3, 0))
    assert_complete(again.out_of_fold(pairs, SINGLY, 0).held)
