"""Scores whose law differs with the location: quantiles, coverage, files."""

import numpy as np
import pytest
import torch

from sharpgp import persistence
from sharpgp.calibration.scored import ScoredPredictor
from sharpgp.models.location_shape import LocationShape, shape_that_pays
from sharpgp.models.shaped import ShapedModel
from sharpgp.models.trees import TreeModel

CONTRAST = 4.0


def piled(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise that is skewed where the function is low, and normal where it is high."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    noise = rng.normal(size=n)
    skewed = CONTRAST * (rng.exponential(size=n) - 1.0)
    return X, 10.0 * X[:, 0] + np.where(X[:, 0] < 0, skewed, noise)


def scores(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    X, y = map(torch.from_numpy, piled(n, seed))
    return 10.0 * X[:, 0], y - 10.0 * X[:, 0]


# ------------------------------------------------------------------ shapes


def test_a_shape_runs_through_the_quantiles_of_the_nearest_tenth():
    location, z = scores(2000)
    shape = LocationShape.learned(location, z)
    order = location.argsort()
    levels = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    for k, rows in ((0, order[:200]), (-1, order[-200:])):
        found = shape.stretched(torch.special.ndtri(levels).unsqueeze(-1), shape.knots[[k]])
        expected = torch.quantile(z[rows], levels)
        # Between knots of the table, ties are kept apart by a millionth of the typical slope.
        torch.testing.assert_close(found[:, 0], expected, rtol=0, atol=1e-4 * shape.typical)
    middle = shape.knots[4:6].mean().unsqueeze(0)
    ends = [shape.stretched(levels.unsqueeze(-1), shape.knots[[k]]) for k in (4, 5)]
    between = shape.stretched(levels.unsqueeze(-1), middle)
    torch.testing.assert_close(between, (ends[0] + ends[1]) / 2, rtol=1e-6, atol=1e-6)


def test_equal_locations_have_one_shape():
    _, z = scores(1500)
    shape = LocationShape.learned(torch.zeros_like(z), z)
    beta = torch.linspace(-3, 3, 7, dtype=torch.float64).unsqueeze(-1)
    found = shape.stretched(beta, torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64))
    assert torch.isfinite(found).all()
    assert (found.diff(dim=0) > 0).all()
    back = shape.unstretched(found[2], torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(back, beta[2].expand(3), rtol=0, atol=1e-9)


def test_shapes_are_taken_where_they_pay_and_nowhere_else():
    location, z = scores(2000)
    one = torch.ones_like(z)
    assert shape_that_pays(location, one, location + z) is not None
    assert shape_that_pays(location, 3.0 * one, location + 3.0 * z) is not None
    assert shape_that_pays(location[:900], one[:900], (location + z)[:900]) is None
    taken = 0
    for seed in range(20):
        noise = np.random.default_rng(seed).standard_t(3, size=2000)
        taken += shape_that_pays(location, one, location + torch.from_numpy(noise)) is not None
    assert taken <= 1


# ------------------------------------------------------------------ predictors


@pytest.fixture(scope="module")
def model() -> ShapedModel:
    X, y = map(torch.from_numpy, piled(1200, 1))
    grown = TreeModel("extra_trees", X[:400], y[:400], seed=0)
    location, spread = grown.location(X[400:]), grown.spread(X[400:])
    return ShapedModel(grown, LocationShape.learned(location, (y[400:] - location) / spread))


class Around(ScoredPredictor):
    """Asks for no GP, which trees do not have."""

    _n_dense = 0

    def _features(self, X):
        return X

    _near_features = _features


def test_intervals_hold_as_many_calibration_points_as_they_must(model):
    X, y = map(torch.from_numpy, piled(199, 2))
    found = Around.of(model, X, y)
    for symmetric, count in ((True, 180), (False, 181)):  # ceil(0.9 * 200), and one more rank
        low, high = found.predict_interval(X, 0.9, symmetric=symmetric).T
        assert int(((low <= y) & (y <= high)).sum()) == count
    plain = Around.of(model.model, X, y).predict_interval(X, 0.9)
    assert not torch.allclose(found.predict_interval(X, 0.9), plain)


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
def test_distributions_agree_with_quantiles(model):
    X, y = map(torch.from_numpy, piled(999, 2))
    found = Around.of(model, X, y)
    levels = [0.002, 0.1, 0.5, 0.9, 0.998]
    table = found.predict_quantiles(X[:20], levels)
    dist = found.predict_dist(X[:20])
    inner = torch.stack([dist.quantile(level) for level in levels], -1)
    spread = model.spread(X[:20]).unsqueeze(-1)
    torch.testing.assert_close(inner / spread, table / spread, rtol=0, atol=0.05)
    assert torch.isfinite(dist.quantile(0.0001)).all()
    assert (dist.quantile(0.0001) < table[:, 0]).all()


def test_models_without_shapes_answer_as_they_did(model):
    X, y = map(torch.from_numpy, piled(199, 2))
    found = Around.of(model.model, X, y)
    location, spread = model.model.location(X), model.model.spread(X)
    delta = torch.tensor([0.3, 0.8], dtype=torch.float64)
    expected = location + found.ranks.beta(delta).unsqueeze(-1) * spread
    assert torch.equal(found.quantiles(X, delta), expected)
    assert model.model.shape is None


def test_hostile_files_are_refused(model, tmp_path):
    shape = model.shape
    for wrong in (
        LocationShape(shape.knots.flip(0), shape.tables, shape.typical),
        LocationShape(shape.knots, shape.tables.flip(1), shape.typical),
        LocationShape(shape.knots, shape.tables[:, 1:], shape.typical),
        LocationShape(shape.knots, shape.tables, 0.0),
    ):
        persistence.save(wrong, tmp_path / "shape.sgp")
        with pytest.raises(Exception, match="expected"):
            persistence.load(tmp_path / "shape.sgp")
