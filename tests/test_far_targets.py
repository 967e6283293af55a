"""One target that is an error: named, and without a say in the location; honest tails are left."""

import warnings

import numpy as np
import pytest

from sharpgp import SharpGPRegressor
from sharpgp.data.suspicions import plausible_range
from sharpgp.tabular import fit_file

pytestmark = [
    pytest.mark.usefixtures("one_start"),
    pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning"),
]


def data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, 1))
    return X, np.sin(X[:, 0]) + 0.2 * rng.normal(size=n)


def with_error(y, row=7, factor=1000.0):
    return np.where(np.arange(len(y)) == row, factor * y, y)


@pytest.mark.parametrize("calibration", ["exact", "loo", "kuleshov18"])
def test_one_wrong_target_is_named_and_does_not_rule(calibration):
    X, y = data()
    new, target = data(400, seed=1)
    model = SharpGPRegressor(base="rbf", calibration=calibration, random_state=0)
    clean = model.fit(X, y).score(new, target)
    for row in (7, 11, 30, 55):  # some of them calibrate
        assert abs(y[row]) > 0.1
        with pytest.warns(UserWarning, match=rf"^y: row {row} is .* standard deviations from the"):
            model.fit(X, with_error(y, row))
        assert model.score(new, target) > clean - 0.02 > 0.8
        ends = model.predict_interval(new, 0.8)
        inside = (ends[:, 0] <= target) & (target <= ends[:, 1])
        assert inside.mean() > 0.8 - 4 * np.sqrt(0.16 / 30)
        assert np.diff(ends).mean() < 2.0


def test_rows_that_calibrate_keep_their_targets():
    X, y = data()
    bad = with_error(y, 100)
    model = SharpGPRegressor(base="rbf", calibration="kuleshov18")
    with pytest.warns(UserWarning, match="y: row 7 is"):
        model.fit(X[:80], with_error(y[:80]), X[80:], bad[80:])
    assert float(model.calibrated_.y_cal.abs().max()) == np.abs(bad).max()
    assert float(model.calibrated_.model.y_train.abs().max()) < 2.0


@pytest.mark.parametrize("n", [60, 150, 1000])
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.standard_t(2.2, n),
        lambda rng, n: rng.lognormal(0.0, 2.0, n),
        lambda rng, n: -rng.exponential(size=n),
        lambda rng, n: rng.poisson(0.1, n).astype(float),
        lambda rng, n: (rng.random(n) < 0.1) * rng.lognormal(0.0, 2.0, n),
        lambda rng, n: rng.choice(
            [3.0, 4, 5, 6, 7, 8, 9], n, p=[0.01, 0.03, 0.33, 0.42, 0.18, 0.02, 0.01]
        ),
    ],
    ids=["t(2.2)", "lognormal(2)", "exponential", "rare counts", "zeros and a tail", "grades"],
)
def test_honest_tails_are_not_mistaken(draw, n):
    rng = np.random.default_rng(0)
    far = sum(np.isfinite(plausible_range(draw(rng, n))[0]) for _ in range(300))
    assert far == 0


def test_the_rule_by_hand():
    """The probability that a Pareto tail reaches so far, given the targets that follow."""
    m = np.exp(np.linspace(0, 2, 100))[::-1]  # distances from a median of 0
    y = m * np.where(np.arange(100) % 2, 1.0, -1.0)
    y = np.append(y, [0.0] * 101)  # the median
    i = np.arange(2, 22)
    inside = np.sort(np.append(m[1:], 0.0))[::-1]
    total = (i * np.log(inside[i - 2] / inside[i - 1])).sum()
    edge = inside[0] * np.exp(total * (1e-4 ** (-1 / 20) - 1))
    assert edge > 10 * inside[0]
    for factor, far in ((0.99, False), (1.01, True)):
        y[0] = -factor * edge
        low, high = plausible_range(y)
        assert np.isfinite(low) == far
        if far:
            assert (low, high) == pytest.approx((-inside[0], inside[0]))


@pytest.mark.parametrize("y", [np.zeros(40), np.arange(3.0), np.array([1e308, -1e308] * 20)])
def test_targets_without_a_tail(y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plausible_range(y) == (-np.inf, np.inf)


def test_several_outputs_and_rows_of_files(tmp_path):
    X, y = data()
    Y = np.column_stack([y, with_error(y)])
    Y[3, 1] = np.nan
    with pytest.warns(UserWarning, match="y: row 7") as seen:
        SharpGPRegressor(base="rbf", calibration="vanilla").fit(X, Y)
    named = [str(one.message)[:22] for one in seen if "y: row" in str(one.message)]
    assert named == ["y: row 7 (output 1) is"]
    # In a file rows are counted from 1, those without a target, too.
    lines = [f"{x},{value}" for x, value in zip(X[:, 0], with_error(y), strict=True)]
    lines[2] = f"{X[2, 0]},"
    (tmp_path / "data.csv").write_text("\n".join(["x,y", *lines]))
    with pytest.warns(UserWarning, match="y: row 8 is"):
        fit_file(tmp_path / "data.csv", "y", SharpGPRegressor(base="rbf", calibration="vanilla"))
