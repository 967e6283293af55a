"""Fits in passes over files: the sums against a GP in memory, interruptions, clusters, errors."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import csv
from typer.testing import CliRunner

from processes import PATIENCE, environment, python
from sharpgp import CrossValidated, Neighbours, SharpGPRegressor, Sparse
from sharpgp.cli import app
from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp.frames.encoding import TableEncoding
from sharpgp.gp import sparse_training
from sharpgp.gp.bound import BoundGradient, variational_bound
from sharpgp.gp.kernels import make_covariance, named
from sharpgp.gp.scaling import Affine
from sharpgp.gp.sparse import SparsePosterior
from sharpgp.gp.whitening import Data
from sharpgp.models import spread_choice
from sharpgp.models.bases import Bases
from sharpgp.tabular import fit_files, load_model
from sharpgp.tabular.prediction import Request, predict_file
from sharpgp.tabular.streamed import engines, fit, rows, sums, survey, work
from sharpgp.tabular.streamed.draw import Draw
from sharpgp.tabular.streamed.memory import Memory
from sharpgp.tabular.streamed.prediction import predict_on_dask
from tolerances import rounding

pytestmark = pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
N, M = 1200, 8
runner = CliRunner()


def made_table(n: int = N, seed: int = 0) -> pa.Table:
    draw = np.random.default_rng(seed)
    x, t = draw.uniform(-2, 2, n), draw.uniform(0, 1, n)
    kind = draw.choice(["a", "b", "rare"], n, p=[0.6, 0.39, 0.01])
    y = np.sin(2 * x) + (kind == "b") + 0.1 * (1 + (t > 0.5)) * draw.normal(size=n)
    gaps = np.where(draw.uniform(size=n) < 0.02, np.nan, t)
    return pa.table(
        {
            "x": x,
            "t": pa.array(gaps, from_pandas=True),
            "kind": kind,
            "who": [f"p{k}" for k in draw.integers(60, size=n)],
            "y": y,
        }
    )


def regressor(**more) -> SharpGPRegressor:
    settings = {"base": "rbf", "approximation": Sparse(M), "random_state": 0}
    return SharpGPRegressor(**{**settings, **more})


@pytest.fixture(scope="module", autouse=True)
def small_units():
    """Many units, every one of them saved; and little time spent on the sample."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows.units_of, "__kwdefaults__", {"most": 300})
        patch.setattr(work, "SAVE_EVERY", 0.0)
        patch.setitem(sparse_training.FIRST_ROWS, "sparse", 100)
        patch.setitem(sparse_training.train_sparse.__kwdefaults__, "most", 10)
        patch.setattr(spread_choice, "LEAST_LEARNED", 10**9)
        yield


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("streamed") / "data.parquet"
    pq.write_table(made_table(), path, row_group_size=250)
    return path


def numbers(saved, table=None) -> np.ndarray:
    """What a model says, in all its digits."""
    table = (made_table(50, seed=9) if table is None else table).drop_columns(["y", "who"])
    model = saved.model
    return np.column_stack(
        [model.predict(table), model.predict_interval(table, 0.9), model.calibrated_.scores[:50]]
    )


@pytest.fixture(scope="module")
def whole(path):
    """A fit without interruptions."""
    return fit_files(path, "y", regressor(), drop=["who"], steps=2)


def test_a_model_is_loaded_by_another_process(path, whole, tmp_path):
    """One that has not fitted a file: it has to know the classes of such models all the same."""
    whole.save(tmp_path / "model.sgp")
    request = [tmp_path / "model.sgp", path, "--out", tmp_path / "predictions.csv"]
    done = python("-m", "sharpgp", "predict", *request)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == N + 1


# ------------------------------------------------------------------ rows and draws


def test_units_cover_every_row_once(tmp_path):
    table = made_table(1000)
    for groups, most in ((250, 300), (1000, 300), (70, 300), (999, 100)):
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=groups)
        pq.write_table(table[:10], tmp_path / "b.parquet")
        units = rows.units_of([tmp_path / "a.parquet", tmp_path / "b.parquet"], most=most)
        assert max(unit.rows for unit in units) <= most
        assert [unit.first for unit in units] == np.cumsum([0, *[u.rows for u in units]])[
            :-1
        ].tolist()
        found = [
            batch.column(0).to_numpy()
            for unit in units
            for _, batch in rows.batches_of(unit, ["x"], 64)
        ]
        expected = np.concatenate([table["x"].to_numpy(), table["x"].to_numpy()[:10]])
        np.testing.assert_array_equal(np.concatenate(found), expected)


def test_draws_have_their_shares_and_know_no_batches():
    draw = Draw(3, held=0.1, sampled=0.3)
    held, sampled = draw.of(0, 100_000)
    error = 4 * np.sqrt(0.25 / 100_000)  # four standard errors of a share
    assert abs(held.mean() - 0.1) < error
    assert abs(sampled.mean() - 0.3) < error
    again = np.concatenate([draw.of(start, 1000)[0] for start in range(0, 100_000, 1000)])
    np.testing.assert_array_equal(again, held)
    assert abs((held[1:] & held[:-1]).mean() - 0.01) < error
    assert abs((held & Draw(4, 0.1, 0.3).of(0, 100_000)[0]).mean() - 0.01) < error


def test_a_group_is_on_one_side():
    names = [f"g{k}" for k in np.random.default_rng(0).integers(50, size=2000)]
    held, sampled = Draw(0, held=0.3, sampled=0.7).of(0, 2000, names)
    inside = {name for name, one in zip(names, held, strict=True) if one}
    assert 5 < len(inside) < 30
    assert all(one == (name in inside) for name, one in zip(names, held, strict=True))
    np.testing.assert_array_equal(sampled, ~held)


def test_encoding_knows_gaps_and_categories_that_the_sample_lacks(path):
    table = survey.Table(("x", "t", "kind"), "y", None, Draw(0, 0.2, 0.05))
    census = survey.Census()
    for unit in rows.units_of([path]):
        census.add(survey.Survey(table, 100)(unit))
    sample = survey.drawn_rows(census.sample, "train on").select(["x", "t", "kind"])
    sample = sample.filter(pa.array([k != "rare" for k in sample["kind"].to_pylist()]))
    encoding = survey.encoding_of(sample, census)
    kind = made_table()["kind"].to_pylist()
    assert census.texts["kind"] == {name: kind.count(name) for name in ("a", "b", "rare")}
    assert encoding.features == ["x", "t", "t missing", "kind=a", "kind=b", "kind=rare"]
    assert encoding.n_missing == made_table()["t"].null_count


# ------------------------------------------------------------------ sums against a GP in memory


def training_of(path):
    table = made_table().select(["x", "t", "kind"])
    encoding = TableEncoding.learn(table)
    columns = survey.Table(("x", "t", "kind"), "y", None, Draw(0, 0.2, 0.5))
    held, _ = columns.draw.of(0, N)
    X = torch.from_numpy(encoding.encode(table).features)[~held]
    y = torch.from_numpy(made_table()["y"].to_numpy().copy())[~held]
    covariance = make_covariance(named("matern32", encoding.ties), X.shape[1])
    theta = torch.tensor([0.9, 0.4, 0.6, 0.7, 1.2, 0.05], dtype=torch.float64)
    y_units = Affine.standardising(y)
    x_units = covariance.units(X, y_units)
    gp = SparsePosterior(X, y, covariance, theta, X[:: N // M], x_units=x_units, y_units=y_units)
    return gp, sums.Training.of(columns, encoding, gp, batch_rows=64)


def added(visit, path):
    total = None
    for unit in rows.units_of([path]):
        total = sums.merged(total, visit(unit))
    return total


def test_sums_and_gradient_are_those_of_all_rows_at_once(path):
    gp, training = training_of(path)
    visit = sums.Visit(training, gp.theta_R, gp.inducing_standardised)
    total = added(visit, path)
    gradient = BoundGradient.of(visit.factors(total))
    pulled = added(sums.Pull(visit, gradient), path)
    value, by_theta, by_Z = sums.bound_and_gradient(visit, total, gradient, pulled)

    theta = gp.theta_R.unsqueeze(0).clone().requires_grad_()
    Z = gp.inducing_standardised.clone().requires_grad_()
    data = Data(gp.covariance, gp.X_standardised, gp.y_standardised)
    expected = variational_bound(data, theta, Z)
    expected_theta, expected_Z = torch.autograd.grad(expected.sum(), (theta, Z))
    close = rounding(gp.covariance.matrix(gp.theta_R.unsqueeze(0), gp.inducing_standardised)[0])
    assert value == pytest.approx(expected.item(), rel=close)
    for found, wanted in ((by_theta, expected_theta[0]), (by_Z, expected_Z)):
        torch.testing.assert_close(found, wanted, rtol=0, atol=close * float(wanted.abs().max()))
    assert int(total["n"]) == gp.n_train
    torch.testing.assert_close(total["low"], gp.X_train.amin(0))
    torch.testing.assert_close(total["high"], gp.X_train.amax(0))


# ------------------------------------------------------------------ whole fits


def test_a_fit_covers_predicts_and_is_stored(whole, path, tmp_path):
    model = whole.model
    assert model.calibration_ == "exact"
    assert model.posterior_.n_train + model.calibrated_.n_cal == N
    assert model.encoding_.features == ["x", "t", "t missing", "kind=a", "kind=b", "kind=rare"]
    new = made_table(2000, seed=5)
    ends = model.predict_interval(new.drop_columns(["y", "who"]), 0.9)
    y = new["y"].to_numpy()
    inside = ((ends[:, 0] <= y) & (y <= ends[:, 1])).mean()
    # Four standard errors of the coverage, from both sets of points.
    assert abs(inside - 0.9) < 4 * np.sqrt(0.09 * (1 / 2000 + 1 / model.calibrated_.n_cal))
    assert model.score(new.drop_columns(["y", "who"]), y) > 0.9
    whole.save(tmp_path / "model.sgp")
    again = load_model(tmp_path / "model.sgp")
    np.testing.assert_array_equal(numbers(again), numbers(whole))
    predicted = predict_file(again, path, tmp_path / "out.parquet", Request([0.9]))
    assert predicted == N
    further = again.model.update(new.drop_columns(["y", "who"]), y)
    assert further.calibrated_.n_cal == model.calibrated_.n_cal + 2000


@pytest.mark.parametrize("y_bounds", [(0, None), "auto", None])
def test_bounds_hold_for_streamed_rows_too(tmp_path, y_bounds):
    table = made_table()
    y = np.maximum(table["y"].to_numpy(), 0.0)  # about a third of them are zero
    path = tmp_path / "data.parquet"
    pq.write_table(table.drop_columns(["y", "who"]).append_column("y", pa.array(y)), path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved = fit_files(path, "y", regressor(y_bounds=y_bounds))
    new = made_table(200, seed=5)
    lowest = saved.model.predict_interval(new.drop_columns(["y", "who"]), 0.9).min()
    assert lowest < 0.0 if y_bounds is None else lowest == 0.0
    saved.model.update(new.drop_columns(["y", "who"]), new["y"].to_numpy().clip(0))


def test_the_bound_rises_with_steps(whole, path):
    plain = fit_files(path, "y", regressor(), drop=["who"])
    gain = whole.model.training_.log_likelihood - plain.model.training_.log_likelihood
    assert whole.model.training_.evaluations >= 2
    assert not torch.equal(whole.model.posterior_.theta_R, plain.model.posterior_.theta_R)
    assert gain > -0.05  # of all rows, and of the sample


class Killed(BaseException):
    """As abrupt as a signal: nothing catches it."""


@pytest.mark.parametrize("after", [(7,), (2, 12, 17)])
def test_interrupted_and_resumed_is_the_same_to_the_last_digit(
    whole, path, tmp_path, monkeypatch, after
):
    calls = 0
    visit = sums.Visit.__call__
    pull = sums.Pull.__call__

    def counted(real):
        def one(self, unit):
            nonlocal calls
            calls += 1
            if calls in after:
                raise Killed
            return real(self, unit)

        return one

    monkeypatch.setattr(sums.Visit, "__call__", counted(visit))
    monkeypatch.setattr(sums.Pull, "__call__", counted(pull))
    settings = {"drop": ["who"], "steps": 2, "work": tmp_path / "work"}
    for _ in after:
        with pytest.raises(Killed):
            fit_files(path, "y", regressor(), **settings)
    saved = fit_files(path, "y", regressor(), **settings)
    np.testing.assert_array_equal(numbers(saved), numbers(whole))
    # Finished parts are not visited again: each kill cost the unit, and those beside it.
    evaluations, units = saved.model.training_.evaluations, len(rows.units_of([path]))
    assert calls <= (2 * evaluations + 1) * units + 4 * len(after)
    before = calls
    np.testing.assert_array_equal(
        numbers(fit_files(path, "y", regressor(), **settings)), numbers(whole)
    )
    assert calls == before


def test_csv_and_several_files_are_the_same_rows(whole, path, tmp_path):
    table = made_table()
    folder = tmp_path / "parts"
    folder.mkdir()
    for k, part in enumerate((table[:700], table[700:])):
        pq.write_table(part, folder / f"{k}.parquet", row_group_size=250)
    csv.write_csv(table, tmp_path / "data.csv")
    expected = numbers(fit_files(path, "y", regressor(), drop=["who"]))
    assert rows.table_files(folder) == rows.table_files([*sorted(folder.iterdir())])
    for source in (folder, tmp_path / "data.csv"):
        found = numbers(fit_files(source, "y", regressor(), drop=["who"]))
        # Units end elsewhere, so that sums are rounded differently.
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_threads_visit_units_and_nothing_else(path, monkeypatch):
    """Sums of large tensors are rounded differently by every number of threads."""
    seen = []
    real = Bases.one_gp

    def spied(*given):
        seen.append(torch.get_num_threads())
        return real(*given)

    monkeypatch.setattr(Bases, "one_gp", spied)
    one, two = (fit_files(path, "y", regressor(), drop=["who"], workers=w) for w in (1, 2))
    assert seen == [1, 1]
    np.testing.assert_array_equal(numbers(one), numbers(two))


def test_groups_are_held_out_whole(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved = fit_files(path, "y", regressor(), groups="who")
    assert saved.model.grouped_
    assert "who" not in saved.model.encoding_.names
    assert 2 < len(saved.model.calibrated_.groups.unique()) < 40
    assert saved.model.predict_band(made_table(5).drop_columns(["y", "who"])).shape == (5, 2)


def test_rows_without_a_target_are_left_out_and_counted(tmp_path):
    table = made_table(400).drop_columns(["who"])
    y = table["y"].to_pylist()
    y[3], y[300] = None, None
    table = table.set_column(3, "y", pa.array(y))
    pq.write_table(table, tmp_path / "data.parquet")
    with pytest.warns(UserWarning, match="2 of 400 targets are missing; these rows are left out"):
        saved = fit_files(tmp_path / "data.parquet", "y", regressor())
    model = saved.model
    assert model.posterior_.n_train + model.calibrated_.n_cal == 398


def test_the_command_reads_several_files_in_batches_and_cleans_up(path, tmp_path):
    out = tmp_path / "model.sgp"
    folder = tmp_path / "model.sgp.work"
    arguments = ["fit", str(path), str(path), "--target", "y", "--out", str(out), "--quiet"]
    arguments += ["--drop", "who", "--base", "rbf", "--approximation", f"sparse:{M}"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert f"Fitted y on 3 columns (6 features, {2 * made_table()['t'].null_count} values" in (
        result.stdout
    )
    assert not folder.exists()
    assert load_model(out).model.posterior_.n_train > N
    refused = runner.invoke(app, [*arguments, "--engine", "spark"])
    assert refused.exit_code == 2
    assert "engine: expected" in refused.stderr


@pytest.mark.parametrize("more", [["--memory", "2"], ["--engine", "local", "--workers", "1"]])
def test_the_command_streams_where_it_is_asked_to(path, tmp_path, monkeypatch, more):
    asked = {}
    monkeypatch.setattr("sharpgp.tabular.fit_files", lambda *_, **given: asked.update(given))
    out = tmp_path / "model.sgp"
    runner.invoke(app, ["fit", str(path), "--target", "y", "--out", str(out), "--quiet", *more])
    assert asked["work"] == tmp_path / "model.sgp.work"
    assert asked["memory"] == 2.0


# ------------------------------------------------------------------ errors of one line


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"approximation": "exact"}, "approximation: expected 'auto', 'sparse' or Sparse"),
        ({"approximation": Neighbours(5)}, "approximation: expected 'auto', 'sparse' or Sparse"),
        ({"base": "extra_trees"}, "base: expected 'auto', rbf"),
        ({"base": ["rbf", "matern32"]}, "base: expected 'auto', rbf"),
        ({"calibration": "cv"}, "another method that holds rows out"),
        ({"calibration": CrossValidated()}, "another method that holds rows out"),
        ({"cal_size": 10**6}, "cal_size: expected a fraction in"),
    ],
)
def test_settings_that_need_all_rows_are_refused(path, settings, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        fit_files(path, "y", regressor(**settings))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"memory": 0.1}, "memory: expected more than 0.75 GiB, found 0.1"),
        ({"memory": float("nan")}, "memory: expected more than"),
        ({"steps": -1}, "steps: expected"),
        ({"engine": "spark"}, "engine: expected"),
        ({"address": "a:1"}, "address: expected none with the engine local"),
        ({"workers": 0}, "workers: expected"),
        ({"drop": ["nonsense"]}, r"expected the column\(s\) nonsense"),
        ({"drop": ["x", "t", "kind", "who"]}, "expected at least one column beside"),
    ],
)
def test_arguments_are_checked_before_rows_are_read(path, more, message, monkeypatch):
    monkeypatch.setattr(survey, "batches_of", None)
    with pytest.raises(InvalidInputError, match=message) as caught:
        fit_files(path, "y", regressor(), **more)
    assert "\n" not in str(caught.value)


def test_little_memory_makes_smaller_batches_and_then_an_error():
    assert Memory.of(4).batch_rows(10) == 2**14
    assert 256 <= Memory.of(1).batch_rows(1000) < 2**14
    with pytest.raises(InvalidInputError, match=r"at least \d+\.\d+ GiB for 100000 columns"):
        Memory.of(1).batch_rows(100_000)
    assert Memory.of(0.8).workers(64, 100, 1000) == 1
    assert Memory.of(64).workers(8, 10, 300) == 8


def test_a_folder_of_another_fit_is_refused(path, tmp_path, monkeypatch):
    monkeypatch.setattr(fit._Fit, "run", lambda self: None)
    folder = tmp_path / "work"
    fit_files(path, "y", regressor(), drop=["who"], work=folder)
    for more in ({"drop": ["who", "t"]}, {"drop": ["who"], "steps": 1}):
        with pytest.raises(InvalidInputError, match=r"work: expected .* as when the fit") as caught:
            fit_files(path, "y", regressor(), work=folder, **more)
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="work: expected settings"):
        fit_files(path, "y", regressor(random_state=1), drop=["who"], work=folder)
    other = tmp_path / "data.parquet"
    pq.write_table(made_table(300), other)
    fit_files(other, "y", regressor(), drop=["who"], work=tmp_path / "other")
    os.utime(other, ns=(1, 1))
    with pytest.raises(InvalidInputError, match="work: expected files as when"):
        fit_files(other, "y", regressor(), drop=["who"], work=tmp_path / "other")
    about = json.loads((folder / "fit.json").read_text())
    assert set(about) == {"files", "columns", "missing", "memory", "steps", "settings", "versions"}
    with pytest.raises(InvalidInputError, match="work: expected an empty folder"):
        fit_files(path, "y", regressor(), work=path.parent)


def test_errors_in_rows_name_column_row_and_file(tmp_path):
    table = made_table(600).drop_columns(["who"])
    y = table["y"].to_numpy().copy()
    y[450] = np.inf
    pq.write_table(table.set_column(3, "y", pa.array(y)), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"a.parquet: column 'y': .* inf in row 451"):
        fit_files(tmp_path / "a.parquet", "y", regressor())
    pq.write_table(table.set_column(0, "x", pa.array(y)), tmp_path / "g.parquet")
    with pytest.raises(InvalidInputError, match=r"g.parquet: column 'x': .* inf in row 451"):
        fit_files(tmp_path / "g.parquet", "y", regressor())
    csv.write_csv(table.set_column(0, "x", pa.array(y)), tmp_path / "h.csv")
    with pytest.raises(InvalidInputError, match=r"h.csv: column 'x': .* inf in row 451"):
        fit_files(tmp_path / "h.csv", "y", regressor())
    with pytest.raises(InvalidInputError, match=r"memory: .* GiB, found 'all'"):
        fit_files(tmp_path / "g.parquet", "y", regressor(), memory="all")
    text = table.set_column(3, "y", pa.array(["one"] * 600))
    pq.write_table(text, tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match=r"b.parquet: column 'y': expected numbers, found"):
        fit_files(tmp_path / "b.parquet", "y", regressor())
    pq.write_table(table.rename_columns(["x", "t", "other", "y"]), tmp_path / "c.parquet")
    with pytest.raises(InvalidInputError, match=r"c.parquet: expected the columns of"):
        fit_files([tmp_path / "a.parquet", tmp_path / "c.parquet"], "y", regressor())
    (tmp_path / "e.csv").write_text("x,y\n" + "1,2\n" * 5)
    (tmp_path / "f.csv").write_text("y,x\n" + "2,one\n" * 5)
    with pytest.raises(InvalidInputError, match=r"f.csv: column 'x': expected double.* string"):
        fit_files([tmp_path / "e.csv", tmp_path / "f.csv"], "y", regressor())
    with pytest.raises(InvalidInputError, match="expected a file, found none"):
        fit_files(tmp_path / "none.parquet", "y", regressor())
    (tmp_path / "d.csv").write_text("x,y\n" + "1,2\n" * 5)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match=r"expected .parquet or .csv files, found none"):
        fit_files(tmp_path / "empty", "y", regressor())


# ------------------------------------------------------------------ clusters


def test_a_column_that_is_empty_in_one_of_several_files_is_a_gap_there(tmp_path):
    rng = np.random.default_rng(3)
    for name, kinds in (("a.csv", ("one", "two")), ("b.csv", ("", ""))):
        rows = [
            f"{x},{kinds[k % 2]},{x + 0.1 * (k % 2)}\n" for k, x in enumerate(rng.normal(size=150))
        ]
        (tmp_path / name).write_text("x,kind,y\n" + "".join(rows))
    for files in (["a.csv", "b.csv"], ["b.csv", "a.csv"]):
        found = fit_files([tmp_path / name for name in files], "y", regressor())
        kind = found.model.encoding_.columns[1]
        assert kind.name == "kind"
        assert set(kind.categories) == {"one", "two"}


def test_answers_come_in_order_and_errors_as_they_are(path):
    units = rows.units_of([path])
    with engines.visitors("local", workers=2, address=None, device=torch.device("cpu")) as visit:
        assert list(visit(lambda unit: unit.first, units)) == [unit.first for unit in units]
    waiting = []

    def send(unit):
        waiting.append(unit)
        return unit

    answers = engines._windowed(send, lambda unit: unit.first, units, 2)
    assert next(answers) == 0
    assert len(waiting) == 4  # two ahead for each of two workers
    error = engines.alone(lambda unit: (_ for _ in ()).throw(InvalidInputError("no")), units[0])
    with pytest.raises(InvalidInputError, match="no"):
        engines._given(error)


class Lost:
    """Sums that cost the first worker that it is asked of its life, in the middle of a fit."""

    def __init__(self, visit, mark):
        self.visit, self.mark = visit, str(mark)

    def __call__(self, unit):
        if unit.first > 500 and not os.path.exists(self.mark):
            with open(self.mark, "w"):
                pass
            os._exit(1)
        return self.visit(unit)


THREADS = """
import torch
from sharpgp.tabular.streamed.engines import visitors

with visitors({engine!r}, workers=1, address=None, device=torch.device("cpu")):
    print("threads:", torch.get_num_threads())
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_a_driver_keeps_its_threads(engine):
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[engine])
    command = [sys.executable, "-c", THREADS.format(engine=engine)]
    settings = {"env": environment(OMP_NUM_THREADS="2"), "timeout": PATIENCE}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    assert "threads: 2" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_a_cluster_gives_the_same_and_may_lose_a_worker(engine, whole, path, tmp_path, monkeypatch):
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[engine])
    # Workers are processes of their own, which have to find this module.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.path.dirname(__file__), *sys.path]))
    mark = tmp_path / "lost"

    @contextmanager
    def losing(*given, **more):
        with engines.visitors(*given, **more) as visit_all:
            yield lambda visit, units: visit_all(Lost(visit, mark), units)

    monkeypatch.setattr(fit, "visitors", losing)
    saved = fit_files(
        path, "y", regressor(), drop=["who"], steps=2, engine=engine, workers=2, memory=2.0
    )
    assert mark.exists()
    if engine == "dask":
        local, cluster = tmp_path / "local.parquet", tmp_path / "cluster.parquet"
        request = Request([0.9], keep=["who"])
        predict_file(saved, path, local, request)
        assert predict_on_dask(saved, path, cluster, request, workers=2) == N
        expected, found = (pq.read_table(one).to_pandas() for one in (local, cluster))
        assert (found["who"] == expected["who"]).all()
        np.testing.assert_allclose(
            found.drop(columns="who"), expected.drop(columns="who"), rtol=1e-8, atol=1e-8
        )
    np.testing.assert_allclose(numbers(saved), numbers(whole), rtol=1e-8, atol=1e-8)


class Slow:
    """Visits that take long enough to be on every node when one of them goes."""

    def __init__(self, visit):
        self.visit = visit

    def __call__(self, unit):
        time.sleep(0.3)
        return self.visit(unit)


@contextmanager
def ray_nodes():
    """Address of a cluster of a head and two nodes, and what makes one of these go."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        node, _ = (cluster.add_node(num_cpus=1) for _ in range(2))
        cluster.wait_for_nodes()
        yield cluster.address, lambda: cluster.remove_node(node, allow_graceful=False)
    finally:
        cluster.shutdown()


@contextmanager
def dask_workers():
    """The same of three processes, one of which is killed."""
    from distributed import Client, LocalCluster

    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=3, threads_per_worker=1, **quiet) as cluster:
        with Client(cluster) as client:
            process = next(iter(client.run(os.getpid).values()))
        yield cluster.scheduler_address, lambda: os.kill(process, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_a_cluster_that_loses_a_node_gives_the_same_to_the_last_digit(
    engine, whole, path, monkeypatch
):
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[engine])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.path.dirname(__file__), *sys.path]))
    lost = []

    with {"ray": ray_nodes, "dask": dask_workers}[engine]() as (address, lose):

        @contextmanager
        def losing(*given, **more):
            with engines.visitors(*given, **more) as visit_all:

                def visit(work, units):
                    for answer in visit_all(Slow(work), units):
                        if isinstance(work, sums.Pull) and not lost:
                            lost.append(lose())
                        yield answer

                yield visit

        monkeypatch.setattr(fit, "visitors", losing)
        settings = {"drop": ["who"], "steps": 2, "engine": engine, "address": address}
        saved = fit_files(path, "y", regressor(), **settings)
    assert lost
    np.testing.assert_array_equal(numbers(saved), numbers(whole))


@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_no_cluster_at_the_address(path, engine):
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[engine])
    with pytest.raises(SharpGPError, match=f"engine {engine}: expected a cluster at") as caught:
        fit_files(path, "y", regressor(), engine=engine, address="127.0.0.1:1")
    assert "\n" not in str(caught.value)
