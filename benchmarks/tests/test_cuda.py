"""Experiments on a GPU; skipped where there is none."""

import numpy as np
import pytest
import torch

from helpers import wavy
from sharpgp_benchmarks import regression

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
    pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning"),
]


def test_experiments_compute_there(tmp_path):
    X, y = wavy(120)
    table = np.column_stack([X, y])
    header = ",".join([*(f"x{i}" for i in range(X.shape[1])), "target"])
    np.savetxt(tmp_path / "yacht.csv", table, delimiter=",", header=header, comments="")
    (task,) = regression.plan(["yacht"], ["kuleshov18"], repeats=1)
    found = [
        regression.run_task(task, {"data_home": str(tmp_path), "device": device}).metrics
        for device in ("cpu", "cuda")
    ]
    for name, value in found[0].items():
        # Trained on both: as close as two optima; and one point may fall on the other side.
        assert found[1][name] == pytest.approx(value, rel=0.02, abs=1.5 / len(y)), name
