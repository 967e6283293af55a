"""The same small run on every engine gives the same table, also when a node is lost."""

import threading
import time

import pytest

from sharpgp.experiments import Store, Task, regression, run, tables


def rehearsals(count, seconds):
    settings = {"seconds": seconds}
    return [Task("rehearsal", "none", m, s, settings) for s in range(count) for m in ("a", "fail")]


#: Real numbers, on data that scikit-learn brings along.
REAL = regression.plan(["diabetes"], ["vanilla", "kuleshov18", "vovk20"], repeats=2)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Tables of the runs by local processes."""
    folders = {}
    for name, tasks in {"real": REAL, "rehearsal": rehearsals(12, 0.2)}.items():
        folders[name] = tmp_path_factory.mktemp(name)
        run(tasks, folders[name], workers=2)
    assert all(result.status == "ok" for result in Store(folders["real"]).results())
    return {name: tables.render(folder, "csv") for name, folder in folders.items()}


@pytest.fixture
def ray_cluster():
    pytest.importorskip("ray", reason="needs pip install 'sharpgp[ray]'")
    from ray.cluster_utils import Cluster

    quick = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 200,
        "health_check_failure_threshold": 3,
    }
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": quick}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()


def test_ray_with_a_node_killed_in_the_middle(tmp_path, ray_cluster, expected):
    node = ray_cluster.add_node(num_cpus=1)
    out = tmp_path / "rehearsal"

    def kill():
        end = time.monotonic() + 60
        while len(list(out.glob("*.json"))) < 6 and time.monotonic() < end:
            time.sleep(0.02)
        left.append(24 - len(list(out.glob("*.json"))))
        ray_cluster.remove_node(node, allow_graceful=False)

    left: list[int] = []
    killer = threading.Thread(target=kill)
    killer.start()
    summary = run(rehearsals(12, 0.2), out, engine="ray", address=ray_cluster.address)
    killer.join()
    assert left[0] > 5  # it really was in the middle
    assert (summary.computed, summary.failed) == (24, 12)
    assert tables.render(out, "csv") == expected["rehearsal"]
    real = tmp_path / "real"
    run(REAL, real, engine="ray", address=ray_cluster.address)
    assert tables.render(real, "csv") == expected["real"]


def test_dask(tmp_path, expected):
    pytest.importorskip("distributed", reason="needs pip install 'sharpgp[dask]'")
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        address = cluster.scheduler_address
        for name, tasks in {"real": REAL, "rehearsal": rehearsals(12, 0.2)}.items():
            out = tmp_path / name
            run(tasks, out, engine="dask", address=address)
            assert tables.render(out, "csv") == expected[name]


@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_no_cluster_at_the_address(tmp_path, engine):
    pytest.importorskip(engine, reason=f"needs pip install 'sharpgp[{engine}]'")
    from sharpgp.exceptions import SharpGPError
    from sharpgp.experiments.engines import make_engine

    with (
        pytest.raises(SharpGPError, match=f"engine {engine}: expected a cluster at") as caught,
        make_engine(engine, address="127.0.0.1:1", workers=1).open(),
    ):
        pass
    assert "\n" not in str(caught.value)
