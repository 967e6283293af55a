"""What is imported, and what is in the distribution."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp

import sharpgp
from stress.planted import BUGS

ROOT = Path(__file__).resolve().parents[1]
#: Packages of the optional extras, and those that only the command line needs.
EXTRAS = (
    *("crepes", "dask", "distributed", "jax", "jinja2", "mapie", "matplotlib", "numpyro"),
    *("pandas", "pyarrow", "ray", "rich", "typer"),
)


def test_importing_sharpgp_imports_no_extra():
    """Beyond those that scikit-learn and BoTorch import themselves where they find them."""
    names = "{name.partition('.')[0] for name in sys.modules}"
    code = (
        "import sys, botorch, botorch.models, sklearn.model_selection\n"
        f"before = {names}\nimport sharpgp\nprint(*({names} - before))"
    )
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(sharpgp.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(found.stdout.split())
    assert "sharpgp" in imported
    assert not imported & set(EXTRAS)


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
    graph = grimp.build_graph("sharpgp", cache_dir=None, exclude_type_checking_imports=True)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    importing = {name: graph.find_modules_that_directly_import(name) for name in graph.modules}
    left = set(graph.modules)
    for links in (imported, importing):  # what ends somewhere, either way, is in no circle
        while ends := {name for name in left if not links[name] & left}:
            left -= ends
    assert left == set()
