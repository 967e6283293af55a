"""The prior-fitted network: its invariances, its laws, and the model around it."""

import numpy as np
import pytest
import torch

from sharpgp import SharpGPRegressor
from sharpgp.exceptions import InvalidInputError
from sharpgp.models import prior_fitted
from sharpgp.models.bases import Bases
from sharpgp.models.prior_fitted import PRIOR, PriorFitted, pretrained
from sharpgp.policy import PRIOR_COLUMNS, PRIOR_POOLED, PRIOR_ROWS, drawn_rows


def wavy(n, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=n)


def tensors(n, d=3, seed=0):
    return tuple(torch.from_numpy(part) for part in wavy(n, d, seed))


def test_laws_are_increasing_and_their_inverses():
    X, y = tensors(80)
    law = PriorFitted(X[:60], y[:60]).law(X[60:])
    z = torch.linspace(-5.0, 5.0, 41, dtype=torch.float64)[:, None].expand(-1, 20)
    values = law.value(z)
    assert bool((values.diff(dim=0) > 0).all())
    torch.testing.assert_close(torch.stack([law.score(v) for v in values]), z)


def test_units_are_nothing():
    X, y = tensors(80)
    law = PriorFitted(X[:60], y[:60]).law(X[60:])
    other = PriorFitted(1e3 + 7.0 * X[:60], 1e6 + 1e4 * y[:60]).law(1e3 + 7.0 * X[60:])
    z = torch.tensor([[-1.5], [0.0], [1.5]], dtype=torch.float64)
    torch.testing.assert_close((other.value(z) - 1e6) / 1e4, law.value(z), rtol=0, atol=2e-3)


def test_predicts_a_smooth_function_with_its_noise():
    """The weights are those of a trained network: a tenth of noise is found."""
    X, y = wavy(500)
    law = PriorFitted(torch.from_numpy(X[:200]), torch.from_numpy(y[:200])).law(
        torch.from_numpy(X[200:])
    )
    error = np.sqrt(np.mean((law.location.numpy() - y[200:]) ** 2))
    z = law.score(torch.from_numpy(y[200:]))
    assert error < 0.2 * y.std()
    assert 0.85 < (z.abs() < 1.96).double().mean() <= 0.99


def test_scores_of_rows_are_those_without_them():
    X, y = tensors(50)
    pairs = [(torch.arange(10, 50), torch.arange(10))]
    labels = torch.arange(50)
    found = PriorFitted(X, y).out_of_training(pairs, labels, 0)
    changed = y.clone()
    changed[:10] += 5.0
    again = PriorFitted(X, changed).out_of_training(pairs, labels, 0)
    assert torch.equal(found.held.law.location, again.held.law.location)
    assert found.refits == [found.model]


def test_further_rows_are_context():
    X, y = tensors(60)
    grown = PriorFitted(X[:40], y[:40]).extended(X[40:50], y[40:50])
    whole = PriorFitted(X[:50], y[:50])
    assert torch.equal(grown.law(X[50:]).location, whole.law(X[50:]).location)


def test_a_context_is_remembered_from_the_second_question_on():
    X, y = tensors(60)
    model = PriorFitted(X[:50], y[:50])
    first = model.law(X[50:]).location
    assert not prior_fitted._MEMORIES[model]
    second = model.law(X[50:]).location
    assert prior_fitted._MEMORIES[model]
    for again in (second, model.law(X[50:]).location):
        assert torch.equal(first, again)


def test_a_context_is_a_part_of_many_rows():
    X, y = tensors(PRIOR_ROWS + 30)
    many = PriorFitted(X[:30], y[:30]).updated(X[30:-10], y[30:-10])
    rows = drawn_rows(PRIOR_ROWS + 20, PRIOR_ROWS)
    assert len(many.y_train) == PRIOR_ROWS + 20
    part = PriorFitted(X[rows], y[rows])
    assert torch.equal(many.law(X[-10:]).location, part.law(X[-10:]).location)


def test_alone_saved_and_loaded(tmp_path):
    X, y = wavy(140)
    model = SharpGPRegressor(base=PRIOR, random_state=0).fit(X[:100], y[:100])
    expected = model.predict_interval(X[100:], 0.9)
    model.save(tmp_path / "model.sgp")
    np.testing.assert_array_equal(
        SharpGPRegressor.load(tmp_path / "model.sgp").predict_interval(X[100:], 0.9), expected
    )
    covered = np.mean((y[100:] >= expected[:, 0]) & (y[100:] <= expected[:, 1]))
    assert covered > 0.75
    assert np.ptp(y) > 3 * np.mean(np.diff(expected, axis=1))


def test_in_a_pool():
    X, y = wavy(80)
    model = SharpGPRegressor(base=["rbf", PRIOR], random_state=0).fit(X, y)
    assert {member.name for member in model.members_} == {"rbf", PRIOR}


@pytest.mark.parametrize(
    ("n", "d", "there"),
    [(300, 5, True), (PRIOR_POOLED + 1, 5, False), (300, PRIOR_COLUMNS + 1, False)],
)
def test_the_default_asks_it_for_the_tables_that_it_knows(n, d, there):
    assert (PRIOR in Bases().policy(n, d).pool) is there


def test_wider_tables_are_refused():
    X, y = wavy(60)
    X = np.hstack([X] * PRIOR_COLUMNS)[:, : PRIOR_COLUMNS + 1]
    with pytest.raises(InvalidInputError, match="at most 45 features, found 46"):
        SharpGPRegressor(base=PRIOR).fit(X, y)


def test_weights_of_rows_are_refused():
    X, y = wavy(60)
    with pytest.raises(InvalidInputError, match="sample_weight"):
        SharpGPRegressor(base=PRIOR).fit(X, y, sample_weight=np.linspace(1, 2, 60))


def test_the_network_is_loaded_once():
    assert pretrained("cpu") is pretrained("cpu")
