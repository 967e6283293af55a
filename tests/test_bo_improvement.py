"""Calibrated expected improvement, its batch form, joint draws, and laws of few scores."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, qLogExpectedImprovement
from botorch.acquisition.multi_objective import qLogExpectedHypervolumeImprovement
from botorch.models.model import ModelList
from botorch.sampling import ListSampler, SobolQMCNormalSampler
from botorch.utils.multi_objective.box_decompositions.non_dominated import (
    FastNondominatedPartitioning,
)
from scipy import integrate, stats

from helpers import wavy
from sharpgp import Exact, Kuleshov18, Sharp, SharpGPRegressor, Vanilla
from sharpgp.bo import CalibratedLogExpectedImprovement, as_botorch
from sharpgp.bo.small_sample import (
    MAX_SCORE,
    SURPRISE_DEVIATION,
    SURPRISE_MEAN,
    ScoreLaw,
    SmallSamplePredictor,
    joint_draws,
    leave_one_out_scores,
)
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.scaling import Affine
from sharpgp.gp.training import train

X_NEW = torch.from_numpy(wavy(12, seed=5)[0])
NONE = torch.zeros(0, dtype=torch.float64)


@pytest.fixture(scope="module")
def data():
    X, y = map(torch.from_numpy, wavy(130))
    return X[:60], y[:60], X[60:], y[60:]


@pytest.fixture(scope="module")
def posterior(data):
    return train(data[0], data[1], "matern52")[0]


@pytest.fixture(scope="module", params=["paper", "kuleshov18", "exact", "few scores"])
def calibrated(request, data, posterior):
    if request.param == "few scores":
        return SmallSamplePredictor(posterior, ScoreLaw(leave_one_out_scores(posterior)[:12]))
    method = {"paper": Sharp(levels=7), "kuleshov18": Kuleshov18(), "exact": Exact()}
    return method[request.param].fit(posterior, data[2], data[3])


# ------------------------------------------------------------------ the law of a score


def test_without_scores_the_law_is_normal():
    levels = torch.tensor([1e-6, 0.02, 0.5, 0.9, 1 - 1e-6], dtype=torch.float64)
    torch.testing.assert_close(ScoreLaw(NONE).quantile(levels), torch.special.ndtri(levels))


def test_quantile_is_the_inverse_of_the_cdf():
    scores = torch.tensor([-3.0, -0.2, 0.1, 0.1, 5.0], dtype=torch.float64)
    law = ScoreLaw(scores, torch.tensor([1.0, 0.5, 2.0, 1.0, 1.0], dtype=torch.float64))
    levels = torch.linspace(0.001, 0.999, 201, dtype=torch.float64)
    torch.testing.assert_close(law.cdf(law.quantile(levels)), levels, rtol=0, atol=1e-12)
    assert (law.quantile(levels).diff() > 0).all()


def test_law_moves_from_the_normal_to_the_scores():
    """Scores of twice the spread: the quantiles go from 1 to 2 deviations as their number grows."""
    level = torch.tensor([stats.norm.cdf(1.0)], dtype=torch.float64)
    found = []
    for n in (1, 10, 100, 3000):
        scores = 2.0 * torch.special.ndtri((torch.arange(n).double() + 0.5) / n)
        found.append(float(ScoreLaw(scores).quantile(level)))
    assert all(a < b for a, b in pairwise(found))
    assert found[0] < 1.1
    # A hundredth for the winsorised scores, the prior's weight and the width of the normals.
    assert found[-1] == pytest.approx(2.0, abs=0.05)


def test_one_surprise_counts_for_no_more_than_its_limit():
    ordinary = torch.linspace(-1, 1, 9, dtype=torch.float64)
    level = torch.tensor([0.975], dtype=torch.float64)
    near, far = (
        float(ScoreLaw(torch.cat([ordinary, torch.tensor([z]).double()])).quantile(level))
        for z in (MAX_SCORE, 1e6)
    )
    assert near == far


def test_surprises_have_their_share():
    levels = torch.tensor([0.025, 0.1, 0.5, 0.9, 0.975], dtype=torch.float64)
    law = ScoreLaw(NONE, surprise=0.3)
    z = law.quantile(levels).numpy()
    usual, surprising = stats.norm(), stats.norm(SURPRISE_MEAN, SURPRISE_DEVIATION)
    np.testing.assert_allclose(0.7 * usual.cdf(z) + 0.3 * surprising.cdf(z), levels)


def test_few_scores_cover_what_they_should():
    """Overconfident by half: from twelve scores on, intervals are closer to their level."""
    generator = torch.Generator().manual_seed(0)
    level = torch.tensor([0.1, 0.9], dtype=torch.float64)
    covered = []
    for _ in range(100):
        scores = 2.0 * torch.randn(12, generator=generator, dtype=torch.float64)
        low, high = ScoreLaw(scores).quantile(level).tolist()
        covered.append(stats.norm.cdf(high / 2) - stats.norm.cdf(low / 2))
    as_trained = 2 * stats.norm.cdf(stats.norm.ppf(0.9) / 2) - 1
    assert as_trained < 0.5
    assert 0.65 < np.mean(covered) < 0.8


def test_latent_spread_leaves_the_noise_out(posterior):
    law = ScoreLaw(NONE)
    whole, latent = (SmallSamplePredictor(posterior, law, latent=flag) for flag in (False, True))
    noise = float(posterior.theta_R[-1] * posterior.y_units.scale.square())
    difference = whole.moments(X_NEW)[1].square() - latent.moments(X_NEW)[1].square()
    torch.testing.assert_close(difference, torch.full_like(difference, noise))
    theirs = as_botorch(posterior).posterior(X_NEW).variance[:, 0]
    torch.testing.assert_close(latent.moments(X_NEW)[1].square(), theirs, rtol=1e-4, atol=1e-8)


def test_function_is_known_where_a_point_is_pending(posterior):
    """As if observed without noise: against a GP with a great many observations of it there."""
    law, pending = ScoreLaw(NONE), X_NEW[:2]
    known = SmallSamplePredictor(posterior, law, latent=True, pending=pending)
    often = pending.repeat(500, 1)
    again = posterior.extended(often, posterior.mean(often))
    expected = SmallSamplePredictor(again, law, latent=True).moments(X_NEW[2:])
    torch.testing.assert_close(known.moments(X_NEW[2:]), expected, rtol=0.05, atol=5e-3)
    assert known.moments(pending)[1].max() < 1e-3 * known.moments(X_NEW)[1].max()


def test_covariance_of_the_function_is_botorchs(posterior):
    theirs = as_botorch(posterior).posterior(X_NEW).distribution.covariance_matrix
    ours = posterior.latent_covariance(X_NEW, X_NEW)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


def test_intervals_and_distribution_of_few_scores_agree(posterior):
    predictor = SmallSamplePredictor(posterior, ScoreLaw(leave_one_out_scores(posterior)[:9]))
    ends = predictor.predict_interval(X_NEW, 0.8)
    torch.testing.assert_close(ends, predictor.predict_quantiles(X_NEW, [0.1, 0.9]))
    torch.testing.assert_close(predictor.predict_dist(X_NEW).quantile(0.9), ends[:, 1])
    band = predictor.predict_interval(X_NEW, 0.8, symmetric=True)
    torch.testing.assert_close(band.mean(1), predictor.predict_mean(X_NEW))


# ------------------------------------------------------------------ expected improvement


def test_normal_distribution_gives_botorchs_value(data):
    theta = torch.tensor([1.0, 0.7, 1.0, 1e-8], dtype=torch.float64)
    gp = ExactPosterior(data[0][:20], data[1][:20], Stationary("rbf", 2), theta)
    for best in (-1.0, 0.5, 3.0, 40.0):  # the last underflows without logarithms
        ours = CalibratedLogExpectedImprovement(Vanilla().fit(gp, None, None), best)
        theirs = LogExpectedImprovement(as_botorch(gp), best_f=best)
        X = X_NEW.unsqueeze(1)
        # BoTorch's deviation is that of the function, ours that of an observation: the variances
        # differ by 1e-8, where the smallest is some 1e-5.
        torch.testing.assert_close(ours(X), theirs(X), rtol=2e-3, atol=2e-3)


def test_value_is_the_expectation_under_the_calibrated_distribution(calibrated):
    """Against quadrature of the quantile function."""
    best = float(calibrated.predict_quantiles(X_NEW, 0.7).median())
    for maximize in (True, False):
        found = CalibratedLogExpectedImprovement(calibrated, best, maximize=maximize)
        value = found(X_NEW.unsqueeze(1)).exp()
        levels = stats.norm.cdf(np.linspace(-3.5, 3.5, 2001))
        with torch.no_grad():
            Q = calibrated.quantiles(X_NEW, torch.from_numpy(levels)).numpy()
        gain = np.maximum(Q - best if maximize else best - Q, 0.0)
        expected = integrate.trapezoid(gain, levels, axis=0)
        # Piecewise linear between nodes a quarter apart; the tails hold 5e-4 of the mass.
        spread = float((Q[-1] - Q[0]).max())
        np.testing.assert_allclose(value, expected, rtol=0.05, atol=4e-3 * spread)


def test_improvement_minimised_is_that_of_the_negative(posterior):
    law = ScoreLaw(torch.tensor([-2.0, 0.3, 1.0, 2.5], dtype=torch.float64))
    mirrored = ScoreLaw(torch.tensor([2.0, -0.3, -1.0, -2.5], dtype=torch.float64))
    shift, scale = posterior.y_units.shift, posterior.y_units.scale
    negative = ExactPosterior(
        posterior.X_train,
        -posterior.y_train,
        posterior.covariance,
        posterior.theta_R,
        x_units=posterior.x_units,
        y_units=Affine(-shift, scale),
    )
    first, second = SmallSamplePredictor(posterior, law), SmallSamplePredictor(negative, mirrored)
    low = CalibratedLogExpectedImprovement(first, 0.1, maximize=False)
    high = CalibratedLogExpectedImprovement(second, -0.1)
    X = X_NEW.unsqueeze(1)
    torch.testing.assert_close(low(X), high(X))


@pytest.mark.parametrize("above", [0.0, 10.0])
def test_gradient_of_the_improvement(calibrated, above):
    """Also where the improvement underflows."""
    best = float(calibrated.predict_mean(X_NEW).max()) + above
    improvement = CalibratedLogExpectedImprovement(calibrated, best)
    X = X_NEW[:4].clone().requires_grad_()
    value = improvement(X.unsqueeze(1))
    (gradient,) = torch.autograd.grad(value.sum(), X)
    assert (gradient.norm(dim=1) > 0).all()
    if above:
        assert (value < -700).all()  # exp of it is 0
    # What rounding of the value does to differences over the step.
    atol = 1e-4 * float(gradient.abs().max()) + 1e-4
    assert torch.autograd.gradcheck(
        lambda X: improvement(X.unsqueeze(1)), X, rtol=1e-3, atol=atol, eps=1e-6
    )


def test_batches_pending_points_and_what_is_refused(calibrated):
    improvement = CalibratedLogExpectedImprovement(calibrated, 0.5)
    flat = improvement(X_NEW.unsqueeze(1))
    torch.testing.assert_close(improvement(X_NEW.reshape(3, 4, 1, 2)), flat.reshape(3, 4))
    far = torch.tensor([[9.0, 9.0]], dtype=torch.float64)
    before = improvement(far)
    improvement.set_X_pending(far)
    assert improvement(far) < before
    improvement.set_X_pending(None)
    torch.testing.assert_close(improvement(far), before)
    for wrong in (math.nan, [0.1, 0.2]):
        with pytest.raises(InvalidInputError, match="best_f: expected one finite number"):
            CalibratedLogExpectedImprovement(calibrated, wrong)


# ------------------------------------------------------------------ in BoTorch's hands


def test_wrapped_model_has_the_calibrated_marginals(calibrated):
    posterior = as_botorch(calibrated).posterior(X_NEW)
    draws = posterior.rsample(torch.Size([4000]))[..., 0]
    for level in (0.1, 0.5, 0.9):
        with torch.no_grad():
            expected = calibrated.quantiles(X_NEW, torch.tensor([level]).double())[0]
        share = (draws <= expected).double().mean(0)
        # Four deviations of a share of 4,000 draws, and a tie at a node.
        assert (share - level).abs().max() < 4 * math.sqrt(0.25 / 4000)
    torch.testing.assert_close(
        posterior.mean[:, 0], draws.mean(0), rtol=0, atol=5 * float(draws.std(0).max()) / 4000**0.5
    )
    torch.testing.assert_close(posterior.variance[:, 0].sqrt(), draws.std(0), rtol=0.15, atol=0)


def test_wrapped_model_keeps_the_gps_dependence(posterior):
    """Without scores it is the GP itself, joint draws included."""
    model = as_botorch(SmallSamplePredictor(posterior, ScoreLaw(NONE), latent=True))
    ours, theirs = (
        SobolQMCNormalSampler(torch.Size([64]), seed=0)(one.posterior(X_NEW))
        for one in (model, as_botorch(posterior))
    )
    # The latent spread is a difference of two variances.
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_batch_improvement_of_one_point_is_the_analytic_one(posterior):
    law = ScoreLaw(torch.tensor([-1.5, 2.5, 0.4, 3.0, -0.3], dtype=torch.float64))
    predictor = SmallSamplePredictor(posterior, law)
    best = float(predictor.predict_mean(X_NEW).median())
    sampler = SobolQMCNormalSampler(torch.Size([4096]), seed=0)
    batch = qLogExpectedImprovement(as_botorch(predictor), best_f=best, sampler=sampler)
    alone = CalibratedLogExpectedImprovement(predictor, best)
    X = X_NEW.unsqueeze(1)
    likely = alone(X) > -8.0  # what 4,096 draws can see
    assert likely.sum() >= 5
    torch.testing.assert_close(batch(X)[likely], alone(X)[likely], rtol=0, atol=0.05)
    whole = batch(X_NEW[None, :3]).item()
    assert whole >= batch(X)[:3].max().item() - 1e-6
    leaf = X_NEW[None, :2].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(batch(leaf).sum(), leaf)
    step = 1e-6 * torch.randn_like(leaf)
    change = (batch(leaf + step) - batch(leaf - step)).item() / 2
    assert change == pytest.approx(float((gradient * step).sum()), rel=0.02)


@pytest.mark.slow
def test_two_objectives(data, posterior):
    other = train(data[0], -data[1] + data[0][:, 0], "matern52")[0]
    law = ScoreLaw(leave_one_out_scores(posterior)[:10])
    models = [as_botorch(SmallSamplePredictor(gp, law)) for gp in (posterior, other)]
    # Few rows: these objectives oppose one another, and every row is a corner of the volume.
    Y = torch.stack([data[1], -data[1] + data[0][:, 0]], -1)[:8]
    point = Y.amin(0)
    hypervolume = qLogExpectedHypervolumeImprovement(
        ModelList(*models),
        ref_point=point,
        partitioning=FastNondominatedPartitioning(ref_point=point, Y=Y),
        sampler=ListSampler(
            *(SobolQMCNormalSampler(torch.Size([32]), seed=seed) for seed in (0, 1))
        ),
    )
    assert torch.isfinite(hypervolume(X_NEW[None, :2])).all()


def test_estimator_goes_into_botorch(data):
    model = SharpGPRegressor(base="rbf", calibration="kuleshov18", random_state=0)
    model.fit(data[0].numpy(), data[1].numpy())
    wrapped = as_botorch(model)
    expected = torch.from_numpy(model.predict_dist(X_NEW.numpy()).mean)
    found = wrapped.posterior(X_NEW).mean[:, 0]
    torch.testing.assert_close(found, expected, rtol=0, atol=0.15 * float(data[1].std()))


# ------------------------------------------------------------------ joint draws


def test_draws_without_scores_are_the_gps(posterior):
    predictor = SmallSamplePredictor(posterior, ScoreLaw(NONE), latent=True)
    draws = joint_draws(predictor, X_NEW, 4000, torch.Generator().manual_seed(0))
    theirs = as_botorch(posterior).posterior(X_NEW)
    covariance = theirs.distribution.covariance_matrix
    scale = float(covariance.diagonal().max())
    torch.testing.assert_close(torch.cov(draws.mT), covariance, rtol=0, atol=0.1 * scale)
    torch.testing.assert_close(
        draws.mean(0), theirs.mean[:, 0], rtol=0, atol=5 * (scale / 4000) ** 0.5
    )


def test_draws_have_calibrated_marginals(posterior):
    law = ScoreLaw(torch.tensor([3.0, 2.5, 3.5, 1.0, -1.0, 2.0, 3.0], dtype=torch.float64))
    predictor = SmallSamplePredictor(posterior, law, latent=True)
    draws = joint_draws(predictor, X_NEW, 4000, torch.Generator().manual_seed(1))
    for level in (0.1, 0.5, 0.9):
        expected = predictor.quantiles(X_NEW, torch.tensor([level]).double())[0]
        share = (draws <= expected).double().mean(0)
        assert (share - level).abs().max() < 4 * math.sqrt(0.25 / 4000)
