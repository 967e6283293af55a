import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from scipy.stats import norm
from sklearn.pipeline import make_pipeline

from helpers import marked
from sharpgp import Sharp, SharpGPRegressor, plots
from sharpgp.diagnostics import diagnose
from sharpgp.exceptions import InvalidInputError
from sharpgp.plots.style import ORANGE
from sharpgp.report.numbers import numbers_of
from sharpgp.toy import make_toy, split


class ConstantBand:
    """A model with known answers: mean 0 and the interval [-half, half]."""

    def __init__(self, half):
        self.half = half

    def predict_mean(self, X):
        return np.zeros(len(X))

    def predict_interval(self, X, coverage, *, symmetric):
        assert symmetric is False
        return np.tile([-self.half, self.half], (len(X), 1))


@pytest.fixture(scope="module")
def toy():
    return make_toy(random_state=0)


def test_title_states_coverage_and_width_on_the_test_part(toy):
    ax = plots.plot_intervals_1d(Figure().subplots(), ConstantBand(0.5), toy, title="band")
    covered = np.mean(np.abs(toy.y_test) <= 0.5)
    assert ax.get_title(loc="left") == "band"
    assert ax.get_title(loc="right") == f"covers {100 * covered:.1f} %, width 1.00"


def test_every_kind_of_data_is_drawn_and_named(toy):
    ax = plots.plot_intervals_1d(Figure().subplots(), ConstantBand(1.0), toy, coverage=0.995)
    labels = ax.get_legend_handles_labels()[1]
    assert labels == ["99.5 % interval", "calibration", "mean", "training"]
    sizes = {len(c.get_offsets()) for c in ax.collections if c.get_label() != labels[0]}
    assert sizes == {len(toy.y_cal), len(toy.y_train)}


def test_more_than_one_feature_is_refused():
    data = split(np.zeros((20, 2)), np.arange(20.0))
    with pytest.raises(InvalidInputError, match="one feature to plot against, found 2"):
        plots.plot_intervals_1d(Figure().subplots(), ConstantBand(1.0), data)


@pytest.mark.parametrize("n", marked([1, 2, 3, 5, 7], slow={3, 5, 7}))
def test_toy_figure_has_a_panel_per_model_and_one_legend(toy, n):
    figure = plots.toy_figure({f"m{i}": ConstantBand(1.0 + i) for i in range(n)}, toy)
    figure.savefig(io.BytesIO(), dpi=30)
    shown = [ax.get_title(loc="left") for ax in figure.axes if ax.axison]
    assert shown == [f"m{i}" for i in range(n)]
    legends = [ax.get_legend() for ax in figure.axes if ax.get_legend()] + figure.legends
    assert len(legends) == 1


def test_toy_figure_without_models_is_an_error(toy):
    with pytest.raises(InvalidInputError, match="at least one fitted model"):
        plots.toy_figure({}, toy)


def test_reliability_band_has_the_binomial_width():
    y = np.linspace(0, 1, 101)[1:]
    levels = np.array([0.25, 0.5])
    ax = plots.reliability(Figure().subplots(), y, np.tile(levels, (100, 1)), levels, 25)
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), levels)
    vertices = ax.collections[0].get_paths()[0].vertices
    at_half = vertices[np.isclose(vertices[:, 0], 0.5), 1]
    half = norm.ppf(0.975) * np.sqrt(0.25 * (1 / 100 + 1 / 25))
    np.testing.assert_allclose([at_half.min(), at_half.max()], [0.5 - half, 0.5 + half])


@pytest.fixture(scope="module")
def found():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (260, 2))
    y = np.sin(2 * X[:, 0]) + np.where(X[:, 1] > 1, 1.0, 0.1) * rng.normal(size=260)
    model = SharpGPRegressor(calibration=Sharp(levels=5), random_state=0)
    return diagnose(model.fit(X[:160], y[:160]), X[160:], y[160:], feature_names=["a", "b"])


def test_the_sheet_has_every_figure_of_the_report(found):
    figure = plots.calibration_figure(found, coverage=0.8)
    titles = [ax.get_title(loc="left") for ax in figure.axes if ax.axison]
    assert titles == [
        "Reliability", "PIT", "Widths", "Coverage by width", "Coverage by feature",
        "Observed against predicted", "beta by level", "theta by level",
    ]  # fmt: skip
    assert figure.axes[4].get_xlabel() == "b", "where coverage strays most"
    figure.savefig(io.BytesIO(), dpi=30)
    without = plots.calibration_figure(replace(found, curves=None), feature="a")
    assert [ax.get_title(loc="left") for ax in without.axes if ax.axison] == titles[:6]
    assert without.axes[4].get_xlabel() == "a"


def test_figures_and_report_draw_the_same_numbers(found):
    numbers = numbers_of(found)
    figure = plots.calibration_figure(found, coverage=0.9, feature=1)
    part = numbers["intervals"][found.coverages.tolist().index(0.9)]
    line = figure.axes[0].lines[-1].get_ydata()
    np.testing.assert_allclose(line, numbers["reliability"]["observed"])
    bars = [bar[0].get_height() for bar in figure.axes[1].containers]
    np.testing.assert_allclose(bars, numbers["pit"]["share"])
    for ax, bins in ((figure.axes[3], part["by_width"]), (figure.axes[4], part["by_feature"][1])):
        np.testing.assert_allclose(
            ax.collections[-1].get_offsets()[:, 1], [b["covered"] for b in bins]
        )
        bands = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in ax.containers[0]]
        np.testing.assert_allclose(bands, [(b["low"], b["high"]) for b in bins])
    np.testing.assert_allclose(
        figure.axes[6].lines[-1].get_ydata(), numbers["curves"]["beta"], rtol=1e-4
    )
    drawn = [line.get_label() for line in figure.axes[7].lines[1:]]
    assert drawn == numbers["curves"]["names"]


def test_bars_outside_the_band_stand_out():
    ax = plots.pit(Figure().subplots(), np.full(100, 0.55), n_bins=4)
    colours = {bar[0].get_facecolor() for bar in ax.containers}
    assert len(ax.containers) == 4
    assert colours == {to_rgba(ORANGE)}, "three bars that are empty and one that is full"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coverage": 0.42}, "coverage: expected one of 0.5, 0.6"),
        ({"feature": "c"}, "feature: expected one of a, b, found 'c'"),
        ({"feature": 2}, "feature: expected one of a, b, found 2"),
    ],
)
def test_what_the_sheet_cannot_show_is_named(found, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        plots.calibration_figure(found, **settings)


def test_no_panel_of_the_sheet_is_empty(found):
    flat = replace(found.curves, theta=np.ones_like(found.curves.theta))
    for curves in (found.curves, flat, None):
        figure = plots.calibration_figure(replace(found, curves=curves))
        assert all(ax.axison and ax.has_data() for ax in figure.axes)
        places = [ax.get_subplotspec() for ax in figure.axes]
        cells = sum(p.num2 - p.num1 + 1 for p in places)
        assert cells == np.prod(places[0].get_gridspec().get_geometry())


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-2, 2, (120, 2)), columns=["dose", "age"])
    y = pd.Series(np.sin(X["dose"]) + 0.2 * rng.normal(size=120), name="response")
    model = SharpGPRegressor(base=["rbf", "matern32"], calibration="loo", random_state=0)
    return model.fit(X[:70], y[:70]), X[70:], y[70:]


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("auto", ("predicted response (mm)", "observed response (mm)")),
        ("intervals", ("dose", "response (mm)")),
        ("reliability", ("nominal level", "observed share at or below")),
        ("coverage", ("age", "share covered")),
        ("relevance", ("change of predictions if shuffled", "")),
        ("base", ("weight", "")),
    ],
)
def test_each_picture_by_its_name_on_given_axes(fitted, kind, labels):
    model, X, y = fitted
    ax = Figure().subplots()
    feature = {"coverage": "age"}.get(kind)
    assert model.plot(X, y, kind, ax=ax, unit="mm", feature=feature) is ax
    assert (ax.get_xlabel(), ax.get_ylabel()) == labels
    assert ax.has_data()


def test_pictures_show_what_the_model_answers(fitted):
    model, X, y = fitted
    ax = model.plot(X, y, "observed", ax=Figure().subplots(), coverage=0.8)
    ends = model.predict_interval(X, 0.8)
    drawn = np.array([line[:, 1] for line in ax.collections[0].get_segments()])
    np.testing.assert_allclose(drawn, ends)
    inside = np.mean((ends[:, 0] <= y) & (y <= ends[:, 1]))
    assert ax.get_title(loc="right").startswith(f"covers {100 * inside:.1f} %")
    bars = model.plot(X, y, "base", ax=Figure().subplots()).containers[0]
    assert sorted(bar.get_width() for bar in bars) == sorted(one.weight for one in model.base_)


def test_without_axes_pyplot_makes_them(fitted):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    model, X, y = fitted
    before = len(pyplot.get_fignums())
    model.plot(X, y)
    assert isinstance(plots.plot(make_pipeline(model), X, y, "sheet"), Figure)
    assert len(pyplot.get_fignums()) == before + 2
    pyplot.close("all")
    with pytest.raises(InvalidInputError, match="kind: expected"):
        model.plot(X, y, "pie")
