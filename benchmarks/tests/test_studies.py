import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from helpers import marked
from processes import PATIENCE, wait_for
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.cli import app
from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp.models.gaussian.plain_gp import PosteriorModel
from sharpgp.toy import make_toy
from sharpgp_benchmarks import datasets, formats, regression, tables, toy
from sharpgp_benchmarks import run as running
from sharpgp_benchmarks.commands.options import counts_of
from sharpgp_benchmarks.progress import bar, describe
from sharpgp_benchmarks.run import make_batches, run, work
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.task import Result, Task, perform
from sharpgp_benchmarks.undertrained import undertrain

cli = CliRunner()
SHARED = Path(__file__).parents[3] / "shared" / "data"


def draws(count=3, methods=("draw",), seconds=0.0):
    settings = {"seconds": seconds}
    return [Task("rehearsal", "none", m, s, settings) for s in range(count) for m in methods]


@pytest.fixture
def small_data(tmp_path):
    """A folder with a tiny set under the name of a known one."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 2))
    table = np.column_stack([X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=120)])
    folder = tmp_path / "data"
    folder.mkdir()
    np.savetxt(folder / "facebook2.csv", table, delimiter=",", header="a,b,target", comments="")
    np.savetxt(folder / "yacht.csv", table, delimiter=",", header="a,b,target", comments="")
    return folder


# ------------------------------------------------------------------------------ tasks and files


def test_key_depends_on_every_entry_and_not_on_their_order():
    task = Task("regression", "boston", "paper", 1, {"base": "trained", "max_train": 5})
    same = Task("regression", "boston", "paper", 1, {"max_train": 5, "base": "trained"})
    assert task.key == same.key
    changes = [
        {"experiment": "rehearsal"}, {"dataset": "mpg"}, {"method": "exact"}, {"seed": 2},
        {"settings": {"base": "undertrained", "max_train": 5}}, {"settings": {"base": "trained"}},
    ]  # fmt: skip
    keys = {replace(task, **change).key for change in changes}
    assert len(keys | {task.key}) == 1 + len(changes)


def test_a_result_comes_back_as_it_was_written(tmp_path):
    store = Store(tmp_path).prepare()
    result = Result(draws(1)[0], "ok", {"width_95": 0.1 + 0.2}, {"n_test": 7}, seconds=1.5)
    store.write(result)
    assert store.read(result.task) == result
    assert [file.name for file in tmp_path.glob("*.json")] == [f"{result.task.key}.json"]


def test_metrics_that_are_not_finite_are_a_failure(monkeypatch):
    monkeypatch.setattr(
        "sharpgp_benchmarks.rehearsal.run_task",
        lambda task, context: regression.Outcome({"nll": float("inf")}),
    )
    result = perform(draws(1)[0], {})
    assert result.status == "failed"
    assert result.error == "NumericalError: expected finite metrics, found nll = inf"


def test_nothing_of_a_write_that_fails_is_left(tmp_path, monkeypatch):
    store = Store(tmp_path).prepare()
    task = draws(1)[0]

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(SharpGPError, match="No space left"):
        store.write(Result(task, "ok", {"width_95": 1.0}))
    assert {file.name for file in tmp_path.iterdir()} == {"results.format"}


def test_readers_never_see_part_of_a_file(tmp_path, caplog):
    store = Store(tmp_path).prepare()
    task, stop = draws(1)[0], threading.Event()
    long = {f"metric_{i}": float(i) for i in range(2000)}
    store.write(Result(task, "ok", long))

    def keep_writing():
        while not stop.is_set():
            store.write(Result(task, "ok", long))

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        assert all(store.read(task) is not None for _ in range(100))
    finally:
        stop.set()
        writer.join()
    assert not caplog.records


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace('"status": "ok"', '"status": "failed"'),
        lambda text: text.replace('"seed": 0', '"seed": 1'),
        lambda text: "[]",
        lambda text: text.replace('"schema": 2', '"schema": 99'),
        lambda text: "\x00" * len(text),
    ],
)
def test_damaged_results_are_named_and_computed_again(tmp_path, caplog, damage):
    tasks = draws(2)
    run(tasks, tmp_path, workers=1)
    before = formats.render(tmp_path)
    file = tmp_path / f"{tasks[0].key}.json"
    file.write_text(damage(file.read_text()))
    assert run(tasks, tmp_path, workers=1).computed == 1
    assert str(file) in caplog.text
    assert formats.render(tmp_path) == before


def test_results_of_another_schema_are_left_out_and_computed_again(tmp_path, caplog, monkeypatch):
    tasks = draws(3)
    with monkeypatch.context() as earlier:
        earlier.setattr("sharpgp_benchmarks.task.SCHEMA", 1)
        earlier.setattr("sharpgp_benchmarks.store.SCHEMA", 1)
        old = {task.key for task in draws(3)}
        assert run(draws(3), tmp_path, workers=1).computed == 3
    assert not old & {task.key for task in tasks}
    assert run(tasks[:2], tmp_path, workers=1).computed == 2
    assert len(list(Store(tmp_path).results())) == 2
    assert "3 results of another version" in caplog.text
    assert "damaged" not in caplog.text


# -------------------------------------------------------------------------------------- running


def test_failures_are_recorded_and_do_not_stop_the_others(tmp_path):
    tasks = draws(3, ("draw", "fail", "other"))
    summary = run(tasks, tmp_path, workers=1)
    assert (summary.tasks, summary.computed, summary.failed) == (9, 9, 3)
    failed = Store(tmp_path).read(tasks[1])
    assert (failed.status, failed.error) == ("failed", "SharpGPError: this task fails on purpose")
    assert run(tasks, tmp_path, workers=1).computed == 0
    assert run(tasks, tmp_path, workers=1, retry_failed=True).computed == 3
    assert "fail failed 3 of 3 times (seed 0: SharpGPError" in formats.render(tmp_path)


def test_failed_tasks_succeed_once_their_cause_is_gone(tmp_path, small_data):
    out = tmp_path / "out"
    tasks = regression.plan(["facebook2"], ["vanilla"], repeats=1, max_train=50)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(tasks, out, workers=1, context={"data_home": str(empty)}).failed == 1
    error = Store(out).read(tasks[0]).error
    assert "cannot be had here" in error
    assert "\n" not in error
    context = {"data_home": str(small_data)}
    assert run(tasks, out, workers=1, context=context).failed == 1
    assert run(tasks, out, workers=1, context=context, retry_failed=True).failed == 0


@pytest.mark.slow
def test_a_lost_worker_is_one_line_and_the_same_call_goes_on(tmp_path):
    tasks = [*draws(4), *draws(1, ("die",)), *draws(2, ("other",))]
    with pytest.raises(SharpGPError, match=r"one was lost .*the same command goes on") as caught:
        run(tasks, tmp_path, workers=2)
    assert "\n" not in str(caught.value)
    done = len(list(Store(tmp_path).results()))
    rest = [task for task in tasks if task.method != "die"]
    assert run(rest, tmp_path, workers=2).computed == 6 - done
    assert len(list(Store(tmp_path).results())) == 6


def test_results_of_workers_that_do_not_see_the_folder_are_written_here(tmp_path, monkeypatch):
    tasks = draws(2)
    results, written = work(tasks, tmp_path / "elsewhere", {}, 1)
    assert not written
    assert not (tmp_path / "elsewhere").exists()
    monkeypatch.setattr(running, "work", lambda batch, *_: ([perform(batch[0], {})], False))
    assert run(tasks, tmp_path / "out", workers=1).computed == 2
    assert len(list(Store(tmp_path / "out").results())) == len(results) == 2


def test_progress_counts_what_is_left_to_do(tmp_path):
    run(draws(1), tmp_path, workers=1)
    seen = []
    run(draws(3, ("draw", "fail")), tmp_path, workers=1, progress=lambda *now: seen.append(now))
    assert seen[0] == (0, 5, 0)
    assert seen[-1] == (5, 5, 3)
    assert describe(1, 3, 0, 60.0) == "0.02/s, 2 min left"


def test_batches_share_base_models_and_keep_all_workers_busy():
    methods = ("paper", "exact", "fully_bayesian", "cv")
    tasks = [Task("regression", "mpg", m, s) for s in range(4) for m in methods]
    batches = make_batches(tasks, workers=2)
    assert [len(batch) for batch in batches] == [1, 1, 1, 1, 3, 3, 3, 3]
    assert all(len({task.group for task in batch}) == 1 for batch in batches)
    many = make_batches(tasks, workers=16)
    assert [len(batch) for batch in many] == [1] * 16


def test_workers_keep_to_their_threads():
    before = torch.get_num_threads()
    try:
        running.prepare.cache_clear()
        running.prepare(1)
        assert torch.get_num_threads() == 1
        assert os.environ["OMP_NUM_THREADS"] == "1"
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "spark"}, "expected one of local, ray, dask"),
        ({"address": "here:1"}, "choose the engine ray or dask"),
        ({"workers": 0}, "workers: expected at least 1"),
    ],
)
def test_bad_settings_of_engines(tmp_path, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        run(draws(1), tmp_path, **settings)


# ------------------------------------------------------------------------------------- stopping

SCRIPT = """
import sys
from sharpgp_benchmarks.run import run
from sharpgp_benchmarks.task import Task
if __name__ == "__main__":
    pairs = [(m, s) for s in range(20) for m in ("draw", "other", "fail")]
    tasks = [Task("rehearsal", "none", m, s, {"seconds": 0.05}) for m, s in pairs]
    run(tasks, sys.argv[1], workers=2)
"""


def results_in(folder):
    return len(list(folder.glob("*.json")))


@pytest.mark.slow
def test_killed_at_random_moments_the_run_ends_in_the_same_table(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    tasks = draws(20, ("draw", "other", "fail"), 0.05)
    run(tasks, whole, workers=2)
    rng, kills = random.Random(), 0
    for _ in range(2):
        process = subprocess.Popen([sys.executable, script, cut], start_new_session=True)
        target = results_in(cut) + rng.randint(1, 20)
        wait_for(lambda: results_in(cut) >= target, process)  # noqa: B023
        time.sleep(rng.uniform(0.0, 0.1))
        kills += process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
    assert kills == 2
    assert 0 < results_in(cut) < results_in(whole)
    run(tasks, cut, workers=2)
    for form in formats.FORMATS:
        assert formats.render(cut, form) == formats.render(whole, form)
    assert {file.name for file in cut.glob("*.json")} == {f.name for f in whole.glob("*.json")}


@pytest.mark.slow
def test_ctrl_c_is_one_line_with_status_130_and_the_command_goes_on(tmp_path):
    command = [
        sys.executable, "-c", "from sharpgp.cli import app; app()", "bench", "regression",
        "--datasets", "diabetes", "--methods", "vanilla,kuleshov18", "--repeats", "12",
        "--workers", "2", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, start_new_session=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    wait_for(lambda: results_in(tmp_path / "out") >= 3, process)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert stdout == ""
    assert stderr.splitlines()[-1].startswith("interrupted; finished tasks are kept")
    assert "Traceback" not in stderr
    assert results_in(tmp_path / "out") < 24
    done = cli.invoke(app, command[3:])
    last = done.stdout.splitlines()[-1]
    assert last.startswith("24 tasks, ")
    assert ", 0 computed" not in last
    assert results_in(tmp_path / "out") == 24


# ----------------------------------------------------------------------------------- regression


def test_plan_repeats_slow_methods_less():
    tasks = regression.plan(["boston", "yacht"], ["all"], repeats=30)
    counts = {m: sum(t.method == m for t in tasks) / 2 for m in regression.all_methods()}
    assert counts["paper"] == 30
    assert counts["kuleshov22"] == 20
    assert counts["fully_bayesian"] == 5
    one = regression.plan(["boston"], ["kuleshov22"], repeats=30, repeats_of={"kuleshov22": 25})
    assert len(one) == 25
    assert all(task.settings == {"base": "trained"} for task in tasks)
    assert not {"fully_bayesian", "capone22"} & {task.method for task in regression.plan()}


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({}, {"inducing": 300}),
        ({"inducing": 50}, {"inducing": 50}),
        ({"max_train": 2000}, {"max_train": 2000}),
        ({"max_train": 5000}, {"inducing": 300}),
        ({"base": "undertrained"}, {"base": "undertrained", "max_train": 2000}),
        ({"split": "30/20/50"}, {"split": "30/20/50"}),
    ],
)
def test_how_large_sets_are_treated_is_part_of_the_task(given, settings):
    (task,) = regression.plan(["kin8nm"], ["vanilla"], repeats=1, **given)
    assert task.settings == {"base": "trained", **settings}


def test_sparse_base_models(small_data, tmp_path):
    tasks = regression.plan(["facebook2"], ["kuleshov18"], repeats=1, inducing=9, split="60/20/20")
    assert run(tasks, tmp_path, workers=1, context={"data_home": str(small_data)}).failed == 0
    result = Store(tmp_path).read(tasks[0])
    assert result.info["n_train"] == 3 * result.info["n_cal"]
    assert "inducing 9, split 60/20/20" in formats.render(tmp_path)


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
def test_the_device_is_where_the_base_model_computes(small_data, monkeypatch):
    asked = []

    def choose(device, n_rows):
        asked.append(device)
        return torch.device("cpu")

    monkeypatch.setattr(regression, "choose_device", choose)
    tasks = regression.plan(["yacht"], ["kuleshov18"], repeats=1)
    context = {"data_home": str(small_data), "device": "cuda"}
    regression.make_problem.cache_clear()
    regression.run_task(tasks[0], context)
    regression.make_problem.cache_clear()
    assert asked == ["cuda"]


@pytest.mark.parametrize("device", ["tpu", "cuda"])
def test_a_device_that_is_not_there_is_refused_before_anything_runs(device, tmp_path):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one here")
    out = tmp_path / "out"
    asked = ["--datasets", "diabetes", "--device", device, "--out", str(out)]
    result = cli.invoke(app, ["bench", "regression", *asked])
    assert result.exit_code == 2
    assert "device: expected" in result.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    "bad",
    [
        {"names": ["titanic"]},
        {"methods": ["magic"]},
        {"base": "half"},
        {"repeats": 0},
        {"repeats_of": {"magic": 1}},
        {"max_train": 1},
        {"inducing": 0},
        {"split": "60/40"},
    ],
)
def test_bad_plans(bad):
    with pytest.raises(InvalidInputError, match="expected"):
        regression.plan(**bad)
    with pytest.raises(InvalidInputError, match="METHOD=COUNT"):
        counts_of("kuleshov22")


@pytest.mark.parametrize("method", marked(["vovk20", "exact"], slow={"exact"}))
def test_results_do_not_depend_on_order_or_company(small_data, method):
    tasks = regression.plan(["yacht"], ["kuleshov18", method], repeats=2)
    context = {"data_home": str(small_data)}
    regression.make_problem.cache_clear()
    forward = {task.key: perform(task, context) for task in tasks}
    regression.make_problem.cache_clear()
    backward = {task.key: perform(task, context) for task in reversed(tasks)}
    for key, result in forward.items():
        assert result.status == "ok"
        assert result.metrics == backward[key].metrics
        assert result.info == backward[key].info


def test_target_is_reported_in_standard_deviations(tmp_path, small_data):
    (task,) = regression.plan(["yacht"], ["marx22"], repeats=1)
    plain = perform(task, {"data_home": str(small_data)})
    table = np.loadtxt(small_data / "yacht.csv", delimiter=",", skiprows=1)
    table[:, -1] = 1000 * table[:, -1] + 7
    np.savetxt(
        tmp_path / "yacht.csv", table, delimiter=",", header="a,b,target", comments="", fmt="%.17g"
    )
    scaled = perform(task, {"data_home": str(tmp_path)})
    assert scaled.metrics["width_95"] == pytest.approx(plain.metrics["width_95"], rel=1e-3)
    assert scaled.info["data"] != plain.info["data"]


def honest(block):
    """Methods whose 95 % interval covers what its width was chosen for, to four errors."""
    sizes = [int(word) for word in block.sizes.replace(",", "").split() if word.isdigit()]
    _, n_cal, n_test = sizes
    covered = {}
    for method, cells in block.cells.items():
        cell = cells["coverage_95"]
        error = np.sqrt(0.05 * 0.95 * (1 / n_cal + 1 / n_test) / cell.count)
        covered[method] = cell.mean > 0.95 - 1 / (n_cal + 1) - 4 * error
    return covered


def test_width_and_beta_from_different_sigmas_show_in_the_table(monkeypatch):
    """beta from a sigma with noise and the width from one without: narrow, and caught."""
    tasks = regression.plan(["diabetes"], ["kuleshov18", "vovk20"], repeats=4, base="undertrained")
    results = [perform(task, {}) for task in tasks]
    (right,) = tables.summarise(results)
    assert honest(right) == {"kuleshov18": True, "vovk20": True}

    scored, both = ScoredPredictor.from_model, PosteriorModel.location_and_spread

    def without_noise(self, X):
        location, spread = both(self, X)
        noise = self.posterior.theta_R[-1].sqrt() * self.posterior.y_units.scale
        return location, (spread.square() - noise.square()).clamp(min=0.0).sqrt()

    def scored_with_noise(*asked, **settings):
        with monkeypatch.context() as patch:
            patch.setattr(PosteriorModel, "location_and_spread", both)
            return scored(*asked, **settings)

    monkeypatch.setattr(PosteriorModel, "location_and_spread", without_noise)
    monkeypatch.setattr(ScoredPredictor, "from_model", scored_with_noise)
    (wrong,) = tables.summarise([perform(task, {}) for task in tasks])
    assert honest(wrong) == {"kuleshov18": False, "vovk20": False}
    width = [block.cells["kuleshov18"]["width_95"].mean for block in (right, wrong)]
    assert width[1] < 0.7 * width[0]


def test_undertrained_models_take_twenty_plain_steps():
    """Against gpytorch, which keeps the same raw parameters."""
    import gpytorch

    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(40, 2)))
    y = torch.from_numpy(np.sin(X[:, 0].numpy()) + 0.1 * rng.normal(size=40))
    ours = undertrain(X, y, "boston")

    class Model(gpytorch.models.ExactGP):
        def __init__(self, Z, t, likelihood):
            super().__init__(Z, t, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=2)
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, Z):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(Z), self.covar_module(Z)
            )

    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.Positive()
    )
    model = Model(ours.X_standardised, ours.y_standardised, likelihood).double()
    model.covar_module.base_kernel.lengthscale = 3.5
    model.covar_module.outputscale = 20.0
    likelihood.noise = 3.5
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimiser.zero_grad()
        loss = -mll(model(ours.X_standardised), ours.y_standardised)
        loss.backward()
        optimiser.step()
    theirs = [*(1 / model.covar_module.base_kernel.lengthscale[0])]
    theirs += [model.covar_module.outputscale, likelihood.noise[0]]
    expected = torch.stack(theirs).detach()
    torch.testing.assert_close(ours.theta_R, expected, rtol=1e-6, atol=0.0)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the benchmark data")
@pytest.mark.parametrize(
    ("name", "base", "recalibrated", "rmse"),
    [
        ("boston", 7.4, 1.4, 0.35),
        pytest.param("yacht", 11, 2.3, 0.6, marks=pytest.mark.slow),
        pytest.param("mpg", 11, 1.7, 0.45, marks=pytest.mark.slow),
    ],
)
def test_undertrained_widths_are_near_the_printed_ones(name, base, recalibrated, rmse):
    tasks = regression.plan([name], ["vanilla", "kuleshov18"], repeats=4, base="undertrained")
    (block,) = tables.summarise(perform(task, {"data_home": str(SHARED)}) for task in tasks)
    assert block.cells["vanilla"]["width_95"].mean == pytest.approx(base, rel=0.2)
    assert block.cells["kuleshov18"]["width_95"].mean == pytest.approx(recalibrated, rel=0.4)
    assert block.cells["vanilla"]["rmse"].mean == pytest.approx(rmse, rel=0.25)


# --------------------------------------------------------------------------------------- tables


@pytest.fixture
def written(tmp_path):
    """Hand-made results: two methods, two seeds, one failure."""
    store = Store(tmp_path / "results").prepare()
    info = {"n_train": 2000, "n_train_available": 4915, "n_cal": 9, "n_test": 10, "data": "a"}
    settings = {"base": "trained", "max_train": 2000}
    numbers = {"exact": (1.5, 2.5), "kuleshov18": (1.0, 2.0)}
    for method, widths in numbers.items():
        for seed, width in enumerate(widths):
            task = Task("regression", "kin8nm", method, seed, settings)
            metrics = {"ece": 0.001 * width, "width_95": width, "coverage_95": 0.9}
            store.write(Result(task, "ok", metrics, info, seconds=random.random()))
    task = Task("regression", "kin8nm", "paper", 0, settings)
    store.write(Result(task, "failed", error="NumericalError: no_luck & 50 %"))
    return store.folder


GOLDEN_TEXT = """\
regression, base trained
========================

kin8nm: 2000 of 4915 training, 9 calibration, 10 test points
                 ours           RK        exact
ECE x 1000             1.50 ± 0.50  2.00 ± 0.50
ECE in print                  0.16
95 % CI                1.50 ± 0.50  2.00 ± 0.50
95 % CI in print              0.47
coverage, %                     90           90
repetitions         0            2            2
note: ours failed 1 of 1 times (seed 0: NumericalError: no_luck & 50 %)
"""

GOLDEN_MARKDOWN = """\
## Regression, base trained

**kin8nm: 2000 of 4915 training, 9 calibration, 10 test points**

|  | ours | RK | exact |
| --- | --: | --: | --: |
| ECE x 1000 |  | 1.50 ± 0.50 | 2.00 ± 0.50 |
"""

GOLDEN_LATEX = r"""% regression, base trained
% kin8nm: 2000 of 4915 training, 9 calibration, 10 test points
\begin{tabular}{lrrr}
\toprule
 & ours & RK & exact \\
\midrule
ECE x 1000 &  & 1.50 $\pm$ 0.50 & 2.00 $\pm$ 0.50 \\
ECE in print &  & 0.16 &  \\
95 \% CI &  & 1.50 $\pm$ 0.50 & 2.00 $\pm$ 0.50 \\
"""


def test_layout_of_the_tables(written):
    text = "\n".join(line.rstrip() for line in formats.render(written).split("\n"))
    assert text.startswith(GOLDEN_TEXT)
    assert formats.render(written, "md").startswith(GOLDEN_MARKDOWN)
    assert formats.render(written, "latex").startswith(GOLDEN_LATEX)
    rows = list(csv.DictReader(io.StringIO(formats.render(written, "csv"))))
    (width,) = [r for r in rows if (r["method"], r["metric"]) == ("kuleshov18", "width_95")]
    assert (width["mean"], width["standard_error"]) == ("1.5", "0.5")
    assert (width["repetitions"], width["in_print"]) == ("2", "0.47")


def test_the_printed_figures_are_those_of_the_paper():
    file = SHARED.parent / "paper" / "tables.json"
    if not file.is_file():
        pytest.skip("needs the paper's figures")
    table = json.loads(file.read_text())["table1"]
    names = {"ours": "paper", "RK": "kuleshov18", "RV": "vovk20", "RM": "marx22"}
    names |= {"NN": "kuleshov22", "B": "vanilla"}
    metrics = {"ECE": "ece", "STD": "std", "NLL": "nll", "CI95": "width_95"}
    for dataset in tables.DATASETS:
        for there, here in metrics.items():
            for method, figure in zip(table["methods"], table[dataset][there], strict=True):
                assert tables.printed(dataset, names[method], here) == figure


def test_copies_of_the_data_that_differ_are_mentioned(written):
    store = Store(written)
    results = [r for r in store.results() if r.status == "ok"]
    store.write(replace(results[0], info={**results[0].info, "data": "b"}))
    assert "note: the results come from 2 different copies of the data" in formats.render(written)


# --------------------------------------------------------------------------------- command line


@pytest.mark.parametrize("form", formats.FORMATS)
def test_bench_table_prints_what_render_gives(written, form):
    result = cli.invoke(app, ["bench", "table", str(written), "--format", form])
    assert result.exit_code == 0
    assert result.stdout == formats.render(written, form)


def test_bench_regression_prints_its_table_and_goes_on(tmp_path, small_data, monkeypatch):
    monkeypatch.delenv(datasets.ENVIRONMENT_VARIABLE, raising=False)
    out = tmp_path / "out"
    arguments = ["--datasets", "yacht", "--methods", "vanilla,marx22", "--repeats", "2"]
    arguments += ["--repeats-of", "marx22=1", "--workers", "1", "--data-home", str(small_data)]
    command = ["bench", "regression", *arguments, "--out", str(out)]
    for computed in (3, 0):
        result = cli.invoke(app, command)
        last = f"3 tasks, {computed} computed now; see sharpgp bench table {out}\n"
        assert result.stdout == f"{formats.render(out)}\n{last}"
        assert (result.exit_code, result.stderr) == (0, "")
    assert "72 training, 24 calibration, 24 test points" in formats.render(out)


def test_failed_tasks_end_in_status_1_after_the_table(tmp_path, small_data):
    table = np.loadtxt(small_data / "yacht.csv", delimiter=",", skiprows=1)
    text = {"delimiter": ",", "header": "a,b,target", "comments": ""}
    np.savetxt(small_data / "boston.csv", table[:3], **text)  # too few rows to split
    out = tmp_path / "out"
    command = ["bench", "regression", "--datasets", "yacht,boston", "--methods", "vanilla"]
    command += ["--repeats", "2", "--workers", "1", "--data-home", str(small_data)]
    result = cli.invoke(app, [*command, "--out", str(out)])
    assert result.exit_code == 1
    assert "yacht: 72 training" in result.stdout
    assert "4 tasks, 4 computed now" in result.stdout
    again = "2 of 4 tasks failed; the same command with --retry-failed runs them again\n"
    assert result.stderr == again
    np.savetxt(small_data / "boston.csv", table, **text)
    assert cli.invoke(app, [*command, "--out", str(out)]).exit_code == 1
    mended = cli.invoke(app, [*command, "--out", str(out), "--retry-failed"])
    assert (mended.exit_code, mended.stderr) == (0, "")


def test_missing_data_are_all_named_before_anything_runs(tmp_path, small_data, monkeypatch):
    monkeypatch.setattr(datasets, "installed", lambda package: package == "pandas")

    def no_network(**_):
        raise OSError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", no_network)
    command = ["bench", "regression", "--datasets", "boston,yacht,facebook1", "--out"]
    result = cli.invoke(app, [*command, str(tmp_path / "out"), "--data-home", str(small_data)])
    assert result.exit_code == 2
    assert "found none for boston, facebook1;" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["regression", "--datasets", "titanic", "--out", "{}"],
        ["regression", "--engine", "spark", "--out", "{}"],
        ["regression", "--repeats-of", "paper", "--out", "{}"],
        ["regression", "--out", __file__],
        ["toy", "--out", __file__],
        ["table", "{}/nothing"],
        ["table", "{}"],
        ["table", "{}", "--format", "pdf"],
    ],
)
def test_bad_input_is_one_line_on_stderr_and_status_2(arguments, tmp_path):
    result = cli.invoke(app, ["bench", *(text.format(tmp_path) for text in arguments)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_toy_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(toy, "PANELS", {"paper": "sharp", "vanilla": "vanilla GP"})
    monkeypatch.setattr(
        toy, "make_toy", lambda n_train=20, random_state=0: make_toy(n_train, 30, 50)
    )
    result = cli.invoke(app, ["bench", "toy", "--out", str(tmp_path)])
    assert result.exit_code == 0
    assert {file.name for file in tmp_path.iterdir()} == {
        "toy.png",
        "toy_95.png",
        "toy_overconfident.png",
    }
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in tmp_path.iterdir())


def test_a_pipe_gets_lines_of_progress_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr("sharpgp_benchmarks.progress.SECONDS_A_LINE", 0.01)
    said = ""
    with bar(True) as update:
        update(0, 4, 0)
        while "0 of 4 tasks\n" not in said:
            said += capsys.readouterr().err
        update(2, 4, 1)
        while "2 of 4 tasks, " not in said:
            said += capsys.readouterr().err
    assert said.rstrip().endswith(" left, 1 failed")
    with bar(False) as update:
        assert update is None
