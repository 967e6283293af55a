"""Nothing in the packages runs code that data bring along."""

import ast
import tomllib
from pathlib import Path

import pytest

import sharpgp

ROOT = Path(__file__).parents[1]
SOURCES = (Path(sharpgp.__file__).parent, ROOT / "benchmarks" / "src")
FILES = sorted(file for source in SOURCES for file in source.rglob("*.py"))

#: Modules that turn bytes into objects by running what the bytes say, or fetch over the network.
FORBIDDEN_MODULES = {
    *("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle"),
    *("yaml", "urllib.request", "requests", "http.client", "ftplib", "imp"),
}
#: Calls by their last name, or by module and name.
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "read_pickle", "system", "popen"}
FORBIDDEN_PAIRS = {("torch", "load"), ("joblib", "load"), ("joblib", "dump"), ("np", "load")}


def findings(tree: ast.AST) -> list[str]:
    """Imports and calls that the package does without."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = {node.module or "", *(f"{node.module}.{a.name}" for a in node.names)}
            found += sorted(names & FORBIDDEN_MODULES)
        elif isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name) and function.id in FORBIDDEN_CALLS:
                found.append(function.id)
            if isinstance(function, ast.Attribute):
                owner = function.value.id if isinstance(function.value, ast.Name) else ""
                pair = owner, function.attr
                known = {"re": "compile", "torch": "compile"}
                if pair in FORBIDDEN_PAIRS or (
                    function.attr in FORBIDDEN_CALLS - {"eval"} and known.get(owner) != "compile"
                ):
                    found.append(f"{owner}.{function.attr}")
            for keyword in node.keywords:
                value = keyword.value
                on = isinstance(value, ast.Constant) and value.value is True
                if keyword.arg in ("allow_pickle", "shell") and on:
                    found.append(f"{keyword.arg}=True")
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: "/".join(f.parts[-3:]))
def test_no_code_from_data(file):
    assert findings(ast.parse(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "from urllib import request",
        "eval('1')",
        "exec(text)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "pd.read_pickle(path)",
        "subprocess.run(text, shell=True)",
        "os.system(text)",
    ],
)
def test_the_search_finds_what_it_looks_for(code):
    assert findings(ast.parse(code))


# ------------------------------------------------------------------ dependencies


def test_the_oldest_versions_are_those_of_the_ranges():
    """Every lower bound in pyproject.toml is a version that ``make test-oldest`` installs."""
    ranges = []
    for folder in (ROOT, ROOT / "benchmarks"):
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        ranges += project["dependencies"]
        for extra in ("cli", "plots", "bayes", "ray", "dask"):
            ranges += project["optional-dependencies"].get(extra, ())
    ranges = [r for r in ranges if not r.startswith("sharpgp")]
    oldest = {}
    for line in (ROOT / "constraints-oldest.txt").read_text().splitlines():
        if "==" in line:
            name, version = line.split("==")
            oldest[name.lower()] = version
    for requirement in ranges:
        name, _, bound = requirement.partition(">=")
        lower = bound.split(",")[0]
        assert name in oldest, f"{name} is missing from constraints-oldest.txt"
        found = oldest[name].removesuffix(".0")
        assert (oldest[name] + ".").startswith(lower + ".") or lower.startswith(found), requirement
