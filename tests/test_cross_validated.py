"""cv where the likelihood has several maxima: refits that do not speak for the fit are found."""

import numpy as np
import torch
from scipy.stats import multivariate_normal

from helpers import wavy
from sharpgp import CrossValidated
from sharpgp.gp import SparsePosterior, train
from sharpgp.gp.exact import ExactPosterior
from sharpgp.gp.warped import train_warped
from sharpgp.models import gaussian
from sharpgp.models.gaussian import carried_over, lead_of


def density(gp):
    """Log density per point of a GP's targets, from its covariance matrix alone."""
    theta = gp.theta_R.unsqueeze(0)
    K = gp.covariance.matrix(theta, gp.X_standardised)[0] + theta[0, -1] * torch.eye(gp.n_train)
    scale, shift = gp.y_units.scale.numpy(), gp.y_units.shift.numpy()
    centre = np.full(gp.n_train, shift)
    found = multivariate_normal(centre, scale**2 * K.numpy()).logpdf(gp.y_train.numpy())
    return found / gp.n_train


def test_log_likelihood_is_the_density_in_the_users_units():
    X, y = (torch.from_numpy(v) for v in wavy(40))
    gp, result = train(X, 100.0 + 7.0 * y)
    np.testing.assert_allclose(gp.log_likelihood(), density(gp), rtol=1e-9)
    expected = result.log_likelihood - float(gp.y_units.scale.log())
    np.testing.assert_allclose(gp.log_likelihood(), expected, rtol=1e-9)
    units = {"x_units": gp.x_units, "y_units": gp.y_units}
    given = X, 100.0 + 7.0 * y, gp.covariance, gp.theta_R
    all_inducing, few = (SparsePosterior(*given, Z, **units) for Z in (X, X[::4]))
    np.testing.assert_allclose(all_inducing.log_likelihood(), gp.log_likelihood(), atol=1e-6)
    assert few.log_likelihood() < gp.log_likelihood() - 1e-3


def test_log_likelihood_of_a_warped_gp_counts_the_warp():
    X = torch.from_numpy(wavy(40)[0])
    y = (1.5 * X[:, 0]).exp() + 0.1
    gp = train_warped(X, y, train(X, y)[0].covariance)
    step = 1e-5
    slopes = (gp.warp.forward(y + step) - gp.warp.forward(y - step)) / (2 * step)
    expected = density(gp.base) + float(slopes.log().mean())
    np.testing.assert_allclose(gp.log_likelihood(), expected, rtol=1e-6)


def test_carried_over_scores_keep_their_place():
    draw = np.random.default_rng(0)
    own, whole = draw.normal(size=400), draw.standard_t(3, size=500) + 0.2
    z = draw.normal(size=300) * 2
    found = carried_over(*(torch.from_numpy(v) for v in (z, own, whole))).numpy()
    levels = np.arange(1, 20) / 20
    a, b = np.quantile(own, levels), np.quantile(whole, levels)
    inside = (a[0] <= z) & (z <= a[-1])
    assert 0.5 < inside.mean() < 0.95
    np.testing.assert_allclose(found[inside], np.interp(z[inside], a, b), rtol=1e-12)
    growth = (b[-1] - b[0]) / (a[-1] - a[0])
    np.testing.assert_allclose(found[z > a[-1]], b[-1] + growth * (z[z > a[-1]] - a[-1]))
    np.testing.assert_allclose(found[z < a[0]], b[0] + growth * (z[z < a[0]] - a[0]))


def test_scores_carried_over_to_the_same_fit_or_from_ties_are_the_same():
    own = torch.tensor([-1.0] * 30 + [0.0] * 40 + [1.0] * 30, dtype=torch.float64)
    z = torch.tensor([-3.0, -1.0, 0.0, 1.0, 2.5], dtype=torch.float64)
    torch.testing.assert_close(carried_over(z, own, own), z)
    torch.testing.assert_close(carried_over(z, torch.zeros(50).double(), own * 0), z)


def test_cv_carries_scores_over_where_refits_are_unlike_the_fit(monkeypatch):
    X, y = wavy(60)
    posterior, _ = train(torch.from_numpy(X), torch.from_numpy(y))
    as_they_are = CrossValidated(folds=5).fit(posterior).scores
    leads = iter([-1.0, 0.0, 0.0, 0.2, 0.0])
    monkeypatch.setattr(gaussian, "lead_of", lambda *_: next(leads))
    torch.testing.assert_close(
        CrossValidated(folds=5).fit(posterior).scores, as_they_are, rtol=0, atol=0
    )
    monkeypatch.setattr(gaussian, "lead_of", lambda *_: -0.02)
    moved = CrossValidated(folds=5).fit(posterior).scores
    assert not torch.equal(moved, as_they_are)
    # Within each part the order is kept.
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    for part in order.chunk(5):
        assert torch.equal(moved[part].argsort(), as_they_are[part].argsort())


def test_a_refit_at_a_poorer_maximum_falls_short():
    draw = np.random.default_rng(0)
    X = torch.from_numpy(np.repeat(draw.normal(size=(60, 4)), 2, axis=0))
    y = X[:, 0].sin() + 0.5 * X[:, 1]
    good, _ = train(X, y)
    rough = good.theta_R.clone()
    rough[:4] = 50.0  # every input on its own, but for its copy
    poor = ExactPosterior(X, y, good.covariance, rough, x_units=good.x_units, y_units=good.y_units)
    assert lead_of(poor, good) < -1.0
    assert lead_of(good, poor) > 1.0


def test_a_fit_on_all_data_that_is_far_behind_starts_again():
    X, y = (torch.from_numpy(v) for v in wavy(36))  # too few for a second GP to be tried
    good, _ = train(X, y)
    poor = ExactPosterior(
        X, y, good.covariance, 30.0 * good.theta_R, x_units=good.x_units, y_units=good.y_units
    )
    poor.training = good.training
    found, expected = (CrossValidated(folds=5).fit(gp) for gp in (poor, good))
    assert found.posterior.log_likelihood() > poor.log_likelihood() + 1.0
    assert abs(found.posterior.log_likelihood() - good.log_likelihood()) < 1e-3
    assert expected.posterior is good
