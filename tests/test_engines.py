"""The same small run on every engine gives the same table."""

import pytest

from sharpgp.exceptions import SharpGPError
from sharpgp.studies import formats, regression
from sharpgp.studies.engines import open_pool
from sharpgp.studies.run import run
from sharpgp.studies.store import Store
from sharpgp.studies.task import Task

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
