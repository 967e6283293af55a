"""What is promised, tolerance intervals, decisions, selections, means of a population."""

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm

from sharpgp import CalibrationWarning, Online, SharpGPRegressor
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.tolerance import (
    covered_at_least,
    covered_by_groups,
    tolerance_rank,
    units_needed,
    with_confidence,
)
from sharpgp.decisions import decide, worst_case
from sharpgp.exceptions import InvalidInputError
from sharpgp.models.laws import Normal
from sharpgp.models.model import Model
from sharpgp.population import estimate
from sharpgp.promise import promise_of
from sharpgp.rows import Rows
from sharpgp.selection import chosen_rows


class Standard(Model):
    """A law that knows nothing: location 0, spread 1."""

    gp = None
    n_features = 1
    device = torch.device("cpu")
    rows = Rows(torch.zeros(0, 1, dtype=torch.float64))
    y_train = rows.X[:, 0]

    def law(self, rows):
        one = torch.ones(len(rows), dtype=torch.float64)
        return Normal(0.0 * one, one)

    def extended(self, rows, y):
        return self

    updated = extended


def calibrated(y, groups=None, weights=None):
    X = torch.arange(len(y), dtype=torch.float64)[:, None]
    found = ScoredPredictor.from_model(Standard(), X, torch.as_tensor(y, dtype=torch.float64))
    if weights is not None:
        found = found.weighted(weights)
    return found if groups is None else found.for_groups(torch.as_tensor(groups))


AT = torch.zeros(1, 1, dtype=torch.float64)


@pytest.mark.parametrize("n", [29, 46, 59, 100, 500])
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
def test_a_tolerance_rank_is_the_smallest_that_is_sure_enough(n, coverage):
    def sure(k):
        return binom.cdf(k - 1, n, coverage)  # P(Beta(k, n + 1 - k) >= coverage)

    k = tolerance_rank(coverage, 0.95, n)
    if k <= n:
        assert sure(k) >= 0.95
    assert sure(min(k, n + 1) - 1) < 0.95


def test_the_numbers_that_are_needed_are_those_of_the_tables():
    """Wilks, and ISO 16269-6."""
    assert [units_needed(c, p) for c, p in ((0.9, 0.95), (0.95, 0.95), (0.99, 0.95))] == [
        29,
        59,
        299,
    ]
    assert [units_needed(c, p, 2) for c, p in ((0.9, 0.95), (0.95, 0.95))] == [46, 93]


def test_ends_are_the_ranks_and_closed():
    y = np.arange(1.0, 101.0) - 50.5
    found = calibrated(np.random.default_rng(0).permutation(y))
    low, high = with_confidence(found, 0.95, coverage=0.9).predict_interval(
        AT, 0.9, symmetric=False
    )[0]
    omitted = 101 - tolerance_rank(0.9, 0.95, 100)
    inside = int(((y >= float(low)) & (y <= float(high))).sum())
    assert inside == 100 - (omitted - 2)  # of the omitted gaps, two lie beyond the ends
    upper = with_confidence(found, 0.95, levels=0.9).predict_quantiles(AT, 0.9)
    assert int((y <= float(upper)).sum()) == tolerance_rank(0.9, 0.95, 100)
    lower = with_confidence(found, 0.95, levels=0.1).predict_quantiles(AT, 0.1)
    assert float(lower) == pytest.approx(-float(upper))


def test_of_2000_models_the_share_that_covers_is_the_one_that_ranks_attain():
    rng = np.random.default_rng(1)
    C, draws, holds = 46, 2000, 0
    for _ in range(draws):
        z = np.sort(np.abs(rng.normal(size=C)))
        holds += 2 * norm.cdf(z[tolerance_rank(0.9, 0.95, C) - 1]) - 1 >= 0.9
    attained = binom.cdf(tolerance_rank(0.9, 0.95, C) - 1, C, 0.9)
    assert abs(holds / draws - attained) < 4 * (attained * (1 - attained) / draws) ** 0.5


def test_too_few_units_are_told_how_many_it_takes():
    with pytest.raises(InvalidInputError, match="at least 29 calibration points, found 28"):
        with_confidence(calibrated(np.arange(28.0)), 0.95, coverage=0.9)
    with pytest.raises(InvalidInputError, match="at least 46 calibration points, found 45"):
        with_confidence(calibrated(np.arange(45.0)), 0.95, coverage=0.9, symmetric=False)
    band = with_confidence(calibrated(np.arange(45.0)), 0.95, coverage=0.9)
    assert torch.isfinite(band.predict_interval(AT, 0.9)).all()


def test_groups_count_as_groups_and_weights_are_refused():
    y = np.repeat(np.random.default_rng(0).normal(size=28), 5)
    groups = calibrated(y, groups=np.repeat(np.arange(28), 5))
    with pytest.raises(InvalidInputError, match="29 calibration groups, found 28"):
        with_confidence(groups, 0.95, coverage=0.9)
    weighted = calibrated(np.arange(60.0), weights=np.linspace(1, 2, 60))
    with pytest.raises(InvalidInputError, match="equal weight"):
        with_confidence(weighted, 0.95, coverage=0.9)


def test_the_bound_of_groups_is_never_above_the_one_of_as_many_rows():
    for n in (20, 60, 200):
        k = int(np.ceil(0.9 * (n + 1)))
        assert covered_by_groups(0.9, n, 0.95) < covered_at_least(k, n, 0.95) < 0.9
    s, n, b = 0.9 * 61 / 60, 60, covered_by_groups(0.9, 60, 0.95)
    chernoff = n * (s * np.log(s / b) + (1 - s) * np.log((1 - s) / (1 - b)))
    assert chernoff == pytest.approx(-np.log(0.05))


# ---------------------------------------------------------------- the promise


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (420, 3))
    return X, np.sin(2 * X[:, 0]) + (0.1 + 0.2 * (X[:, 1] > 0)) * rng.normal(size=420)


@pytest.fixture(scope="module")
def exact(rows):
    X, y = rows
    return SharpGPRegressor(base="rbf", calibration="exact", random_state=0).fit(X[:300], y[:300])


def test_a_promise_names_population_bound_theorem_and_premises(exact, rows):
    found = exact.promise()
    (line,) = found.lines
    assert (line.population, line.theorem, line.units) == (
        "new rows",
        "exchangeable rows",
        exact.calibrated_.n_cal,
    )
    assert 0.8 < line.bound < 0.9
    assert found.holds
    assert found.would_give is None
    assert len(found.premises) == 3
    assert "what-is-guaranteed" in found._repr_html_()
    assert "exchangeable rows" in str(found)
    of_X = exact.promise(rows[0][300:])
    assert of_X.lines[0].rows == 120
    assert len(of_X.premises) == 4


def test_an_update_revises_the_promise(exact, rows):
    import copy

    X, y = rows
    more = copy.deepcopy(exact).update(X[300:], y[300:])
    before, after = exact.promise().lines[0], more.promise().lines[0]
    assert after.units == before.units + 120
    assert after.bound > before.bound


def test_where_no_theorem_holds_it_says_so_and_what_would_give_one(rows):
    X, y = rows
    model = SharpGPRegressor(base="rbf", calibration="cv", random_state=0).fit(X[:80], y[:80])
    found = model.promise()
    assert found.lines[0].theorem is None
    assert found.lines[0].bound is None
    assert not found.holds
    assert "calibration='exact'" in str(found)


def test_several_levels_have_a_line_each(exact, rows):
    found = exact.promise(rows[0][300:], coverage=[0.8, 0.995])
    assert [line.coverage for line in found.lines] == [0.8, 0.995]
    assert [line.rows for line in found.lines] == [120, 120]
    assert [line.theorem is None for line in found.lines] == [False, True]
    assert found.lines[0] == exact.promise(rows[0][300:], coverage=0.8).lines[0]
    assert "0.995 takes 199" in found.would_give
    assert str(found).startswith("Promise of 80% and 99.5% intervals")


def test_too_few_rows_for_a_level_are_told_how_many_it_takes(exact):
    found = exact.promise(coverage=0.995)
    assert found.lines[0].theorem is None
    assert str(found).startswith("Promise of 99.5% intervals")
    units = exact.calibrated_.n_cal
    assert found.would_give.startswith(f"{units} rows calibrate; 0.995 takes 199, or 399")


@pytest.mark.parametrize(
    ("broken", "premise"),
    [("order", "order"), ("neighbours", "independent"), ("copies", "copies"), ("moved", "inputs")],
)
def test_a_broken_premise_is_in_doubt(broken, premise):
    rng = np.random.default_rng(5)
    X, z = rng.normal(size=(200, 4)), rng.normal(size=200)
    new = rng.normal(size=(100, 4))
    if broken == "order":
        z = z * np.linspace(0.3, 2, 200)
    if broken == "neighbours":
        z = np.convolve(rng.normal(size=203), np.ones(4), "valid")
    if broken == "copies":
        X, z = np.repeat(X[:100], 2, axis=0), np.repeat(z[:100], 2)
        X[:, 0] = rng.permutation(200)
        keep = rng.permutation(200)
        X, z, new[:, 0] = X[keep], z[keep], rng.permutation(200)[:100]
    if broken == "moved":
        new = new + 1.0
    X_cal = torch.from_numpy(X)
    model = Standard()
    model.n_features = 4
    found = ScoredPredictor.from_model(model, X_cal, torch.from_numpy(z))
    doubtful = [
        one.name
        for one in promise_of(found, "exact", torch.from_numpy(new)).premises
        if one.doubtful
    ]
    assert len(doubtful) == 1
    assert premise in doubtful[0]


def test_nothing_is_promised_for_an_unseen_level(rows):
    import pandas as pd

    X, y = rows
    frame = pd.DataFrame({"x": X[:, 0], "city": np.array(["a", "b", "c"])[np.arange(420) % 3]})
    model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    model.fit(frame[:200], y[:200])
    assert model.promise(frame[200:]).would_give is None
    new = frame[200:300].reset_index(drop=True)
    new.loc[:29, "city"] = "d"
    with pytest.warns(CalibrationWarning, match="no training row"):
        found = model.promise(new)
    known, unseen = found.lines
    assert (known.rows, unseen.rows) == (70, 30)
    assert known.theorem
    assert unseen.population == "rows with an unseen level of 'city'"
    assert (unseen.coverage, unseen.bound, unseen.theorem) == (None, None, None)
    assert "groups=" in found.would_give
    assert not found.holds
    assert "no statement" in str(found)
    with pytest.warns(CalibrationWarning, match="no training row"):
        assert [line.rows for line in model.promise(new[:30]).lines] == [30]
    assert [line.rows for line in model.promise(new[:0]).lines] == [0]


def test_known_groups_are_a_population_of_their_own(rows):
    X, y = rows
    groups = np.arange(240) // 4
    model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    model.fit(X[:240], y[:240] + np.random.default_rng(0).normal(size=60)[groups], groups=groups)
    found = model.promise()
    new, known = found.lines
    assert (new.population, new.theorem, new.counted) == (
        "rows of new groups",
        "new groups",
        "groups",
    )
    assert (known.population, known.theorem, known.bound) == ("rows of known groups", None, None)
    assert "known groups" in found.would_give
    assert [one.population for one in model.promise(X[240:]).lines] == ["rows of new groups"]
    assert Online(model, 0.9).promise is not None


# ---------------------------------------------------------------- decisions


def test_worst_cases_of_linear_pieces_are_exact_and_others_say_that_they_are_not():
    rng = np.random.default_rng(0)
    ends = np.sort(rng.normal(size=(50, 2)) * 5, axis=1)
    fine = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * np.linspace(0, 1, 20_001)
    for action in (-1.7, 0.4):
        for utility in (
            lambda a, y: np.abs(y - a),
            lambda a, y: 3 * np.minimum(a, y) - a,
            lambda a, y: np.where(y > a, 2 * (y - a), 0.1 * (a - y)),
        ):
            found, exact = worst_case(ends, action, utility)
            brute = utility(action, fine).min(axis=1)
            assert (found <= brute + 1e-9)[exact].all()
            assert exact.mean() > 0.95  # all but kinks within 0.0001 of an end
    assert not worst_case(np.array([[0.0, 10.0]]), 0, lambda a, y: np.cos(y))[1].any()


def test_a_decision_is_the_best_worst_case_and_new_rows_pass_it(exact, rows):
    X, y = rows
    found = exact.decide(X[300:], np.linspace(-2, 2, 41), lambda a, y: -np.abs(y - a), coverage=0.9)
    ends = exact.predict_interval(X[300:], 0.9)
    middle = ends.mean(axis=1)
    assert np.abs(found.action - middle).max() < 0.1
    inside = (y[300:] >= ends[:, 0]) & (y[300:] <= ends[:, 1])
    passed = -np.abs(y[300:] - found.action) >= found.worst_case - 1e-9
    assert passed[inside].all()
    assert (found.cost_of_safety >= 0).all()
    assert list(found.frame().columns)[:2] == ["action", "worst_case"]


def test_actions_may_be_names_and_wrong_utilities_are_named():
    ends = np.array([[0.0, 1.0], [5.0, 6.0]])
    law = lambda rows, levels: np.repeat(ends[rows].mean(1)[:, None], len(levels), 1)  # noqa: E731
    gain = {"wait": lambda y: 0.5 + 0 * y, "go": lambda y: y - 2}
    assert decide(ends, law, ["wait", "go"], lambda a, y: gain[a](y)).action.tolist() == [
        "wait",
        "go",
    ]
    with pytest.raises(InvalidInputError, match=r"write decide\(X, actions, utility\)"):
        decide(ends, law, lambda a, y: y, ["wait"])
    with pytest.raises(InvalidInputError, match="utility: expected a number for each"):
        decide(ends, law, ["wait"], lambda a, y: y[:1])
    with pytest.raises(InvalidInputError, match="finite ends"):
        decide(np.array([[0.0, np.inf]]), law, ["wait"], lambda a, y: y)


# ---------------------------------------------------------------- selections


@pytest.mark.parametrize("seed", range(20))
def test_with_equal_weights_the_choice_is_that_of_benjamini_and_hochberg(seed):
    rng = np.random.default_rng(seed)
    C, m, fdr = 60, 25, rng.choice([0.05, 0.1, 0.3])
    cal, new = rng.normal(size=C).round(1), rng.normal(1.0, 1.0, m).round(1)
    false = cal + rng.normal(size=C) < 0.5
    p = np.array([(1 + (false & (cal >= one)).sum()) / (C + 1) for one in new])
    ranked = np.sort(p)
    enough = np.flatnonzero(ranked <= fdr * np.arange(1, m + 1) / m + 1e-12)
    expected = p <= ranked[enough[-1]] if len(enough) else np.zeros(m, bool)
    chosen, share = chosen_rows(cal, false, new, fdr, np.ones(C), np.ones(m))
    assert (chosen == expected).all()
    assert (chosen == (share <= fdr + 1e-12)).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_false_selections_stay_below_the_rate(weighted):
    rng = np.random.default_rng(7)
    false_share, found = [], 0
    for _ in range(400):
        x = rng.normal(size=400)
        y = 1.5 * x + rng.normal(size=400)
        shift = 0.7 if weighted else 0.0
        x_new = rng.normal(shift, 1.0, 50)
        y_new = 1.5 * x_new + rng.normal(size=50)
        w, w_new = (np.exp(shift * one) for one in (x, x_new))
        chosen, _ = chosen_rows(x, y <= 1.0, x_new, 0.2, w, w_new)
        false_share.append((chosen & (y_new <= 1.0)).sum() / max(1, chosen.sum()))
        found += int((chosen & (y_new > 1.0)).sum())
    assert np.mean(false_share) <= 0.2 + 3 * np.std(false_share) / 20
    assert found > 400


def test_select_between_two_limits_and_refuses_none(exact, rows):
    X, y = rows
    with pytest.raises(InvalidInputError, match="above"):
        exact.select(X)
    found = exact.select(X[300:], above=-0.5, below=0.5, fdr=0.3)
    inside = (y[300:] > -0.5) & (y[300:] < 0.5)
    assert len(found) == found.chosen.sum() == len(found.rows)
    if len(found):
        assert inside[found.chosen].mean() > 0.5
    assert (np.diff(found.path[:, 1]) >= 0).all()
    assert (
        len(chosen_rows(np.ones(3), np.ones(3) > 0, np.ones(0), 0.1, np.ones(3), np.ones(0))[0])
        == 0
    )


# ---------------------------------------------------------------- a population


def test_the_mean_of_a_pool_is_the_regression_estimator():
    rng = np.random.default_rng(2)
    f, F = rng.normal(size=80), rng.normal(size=900)
    y = 2 * f + rng.normal(size=80)
    mean, half, weight, n = estimate(y, f, F, np.ones(80), np.arange(80), 0.95)
    slope, level = np.polyfit(f, y, 1)
    assert (mean, weight) == pytest.approx((level + slope * F.mean(), slope))
    assert n == 80
    left = (y - level - slope * f).var(ddof=2)
    assert half == pytest.approx(1.99 * np.sqrt(left * (1 / 80 + 1 / 900)), rel=0.01)


def test_population_mean_total_share_and_moved_pool(exact, rows):
    X, y = rows
    found = exact.population_mean(X[300:])
    total = exact.population_mean(X[300:], total=True)
    share = exact.population_mean(X[300:], above=0.0)
    assert total.estimate == pytest.approx(120 * found.estimate)
    assert found.lower <= y[300:].mean() <= found.upper
    assert 0 <= share.lower <= (y[300:] > 0).mean() <= share.upper <= 1
    assert found.upper - found.lower < 0.8 * (found.classical[1] - found.classical[0])
    with pytest.warns(CalibrationWarning, match="not like the pool"):
        exact.population_mean(X[:200] + 3.0)


def test_estimator_takes_confidence(exact, rows):
    X, _ = rows
    sure = exact.predict_interval(X[300:], 0.9, confidence=0.95)
    plain = exact.predict_interval(X[300:], 0.9)
    assert (np.diff(sure) > np.diff(plain)).all()
    high = exact.predict_quantiles(X[300:], [0.1, 0.9], confidence=0.95)
    assert (np.diff(high) > 0).all()
    with pytest.raises(InvalidInputError, match="needs at least 299"):
        exact.predict_interval(X, 0.99, confidence=0.95)


def test_online_says_when_the_promise_is_broken(exact, rows):
    X, y = rows
    kept = Online(exact, 0.9)
    kept.track(X[300:], y[300:])
    assert kept.promise.p_value > 0.05
    broken = Online(exact, 0.9, window=None)
    with pytest.warns(CalibrationWarning, match="the promise of the model is broken"):
        broken.track(X[300:], y[300:] + 0.5 * np.sign(y[300:]))
    assert broken.promise.p_value < 0.05
    cv = SharpGPRegressor(base="rbf", calibration="cv", random_state=0).fit(X[:80], y[:80])
    assert Online(cv, 0.9).promise is None


def test_notebooks_and_the_report_show_the_promise(exact, rows):
    from sharpgp.diagnostics import diagnose
    from sharpgp.report import render_report

    X, y = rows
    assert "exchangeable rows" in exact._repr_mimebundle_()["text/html"]
    assert "exchangeable rows" not in SharpGPRegressor()._repr_mimebundle_()["text/html"]
    page = render_report(diagnose(exact, X[300:], y[300:]))
    assert "What is promised" in page
    assert f"at least {exact.promise().lines[0].bound:.1%}" in page


def test_predictions_of_a_file_take_a_confidence(exact, rows, tmp_path):
    pytest.importorskip("pyarrow")
    import pandas as pd

    from sharpgp.tabular.prediction import Request

    with pytest.raises(InvalidInputError, match="confidence"):
        Request([0.9], confidence=1.5)
    model, table, out = tmp_path / "m.sgp", tmp_path / "new.csv", tmp_path / "out.csv"
    frame = pd.DataFrame(rows[0], columns=["a", "b", "c"])
    fitted = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    fitted.fit(frame[:300], rows[1][:300]).save(model)
    frame[300:].to_csv(table, index=False)
    command = ["predict", str(model), str(table), "--coverage", "0.9", "--confidence", "0.95"]
    from typer.testing import CliRunner

    from sharpgp.cli._app import app

    done = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert done.exit_code == 0, done.output
    found = pd.read_csv(out)[["lower_90", "upper_90"]].to_numpy()
    expected = fitted.predict_interval(frame[300:], 0.9, confidence=0.95)
    np.testing.assert_allclose(found, expected, atol=1e-6)  # six digits


def test_the_command_line_selects(rows, tmp_path):
    pytest.importorskip("pyarrow")
    import pandas as pd
    from typer.testing import CliRunner

    from sharpgp.cli._app import app

    model, table, out = tmp_path / "m.sgp", tmp_path / "new.csv", tmp_path / "chosen.csv"
    frame = pd.DataFrame(rows[0], columns=["a", "b", "c"]).assign(id=np.arange(420) + 7000)
    fitted = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    fitted.fit(frame[["a", "b", "c"]][:300], rows[1][:300]).save(model)
    frame[300:].to_csv(table, index=False)
    command = ["select", str(model), str(table), "--out", str(out), "--keep", "id"]
    done = CliRunner().invoke(app, [*command, "--above", "0.2", "--fdr", "0.2"])
    assert done.exit_code == 0, done.output
    chosen = fitted.select(frame[["a", "b", "c"]][300:], above=0.2, fdr=0.2)
    assert len(chosen) > 10
    found = pd.read_csv(out)
    np.testing.assert_array_equal(found["row"], chosen.rows + 1)
    np.testing.assert_array_equal(found["id"], chosen.rows + 7300)
    assert (found["share_wrong"].diff()[1:] >= -1e-12).all()
    assert f"{len(chosen)} of 120 rows chosen" in done.output
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "expected above, below" in refused.output


def test_cv_plus_promises_its_worst_case_and_no_more(rows):
    X, y = rows
    model = SharpGPRegressor(base="rbf", calibration="cv+", random_state=0).fit(X[:60], y[:60])
    (line,) = model.promise().lines
    assert line.theorem == "CV+"
    assert line.coverage == model.calibrated_.worst_case(0.9) < 0.9
    assert line.bound is None
