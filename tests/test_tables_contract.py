"""What users bring, for every method: it works, or one line says what to do instead.

Tables with categories and gaps, known noise, several outputs, bounds, groups, weights and their
combinations, with the tiny settings of ``helpers.SETTINGS``.  One combination of each method runs
with the quick tests.
"""

import numpy as np
import pandas as pd
import pytest

from helpers import method, wavy
from sharpgp import Exact, SharpGPRegressor
from sharpgp.calibration import known_methods
from sharpgp.exceptions import InvalidInputError, MissingExtraError

N = 60
X, Y = (np.asarray(part) for part in wavy(N))
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"x": X[:, 0], "kind": RNG.choice(["a", "b"], N)})
FRAME.loc[RNG.random(N) < 0.2, "kind"] = None
GROUPS = np.arange(N) // 4
COUNTS = np.maximum(Y, 0.0)
BOTH = np.column_stack([Y, np.where(np.arange(N) < 7, np.nan, COUNTS)])

#: Features, target, what fit is given, and what the estimator is.
CASES = {
    "frame": (FRAME, Y, {}, {}),
    "gaps": (np.where(RNG.random(X.shape) < 0.2, np.nan, X), Y, {}, {}),
    "targets missing": (X, np.where(np.arange(N) < 4, np.nan, Y), {}, {}),
    "noise": (FRAME, Y, {"noise": np.full(N, 0.01)}, {}),
    "replicates": (np.repeat(X[::2], 2, axis=0), Y, {"noise": "replicates"}, {}),
    "outputs": (FRAME, BOTH, {}, {"y_bounds": [None, (0, None)]}),
    "outputs, noise": (X, BOTH, {"noise": 0.01}, {}),
    "outputs, groups": (X, BOTH, {"groups": GROUPS}, {}),
    "bounds": (FRAME, COUNTS, {}, {"y_bounds": (0, None)}),
    "bounds, noise": (X, COUNTS, {"noise": 0.01}, {"y_bounds": (0, None)}),
    "bounds, groups": (FRAME, COUNTS, {"groups": GROUPS}, {"y_bounds": (0, None)}),
    "groups, noise": (X, Y, {"groups": GROUPS, "noise": 0.01}, {}),
    "weights": (FRAME, COUNTS, {"sample_weight_cal": np.ones(N)}, {"y_bounds": (0, None)}),
}
#: What some methods cannot do, and what their error says to do.
REFUSED = {
    "groups": {"loo": "use calibration='cv'"},
    "noise": dict.fromkeys(("fully_bayesian", "capone22"), "choose another calibration"),
    "replicates": dict.fromkeys(("fully_bayesian", "capone22"), "choose another calibration"),
    "weights": dict.fromkeys(
        ("cv+", "kuleshov22", "paper", "vanilla", "fully_bayesian", "capone22"),
        "use calibration='exact'",
    )
    | {"vovk20": "expected a method that ranks scores"},
}
#: What runs with the quick tests: everything at once, or what is not refused.
QUICK = {"kuleshov18": "bounds, groups", "exact": "outputs", "vanilla": "outputs, noise"}
SLOW = [pytest.mark.slow]


def combinations():
    for name in known_methods():
        for case in CASES:
            quick = QUICK.get(name) == case
            yield pytest.param(name, case, id=f"{name}: {case}", marks=[] if quick else SLOW)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "case"), list(combinations()))
def test_works_or_says_what_to_do(name, case, tmp_path):
    table, y, given, settings = CASES[case]
    model = SharpGPRegressor(base="rbf", calibration=method(name), random_state=0, **settings)
    refused = [said[name] for what, said in REFUSED.items() if what in case and name in said]
    try:
        if refused:
            with pytest.raises(InvalidInputError, match=refused[0]) as error:
                model.fit(table, y, **given)
            assert "\n" not in str(error.value)
            return
        model.fit(table, y, **given)
    except MissingExtraError as error:
        pytest.skip(str(error))
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    ends = model.predict_interval(table, [0.5, 0.9])
    np.testing.assert_array_equal(again.predict_interval(table, [0.5, 0.9]), ends)
    quantiles = model.predict_quantiles(table, [0.1, 0.5, 0.9])
    for answer in (ends, quantiles, model.predict(table)):
        assert np.isfinite(answer).all()
    assert (ends[:, 0] <= ends[:, 1]).all()
    if "y_bounds" in settings:
        counts = (ends[..., 1], quantiles[..., 1]) if y.ndim == 2 else (ends, quantiles)
        assert all((answer >= 0.0).all() for answer in counts)
    if y.ndim == 2:
        box = model.predict_region(table, 0.5)
        assert (box[:, 0] <= box[:, 1]).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case == "frame" else SLOW) for case in CASES]
)
def test_coverage_by_class_works_or_says_what_to_do(case):
    table, y, given, settings = CASES[case]
    by = 0 if not isinstance(table, pd.DataFrame) else "kind"
    if by == 0:
        table = np.hstack([np.round(table[:, :1] > 0), table])
    model = SharpGPRegressor(base="rbf", calibration=Exact(by=by), random_state=0, **settings)
    if "groups" in given or "sample_weight_cal" in given:
        with pytest.raises(InvalidInputError, match=r"^by: expected .*, found") as error:
            model.fit(table, y, **given)
        assert "\n" not in str(error.value)
        return
    ends = model.fit(table, y, **given).predict_interval(table, 0.5)
    assert np.isfinite(ends).all()
