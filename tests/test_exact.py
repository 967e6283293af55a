"""exact and cv: what they promise, and that nothing leaks into what they promise it with."""

import numpy as np
import pytest
import torch

from helpers import marked
from sharpgp import CrossValidated, Exact, Kuleshov18, SharpGPRegressor, metrics
from sharpgp._ranks import whole_rank
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import train
from sharpgp.models import pool
from sharpgp.models.gaussian import gaussian_model as gaussian
from sharpgp.models.gaussian import scale_model as heteroscedastic
from sharpgp.models.gaussian import spread_choice
from sharpgp.models.gaussian.candidate_scores import SCORED_COVERAGES, SCORED_LEVELS, scores_of
from sharpgp.models.gaussian.gaussian_model import GaussianModel, learn_gaussian, magnitude
from sharpgp.models.gaussian.scale_model import ScaleModel, held_out_log_squares
from sharpgp.models.gaussian.spread_choice import Choice, Chosen
from tolerances import rounding


def noisy(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise ten times as large for x > 0."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    noise = np.where(X[:, 0] > 0, 0.5, 0.05) * rng.normal(size=n)
    return torch.from_numpy(X), torch.from_numpy(10 + 3 * (np.sin(2 * X[:, 1]) + noise))


@pytest.fixture(scope="module")
def fitted():
    X, y = noisy(150, seed=0)
    posterior, _ = train(X, y)
    return posterior, learn_gaussian(posterior, seed=0)


@pytest.mark.slow
def test_the_spread_does_not_depend_on_the_calibration_data(fitted):
    posterior, _ = fitted
    X, y = noisy(60, seed=1)
    one = Exact(random_state=0).fit(posterior, X[:30], y[:30])
    other = Exact(random_state=0).fit(posterior, X[30:], 50 * y[30:])
    assert torch.equal(one.model.law(X).spread, other.model.law(X).spread)


def test_the_scale_model_is_found_where_noise_varies_and_not_where_it_does_not(fitted):
    _, spread = fitted
    assert spread.choice.share > 0
    assert spread.choice.score < 0.95
    X, _ = noisy(200, seed=2)
    wide = spread.law(X[X[:, 0] > 0.5]).spread.mean() / spread.law(X[X[:, 0] < -0.5]).spread.mean()
    assert wide > 3
    rng = np.random.default_rng(3)
    even, _ = train(X, torch.from_numpy(np.sin(X[:, 1].numpy()) + 0.3 * rng.normal(size=200)))
    assert learn_gaussian(even, seed=0).choice.score > 0.97


@pytest.mark.slow
def test_hardly_anything_is_found_in_pure_noise():
    """Leave-one-out scores alone would find a scale model here: they share hyperparameters."""
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = torch.from_numpy(rng.normal(size=(80, 20))), torch.from_numpy(rng.normal(size=80))
        found.append(learn_gaussian(train(X, y)[0], seed=0).choice)
    # A gain of one standard error is chance in one case of six, at most.
    assert sum(choice != Choice() for choice in found) <= 1
    assert all(choice.share < 1.0 and choice.score > 0.97 for choice in found)


def test_scale_models_are_judged_by_points_that_they_have_not_seen(monkeypatch):
    X, y = noisy(60, seed=12)
    seen = []
    real = heteroscedastic.ScaleModel

    def spy(X_part, z_part, ties):
        seen.append(z_part)
        return real(X_part, z_part, ties)

    monkeypatch.setattr(heteroscedastic, "ScaleModel", spy)
    z = y - y.mean()
    g = held_out_log_squares(X, z, torch.arange(60), seed=0)
    assert [len(part) for part in seen] == [48] * 5
    left_out = [~torch.isin(z, part) for part in seen]
    assert (torch.stack(left_out).sum(0) == 1).all()
    for part, mask in zip(seen, left_out, strict=True):
        torch.testing.assert_close(g[mask], real(X[~mask], part).log_square(X[mask]))


def test_the_dear_judge_of_a_scale_model_is_asked_where_the_cheap_one_is_for_it(monkeypatch):
    X, y = noisy(80, seed=3)
    posterior = train(X, y, start=0)[0]
    asked = []
    real = spread_choice.held_out_log_squares
    monkeypatch.setattr(
        spread_choice,
        "held_out_log_squares",
        lambda *args, **options: asked.append(args[1]) or real(*args, **options),
    )
    alone = spread_choice.choose_spread(posterior, 0)
    assert alone.choice.share > 0.0
    assert len(asked) == 1
    asked.clear()
    # What points judge that no learning has seen needs no such proof.
    assert spread_choice.choose_spread(posterior, 0, confirm=False).choice.share > 0.0
    assert not asked


def test_a_scale_model_that_is_not_confirmed_leaves_the_plain_spread(monkeypatch):
    X, y = noisy(80, seed=3)
    posterior = train(X, y, start=0)[0]
    assert spread_choice.choose_spread(posterior, 0, confirm=False).choice.score < 0.95
    held_out = spread_choice.held_out_log_squares
    monkeypatch.setattr(
        spread_choice, "held_out_log_squares", lambda *a, **settings: -held_out(*a, **settings)
    )
    chosen = spread_choice.choose_spread(posterior, 0)
    assert (chosen.choice, chosen.scale) == (Choice(), None)


def test_spreads_are_in_units_of_their_leave_one_out_residuals(fitted):
    posterior, spread = fitted
    mean, _ = posterior.loo(posterior.theta_R[None])
    residual = posterior.y_train - mean[0]
    plain = GaussianModel(Chosen(posterior, Choice(), None))
    sigma = posterior.loo(posterior.theta_R[None])[1][0] * plain.unit
    assert magnitude(residual / sigma).item() == pytest.approx(1.0)
    assert spread.unit > 0


@pytest.mark.parametrize("C", marked([20, 50, 100], slow={50, 100}))
def test_guarantee_over_20000_draws(fitted, C, monkeypatch):
    """Quantiles at j/(C+1) are exact; intervals keep their bounds; within three standard errors."""
    posterior, spread = fitted
    draws = 20_000
    X, y = noisy(60_000, seed=4)
    with torch.no_grad():
        z = torch.cat(
            [
                (y[part] - spread.posterior.mean(X[part])) / spread.law(X[part]).spread
                for part in torch.arange(len(y)).split(20_000)
            ]
        )
    pick = torch.randint(len(z), (draws, C + 1), generator=torch.Generator().manual_seed(C))
    scores, new = z[pick[:, :C]].sort(dim=1).values, z[pick[:, C]]
    magnitudes, new_magnitude = z[pick[:, :C]].abs().sort(dim=1).values, new.abs()

    def close(hits: torch.Tensor, p: float) -> bool:
        return abs(hits.double().mean().item() - p) <= 3 * (p * (1 - p) / draws) ** 0.5

    for j in (1, C // 4, C // 2, C):
        assert close(new <= scores[:, j - 1], j / (C + 1))
    for coverage in (0.5, 0.8, 0.9):
        k = whole_rank(coverage, C, up=True)
        assert close(new_magnitude <= magnitudes[:, k - 1], k / (C + 1))
        assert coverage <= k / (C + 1) <= coverage + 1 / (C + 1)
        low = whole_rank((1 - coverage) / 2, C, up=False)
        high = whole_rank((1 + coverage) / 2, C, up=True)
        inside = (new > scores[:, low - 1]) & (new <= scores[:, high - 1])
        assert close(inside, (high - low) / (C + 1))
        assert coverage <= (high - low) / (C + 1) <= coverage + 2 / (C + 1)

    # The predictor itself takes exactly these ranks.
    monkeypatch.setattr(pool, "learn_gaussian", lambda *a: spread)
    rows = pick[0, :C]
    calibrated = Exact().fit(posterior, X[rows], y[rows])
    at = X[:5]
    mean = spread.posterior.mean(at)
    for coverage in (0.5, 0.8, 0.9):
        half = magnitudes[0, whole_rank(coverage, C, up=True) - 1] * spread.law(at).spread
        ends = calibrated.predict_interval(at, coverage, symmetric=True)
        torch.testing.assert_close(ends[:, 1], mean + half)
        low = whole_rank((1 - coverage) / 2, C, up=False)
        ends = calibrated.predict_interval(at, coverage, symmetric=False)
        torch.testing.assert_close(ends[:, 0], mean + scores[0, low - 1] * spread.law(at).spread)
    torch.testing.assert_close(
        calibrated.predict_quantiles(at, 5 / (C + 1)),
        mean + scores[0, 4] * spread.law(at).spread,
    )


def test_exact_beats_plain_rescaling_where_noise_varies(fitted):
    posterior, _ = fitted
    X_cal, y_cal = noisy(100, seed=5)
    X, y = noisy(2000, seed=6)

    def score(method) -> float:
        low, high = method.fit(posterior, X_cal, y_cal).predict_interval(X, 0.9).T
        return float((high - low + 20 * ((low - y).clamp(min=0) + (y - high).clamp(min=0))).mean())

    assert score(Exact()) < 0.9 * score(Kuleshov18())


@pytest.mark.slow
def test_cv_uses_every_point_and_covers():
    hits, widths = [], []
    for seed in range(8):
        X, y = noisy(60, seed=100 + seed)
        model = SharpGPRegressor(base="rbf", calibration="cv", random_state=0).fit(X, y)
        assert model.calibrated_.n_cal == 60
        assert model.posterior_.n_train == 60
        X_test, y_test = noisy(500, seed=200 + seed)
        low, high = model.predict_interval(X_test, 0.9).T
        hits.append(((low <= y_test.numpy()) & (y_test.numpy() <= high)).mean())
        widths.append((high - low).mean())
    # The coverage of one fit with 60 scores has a standard deviation of about 0.04.
    assert abs(np.mean(hits) - 0.9) <= 4 * 0.04 / 8**0.5


def test_cv_scores_are_out_of_fold(monkeypatch):
    """Each point's score comes from a fit without the point."""
    X, y = noisy(40, seed=7)
    posterior, _ = train(X, y)
    seen = []
    real = gaussian.same_spread

    def spy(choice, full, X_part, y_part):
        seen.append(y_part)
        return real(choice, full, X_part, y_part)

    monkeypatch.setattr(gaussian, "same_spread", spy)
    calibrated = CrossValidated(folds=5).fit(posterior)
    assert [len(part) for part in seen] == [32] * 5
    left_out = torch.cat([y[~torch.isin(y, part)] for part in seen])
    assert torch.equal(left_out.sort().values, y.sort().values)
    assert len(calibrated.scores) == 40


def test_cv_joins_calibration_data_to_the_training_data():
    X, y = noisy(60, seed=8)
    posterior, _ = train(X[:40], y[:40])
    calibrated = CrossValidated(folds=4).fit(posterior, X[40:], y[40:])
    assert calibrated.n_cal == 60
    assert posterior.n_train == 40


def test_few_points_and_wrong_settings():
    X, y = noisy(30, seed=9)
    posterior, _ = train(X[:3], y[:3])
    with pytest.raises(InvalidInputError, match="at least 4 points"):
        CrossValidated().fit(posterior)
    with pytest.raises(InvalidInputError, match="folds: expected a whole number of at least 2"):
        CrossValidated(folds=1).fit(train(X, y)[0])
    assert Exact().fit(train(X[:10], y[:10])[0], X[10:], y[10:]).model.choice == Choice()


def test_scoring_ends_where_its_own_mean_is():
    """Means at training points come from the weights alone; Fisher scoring ends where they stay."""
    X, y = noisy(60, seed=12)
    z = y - y.mean()
    gp = ScaleModel(X, z).gp
    g = heteroscedastic._at_training(gp)
    tolerance = rounding(gp._covariance_of_data(gp.theta_R[None])[0])
    torch.testing.assert_close(g, gp.mean(gp.X_train), rtol=0, atol=tolerance * g.abs().max())
    step = gp.retargeted(heteroscedastic.working_response(g, heteroscedastic._normalised(z)))
    assert (step.mean(X) - g).abs().max() < 1e-3 * g.abs().max()


def test_the_scale_model_does_not_overshoot():
    rng = np.random.default_rng(11)
    X = torch.from_numpy(rng.normal(size=(60, 3)))
    model = ScaleModel(X, torch.from_numpy(rng.standard_cauchy(60)))
    inside = model.log_square_loo()
    anywhere = model.log_square(torch.from_numpy(5 * rng.normal(size=(500, 3))))
    assert anywhere.max() <= inside.max()
    assert anywhere.min() >= inside.min()


def test_scores_are_those_of_the_metrics():
    rng = np.random.default_rng(13)
    r, sigma = rng.standard_t(3, 70), rng.uniform(0.5, 2.0, 70)
    scores = scores_of(torch.from_numpy(r), torch.from_numpy(sigma))
    z = r / sigma
    for row, coverage in enumerate(SCORED_COVERAGES):
        half = np.quantile(np.abs(z), coverage) * sigma
        ends = [np.quantile(z, (1 + side * coverage) / 2) * sigma for side in (-1, 1)]
        for ours, (lower, upper) in ((scores.bands, (-half, half)), (scores.centred, ends)):
            theirs = metrics.interval_score(r, lower, upper, coverage=coverage)
            assert ours[row].mean().item() == pytest.approx(theirs)
    quantiles = np.quantile(z, SCORED_LEVELS)[None] * sigma[:, None]
    theirs = metrics.pinball_loss(r, quantiles, SCORED_LEVELS)
    assert scores.pinball.mean().item() == pytest.approx(theirs)


def test_nothing_is_taken_that_loses_in_the_tails(fitted):
    """Right for 94 points in 100 and far too narrow for the others: a gain on the whole."""
    posterior, _ = fitted
    plain = spread_choice._as_trained(posterior, Choice())
    size = plain.residuals.abs()
    usual = size < size.quantile(0.94)
    sigma = torch.where(usual, size + 0.02 * size.mean(), 0.15 * size)
    reference = scores_of(plain.residuals, plain.sigma)
    gain = scores_of(plain.residuals, sigma).gain_on(reference)
    assert gain.total.mean() > 2 * gain.total.std() / len(size) ** 0.5
    assert gain.bands[2].mean() < 0
    g = 2.0 * (sigma / plain.sigma).log()
    assert spread_choice.honest_share(plain.residuals, plain.sigma, g) < 1.0
