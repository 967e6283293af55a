"""Faults that were put into data, and the sentence of the report that must name each."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from diagnosed import predictions
from sharpgp import SharpGPRegressor
from sharpgp.diagnostics import diagnose
from sharpgp.report import render_report, words
from sharpgp.report.faults import faults
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


def copies_of_training_rows(rng):
    return predictions(rng.normal(size=N), n_seen=40)


def copies_in_the_test_data(rng):
    y, X = rng.normal(size=N), rng.normal(size=(N, 3))
    y[300:], X[300:] = y[:200], X[:200]
    return predictions(y, X=X)


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
    (drift, "fault", r"Not calibrated: predictions drift along the rows: .* of the last fifth"),
    (
        one_bad_feature,
        "look",
        r"Calibrated on average, not everywhere: dose_mg [78]\d(\.\d+)? to (99|100)(\.\d+)?: "
        r"\d+ % intervals cover",
    ),
    (
        one_very_bad_feature,
        "fault",
        r"Not calibrated: dose_mg [78]\d(\.\d+)? to (99|100)(\.\d+)?: \d+ % intervals cover "
        r"\d\S* % of 100 points, and elsewhere predictions are calibrated",
    ),
    (
        heavy_tails,
        "fault",
        r"Not calibrated: large errors are more frequent than predicted: \d\S* % of the points "
        r"lie where 1 % should",
    ),
    (
        copies_of_training_rows,
        "fault",
        r"Cannot be judged: 40 of 500 test rows are among the rows that trained or calibrated",
    ),
    (
        copies_in_the_test_data,
        "fault",
        r"Cannot be judged: 200 of 500 test rows are copies of other test rows",
    ),
    (groups, "fault", r"Not calibrated: errors within a group are alike: [5-8]\d"),
    (
        gaps_that_are_not_covered,
        "fault",
        r"Not calibrated: rows without pH: \d+ % intervals cover \d\S* % of 50 points, and "
        r"elsewhere predictions are calibrated",
    ),
    (
        two_columns_together,
        "look",
        r"Calibrated on average, not everywhere: the columns together tell who is missed: given "
        r"them, coverage of 95 % intervals is off by [2-5]\S* % on average",
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
    verdict = words.verdict(found, faults(found, numbers_of(found)))
    assert re.match(sentence, f"{verdict.heading} {verdict.says}"), verdict
    assert verdict.state == state


def test_no_figure_blames_a_feature_where_all_groups_fail_alike(rng):
    found = shift(rng)
    numbers = numbers_of(found)
    assert [fault.kind for fault in faults(found, numbers)] == ["shift"]
    part = numbers["intervals"][5]
    for j, name in enumerate(numbers["features"]):
        finding = words.by_feature(found, part, j, numbers["features"])
        assert "off in all groups alike" in finding.advice, name
        assert not finding.well
    assert "too narrow" not in words.pit(found, numbers, faults(found, numbers)).advice


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
    # About nine in ten; three standard errors below that.
    assert clean / draws >= 0.9 - 3 * np.sqrt(0.9 * 0.1 / draws)


def test_rows_sorted_by_the_target_are_no_drift(rng):
    X = rng.uniform(-2, 2, (N, 1))
    y = rng.normal(size=N)
    order = np.argsort(y)
    found = predictions(y[order], X=X[order], d=1)
    kinds = [fault.kind for fault in faults(found, numbers_of(found))]
    assert "drift" not in kinds


@pytest.mark.parametrize(("seen", "leaked"), [(3, False), (40, True)])
def test_rows_that_are_equal_by_chance_are_no_copies(seen, leaked):
    """Of 60 test rows one repeats another, so that a few are among 80 others, too, but not 40."""
    y = np.random.default_rng(2).normal(size=60)
    X = np.random.default_rng(3).normal(size=(60, 3))
    X[1], y[1] = X[0], y[0]
    found = replace(predictions(y, X=X), n_seen=seen, n_train=80)
    assert found.n_copies == 1
    kinds = [fault.kind for fault in faults(found, numbers_of(found))]
    assert ("copies" in kinds) == leaked


def test_copies_of_training_rows_are_found_in_a_real_model(rng):
    X = rng.uniform(-2, 2, (160, 2))
    y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=160)
    model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0).fit(X[:100], y[:100])
    assert diagnose(model, X[100:], y[100:]).n_seen == 0
    assert diagnose(model, X[60:], y[60:]).n_seen == 40
