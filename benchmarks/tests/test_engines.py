"""The same small run on every engine gives the same table."""

import numpy as np
import pytest

from helpers import wavy
from sharpgp.exceptions import SharpGPError
from sharpgp_benchmarks import formats, regression
from sharpgp_benchmarks.engines import open_pool
from sharpgp_benchmarks.run import run
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.task import Task

TASKS = {
    # Real numbers, on data that scikit-learn brings along.
    "real": regression.plan(["diabetes"], ["vanilla", "kuleshov18", "vovk20"], repeats=2),
    "rehearsal": [
        Task("rehearsal", "none", method, seed) for seed in range(12) for method in ("a", "fail")
    ],
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Tables of the runs by local processes."""
    folders = {}
    for name, tasks in TASKS.items():
        folders[name] = tmp_path_factory.mktemp(name)
        run(tasks, folders[name], workers=2)
    assert all(result.status == "ok" for result in Store(folders["real"]).results())
    return {name: formats.render(folder, "csv") for name, folder in folders.items()}


@pytest.mark.slow
def test_ray(tmp_path, expected):
    """On a cluster of this machine that the run starts and stops."""
    pytest.importorskip("ray", reason="needs pip install 'sharpgp[ray]'")
    for name, tasks in TASKS.items():
        run(tasks, tmp_path / name, engine="ray", workers=2)
        assert formats.render(tmp_path / name, "csv") == expected[name]


@pytest.mark.slow
def test_dask(tmp_path, expected):
    pytest.importorskip("distributed", reason="needs pip install 'sharpgp[dask]'")
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        address = cluster.scheduler_address
        for name, tasks in TASKS.items():
            out = tmp_path / name
            run(tasks, out, engine="dask", address=address)
            assert formats.render(out, "csv") == expected[name]


@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_no_cluster_at_the_address(tmp_path, engine):
    pytest.importorskip(engine, reason=f"needs pip install 'sharpgp[{engine}]'")
    with (
        pytest.raises(SharpGPError, match=f"engine {engine}: expected a cluster at") as caught,
        open_pool(engine, address="127.0.0.1:1", workers=1),
    ):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_workers_change_nothing_at_all(tmp_path):
    X, y = wavy(70)
    table = np.column_stack([X, y])
    np.savetxt(tmp_path / "yacht.csv", table, delimiter=",", header="a,b,target", comments="")
    tasks = [
        Task("regression", "yacht", name, seed, {"base": "trained", "max_train": 2000})
        for seed in range(2)
        for name in ("kuleshov18", "vovk20", "paper")
    ]
    found = []
    for workers in (1, 2):
        folder = tmp_path / f"workers{workers}"
        run(tasks, folder, workers=workers, context={"data_home": str(tmp_path)})
        results = [Store(folder).read(task) for task in tasks]
        assert [r.status for r in results] == ["ok"] * len(tasks), results[0].error
        found.append([dict(r.metrics) for r in results])
    assert found[0] == found[1]
