"""The experiments on uniform bounds and on optimisation: what they measure, and their tables."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from helpers import FakePosterior, fake_data, marked
from sharpgp import Kuleshov18, Vanilla
from sharpgp.cli import app
from sharpgp.exceptions import InvalidInputError
from sharpgp_benchmarks import bo, bounds, formats, regret
from sharpgp_benchmarks.formats import render
from sharpgp_benchmarks.methods.capone22 import BoundingBox
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.tables import summarise
from sharpgp_benchmarks.task import Result, Task

# ------------------------------------------------------------------ bounds


def test_whole_interval_ends_at_the_outermost_scores():
    X, y = fake_data(49)
    calibrated = Kuleshov18().fit(FakePosterior(), X, y)
    z = y / (1 + X[:, 0].square()).sqrt()
    lower, upper = bounds.whole_interval(calibrated, torch.zeros(1, 1).double())
    torch.testing.assert_close(torch.cat([lower, upper]), torch.stack([z.min(), z.max()]))
    assert ((lower < z) & (z < upper * (1 + 1e-6))).sum() >= 48


def test_a_new_point_is_outside_with_the_stated_probability():
    C, outside = 19, []
    for seed in range(300):
        X, y = fake_data(C + 20, seed=seed)
        calibrated = Kuleshov18().fit(FakePosterior(), X[:C], y[:C])
        lower, upper = bounds.whole_interval(calibrated, X[C:])
        outside.append(float(((y[C:] < lower) | (y[C:] > upper)).double().mean()))
    assert np.mean(outside) == pytest.approx(2 / (C + 1), abs=4 * np.std(outside) / 300**0.5)


def test_bayesian_bounds_give_their_band():
    calibrated = Vanilla().fit(FakePosterior(), None, None)
    lower, upper = bounds.whole_interval(calibrated, torch.zeros(1, 1).double())
    assert (upper - lower).item() == pytest.approx(2 * 2.5758, abs=1e-3)


def test_samples_back_the_box_of_a_bound():
    """The box has to end at a sample, not beyond all of them."""
    share = torch.tensor([bounds.CONFIDENCE], dtype=torch.float64).sqrt()
    theta = torch.linspace(-1, 1, bounds.SAMPLES, dtype=torch.float64).exp()[:, None]
    box = BoundingBox.of_samples(theta)
    assert box.radius(share) < box.radii[-1]
    assert BoundingBox.of_samples(theta[::4]).radius(share) > box.radii[-1]


def test_bounds_plan():
    tasks = bounds.plan()
    assert len(tasks) == 3 * 10 * 4
    assert {task.experiment for task in tasks} == {"bounds"}
    for wrong, message in (
        ({"names": ["yacht"]}, "datasets: expected one of boston, mpg, wine, found"),
        ({"methods": ["vanilla"]}, "methods: expected one of"),
        ({"repeats": 0}, "repeats: expected at least 1, found 0"),
        ({"base": "none"}, "base: expected one of"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            bounds.plan(**wrong)


def test_one_task_of_the_bounds(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 7))
    rows = np.column_stack([X, X[:, 0] + 0.1 * rng.normal(size=60)])
    header = ",".join([*(f"x{j}" for j in range(7)), "target"])
    np.savetxt(tmp_path / "mpg.csv", rows, delimiter=",", header=header, comments="")
    monkeypatch.setattr("sharpgp_benchmarks.methods.capone22.MOST_SAMPLED", 1)
    context = {"data_home": str(tmp_path)}
    lengths = {}
    for method in ("kuleshov18", "capone22"):
        task = Task("bounds", "mpg", method, 0, {"base": "trained"})
        found = bounds.run_task(task, context).metrics
        assert 0 <= found["violation_rate"] <= 1
        lengths[method] = found["length_100"]
    assert lengths["kuleshov18"] < lengths["capone22"] < found["length_100_theorem"]
    assert found["violation_rate_theorem"] <= found["violation_rate"]


# ------------------------------------------------------------------ optimisation


def test_regrets_are_those_of_the_noiseless_function():
    problem = bo.Problem.draw("branin", 3)
    optimum = torch.tensor([[np.pi, 2.275]], dtype=torch.float64)
    assert problem.regret(optimum) == pytest.approx(0.0, abs=1e-4)
    assert problem.regret(optimum + 1) > 1
    many = optimum.expand(4000, 2)
    spread = bo.spread_of("branin")
    assert float(problem.observe(many).std()) == pytest.approx(bo.NOISE * spread, rel=0.1)
    assert float(problem.observe(many).mean()) == pytest.approx(-0.3979, abs=0.3)


def test_every_function_has_its_optimum_where_it_should():
    for name, make in bo.FUNCTIONS.items():
        function = make()
        best = torch.tensor(function._optimizers[0], dtype=torch.float64)[None]
        assert bo.Problem.draw(name, 0).regret(best) == pytest.approx(0.0, abs=1e-3)


def test_methods_share_the_initial_design():
    first, again = bo.Problem.draw("ackley", 1), bo.Problem.draw("ackley", 1)
    assert torch.equal(first.X, again.X)
    assert torch.equal(first.y, again.y)
    assert len(first.y) == bo.N_TRAIN + bo.N_CAL
    assert not torch.equal(first.X, bo.Problem.draw("ackley", 2).X)


@pytest.mark.parametrize(
    "method", marked(bo.METHODS, slow={"calibrated_1", "recalibrated", "ucb_retrained"})
)
def test_one_task_of_each_method(method, monkeypatch):
    monkeypatch.setattr(bo, "N_TRAIN", 12)
    task = Task("bo", "branin", method, 0, {"iterations": 2})
    before = torch.random.get_rng_state()
    outcome, again = bo.run_task(task, {}), bo.run_task(task, {})
    assert outcome.info["regret"] == again.info["regret"]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert len(outcome.info["regret"]) == 2
    assert min(outcome.info["regret"]) >= 0
    assert outcome.metrics["cumulative_regret"] == pytest.approx(sum(outcome.info["regret"]))
    assert ("beta" in outcome.info) == ("calibrated" in method)
    json.dumps(outcome.info)


@pytest.mark.slow
def test_recalibration_happens(monkeypatch):
    monkeypatch.setattr(bo, "N_TRAIN", 12)
    problem = bo.Problem.draw("branin", 0)
    loop = bo.METHODS["recalibrated"](problem)
    before = loop.model.curves
    for count in range(1, bo.EVERY + 1):
        loop.tell(problem.X[:1] + 0.01 * count, problem.y[:1])
        assert (loop.model.curves is before) == (count < bo.EVERY)


def test_summary():
    values = [float(100 - i) for i in range(100)]
    found = bo.summary(values)
    assert found["simple_regret_10"] == 91
    assert found["simple_regret"] == 1
    assert found["cumulative_regret_25"] == sum(values[:25])


def test_bo_plan():
    assert len(bo.plan()) == 4 * 20 * 7
    for wrong, message in (
        ({"names": ["sphere"]}, "datasets: expected one of ackley, rosenbrock"),
        ({"methods": ["ei"]}, "methods: expected one of calibrated"),
        ({"iterations": 0}, "iterations: expected a whole number of at least 1, found 0"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            bo.plan(**wrong)


# ------------------------------------------------------------------ tables and figures


def results():
    for seed in range(3):
        for method, value in (("paper", 1.0), ("capone22", 3e9)):
            task = Task("bounds", "boston", method, seed, {"base": "trained"})
            yield Result(task, "ok", {"violation_rate": 0.01, "length_100": value * (seed + 1)})
        for method in ("ucb", "calibrated"):
            task = Task("bo", "ackley", method, seed, {"iterations": 3})
            regrets = [3.0, 2.0, 1.0 + seed]
            yield Result(task, "ok", bo.summary(regrets), {"regret": regrets})


def test_tables():
    blocks = summarise(results())
    assert [block.heading for block in blocks] == ["bo, iterations 3", "bounds, base trained"]
    assert list(blocks[0].cells) == ["calibrated", "ucb"]
    assert blocks[1].cells["capone22"]["length_100"].printed == 28.3
    text = formats.as_text(blocks)
    assert "6.0e+09 ± 2e+09" in text
    assert "ranks 1 and C" in text
    assert "initial design" in text
    assert "ECE" not in text


def test_figure_from_results_alone(tmp_path):
    store = Store(tmp_path / "results").prepare()
    for result in results():
        store.write(result)
    curves = regret.regrets_of(store.folder)
    assert list(curves["ackley"]) == ["calibrated", "ucb"]
    assert curves["ackley"]["ucb"] == [[3.0, 2.0, 1.0], [3.0, 2.0, 2.0], [3.0, 2.0, 3.0]]
    out = CliRunner().invoke(
        app, ["bench", "table", str(store.folder), "--figures", str(tmp_path / "figures")]
    )
    assert out.exit_code == 0
    assert (tmp_path / "figures" / "bo_regret.png").stat().st_size > 10_000
    assert "cumulative regret" in render(store.folder, "md")
    with pytest.raises(InvalidInputError, match="expected a folder with optimisations"):
        regret.draw(Store(tmp_path / "none").prepare().folder, tmp_path)


@pytest.mark.slow
def test_commands(tmp_path):
    run = ["bench", "bo", "--out", str(tmp_path), "--datasets", "branin", "--methods", "random"]
    out = CliRunner().invoke(app, [*run, "--repeats", "1", "--iterations", "2", "--workers", "1"])
    assert out.exit_code == 0, out.output
    assert "1 tasks, 1 computed now" in out.output
    wrong = CliRunner().invoke(app, ["bench", "bounds", "--out", str(tmp_path), "--methods", "x"])
    assert wrong.exit_code == 2
