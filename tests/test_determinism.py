"""The same seed gives the same numbers, whatever the number of workers and threads."""

import numpy as np
import pytest
import torch

from helpers import method, wavy
from sharpgp import SharpGPRegressor
from sharpgp.calibration import known_methods
from sharpgp.experiments import Store, Task, run

X, Y = wavy(70)
X_TEST, _ = wavy(20, seed=1)
SLOW = ("fully_bayesian", "capone22")


def answers(name, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model = SharpGPRegressor(calibration=method(name), random_state=3).fit(X, Y)
        return np.column_stack([model.predict(X_TEST), model.predict_interval(X_TEST, 0.7)])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", [m for m in known_methods() if m not in SLOW])
def test_threads_change_nothing_beyond_rounding(name):
    one = answers(name, 1)
    np.testing.assert_array_equal(answers(name, 1), one)
    np.testing.assert_allclose(answers(name, 2), one, rtol=1e-10, atol=1e-10)


def test_workers_change_nothing_at_all(tmp_path):
    table = np.column_stack([*X.T, Y])
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
