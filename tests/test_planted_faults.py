"""Faults that were put into data, and the sentence of the report that must name each."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import hypergeom, norm

from diagnosed import predictions
from sharpgp import SharpGPRegressor
from sharpgp.data.leaks import share_of_levels
from sharpgp.data.suspicions import repeated_rows
from sharpgp.diagnostics import diagnose
from sharpgp.diagnostics.places import (
    Points,
    _scores_of_counts,
    reliability_reach,
    whole_p_value,
)
from sharpgp.exceptions import CalibrationWarning
from sharpgp.report import render_report, verdict_of, words
from sharpgp.report.advice import moved_advice
from sharpgp.report.explanation import explain
from sharpgp.report.numbers import numbers_of

N = 500


def calm(rng):
    return predictions(rng.normal(size=N))


def shift(rng):
    return predictions(2.0 + rng.normal(size=N))


def shift_down(rng):
    return predictions(-0.5 + rng.normal(size=N))


def scale(rng):
    return predictions(1.7 * rng.normal(size=N))


def too_wide(rng):
    return predictions(0.6 * rng.normal(size=N))


def drift(rng):
    return predictions(np.linspace(0, 2, N) + rng.normal(size=N))


def one_bad_feature(rng):
    X = rng.uniform(0, 100, (N, 3))
    y = rng.normal(size=N) * np.where(X[:, 1] > 82, 1.7, 0.85)
    return predictions(y, X=X, names=("age", "dose_mg", "height"))


def one_very_bad_feature(rng):
    X = rng.uniform(0, 100, (N, 3))
    y = rng.normal(size=N) * np.where(X[:, 1] > 82, 4.0, 1.0)
    return predictions(y, X=X, names=("age", "dose_mg", "height"))


def heavy_tails(rng):
    y = rng.standard_t(2, size=N)
    return predictions(y / np.subtract(*np.quantile(y, [0.75, 0.25])) * 1.349)


def groups(rng):
    which = np.repeat(np.arange(50), N // 50)
    y = 0.8 * rng.normal(size=50)[which] + 0.6 * rng.normal(size=N)
    return predictions(y, groups=which)


def gaps_that_are_not_covered(rng):
    lacking = np.arange(N) % 10 == 0
    y = rng.normal(size=N) * np.where(lacking, 3.0, 1.0)
    return predictions(y, gaps=tuple("pH" if one else "" for one in lacking), n_missing=50)


def two_columns_together(rng):
    """All misses are where two columns have the same sign; each column alone tells nothing."""
    X, n = rng.uniform(-1, 1, (1500, 3)), 1500
    u = rng.uniform(0, 0.5, n)  # distance of the rank from the end
    same = X[:, 0] * X[:, 1] > 0
    far = rng.random(n) < np.where(same, 0.4, 0.0)  # the outer fifth, which is one in five points
    u = np.where(far, 0.2 * u, 0.1 + 0.8 * u)
    return predictions(norm.ppf(np.where(rng.random(n) < 0.5, u, 1 - u)), X=X, n_cal=None)


def gaps_that_are_covered(rng):
    lacking = tuple("pH" if k % 10 == 0 else "" for k in range(N))
    return predictions(rng.normal(size=N), gaps=lacking, n_missing=50)


TABLE = [
    (calm, "well", r"Calibrated on average and, as far as 500 test points can tell, everywhere\."),
    (
        shift,
        "fault",
        r"Not calibrated: predictions are too low as a whole: 9\d\.?\d? % of the points lie above",
    ),
    (shift_down, "fault", r"Not calibrated: predictions are too high as a whole: 6\d"),
    (
        scale,
        "fault",
        r"Not calibrated: predictions are overconfident: errors are 1\.[5-9]\d? times",
    ),
    (too_wide, "fault", r"Not calibrated: predictions are too cautious: errors are 0\.[56]"),
    (
        drift,
        "fault",
        r"Not calibrated: predictions drift along the rows: .* of rows 401 to 500\.",
    ),
    (
        one_bad_feature,
        "look",
        r"Calibrated on average, not everywhere: (errors change along )?dose_mg.* 95 % intervals "
        r"cover [78]\d",
    ),
    (
        one_very_bad_feature,
        "fault",
        r"Not calibrated: dose_mg [78]\d(\.\d+)? to (99|100)(\.\d+)?: 95 % intervals cover "
        r"\d\S* % of 100 points, \S+ to \S+ % by chance; elsewhere predictions are calibrated\.",
    ),
    (
        heavy_tails,
        "fault",
        r"Not calibrated: large errors are more frequent than predicted: \d\S* % of the points "
        r"lie where 1 % should",
    ),
    (groups, "fault", r"Not calibrated: errors within a group are alike: [5-8]\d"),
    (
        gaps_that_are_not_covered,
        "fault",
        r"Not calibrated: rows without pH: 95 % intervals cover \d\S* % of 50 points, \S+ to "
        r"\S+ % by chance; elsewhere predictions are calibrated",
    ),
    (
        two_columns_together,
        "look",
        r"Calibrated on average, not everywhere: errors change along x1 and x0: 95 % intervals "
        r"cover [89]\S* % of x1 (above|up to)",
    ),
    (
        gaps_that_are_covered,
        "well",
        r"Calibrated on average and, as far as 500 test points can tell, everywhere\.",
    ),
]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("plant", "state", "sentence"),
    TABLE,
    ids=lambda part: getattr(part, "__name__", str(part)[:30]),
)
def test_a_planted_fault_is_named_first(plant, state, sentence, seed):
    found = plant(np.random.default_rng(seed + 3))
    verdict = verdict_of(found)
    assert re.match(sentence, f"{verdict.heading} {verdict.says}"), verdict
    assert verdict.state == state


def test_a_fault_of_all_points_is_no_place(rng):
    """All parts fail alike: the figures' bands lie around the share of all points."""
    found = shift_down(rng)
    assert [one.kind for one in explain(found)] == ["shift"]
    part = numbers_of(found)["intervals"][5]
    for bins in (part["by_width"], *part["by_feature"]):
        assert not any(one["odd"] for one in bins)
        assert words.by_part(part, bins, "x").well


@pytest.mark.parametrize("plant", [calm, one_bad_feature, drift, gaps_that_are_not_covered])
def test_a_dot_outside_its_band_and_the_verdict_agree(plant):
    """A dot leaves its band only if a place is named, and the bands are those of the test."""
    for seed in range(3):
        found = plant(np.random.default_rng(seed))
        out = [
            one
            for part in numbers_of(found)["intervals"]
            for bins in (part["by_width"], *part["by_feature"])
            for one in bins
            if not one["low"] <= one["covered"] <= one["high"]
        ]
        assert all(one["odd"] for one in out)
        assert bool(explain(found)) or not out


def test_a_page_without_findings_has_no_red_panel_and_few_calibrated_models_get_others():
    rng, clean, draws = np.random.default_rng(0), 0, 30
    for _ in range(draws):
        sigma = np.exp(0.5 * rng.normal(size=300))
        found = predictions(sigma * rng.normal(size=300), sigma=sigma, n_cal=None)
        text = render_report(found)
        if 'class="verdict well"' in text:
            clean += 1
            assert 'class="advice look"' not in text
            assert '"well":false' not in text
    # 19 in 20; three standard errors below that.
    assert clean / draws >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / draws)


def test_the_widest_fifth_is_named_when_it_covers_85_of_95(rng):
    """Ten of 65 wide intervals miss, and 6 of the 262 others: p = 0.0002 for this fifth alone."""
    n, wide = 327, np.arange(327) >= 262
    u = 0.95 * rng.random(n)
    u[rng.choice(np.flatnonzero(wide), 10, replace=False)] = 0.951 + 0.04 * rng.random(10)
    u[rng.choice(np.flatnonzero(~wide), 6, replace=False)] = 0.951 + 0.04 * rng.random(6)
    e = norm.ppf((1 + u * rng.choice([-1, 1], n)) / 2)
    sigma = 1 + np.arange(n) / n
    order = rng.permutation(n)
    verdict = verdict_of(predictions((sigma * e)[order], sigma=sigma[order]))
    assert verdict.heading == "Calibrated on average, not everywhere:"
    assert verdict.says.startswith("the widest fifth of the intervals: 95 % intervals cover 84")


def test_scores_of_counts_are_those_of_the_hypergeometric_law():
    z = _scores_of_counts(40, np.array([0, 6, 40]), 15)
    count = np.arange(7)
    middle = hypergeom.cdf(count, 40, 6, 15) - hypergeom.pmf(count, 40, 6, 15) / 2
    np.testing.assert_allclose(z[1, :7], norm.ppf(middle), atol=1e-9)
    assert (np.abs(z[1, 7:]) > 30).all()  # cannot occur
    assert z[0, 0] == z[2, 15] == 0.0


def test_rows_sorted_by_the_target_are_no_drift(rng):
    X = rng.uniform(-2, 2, (N, 1))
    y = rng.normal(size=N)
    order = np.argsort(y)
    found = predictions(y[order], X=X[order], d=1)
    assert "drift" not in [one.kind for one in explain(found)]


def test_parts_of_whole_groups_stray_more():
    """Errors shared by groups, and a column that is the same in a group: no place is blamed."""
    blamed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        which = np.repeat(np.arange(40), 10)
        y = 0.8 * rng.normal(size=40)[which] + 0.6 * rng.normal(size=400)
        X = np.column_stack([rng.normal(size=40)[which], rng.normal(size=400)])
        found = predictions(y, X=X, d=2, groups=which, n_cal=40, counted="groups")
        blamed += bool(explain(found))
        alone = replace(found, groups=None)
        assert seed or explain(alone), "as independent points they would fail"
    assert blamed <= 4


def fitted(rng, n=100):
    X = rng.uniform(-2, 2, (n + 60, 2))
    y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=n + 60)
    model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    return model.fit(X[:n], y[:n]), X, y


def test_rows_that_trained_and_copies_are_left_out(rng):
    model, X, y = fitted(rng)
    alone = diagnose(model, X[100:], y[100:])
    assert (alone.n_seen, alone.n_copies, alone.n_given) == (0, 0, 60)
    again = np.r_[60:160, 110:115]
    found = diagnose(model, X[again], y[again])
    assert (found.n_seen, found.n_copies, found.n_given) == (40, 5, 105)
    np.testing.assert_array_equal(found.y, alone.y)
    assert found.row[0] == 41
    assert "Left out: 45 of 105 test rows, 40 that trained" in render_report(found)
    with pytest.warns(CalibrationWarning, match="40 of 105 rows trained or calibrated the model"):
        model.calibration_report(X[again], y[again])
    nothing = diagnose(model, X[:50], y[:50])
    assert verdict_of(nothing).says.startswith("all 50 test rows are among the rows that trained")


def test_rows_of_few_values_are_equal_by_chance():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 3, (300, 2)), rng.poisson(1.0, 300)]).astype(float)
    seen, copied = repeated_rows(rows[:100], rows[100:])
    assert not seen.any()
    assert not copied.any()
    apart = np.column_stack([rng.normal(size=(300, 2)), rows[:, 2]])
    seen, copied = repeated_rows(np.vstack([apart[:100], apart[90:110]]), apart[100:])
    assert seen.sum() == 10
    assert copied[100:110].all()
    assert copied.sum() == 10


def test_a_target_in_half_its_unit_is_a_shift():
    """All predictions are too high, by more where they are high: no matter of a column."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 100, (150, 3))
    verdict = verdict_of(predictions(-0.4 - X[:, 0] / 60 + 0.5 * rng.normal(size=150), X=X))
    assert verdict.says.startswith("predictions are too high as a whole"), verdict
    assert verdict.state == "fault"


def test_no_dot_leaves_its_band_where_the_whole_passes():
    rng = np.random.default_rng(0)
    levels, asked = np.arange(1, 20) / 20, np.array([0.5, 0.8, 0.95])
    off = passed = 0
    for k in range(60):
        pit = rng.random(200) ** (1 + k % 2 * 0.6)
        points = Points(pit, np.abs(pit - 0.5)[:, None] > asked / 2, asked)
        reach = reliability_reach(points, 200, 1 / 60)
        gap = (pit[:, None] <= levels).mean(0) - levels
        far = bool((np.abs(gap) > reach * np.sqrt(levels * (1 - levels))).any())
        passes = whole_p_value(points, 200) > 1 / 60
        off, passed = off + far, passed + passes
        assert not (far and passes)
    assert off > 3
    assert passed > 20


def test_categories_give_the_target_away_whatever_their_rare_levels():
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    grade = np.array([f"grade {k}" for k in np.floor(6 * y)])
    assert share_of_levels(grade, y) > 0.99
    assert share_of_levels(np.where(np.abs(y) > 1.5, "other", grade), y) > 0.98
    assert share_of_levels(rng.permutation(grade), y) < 0.1


def test_advice_has_not_been_followed_already():
    assert "Online" in moved_advice(later=True)
    assert "unit" in moved_advice(later=False)
    found = predictions(np.random.default_rng(0).normal(size=100), method="cv")
    page = render_report(found)
    assert "add a column that tells where the noise is large" in page
    assert '"cv\\" or' not in page
    assert re.search(r"\de[+]\d", page) is None
