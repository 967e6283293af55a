"""What is imported, and what is in the distribution."""

import json
import re
import tomllib
from pathlib import Path

import grimp
import pytest

import sharpgp
from processes import python
from stress.planted import BUGS

ROOT = Path(__file__).resolve().parents[1]
#: Packages of the optional extras, and those that only the command line needs.
EXTRAS = (
    *("crepes", "dask", "distributed", "jax", "jinja2", "mapie", "matplotlib", "numpyro"),
    *("pandas", "pyarrow", "ray", "rich", "typer"),
)


#: What is loaded at which point: the package alone, what it stands on, and its parts.
LOADING = """
import json, sys, time
start = time.process_time()
import sharpgp
alone, own = set(sys.modules), time.process_time() - start
import botorch, botorch.models, sklearn.model_selection
before, loaded = set(sys.modules), time.process_time() - start
missing = [name for name in sharpgp.__all__ if getattr(sharpgp, name, None) is None]
used = {name.partition(".")[0] for name in set(sys.modules) - before}
sharpgp.bo.CalibratedUpperConfidenceBound, sharpgp.metrics.crps
import sharpgp.plots
print(json.dumps({
    "alone": sorted(alone), "share": own / loaded, "missing": missing, "used": sorted(used),
    "plots": sorted(sys.modules),
}))
"""


@pytest.fixture(scope="module")
def loading():
    done = python("-c", LOADING)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_sharpgp_imports_nothing_else_and_is_quick(loading):
    assert not {"torch", "numpy", "sklearn"} & set(loading["alone"])
    assert loading["share"] < 0.1  # of what the packages take that it stands on


#: Which slow libraries are there after the import of README's first line, and after its fit.
FIRST_LINES = """
import json, sys
slow = ("torch", "gpytorch", "botorch", "linear_operator", "sklearn.ensemble", "matplotlib")
from sharpgp import SharpGPRegressor
imported = [name for name in slow if name in sys.modules]
X = [[k / 10, k % 7] for k in range(60)]
SharpGPRegressor(random_state=0).fit(X, [x + z for x, z in X]).predict_interval(X)
print(json.dumps([imported, [name for name in slow if name in sys.modules]]))
"""


def test_slow_libraries_are_imported_by_what_needs_them():
    """The estimator needs scikit-learn alone; a default fit, torch and trees, but not gpytorch."""
    done = python("-c", FIRST_LINES)
    assert done.returncode == 0, done.stderr
    imported, fitted = json.loads(done.stdout)
    assert imported == []
    assert fitted == ["torch", "sklearn.ensemble"]


def test_names_are_imported_when_asked_for(loading):
    """Modules, too, after one import."""
    assert loading["missing"] == []
    assert set(sharpgp.__all__) <= set(dir(sharpgp))
    assert not {"Any", "TYPE_CHECKING", "import_module"} & set(dir(sharpgp))
    assert set(sharpgp._HOMES) == set(sharpgp.__all__)
    assert not set(sharpgp._OF_LABORATORY) & set(sharpgp.__all__)  # may be missing
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sharpgp.nothing  # noqa: B018


def test_public_names_need_no_extra(loading):
    """Beyond those that scikit-learn and BoTorch import themselves where they find them."""
    assert "sharpgp" in loading["used"]
    assert not set(loading["used"]) & set(EXTRAS)


def test_pyplot_stays_out(loading):
    assert "matplotlib.figure" in loading["plots"]
    assert "matplotlib.pyplot" not in loading["plots"]


def test_data_files_are_declared():
    """Every file of the package that is not code is in the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]
    package = ROOT / "src" / "sharpgp"
    declared = set()
    for name, globs in patterns.items():
        folder = package.parent.joinpath(*name.split("."))
        declared |= {file for pattern in globs for file in folder.glob(pattern)}
    others = {
        file
        for file in package.rglob("*")
        if file.is_file() and file.suffix != ".py" and "__pycache__" not in file.parts
    }
    assert package / "py.typed" in declared
    assert others == declared


def test_bugs_to_plant_find_their_line():
    """``make planted``, which takes long, is not the first to notice that a line was moved."""
    for bug in BUGS:
        assert bug.line in (ROOT / "src" / "sharpgp" / bug.file).read_text(), bug.name


def test_the_version_stands_in_one_place():
    """And the files that travel with it name it nowhere else."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "sharpgp.__version__"}
    for name in ("pyproject.toml", "CITATION.cff", "conda/recipe.yaml"):
        lines = (ROOT / name).read_text().splitlines()
        pattern = rf"\s*version\s*[:=]\s*[\"']?{re.escape(sharpgp.__version__)}"
        assert not [line for line in lines if re.match(pattern, line)], name


def test_no_module_imports_itself_by_way_of_others():
    """Neither at run time nor, where ``TYPE_CHECKING`` guards an import, for its type hints."""
    graph = grimp.build_graph("sharpgp", cache_dir=None)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    importing = {name: graph.find_modules_that_directly_import(name) for name in graph.modules}
    left = set(graph.modules)
    for links in (imported, importing):  # what ends somewhere, either way, is in no circle
        while ends := {name for name in left if not links[name] & left}:
            left -= ends
    assert left == set()
