import io
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

from sharpgp import plots
from sharpgp.datasets import make_toy, split
from sharpgp.exceptions import InvalidInputError


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


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7])
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
    half = 1.96 * np.sqrt(0.25 * (1 / 100 + 1 / 25))
    np.testing.assert_allclose([at_half.min(), at_half.max()], [0.5 - half, 0.5 + half])


def test_pyplot_stays_out():
    import subprocess

    code = "import sharpgp.plots, sys; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
