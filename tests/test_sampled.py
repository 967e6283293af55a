"""Fits to files of any size: which rows are drawn, from what, interruptions, clusters, errors."""

import logging
import os
import signal
import time
import warnings
from concurrent.futures import Future
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

from processes import python
from sharpgp import SharpGPRegressor
from sharpgp.cli import app
from sharpgp.data import TableEncoding
from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp.tabular import (
    cluster,
    fit_file,
    fit_files,
    load_model,
    models,
    sample,
    sources,
)
from sharpgp.tabular.layout import Reading
from sharpgp.tabular.prediction import Request, predict_file
from sharpgp.tabular.sample import Memory, random_numbers

pytestmark = pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
N = 600
runner = CliRunner()


def made_table(n: int = N, seed: int = 0) -> pa.Table:
    draw = np.random.default_rng(seed)
    x, t = draw.uniform(-2, 2, n), draw.uniform(0, 1, n)
    kind = draw.choice(["a", "b"], n, p=[0.6, 0.4])
    y = np.sin(2 * x) + (kind == "b") + 0.1 * (1 + (t > 0.5)) * draw.normal(size=n)
    gaps = np.where(draw.uniform(size=n) < 0.02, np.nan, t)
    who = [f"p{k}" for k in draw.integers(60, size=n)]
    return pa.table(
        {"x": x, "t": pa.array(gaps, from_pandas=True), "kind": kind, "who": who, "y": y}
    )


@pytest.fixture
def small_units(monkeypatch):
    monkeypatch.setattr(sources, "UNIT_ROWS", 100)
    monkeypatch.setattr(sample, "SAVE_EVERY", 0.0)


@pytest.fixture
def drawn(small_units, monkeypatch):
    """The rows that ``fit_files`` would fit a model to, as features, and targets, in one array."""
    monkeypatch.setattr(models, "fit_rows", lambda rows, model: rows)

    def ask(source, seed=0, **settings):
        model = SharpGPRegressor(random_state=seed)
        rows = fit_files(source, "y", model, **{"drop": ["who"], **settings})
        ask.seen, ask.rows = rows.seen, rows
        return np.column_stack([rows.X.features, rows.y])

    return ask


@pytest.fixture
def path(tmp_path):
    pq.write_table(made_table(), tmp_path / "data.parquet", row_group_size=50)
    return tmp_path / "data.parquet"


def all_rows():
    table = made_table().drop_columns(["who"])
    X = TableEncoding.learn(table.drop_columns(["y"])).encode(table)
    return np.column_stack([X.features, table["y"]])


# ------------------------------------------------------------------ which rows


def test_a_sample_has_as_many_rows_as_wanted_and_is_one_of_all(drawn, path):
    everything = {tuple(row) for row in all_rows()[:, [0, -1]]}
    found = drawn(path, rows=150)
    assert found.shape[0] == 150
    assert drawn.seen == N
    assert len({tuple(row) for row in found[:, [0, -1]]} & everything) == 150
    places = np.array(drawn.rows.numbers) - 1  # messages call rows by their places in the file
    np.testing.assert_array_equal(made_table()["y"].to_numpy()[places], found[:, -1])
    assert (np.diff(places) > 0).all()
    more = drawn(path, rows=300)
    assert {tuple(row) for row in found[:, [0, -1]]} < {tuple(row) for row in more[:, [0, -1]]}
    assert not np.array_equal(drawn(path, rows=150, seed=1), found)


def test_every_row_is_drawn_equally_often():
    n, seeds, most = 400, 500, 100
    times = np.zeros(n)
    pairs = 0
    for key in range(seeds):
        inside = np.argsort(random_numbers(key, 7, 0, n))[:most]
        times[inside] += 1
        pairs += np.isin([0, 1], inside).all()
    share = most / n
    error = np.sqrt(seeds * share * (1 - share))
    assert np.abs(times - seeds * share).max() < 4.5 * error  # of 400 normal scores
    both = seeds * share * (most - 1) / (n - 1)
    assert abs(pairs - both) < 4 * np.sqrt(both)
    np.testing.assert_array_equal(
        random_numbers(0, 3, 100, 50), random_numbers(0, 3, 0, 400)[100:150]
    )


def test_the_sample_knows_neither_order_nor_sizes_nor_workers(drawn, tmp_path, monkeypatch):
    table = made_table()
    for folder, size in (("one", 30), ("two", 250)):
        (tmp_path / folder).mkdir()
        for name, part in (("a", table[:350]), ("b", table[350:])):
            pq.write_table(part, tmp_path / folder / f"{name}.parquet", row_group_size=size)
    first = drawn(tmp_path / "one", rows=100)
    files = sorted((tmp_path / "one").iterdir())
    np.testing.assert_array_equal(drawn(files[::-1], rows=100), first)
    np.testing.assert_array_equal(drawn(tmp_path / "two", rows=100), first)
    np.testing.assert_array_equal(drawn(files, rows=100, workers=3), first)
    np.testing.assert_array_equal(drawn(files, rows=100, memory=64), first)
    monkeypatch.setattr(sources, "UNIT_ROWS", 10**6)
    np.testing.assert_array_equal(drawn(files, rows=100), first)
    assert set(map(str, drawn.rows.numbers)) <= {
        f"{row} of {file}" for file in files for row in range(1, 351)
    }


def test_many_features_leave_room_for_fewer_rows(drawn, tmp_path, monkeypatch):
    table = made_table()
    codes = pa.array([f"c{k}" for k in np.random.default_rng(1).integers(30, size=N)])
    pq.write_table(table.append_column("code", codes), tmp_path / "a.parquet")
    monkeypatch.setattr(sample, "_LEAST_ROWS", 1)
    memory = Memory(sample._BASE + sample._COPIES * 8 * 5 * 200)  # 200 rows of five columns
    monkeypatch.setattr(sample.Memory, "parse", lambda _: memory)
    found = drawn(tmp_path / "a.parquet")
    features = len(drawn.rows.X.encoding.features)  # some codes of the first 200 rows are rare now
    assert 20 < features < 30
    assert memory.rows(36) <= len(found) <= memory.rows(features)


# ------------------------------------------------------------------ from what


def places(folder):
    """The same rows in many places."""
    table = made_table()
    pq.write_table(table, folder / "a.parquet", row_group_size=130)
    csv.write_csv(table, folder / "a.csv")
    for k, part in enumerate((table[:350], table[350:])):
        for kind, write in (("parquet", pq.write_table), ("csv", csv.write_csv)):
            inside = folder / kind / f"year={2020 + k}"
            inside.mkdir(parents=True)
            write(part, inside / f"p.{kind}")
    fsspec = pytest.importorskip("fsspec").filesystem("memory")
    for name in ("a.parquet", "a.csv"):
        fsspec.pipe(f"/sampled/{name}", (folder / name).read_bytes())
    yield "Parquet", folder / "a.parquet", False
    yield "CSV", str(folder / "a.csv"), False
    yield "folder", folder / "parquet", True
    yield "folder of CSV", folder / "csv", True
    yield "pattern", f"{folder}/parquet/*/*.parquet", True
    yield "any depth", f"{folder}/cs*/**/p.csv", True
    yield (
        "list",
        [folder / "parquet/year=2021/p.parquet", folder / "parquet/year=2020/p.parquet"],
        1,
    )
    yield "address", f"file://{folder}/a.parquet", False
    yield "fsspec", "memory://sampled/a.parquet", False
    yield "fsspec CSV", "memory://sampled/a.csv", False
    yield "fsspec pattern", "memory://sampled/*.csv", False
    yield "dataset", ds.dataset(folder / "parquet", partitioning="hive"), True
    yield "CSV dataset", ds.dataset(folder / "a.csv", format="csv"), False
    yield "in memory", ds.dataset(table), False
    yield "filtered", ds.dataset(folder / "a.parquet").filter(ds.field("x") > -9), False


def test_rows_are_the_same_wherever_they_are(drawn, tmp_path):
    expected = all_rows()
    for name, source, is_parted in places(tmp_path):
        drop = ["who", "year"] if is_parted else ["who"]
        np.testing.assert_array_equal(drawn(source, drop=drop), expected, err_msg=name)
        if is_parted:
            drawn(source)
            year = drawn.rows.X.encoding.columns[-1]
            assert (year.name, year.kind) == ("year", "number"), name
    for source in (made_table().to_pandas(), made_table(), 3):
        with pytest.raises(InvalidInputError, match=r"goes to SharpGPRegressor.fit"):
            drawn(source)


def test_frames_of_dask_are_read_by_partition(drawn):
    pytest.importorskip("dask.dataframe")
    import dask.dataframe as dd

    frame = dd.from_pandas(made_table().to_pandas(), npartitions=3)
    np.testing.assert_array_equal(drawn(frame), all_rows())
    assert len(drawn(frame, rows=50)) == 50


def test_several_excel_files_and_notes_below_csv_files(drawn, tmp_path):
    pytest.importorskip("openpyxl")
    frame = made_table(90).to_pandas()
    for k, part in enumerate((frame[:50], frame[50:])):
        part.to_excel(tmp_path / f"{k}.xlsx", index=False)
        part.to_csv(tmp_path / f"{k}.csv", index=False)
        with (tmp_path / f"{k}.csv").open("a") as file:
            file.write("Source: own survey\n")
    sheets = drawn([tmp_path / "0.xlsx", tmp_path / "1.xlsx"])
    with pytest.warns(UserWarning, match="without 1 line.s. at its end that hold no row"):
        found = drawn([tmp_path / "0.csv", tmp_path / "1.csv"])
    assert len(found) == 90
    np.testing.assert_allclose(sheets, found, rtol=1e-12)


def test_an_index_that_pandas_wrote_is_no_feature(drawn, tmp_path):
    made_table().to_pandas().to_csv(tmp_path / "a.csv", sep=";", decimal=",")
    with pytest.warns(UserWarning, match="without its first column"):
        found = drawn(tmp_path / "a.csv")
    np.testing.assert_allclose(found, all_rows())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn(tmp_path / "a.csv", reading=Reading(decimal=","), rows=100)


def test_a_column_that_is_empty_in_one_of_several_files_is_a_gap_there(drawn, tmp_path):
    rng = np.random.default_rng(3)
    for name, kinds in (("a.csv", ("one", "two")), ("b.csv", ("", ""))):
        rows = [f"{x},{kinds[k % 2]},{x + k % 2}\n" for k, x in enumerate(rng.normal(size=150))]
        (tmp_path / name).write_text("x,kind,y\n" + "".join(rows))
    for files in (["a.csv", "b.csv"], ["b.csv", "a.csv"]):
        drawn([tmp_path / name for name in files], drop=[])
        kind = drawn.rows.X.encoding.columns[1]
        assert (kind.name, set(kind.categories), kind.n_missing) == ("kind", {"one", "two"}, 150)


def test_rows_without_a_target_are_left_out_and_counted(drawn, tmp_path):
    y = made_table()["y"].to_pylist()
    y[3], y[500] = None, None
    table = made_table().set_column(4, "y", pa.array(y))
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.warns(
        UserWarning, match=r"column 'y': 2 of 600 values are missing; row\(s\) 4, 501 are left"
    ):
        assert len(drawn(tmp_path / "a.parquet")) == N - 2
    with pytest.warns(UserWarning, match="2 of 600 values are missing; these rows are left out"):
        assert np.isfinite(drawn(tmp_path / "a.parquet", rows=500)[:, -1]).all()


# ------------------------------------------------------------------ interruptions


class Killed(BaseException):
    """As abrupt as a signal: nothing catches it."""


@pytest.fixture
def visits(monkeypatch):
    """Units that were looked at; those numbered in ``visits.fatal`` end the fit."""
    seen = []
    real = sample.Draw.__call__

    class Visits(list):
        fatal = ()

    seen = Visits()

    def counted(self, unit):
        seen.append(unit.first)
        if len(seen) in seen.fatal:
            raise Killed
        return real(self, unit)

    monkeypatch.setattr(sample.Draw, "__call__", counted)
    return seen


def test_what_was_read_is_not_read_again(drawn, path, tmp_path, visits):
    expected = drawn(path, rows=100)
    units, work = len(visits), tmp_path / "work"
    assert units == 6
    visits.fatal = (9, 13)
    for _ in visits.fatal:
        with pytest.raises(Killed):
            drawn(path, rows=100, work=work, workers=1)
    np.testing.assert_array_equal(drawn(path, rows=100, work=work), expected)
    assert len(visits) <= 2 * units + 2 * 3  # a kill costs the unit, and those beside it
    before = len(visits)
    np.testing.assert_array_equal(drawn(path, rows=100, work=work), expected)
    np.testing.assert_array_equal(drawn(path, rows=100, work=work, memory="5GB"), expected)
    smaller = drawn(path, rows=40, work=work)
    assert len(visits) == before
    np.testing.assert_array_equal(smaller, drawn(path, rows=40))
    assert len(visits) == before + units
    np.testing.assert_array_equal(drawn(path, rows=200, work=work), drawn(path, rows=200))
    os.utime(path, ns=(1, 1))  # other rows, as far as anybody knows
    before = len(visits)
    drawn(path, rows=200, work=work)
    assert len(visits) == before + units


KILLED = """
import os, signal, sys
from sharpgp import SharpGPRegressor
from sharpgp.tabular import fit_files, sample, sources
sources.UNIT_ROWS, sample.SAVE_EVERY = 100, 0.0
real, seen = sample.Draw.__call__, []
def draw(self, unit):
    seen.append(unit)
    if len(seen) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, unit)
sample.Draw.__call__ = draw
data, work = sys.argv[1:]
fit_files(data, "y", SharpGPRegressor(random_state=0), drop=["who"], rows=100, work=work, workers=1)
"""


def test_a_killed_process_leaves_what_it_has_read(drawn, path, tmp_path, visits):
    done = python("-c", KILLED, path, tmp_path / "work")
    assert done.returncode == -signal.SIGKILL, done.stderr
    found = drawn(path, rows=100, work=tmp_path / "work")
    assert len(visits) <= 4  # of six
    np.testing.assert_array_equal(found, drawn(path, rows=100))


def test_a_pass_that_kept_all_rows_serves_any_number_of_them(drawn, path, tmp_path, visits):
    drawn(path, rows=1000, work=tmp_path / "work")
    before = len(visits)
    assert len(drawn(path, rows=2000, work=tmp_path / "work")) == N
    assert len(visits) == before


# ------------------------------------------------------------------ the model


def test_the_model_is_the_one_of_a_table_in_memory(path, tmp_path):
    model = SharpGPRegressor(base="rbf", calibration="exact", effort="low", random_state=0)
    saved = fit_files(path, "y", model, drop=["who"])
    assert saved.rows == N
    saved.save(tmp_path / "one.sgp")
    again = SharpGPRegressor(**model.get_params())
    fit_file(path, "y", again, drop=["who"]).save(tmp_path / "two.sgp")
    assert (tmp_path / "one.sgp").read_bytes() == (tmp_path / "two.sgp").read_bytes()
    request = [tmp_path / "one.sgp", path, "--out", tmp_path / "predictions.csv"]
    done = python("-m", "sharpgp", "predict", *request)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == N + 1


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_folder_is_predicted_with_what_its_names_say(tmp_path, kind):
    parts = made_table(60)[:40], made_table(60)[40:]
    for k, part in enumerate(parts):
        (tmp_path / f"data/year={2020 + k}").mkdir(parents=True)
        write = {"csv": csv.write_csv, "parquet": pq.write_table}[kind]
        write(part, tmp_path / f"data/year={2020 + k}/p.{kind}")
    saved = fit_files(tmp_path / "data", "y", SharpGPRegressor(calibration="vanilla"), drop=["who"])
    assert saved.model.encoding_.names == ["x", "t", "kind", "year"]
    saved.save(tmp_path / "model.sgp")
    asked = ["predict", tmp_path / "model.sgp", tmp_path / "data", "--keep", "year", "--quiet"]
    result = runner.invoke(app, [*map(str, asked), "--out", str(tmp_path / "new.parquet")])
    assert result.exit_code == 0, result.output
    found = pq.read_table(tmp_path / "new.parquet")
    assert found["year"].to_pylist() == [2020] * 40 + [2021] * 20
    table = made_table(60).append_column("year", pa.array([2020] * 40 + [2021] * 20))
    expected = saved.model.predict(table.select(saved.model.encoding_.names))
    np.testing.assert_allclose(found["mean"].to_numpy(), expected, rtol=1e-9)
    with pytest.raises(InvalidInputError, match=r"expected the column\(s\) year"):
        predict_file(saved, tmp_path / f"data/year=2020/p.{kind}", tmp_path / "a.csv", Request())


def test_the_command_takes_several_files_and_cleans_up(path, tmp_path, monkeypatch):
    out = tmp_path / "model.sgp"
    pq.write_table(made_table(seed=1), tmp_path / "more.parquet")
    arguments = ["fit", f"{tmp_path}/*.parquet", "--target", "y", "--out", str(out), "--quiet"]
    arguments += ["--drop", "who", "--base", "rbf", "--calibration", "exact", "--rows", "400"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "of 1200 rows in all, calibration exact" in result.stdout
    assert not (tmp_path / "model.sgp.work").exists()
    assert load_model(out).model.calibrated_.n_cal == 99
    refused = runner.invoke(app, [*arguments, "--engine", "spark"])
    assert (refused.exit_code, "engine: expected" in refused.stderr) == (2, True)
    (tmp_path / "model.sgp.work").mkdir()
    monkeypatch.setattr(models, "drawn", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    stopped = runner.invoke(app, arguments)
    assert stopped.exit_code == 130
    assert "model.sgp.work keeps what was read: the same command continues" in stopped.stderr


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--memory", "3GB"], {"memory": "3GB"}),
        (["--workers", "1"], {"workers": 1}),
        (["--rows", "500"], {"rows": 500}),
    ],
)
def test_the_command_draws_where_it_is_asked_to(path, tmp_path, monkeypatch, more, expected):
    asked = {}
    monkeypatch.setattr(models, "training_rows", lambda *_, **given: asked.update(given))
    out = tmp_path / "model.sgp"
    runner.invoke(app, ["fit", str(path), "--target", "y", "--out", str(out), "--quiet", *more])
    assert asked["work"] == tmp_path / "model.sgp.work"
    assert asked | expected == asked


# ------------------------------------------------------------------ errors of one line


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"memory": 0.1}, "memory: expected more than 0.75 GiB, found 0.1"),
        ({"memory": "100MB"}, "memory: expected more than 0.75 GiB, found '100MB'"),
        (
            {"memory": "all"},
            "memory: expected a number of GiB, or a text such as '4GB', found 'all'",
        ),
        ({"memory": float("nan")}, "memory: expected a number of GiB"),
        ({"rows": 0}, "rows: expected"),
        ({"engine": "spark"}, "engine: expected"),
        ({"address": "a:1"}, "address: expected none with the engine local"),
        ({"workers": 0}, "workers: expected"),
        ({"drop": ["nonsense"]}, r"expected the column\(s\) nonsense"),
        ({"drop": ["x", "t", "kind", "who"]}, "expected at least one column beside"),
    ],
)
def test_arguments_are_checked_before_rows_are_read(path, more, message, monkeypatch):
    monkeypatch.setattr(sample.Draw, "__call__", None)
    with pytest.raises(InvalidInputError, match=message) as caught:
        fit_files(path, "y", SharpGPRegressor(), **more)
    assert "\n" not in str(caught.value)


def test_memory_is_a_number_of_gib_or_a_text():
    assert Memory.parse("2GiB") == Memory.parse(2) == Memory.parse("2")
    assert Memory.parse("1GB").limit == 10**9
    assert Memory.parse(0.8).threads == 1
    assert Memory.parse(None).rows(10) == Memory.parse(2).rows(10)
    assert Memory.parse(None).rows(100_000) == 10_000
    with pytest.raises(
        InvalidInputError, match=r"at least \d+\.\d+ GiB for 100000 columns, found 1"
    ):
        Memory.parse(1).rows(100_000)


def test_errors_in_rows_name_column_row_and_file(drawn, tmp_path):
    table = made_table().drop_columns(["who"])
    y = table["y"].to_numpy().copy()
    y[450] = np.inf
    for place, name in ((3, "y"), (0, "x")):
        wrong = table.set_column(place, name, pa.array(y))
        pq.write_table(wrong, tmp_path / "a.parquet", row_group_size=70)
        csv.write_csv(wrong, tmp_path / "a.csv")
        for file in ("a.parquet", "a.csv"):
            with pytest.raises(InvalidInputError, match=rf"{file}: column '{name}': .*in row 451"):
                drawn(tmp_path / file, drop=[])
    text = table.set_column(3, "y", pa.array(["one"] * N))
    pq.write_table(text, tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match=r"column 'y': expected numbers to predict, found"):
        drawn(tmp_path / "b.parquet", drop=[])
    (tmp_path / "c.csv").write_text("x,z,y\n" + "1,2,3\n" * 5)
    (tmp_path / "d.csv").write_text("y,x,more\n" + "2,1,0\n" * 5)
    (tmp_path / "e.csv").write_text("x,z,y\n" + "one,2,3\n" * 5)
    both = [tmp_path / "c.csv", tmp_path / "d.csv"]
    with pytest.raises(
        InvalidInputError, match=r"d.csv: .* of .*c.csv, .*named 'z' and also 'more'"
    ):
        drawn(both, drop=[])
    with pytest.raises(InvalidInputError, match=r"c.csv: column 'y': expected values, found none"):
        fit_files(tmp_path / "c.csv", "y", SharpGPRegressor(), missing=["3"])
    with pytest.raises(InvalidInputError, match=r"e.csv: column 'x': expected double.* string"):
        drawn([tmp_path / "c.csv", tmp_path / "e.csv"], drop=[])
    with pytest.raises(InvalidInputError, match="expected a file, found none"):
        drawn(tmp_path / "none.parquet")
    (tmp_path / "empty").mkdir()
    for nothing in (tmp_path / "empty", f"{tmp_path}/no*.csv"):
        with pytest.raises(InvalidInputError, match=r"expected .parquet or .csv files, found none"):
            drawn(nothing)
    with pytest.raises(InvalidInputError, match="weird"):
        drawn("weird://a/b.parquet")


# ------------------------------------------------------------------ clusters


def test_answers_come_in_order_and_errors_as_they_are(path, small_units):
    units = sources.Source.from_data(path).units
    with cluster.visitors("local", workers=2, address=None) as visit:
        assert list(visit(lambda unit: unit.first, units)) == [unit.first for unit in units]
    waiting = []

    def send(unit):
        waiting.append(Future())
        waiting[-1].set_result(unit.first)
        return waiting[-1]

    answers = cluster.in_order(send, units, 2)
    assert next(answers) == 0
    assert len(waiting) == 4  # two ahead for each of two workers

    def refuse(_):
        raise InvalidInputError("no")

    error = cluster.visited(refuse, units[0], path)
    with pytest.raises(InvalidInputError, match="no"):
        next(cluster._checked("ray", iter([error])))


@contextmanager
def ray_nodes():
    """A cluster of a head and two nodes that this process has joined, and what ends a node."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        node, _ = (cluster.add_node(num_cpus=1) for _ in range(2))
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
        yield lambda: cluster.remove_node(node, allow_graceful=False)
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def dask_workers():
    """The same of three processes, one of which is killed."""
    from distributed import Client, LocalCluster

    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, **quiet) as cluster,
        Client(cluster) as client,
    ):
        process = next(iter(client.run(os.getpid).values()))
        yield lambda: os.kill(process, signal.SIGKILL)


class Slow:
    """Visits that take long enough to be on every node when one of them goes."""

    def __init__(self, visit):
        self.visit = visit

    def __call__(self, unit):
        time.sleep(0.3)
        return self.visit(unit)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_a_cluster_that_is_joined_is_used_and_may_lose_a_node(engine, drawn, path, monkeypatch):
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[engine])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.path.dirname(__file__), *os.sys.path]))
    expected, lost, real = drawn(path, rows=100), [], models.drawn
    with {"ray": ray_nodes, "dask": dask_workers}[engine]() as lose:

        def losing(draw, files, visit_all, folder):
            def visit(work, units):
                for answer in visit_all(Slow(work), units):
                    if not lost:
                        lost.append(lose())
                    yield answer

            return real(draw, files, visit, folder)

        monkeypatch.setattr(models, "drawn", losing)
        np.testing.assert_array_equal(drawn(path, rows=100, engine=engine), expected)
        assert lost
        monkeypatch.setattr(models, "drawn", real)
        for frame in frames(engine):
            np.testing.assert_array_equal(drawn(frame), all_rows())


def frames(engine):
    if engine == "ray":
        import ray.data

        ray.data.DataContext.get_current().enable_progress_bars = False
        yield ray.data.from_pandas(made_table().to_pandas())
    else:
        import dask.dataframe as dd

        frame = dd.from_pandas(made_table().to_pandas(), npartitions=3)
        yield frame
        yield frame.persist()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_a_cluster_predicts_the_same_file(engine, path, tmp_path):
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[engine])
    saved = fit_file(path, "y", SharpGPRegressor(calibration="vanilla"), drop=["who"])
    local, there = tmp_path / "local.parquet", tmp_path / "there.parquet"
    request = Request([0.9], keep=["who"])
    predict_file(saved, path, local, request)
    assert predict_file(saved, path, there, request, engine=engine, workers=2) == N
    expected, found = (pq.read_table(one).to_pandas() for one in (local, there))
    assert (found["who"] == expected["who"]).all()
    numbers = [frame.drop(columns="who") for frame in (found, expected)]
    np.testing.assert_allclose(*numbers, rtol=1e-8, atol=1e-8)
    bad = made_table().to_pandas()
    bad.loc[321, "x"] = np.inf
    bad.to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(InvalidInputError, match=r"bad.csv: column 'x'.*found inf in row 322"):
        predict_file(saved, tmp_path / "bad.csv", there, request, engine=engine, workers=1)


@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_no_cluster_at_the_address(path, engine):
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[engine])
    with pytest.raises(SharpGPError, match=f"engine {engine}: expected a cluster at") as caught:
        fit_files(path, "y", SharpGPRegressor(), engine=engine, address="127.0.0.1:1")
    assert "\n" not in str(caught.value)
