"""Data frames in the estimator: what columns become, gaps, new categories, files."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from matplotlib.dates import AutoDateFormatter
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.metrics import r2_score

from helpers import marked
from sharpgp import CalibrationWarning, Online, SharpGPRegressor, plots
from sharpgp.calibration import known_methods
from sharpgp.calibration.recalibrator import make_recalibrator
from sharpgp.data import Column, TableEncoding
from sharpgp.data.column import MAX_CATEGORIES
from sharpgp.data.reading import values_of
from sharpgp.diagnostics import diagnose
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.kernels.by_name import NamedKernel, make_covariance, named
from sharpgp.gp.kernels.covariance import STATIONARY
from sharpgp.gp.training import train
from sharpgp.relevance import relevance
from sharpgp.report.numbers import numbers_of

KINDS = ["a", "b", "c", "d", "e"]

pytestmark = pytest.mark.usefixtures("one_start")


def table(n=120, seed=0, gaps=0.0):
    """A frame with every kind of column, and a target that depends on most of them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.normal(5e4, 1e4, n),
            "kind": rng.choice(KINDS, n),
            "on": rng.random(n) > 0.5,
            "size": pd.Categorical(
                rng.choice(["S", "M", "L"], n), categories=["S", "M", "L"], ordered=True
            ),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 800, n), "D"),
        }
    )
    effect = np.array([KINDS.index(kind) % 3 for kind in frame["kind"]])
    y = np.sin(frame["x"] / 1e4) + effect + 0.3 * frame["size"].cat.codes + rng.normal(0, 0.1, n)
    for name in ("x", "kind"):
        frame.loc[rng.random(n) < gaps, name] = None
    return frame, y.to_numpy().copy()


def quick(**settings):
    return SharpGPRegressor(**{"base": "rbf", "calibration": "exact", "random_state": 0} | settings)


# ------------------------------------------------------------------ what columns become


def test_every_kind_of_column():
    frame, _ = table()
    encoding = TableEncoding.learn(frame)
    assert [column.kind for column in encoding.columns] == [
        *("number", "category", "boolean", "ordered", "date")
    ]
    assert encoding.columns[-1].seasons == ("week", "year")
    # One lengthscale for each column, one for each season, and one for the commonest category.
    apart = f"kind={encoding.columns[1].commonest}"
    assert encoding.columns[1].commonest == frame["kind"].mode()[0]
    first, *others = [name for name in encoding.lengthscales if name != apart]
    assert [first, *others] == [*frame.columns, "day (week)", "day (year)"]
    assert [n for n in encoding.ties if n == encoding.lengthscales.index(apart)] == [2]
    X = encoding.encode(frame).features
    np.testing.assert_array_equal(X[:, 0], frame["x"])
    np.testing.assert_array_equal(X[:, 1:6].argmax(1), [KINDS.index(k) for k in frame["kind"]])
    np.testing.assert_array_equal(X[:, 7], frame["size"].cat.codes)
    days = (frame["day"] - pd.Timestamp("1970-01-01")).dt.total_seconds() / 86400
    np.testing.assert_allclose(X[:, 8], days)
    np.testing.assert_allclose(np.hypot(X[:, 9], X[:, 10]), 1.0)


@pytest.mark.parametrize(
    ("values", "holds", "missing"),
    [
        (pd.array([1, None, 3], dtype="Int64"), "number", [1]),
        (pd.array([True, None, False], dtype="boolean"), "boolean", [1]),
        (pd.array(["a", None, "b"], dtype="string"), "text", [1]),
        ([1, None, 2.5], "number", [1]),
        ([True, None, False], "boolean", [1]),
        (["a", np.nan, "b"], "text", [1]),
        ([datetime.date(2020, 1, 1), None, datetime.date(2020, 1, 3)], "date", [1]),
        (pd.to_datetime(["2020-01-01", None, "2020-01-03"]).tz_localize("CET"), "date", [1]),
        (pd.to_timedelta([1, None, 3], "D"), "number", [1]),
        ([None, None, None], "text", [0, 1, 2]),
    ],
)
def test_values_and_gaps_of_pandas_columns(values, holds, missing):
    found = values_of(pd.DataFrame({"v": values}), "v")
    assert found.holds == holds
    assert np.flatnonzero(found.missing).tolist() == missing


def test_arrow_tables_give_the_same_features():
    frame, _ = table(gaps=0.1)
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    ours, theirs = TableEncoding.learn(frame), TableEncoding.learn(arrow)
    assert ours == theirs
    np.testing.assert_array_equal(ours.encode(frame).features, theirs.encode(arrow).features)
    batch = arrow.to_batches()[0]
    np.testing.assert_array_equal(ours.encode(batch).features, ours.encode(frame).features)


def test_polars_frames_give_the_same_features():
    pl = pytest.importorskip("polars")
    frame, y = table(gaps=0.1)
    other = pl.DataFrame(
        {
            **{name: frame[name].to_numpy() for name in ("x", "on", "day")},
            "kind": [None if pd.isna(kind) else kind for kind in frame["kind"]],
            "size": pl.Series(frame["size"].astype(str).tolist(), dtype=pl.Enum(["S", "M", "L"])),
        }
    )[frame.columns.tolist()]
    ours, theirs = TableEncoding.learn(frame), TableEncoding.learn(other)
    assert ours == theirs
    np.testing.assert_array_equal(ours.encode(frame).features, theirs.encode(other).features)
    model = quick(calibration="kuleshov18").fit(other, y)
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    assert model.predict(other[:3]).shape == (3,)


def test_lazy_frames_are_collected():
    pl = pytest.importorskip("polars")
    lazy = pl.LazyFrame({"x": np.linspace(0, 6, 40), "kind": ["a", "b"] * 20})
    eager = lazy.collect()
    model = quick(calibration="vanilla").fit(lazy, np.sin(eager["x"].to_numpy()))
    np.testing.assert_array_equal(model.predict(lazy), model.predict(eager))
    assert model.set_output(predict="input").predict(lazy).columns == ["mean"]


@pytest.mark.parametrize("kind", ["pandas", "arrow", "polars"])
def test_answers_come_in_the_kind_of_the_rows_where_asked(kind):
    frame, y = table()
    if kind == "polars":
        pl = pytest.importorskip("polars")
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    X = {"pandas": lambda: frame, "arrow": lambda: arrow, "polars": lambda: pl.from_arrow(arrow)}
    rows = X[kind]()
    model = quick(calibration="kuleshov18").fit(rows, y)
    arrays = model.predict(rows), model.predict_interval(rows, [0.5, 0.9])
    assert isinstance(arrays[0], np.ndarray)
    model.set_output(predict="input")
    found = model.predict_interval(rows, [0.5, 0.9])
    names = getattr(found, "column_names", None) or list(found.columns)
    assert names == ["lower_50", "upper_50", "lower_90", "upper_90"]
    np.testing.assert_array_equal(np.asarray(found["upper_90"]), arrays[1][:, 1, 1])
    assert type(found) is type(model.predict(rows)) is type(rows)
    np.testing.assert_array_equal(np.asarray(model.predict(rows)["mean"]), arrays[0])
    assert model.score(rows, y) == pytest.approx(r2_score(y, arrays[0]))
    assert model.predict_region(rows, [0.5, 0.9]).shape == (len(y), 2, 2, 1)
    assert clone(model).fit(rows, y).predict_quantiles(rows, 0.25).shape == (len(y), 1)
    again = model.set_output(predict="default").predict(rows)
    np.testing.assert_array_equal(again, arrays[0])


def test_a_pandas_frame_keeps_its_index_and_several_outputs_their_numbers():
    frame, y = table()
    frame = frame.set_index(np.arange(len(y)) + 100)
    model = quick(calibration="kuleshov18").fit(frame, np.column_stack([y, -y]))
    found = model.set_output(predict="input").predict_interval(frame[:3])
    assert list(found) == ["lower_95_0", "lower_95_1", "upper_95_0", "upper_95_1"]
    assert found.index.tolist() == [100, 101, 102]
    with pytest.raises(InvalidInputError, match="predict: expected"):
        model.set_output(predict="pandas")


def test_categories_are_equally_far_from_one_another_and_from_others():
    column = Column("kind", "category", ("a", "b", "c"))
    with pytest.warns(CalibrationWarning, match=r"'z' in 1 of 4 rows, but in no training row"):
        X = column.encode(values_of(pd.DataFrame({"kind": ["a", "b", "c", "z"]}), "kind"), 0)
    apart = np.linalg.norm(X[:, None] - X, axis=-1)[np.triu_indices(4, 1)]
    np.testing.assert_allclose(apart, np.sqrt(2.0))


def test_columns_without_information_are_named_and_left_out():
    frame, y = table()
    frame["one"], frame["none"], frame["name"] = 1.0, None, [f"n{i}" for i in range(len(frame))]
    frame["row"] = np.arange(len(frame))
    with pytest.warns(UserWarning, match="have the same value") as caught:
        model = quick(calibration="kuleshov18").fit(frame, y)
    messages = " ".join(str(one.message) for one in caught)
    assert "column(s) 'one', 'none' have the same value in every row" in messages
    assert "column(s) 'name' have another text in most rows, such as" in messages
    assert "column(s) 'row' look like identifiers: whole numbers that count the rows" in messages
    assert model.encoding_.unused == ("one", "none", "name")
    assert model.n_features_in_ == len(frame.columns)


@pytest.mark.parametrize("form", ["n{}", "Q{}.5-x", "{}-{}", "00{}"])
def test_names_of_rows_are_no_numbers(form):
    frame = pd.DataFrame({"name": [form.format(v, v) for v in range(60)], "z": np.arange(60) ** 2})
    with pytest.warns(UserWarning, match="have another text in most rows, such as .* a number"):
        assert TableEncoding.learn(frame).unused == ("name",)


def test_categories_that_are_spelled_in_two_ways_are_named():
    frame = pd.DataFrame({"kind": ["Pd/C", "pt", "Pd/C ", "Pt"] * 9, "z": np.arange(36.0) ** 2})
    with pytest.warns(UserWarning, match=r"column 'kind': 'Pd/C' and 'Pd/C ' count as two"):
        TableEncoding.learn(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableEncoding.learn(frame.astype({"kind": "category"}))  # who says so means it


def test_groups_along_a_date_are_named_by_dates():
    frame, y = table()
    model, test = quick().fit(frame[:80], y[:80]), (frame[80:], y[80:])
    numbers = numbers_of(diagnose(model, *test))
    bins = numbers["intervals"][0]["by_feature"][numbers["features"].index("day")]
    last = frame["day"][80:].max()
    assert bins[-1]["ends"][1] == str(last.date())
    assert bins[-1]["says"].endswith(f" to {last.date()}")
    ax = model.plot(*test, "coverage", ax=Figure().subplots(), feature="day")
    assert ax.get_xticklabels()[-1].get_text() == f"≤ {last.date()}"
    ax = model.plot(*test, "intervals", ax=Figure().subplots(), feature="day")
    assert isinstance(ax.xaxis.get_major_formatter(), AutoDateFormatter)


@pytest.mark.parametrize(("order", "named"), [(0, True), (1, True), (2, False)])
def test_identifiers_are_noticed_where_rows_are_missing_or_shuffled(order, named):
    rng = np.random.default_rng(0)
    kept = rng.permutation(90)[:60]
    numbers = [np.sort(kept), kept, rng.integers(0, 90, 60)][order]
    frame = pd.DataFrame({"x": rng.normal(size=60), "number": 1000 + numbers})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        TableEncoding.learn(frame)
    assert any("'number' look like identifiers" in str(one.message) for one in caught) == named


def test_rare_categories_are_others():
    names = [f"c{i}" for i in range(900)]
    frame = pd.DataFrame({"k": pd.Categorical(names[:450] * 2 + names)})
    encoding = TableEncoding.learn(frame)
    assert len(encoding.features) == MAX_CATEGORIES
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X = encoding.encode(frame).features
    assert (encoding.columns[0].other == X).all(1).any()


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"x": ["1", "2", "3", "?"]}), r"column 'x': expected numbers, found '\?'"),
        (pd.DataFrame({"x": [1.0, np.inf, 2.0, 3.0]}), "column 'x': expected finite numbers"),
        (pd.DataFrame({"x": [[1], [2], [3], [4]]}), "column 'x': expected numbers, categories"),
        (
            pd.DataFrame({"x": [1.0] * 4}),
            "expected a column that varies and can be learned from",
        ),
        (pd.DataFrame([[1.0, 2.0]] * 4, columns=["x", "x"]), "found 'x' twice"),
    ],
)
def test_unusable_frames(frame, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        quick(calibration="vanilla").fit(frame, [1.0, 2.0, 3.0, 4.0])
    assert "\n" not in str(caught.value)


def test_gaps_that_training_rows_do_not_have_are_told_in_one_warning():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 7)), columns=list("abcdefg"))
    model = quick(calibration="vanilla").fit(frame, rng.normal(size=40))
    asked = frame.copy()
    asked.iloc[0, :6], asked.iloc[1, 0] = np.nan, np.nan
    told = "'d', 'e' and 1 more: values are missing in 2 of 40 rows, though in none of the training"
    with pytest.warns(UserWarning, match=told) as caught:
        model.predict(asked)
    assert len(caught) == 1


# ------------------------------------------------------------------ tied lengthscales


@pytest.mark.parametrize("name", STATIONARY)
def test_a_tied_kernel_is_the_kernel_with_equal_lengthscales(name):
    ties = (0, 1, 1, 2, 1)
    ours, free = make_covariance(NamedKernel(name, ties), 5), make_covariance(name, 5)
    assert ours.n_inverse == 3
    assert free.n_theta - ours.n_theta == 2
    generator = torch.Generator().manual_seed(0)
    theta = torch.rand(2, ours.n_theta, generator=generator, dtype=torch.float64) + 0.5
    theta.requires_grad_()
    full = torch.cat([theta[:, list(ties)], theta[:, 3:]], 1)
    X = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    for K, oracle in (
        (ours.matrix(theta, X), free.matrix(full, X)),
        (ours.matrix(theta, X, X[:3]), free.matrix(full, X, X[:3])),
        (ours.diag(theta, X), free.diag(full, X)),
    ):
        torch.testing.assert_close(K, oracle, rtol=0, atol=0)
        weights = torch.randn(K.shape, generator=generator, dtype=torch.float64)
        gradients = [
            torch.autograd.grad((M * weights).sum(), theta, retain_graph=True)[0]
            for M in (K, oracle)
        ]
        torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_a_column_of_many_categories_costs_two_hyperparameters():
    frame, y = table()
    gp = quick(calibration="vanilla").fit(frame[["x", "kind"]], y).posterior_
    assert gp.names == (
        *(f"inverse_lengthscale_{k}" for k in range(3)),
        *("signal_variance", "noise_variance"),
    )
    # All but the commonest stay equally far from one another in the units of the kernel.
    assert len(gp.x_units.scale[1:].unique()) == 2


def test_untied_features_are_trained_as_before():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    y = X[:, 0].sin() + 0.1 * X[:, 1]
    assert named("rbf", (0, 1)) == "rbf"
    one, other = train(X, y, "rbf")[0], train(X, y, named("rbf", (0, 1)))[0]
    assert torch.equal(one.theta_R, other.theta_R)


# ------------------------------------------------------------------ fits


@pytest.mark.parametrize(
    "calibration",
    marked(
        [name for name in known_methods() if name != "fully_bayesian"],
        slow={"cv", "cv+", "kuleshov22", "loo", "paper"},
    ),
)
def test_every_method_takes_a_frame_with_gaps(calibration, tmp_path):
    frame, y = table(60, gaps=0.1)
    if calibration == "capone22":
        calibration = make_recalibrator("capone22", hyperposterior="laplace")
    model = quick(calibration=calibration).fit(frame, y)
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        interval = model.predict_interval(frame[:9], 0.8)
        assert np.isfinite(interval).all()
        np.testing.assert_array_equal(again.predict_interval(frame[:9], 0.8), interval)
    assert again.encoding_ == model.encoding_


def test_pools_take_frames():
    frame, y = table(40, gaps=0.1)
    model = quick(base=["matern32", "extra_trees"], calibration="loo").fit(frame, y)
    assert model.predict(frame[:5]).shape == (5,)


def test_categories_are_learned():
    frame, y = table(200)
    test, y_test = table(200, seed=1)
    model = quick().fit(frame, y)
    assert model.score(test, y_test) > 0.9
    covered = model.predict_interval(test, 0.9)
    inside = (covered[:, 0] <= y_test) & (y_test <= covered[:, 1])
    # 49 calibration points: the coverage is within four deviations of a beta distribution's.
    assert abs(inside.mean() - 0.9) < 4 * np.sqrt(0.09 / 49 + 0.09 / 200)


def test_relevance_is_that_of_columns():
    frame, y = table(60)
    model = quick(calibration="kuleshov18").fit(frame, y)
    values = relevance(model, frame)
    names = model.encoding_.names
    assert values.shape == (len(names),)
    mean, order = model.predict(frame), np.random.default_rng(0).permutation(len(frame))
    for j, name in enumerate(names):
        shuffled = frame.copy()
        shuffled[name] = frame[name].take(np.roll(order, 1 + j)[np.argsort(order)]).values
        moved = np.sqrt(np.mean((model.predict(shuffled) - mean) ** 2) / (2 * mean.var()))
        assert values[j] == pytest.approx(moved, rel=1e-6, abs=1e-9)
    found = diagnose(model, frame, y, coverages=[0.9])
    assert list(found.relevant) == [names[j] for j in np.argsort(-values, kind="stable")]
    assert [one["name"] for one in numbers_of(found)["learned"]["relevance"]] == [*found.relevant]
    ax = plots.models.relevance(Figure().subplots(), found)
    assert [text.get_text() for text in ax.get_yticklabels()] == [*found.relevant][::-1]
    ax = plots.models.intervals(Figure().subplots(), found)
    assert ax.get_xlabel() == next(iter(found.relevant))


def test_arrays_of_the_same_columns_are_taken_by_position():
    frame, y = table()
    numbers = frame[["x", "on"]]
    model = quick(calibration="kuleshov18").fit(numbers, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        by_position = model.predict(numbers.to_numpy(dtype=float))
    np.testing.assert_array_equal(by_position, model.predict(numbers))


def test_gaps_in_arrays():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=160)
    X[::9, 0] = np.nan
    with pytest.warns(
        UserWarning, match=r"X: 18 of 320 values are missing; each is replaced by the median"
    ):
        model = quick().fit(X, y)
    assert model.encoding_.features == ["x0", "x0 missing", "x1"]
    width = np.diff(model.predict_interval(X, 0.8))[:, 0]
    assert width[::9].mean() > 2 * np.delete(width, np.s_[::9]).mean()
    # A fit without gaps is one without an encoding, as ever.
    assert not hasattr(model.fit(np.nan_to_num(X), y), "encoding_")


def test_rows_without_a_target_are_left_out():
    frame, y = table(60)
    y[[3, 7]] = np.nan
    with pytest.warns(UserWarning, match=r"y: 2 of 60 targets are missing; row\(s\) 3, 7 are left"):
        model = quick(calibration="vanilla").fit(frame, y, groups=np.arange(60))
    assert model.posterior_.n_train == 58
    whole = quick(calibration="vanilla").fit(frame.drop(index=[3, 7]), np.delete(y, [3, 7]))
    np.testing.assert_array_equal(model.predict(frame), whole.predict(frame))


def test_streams_and_updates_take_frames():
    frame, y = table(60)
    model = quick(calibration="kuleshov18").fit(frame[:50], y[:50])
    assert Online(model, 0.8, window=None).track(frame[50:], y[50:]).shape == (10, 2)
    n_cal = model.calibrated_.n_cal
    assert model.update(frame[50:], y[50:]).calibrated_.n_cal == n_cal + 10
    assert model.update(*table(5, seed=1), refit=True).encoding_ is not None


def test_coverage_by_what_is_missing():
    frame, y = table(150, gaps=0.2)
    model = quick(calibration="kuleshov18").fit(frame, y)
    test, y_test = table(150, seed=1, gaps=0.2)
    found = diagnose(model, test, y_test, coverages=[0.8])
    grouping = next(one for one in found.groupings if one.kind == "gaps")
    ends = [one[0] for one in grouping.ends]
    assert {"complete", "x", "kind"} <= set(ends) <= {"complete", "x", "kind", "others", "x, kind"}
    assert (grouping.part >= 0).all()
    only_x = (test["x"].isna() & test["kind"].notna()).to_numpy()
    np.testing.assert_array_equal(grouping.inside(ends.index("x")), only_x)
    inside = (found.lower[:, 0] <= y_test) & (y_test <= found.upper[:, 0])
    np.testing.assert_array_equal(found.covered[:, 0], inside)
    assert found.feature_names == tuple(model.encoding_.features)


def test_a_date_far_from_training_is_told_as_a_date():
    X = pd.DataFrame({"date": pd.date_range("2012-01-01", periods=40)})
    model = quick().fit(X, np.sin(np.arange(40.0)))
    late = pd.DataFrame({"date": [pd.Timestamp("2015-10-31")]})
    with pytest.warns(CalibrationWarning, match="'date' is 2015-10-31, in training 2012-01-01 to"):
        model.predict_interval(late)


def test_words_are_left_to_a_vectoriser():
    rng = np.random.default_rng(0)
    words = rng.permuted(np.tile(["old", "quiet", "bright", "view", "garden"], (60, 1)), axis=1)
    frame = pd.DataFrame({"note": [" ".join(row) for row in words], "z": np.arange(60) ** 2})
    with pytest.warns(UserWarning, match="left out; for their words, put a vectoriser before the"):
        assert TableEncoding.learn(frame).unused == ("note",)
