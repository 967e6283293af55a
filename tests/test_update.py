"""Updating: new points are added, nothing is trained again, and nothing is counted twice."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from helpers import FakePosterior, fake_data, method, wavy
from sharpgp import CrossValidated, Exact, Sharp, SharpGPRegressor
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import optimise, training
from sharpgp.models.gaussian.scale_model import working_response
from tolerances import same_optimum

pytestmark = pytest.mark.usefixtures("one_start")

X, Y = map(torch.from_numpy, wavy(120, seed=5))
X_TEST = torch.from_numpy(wavy(30, seed=6)[0])
LEVELS = (0.05, 0.3, 0.5, 0.9)
#: Blocks of other sizes: rounding, which a GP of a condition number near 10^4 makes 10^-10.
CLOSE = 1e-9


def answers(predictor):
    ends = predictor.predict_interval(X_TEST, [0.5, 0.9], symmetric=True)
    return torch.cat([predictor.predict_quantiles(X_TEST, LEVELS), ends.flatten(1)], dim=1)


def forbid_training(monkeypatch):
    def refuse(*args, **settings):
        raise AssertionError("trained again")

    monkeypatch.setattr(optimise, "minimize", refuse)


@pytest.mark.parametrize("name", ["exact", "kuleshov18", "marx22", "vovk20"])
def test_update_is_a_fit_with_more_calibration_points(name, gp, monkeypatch):
    small = method(name).fit(gp, X[:40], Y[:40])
    whole = method(name).fit(gp, X, Y)
    before = answers(small)
    forbid_training(monkeypatch)
    later = small.updated(X[40:], Y[40:])
    assert later.n_cal == 120
    torch.testing.assert_close(answers(later), answers(whole), rtol=CLOSE, atol=CLOSE)
    assert torch.equal(answers(small), before)
    one_by_one = small
    for i in range(40, 120, 16):
        one_by_one = one_by_one.updated(X[i : i + 16], Y[i : i + 16])
    torch.testing.assert_close(answers(one_by_one), answers(whole), rtol=CLOSE, atol=CLOSE)


def test_paper_keeps_theta_and_reads_beta_again(gp):
    small = Sharp(levels=[0.1, 0.5, 0.9]).fit(gp, X[:40], Y[:40])
    later = small.updated(X[40:], Y[40:])
    assert torch.equal(later.theta_searched, small.theta_searched)
    assert later.evaluations == small.evaluations
    below = (Y[:, None] <= later.predict_quantiles(X, [0.1, 0.5, 0.9])).sum(0)
    # q_lin: ranks 12.1, 60.5 and 108.9 of 120, so that 12, 60 and 108 points lie below.
    assert below.tolist() == [12, 60, 108]
    one_by_one = small.updated(X[40:70], Y[40:70]).updated(X[70:], Y[70:])
    torch.testing.assert_close(answers(one_by_one), answers(later), rtol=CLOSE, atol=CLOSE)


def test_cv_scores_new_points_before_it_learns_from_them(monkeypatch):
    X0, y0 = map(torch.from_numpy, wavy(60, seed=7))
    posterior, _ = training.train(X0, y0)
    present = CrossValidated(folds=3).fit(posterior)
    forbid_training(monkeypatch)
    later = present.updated(X, Y)
    assert (later.n_cal, later.posterior.n_train) == (180, 180)
    assert (present.n_cal, present.posterior.n_train) == (60, 60)
    expected = (Y - present.predict_mean(X)) / present.model.law(X).spread
    assert torch.equal(later.scores[:60], present.scores)
    torch.testing.assert_close(later.scores[60:], expected)
    everything = [
        refit.posterior.conditioned_on(
            torch.cat([refit.X_train, X]), torch.cat([refit.y_train, Y])
        ).mean(X_TEST)
        for refit in present.model.refits
    ]
    torch.testing.assert_close(later.predict_mean(X_TEST), torch.stack(everything).mean(0))
    assert torch.equal(later.posterior.theta_R, posterior.theta_R)
    assert later.model.gp is later.posterior
    theta = posterior.theta_R[None]
    assert (later.posterior.sigma(theta, X_TEST) < posterior.sigma(theta, X_TEST)).all()


def test_a_scale_model_is_conditioned_with_its_hyperparameters(monkeypatch):
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.uniform(-2, 2, (240, 2)))
    noise = torch.where(X[:, 0] > 0, 0.5, 0.02) * torch.from_numpy(rng.normal(size=240))
    y = torch.sin(2 * X[:, 1]) + noise
    posterior, _ = training.train(X[:120], y[:120])
    present = CrossValidated(folds=2).fit(posterior)
    assert all(refit.scale is not None for refit in present.model.refits)
    forbid_training(monkeypatch)
    later = present.updated(X[120:], y[120:])
    for fit, refit in zip(later.model.refits, present.model.refits, strict=True):
        scale, before = fit.scale, refit.scale
        assert torch.equal(scale.gp.theta_R, before.gp.theta_R)
        assert scale.gp.n_train == before.gp.n_train + 120
        mean, sigma = fit.posterior.loo(fit.posterior.theta_R[None])
        z = (fit.posterior.y_train - mean[0]) / sigma[0]
        response = working_response(
            scale.gp.mean(fit.posterior.X_train), z / z.square().mean().sqrt()
        )
        torch.testing.assert_close(scale.gp.y_train, response, atol=0.02, rtol=0.02)


def test_vanilla_is_conditioned_on_the_new_points(gp):
    later = method("vanilla").fit(gp, None, None).updated(X, Y)
    whole = gp.conditioned_on(torch.cat([gp.X_train, X]), torch.cat([gp.y_train, Y]))
    expected = method("vanilla").fit(whole, None, None)
    torch.testing.assert_close(answers(later), answers(expected))


def test_a_window_forgets(gp):
    present = Exact().fit(gp, X[:40], Y[:40])
    later = present.rescored(X[40:60], Y[40:60], keep=30)
    direct = Exact().fit(gp, X[30:60], Y[30:60])
    torch.testing.assert_close(answers(later), answers(direct), rtol=CLOSE, atol=CLOSE)
    with pytest.raises(InvalidInputError, match="keep: expected a whole number of at least 1"):
        present.rescored(X[:2], Y[:2], keep=0)
    with pytest.raises(InvalidInputError, match="can take new calibration points"):
        method("vanilla").fit(gp, None, None).rescored(X, Y)


@pytest.mark.slow
def test_coverage_is_kept_for_exchangeable_data():
    """Updated to 39 points, a band at 80 % holds rank 32 of 40."""
    shares = []
    for seed in range(300):
        X, y = fake_data(39 + 200, seed=[1, seed])
        predictor = method("kuleshov18").fit(FakePosterior(), X[:9], y[:9])
        predictor = predictor.updated(X[9:20], y[9:20]).updated(X[20:39], y[20:39])
        lower, upper = predictor.predict_interval(X[39:], 0.8, symmetric=True).T
        shares.append(float(((lower <= y[39:]) & (y[39:] <= upper)).double().mean()))
    error = (0.16 / (300 * 200) * (1 + 199 / 41)) ** 0.5
    assert abs(np.mean(shares) - 0.8) < 3 * error


# ------------------------------------------------------------------ the estimator


def frame(X):
    return pd.DataFrame(np.asarray(X), columns=["length", "width"])


def test_estimator():
    model = SharpGPRegressor(base="rbf", calibration="exact", cal_size=20, random_state=0)
    model.fit(frame(X[:80]), Y[:80])
    posterior = model.posterior_
    again = copy.deepcopy(model).update(frame(X[80:]), Y[80:].numpy())
    assert again.calibrated_.n_cal == 60
    assert model.calibrated_.n_cal == 20
    assert torch.equal(again.posterior_.theta_R, posterior.theta_R)
    expected = model.calibrated_.updated(X[80:], Y[80:])
    np.testing.assert_array_equal(
        again.predict_quantiles(frame(X_TEST), LEVELS),
        expected.predict_quantiles(X_TEST, LEVELS),
    )


@pytest.mark.parametrize(
    "calibration",
    ["kuleshov18", pytest.param(CrossValidated(folds=2), marks=pytest.mark.slow)],
    ids=type,
)
def test_refit_starts_over_on_all_points(calibration):
    settings = {"calibration": calibration, "random_state": 0}
    model = SharpGPRegressor(base="rbf", **settings).fit(frame(X[:40]), Y[:40])
    X_old, y_old = model.calibrated_.labelled_data()
    assert torch.equal(
        y_old.sort().values.round(decimals=9), Y[:40].sort().values.round(decimals=9)
    )
    model.update(frame(X[40:60]), Y[40:60]).update(frame(X[60:80]), Y[60:80], refit=True)
    assert list(model.feature_names_in_) == ["length", "width"]
    fresh = SharpGPRegressor(base="rbf", **settings).fit(
        torch.cat([X_old.X, X[40:80]]), torch.cat([y_old, Y[40:80]])
    )
    np.testing.assert_allclose(
        model.predict_quantiles(frame(X_TEST), LEVELS),
        fresh.predict_quantiles(X_TEST, LEVELS),
        rtol=0,
        atol=0.1 * same_optimum(40, stop=1e-5),  # the noise is 0.1, and refits stop early
    )


def test_wrong_points():
    model = SharpGPRegressor(calibration="kuleshov18", random_state=0).fit(X[:40], Y[:40])
    before = model.calibrated_
    for X_new, y_new in ((X[:3, :1], Y[:3]), (X[:3], Y[:2]), (X[:3], Y[:3] * torch.nan)):
        with pytest.raises(ValueError, match=r"expected|features"):
            model.update(X_new, y_new)
    with pytest.raises(InvalidInputError, match="calibrated with weights, found one without"):
        model.update(X[:3], Y[:3], sample_weight=np.ones(3))
    assert model.calibrated_ is before
