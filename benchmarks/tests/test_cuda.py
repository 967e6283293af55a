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


@pytest.mark.parametrize(("queries", "keys"), [(14, 14), (4, 37), (1, 1), (104, 104)])
def test_fused_attention_of_rows_is_attention(queries, keys):
    from sharpgp_benchmarks.pretraining.row_attention import attend

    torch.manual_seed(0)
    q = torch.randn(30, queries, 4, 32, device="cuda").transpose(1, 2).requires_grad_()
    both = torch.randn(30, keys, 2, 4, 32, device="cuda").transpose(1, 3).unbind(2)
    k, v = (part.detach().requires_grad_() for part in both)
    weight = torch.randn(30, 4, queries, 32, device="cuda")
    found, expected = (
        (out, *torch.autograd.grad((out * weight).sum(), (q, k, v)))
        for out in (attend(q, k, v), torch.nn.functional.scaled_dot_product_attention(q, k, v))
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
