"""A spread for every level with a guarantee: exact for every data set, not only on average."""

import numpy as np
import pytest
import torch

from helpers import FakePosterior, fake_data
from sharpgp import SharpExact, persistence
from sharpgp.calibration.methods.sharp.curves import Curves
from sharpgp.calibration.methods.sharp.sharp_exact import PathPredictor, offsets, positions
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import train
from test_sharp import simulate


@pytest.fixture(scope="module")
def fitted():
    X, y = simulate(120, 3, seed=8)
    posterior, _ = train(X[:60], y[:60])
    return posterior, SharpExact(levels=9).fit(posterior, X[60:99], y[60:99]), X[60:], y[60:]


def test_of_exchangeable_points_every_level_holds_exactly_its_share(fitted):
    """Each of C + 1 points in turn is the new one: exactly j of them lie below Q(j / (C + 1))."""
    _, calibrated, X, y = fitted
    X, y, C = X[:20], y[:20], 19
    levels = torch.tensor([1, 4, 10, 18, 19], dtype=torch.float64) / (C + 1)
    below, inside = torch.zeros(len(levels)), 0
    for new in range(C + 1):
        others = [i for i in range(C + 1) if i != new]
        path, posterior = calibrated.path, calibrated.posterior
        one = PathPredictor(posterior, path, X[others], y[others], method=calibrated.method)
        below += (y[new] <= one.predict_quantiles(X[[new]], levels)[0]).float()
        lower, upper = one.predict_interval(X[[new]], 0.8, symmetric=True)[0]
        inside += int(lower <= y[new] <= upper)
    assert below.tolist() == [1, 4, 10, 18, 19]
    assert inside == 16  # ceil(0.8 * 20)


def test_the_path_saw_no_calibration_point_and_each_level_has_a_theta_of_its_own(fitted):
    posterior, calibrated, X, y = fitted
    other = SharpExact(levels=9).fit(posterior, X[:30], -y[:30])
    assert torch.equal(other.path.theta, calibrated.path.theta)
    assert torch.equal(other.path.beta, calibrated.path.beta)
    assert len(torch.unique(calibrated.path.theta, dim=0)) > 3
    assert (calibrated.path.beta.diff() >= 0).all()


def test_positions_and_offsets_are_inverse_to_each_other():
    generator = torch.Generator().manual_seed(0)
    offset = torch.randn(6, 50, dtype=torch.float64, generator=generator).sort(0).values
    slope = torch.rand(2, 50, dtype=torch.float64, generator=generator) + 0.1
    for u in (-2.5, 0.0, 0.3, 2.0, 4.999, 5.0, 7.25):
        r = offsets(offset, slope, torch.tensor([u], dtype=torch.float64))[0]
        torch.testing.assert_close(positions(offset, slope, r), torch.full_like(r, u))


def test_where_levels_share_an_offset_the_smallest_position_counts():
    """So that y <= Q(u_j) says u <= u_j, ties included."""
    offset = torch.tensor([[0.0], [1.0], [1.0], [2.0]], dtype=torch.float64)
    slope = torch.ones(2, 1, dtype=torch.float64)
    assert positions(offset, slope, torch.ones(1, dtype=torch.float64)).item() == 1.0


def test_a_spread_that_is_not_monotone_keeps_the_order_and_the_shares():
    posterior = FakePosterior()
    X, y = fake_data(19)
    theta = torch.tensor([[5.0, 1.0], [0.1, 1.0], [3.0, 0.2]], dtype=torch.float64)
    levels = torch.tensor([0.1, 0.6, 0.9], dtype=torch.float64)
    path = Curves(levels, torch.tensor([-1.0, 0.9, 1.0], dtype=torch.float64), theta)
    calibrated = PathPredictor(posterior, path, X, y, method=SharpExact())
    every = torch.arange(1, 20, dtype=torch.float64) / 20
    quantiles = calibrated.predict_quantiles(X, every)
    assert (quantiles.diff(dim=1) >= 0).all()
    assert (y[:, None] <= quantiles).sum(0).tolist() == list(range(1, 20))


def test_saved_updated_and_conditioned(fitted, tmp_path):
    _, calibrated, X, y = fitted
    persistence.save(calibrated, tmp_path / "model.sgp")
    again = persistence.load(tmp_path / "model.sgp")
    levels = [0.1, 0.5, 0.9]
    ours = calibrated.predict_quantiles(X, levels)
    assert torch.equal(again.predict_quantiles(X, levels), ours)
    later = calibrated.updated(X[39:50], y[39:50])
    assert later.n_cal == 50
    # Points in a batch of another size may be added up in another order.
    torch.testing.assert_close(later.scores[:39], calibrated.scores, rtol=1e-10, atol=1e-10)
    wiser = calibrated.condition_on_observations(X[39:50], y[39:50])
    assert torch.equal(wiser.scores, calibrated.scores)
    assert not torch.equal(wiser.predict_mean(X), calibrated.predict_mean(X))


def test_one_level_and_bad_settings(fitted):
    posterior, _, X, y = fitted
    one = SharpExact(levels=0.9).fit(posterior, X[:30], y[:30])
    assert np.isfinite(one.predict_quantiles(X, [0.05, 0.5, 0.95]).numpy()).all()
    with pytest.raises(InvalidInputError, match="ard or scaled, found 'shared'"):
        SharpExact(family="shared").fit(posterior, X[:30], y[:30])
    with pytest.raises(InvalidInputError, match="effort"):
        SharpExact(effort=0).fit(posterior, X[:30], y[:30])
