"""Files that publish the package: the conda recipe and the workflows of a public host."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import yaml  # comes with pre-commit

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text())
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
#: Names of packages that differ in conda.
IN_CONDA = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
#: Extras whose packages the recipe bounds, where they are installed.
EXTRAS = ("cli", "excel", "optuna", "plots", "skops", "skpro")


def as_conda(requirement):
    """A requirement of pip in the words of conda: ``torch>=2.4`` is ``pytorch >=2.4``."""
    name, bounds = re.fullmatch(r"([A-Za-z0-9_-]+)(.*)", requirement).groups()
    return f"{IN_CONDA.get(name, name)} {bounds}"


def test_the_conda_recipe_needs_what_the_package_needs():
    project, recipe = PROJECT["project"], yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())
    needs, python = recipe["requirements"], f"python {project['requires-python']}"
    assert set(needs["run"]) == {python, *map(as_conda, project["dependencies"])}
    assert set(needs["host"]) == {
        python,
        "pip",
        *map(as_conda, PROJECT["build-system"]["requires"]),
    }
    optional = [one for name in EXTRAS for one in project["optional-dependencies"][name]]
    assert set(needs["run_constraints"]) == set(map(as_conda, optional))
    commands = [f"{name} = {place}" for name, place in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands


def test_workflows_name_jobs_targets_extras_and_files_that_there_are():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    runs = []
    for workflow in WORKFLOWS.values():
        for job in workflow["jobs"].values():
            assert job.get("needs", "tests") in workflow["jobs"]
            assert (ROOT / job.get("uses", "Makefile")).is_file()
            runs += [step["run"] for step in job.get("steps", []) if "run" in step]
    text = "\n".join(runs)
    made = set(re.findall(r"\bmake ([a-z-]+)", text))
    assert {"lint", "test", "test-slow", "test-oldest", "docs", "dist"} <= made <= targets
    extras = set(",".join(re.findall(r"\.\[([a-z,]+)\]", text)).split(","))
    assert extras <= set(PROJECT["project"]["optional-dependencies"])


def test_workflows_cover_versions_and_architectures():
    jobs = WORKFLOWS["tests.yml"]["jobs"]
    pythons = jobs["newest"]["strategy"]["matrix"]["python"]
    assert f">={pythons[0]}" == PROJECT["project"]["requires-python"]
    listed = [name for name in PROJECT["project"]["classifiers"] if ":: 3." in name]
    assert [name.rpartition(" ")[2] for name in listed] == pythons
    assert {"ubuntu-latest", "ubuntu-24.04-arm"} == set(jobs["tests"]["strategy"]["matrix"]["os"])


def test_the_release_takes_what_the_tests_leave():
    """Artifacts that a job downloads were uploaded by one before it."""
    steps = [
        step
        for workflow in WORKFLOWS.values()
        for job in workflow["jobs"].values()
        for step in job.get("steps", [])
    ]
    names = {
        kind: {
            step["with"]["name"] for step in steps if f"/{kind}-artifact@" in step.get("uses", "")
        }
        for kind in ("upload", "download")
    }
    assert names["download"] == names["upload"] == {"dist", "site"}


def test_a_release_stops_until_the_address_and_the_changelog_are_there(tmp_path):
    files = ("Makefile", "pyproject.toml", "README.md", "CITATION.cff", "CHANGELOG.md")
    for name in (*files, "src/sharpgp/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)

    def make(*words):
        done = subprocess.run(
            ["make", "--no-print-directory", *words],
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    if "OWNER" in (ROOT / "pyproject.toml").read_text():  # in a clone of its owner it is gone
        assert make("publishable")[0] != 0
    assert make("address", "REPOSITORY=ann/sharpgp")[0] == 0
    version = re.search(r'__version__ = "(.*)"', (ROOT / "src/sharpgp/__init__.py").read_text())[1]
    changes = (ROOT / "CHANGELOG.md").read_text()
    (tmp_path / "CHANGELOG.md").write_text(re.sub(r"(?m)^## .*\n", "", changes))
    assert f"a section for {version}" in make("publishable")[1]
    (tmp_path / "CHANGELOG.md").write_text(f"## [{version}] - 2026-12-01\n")
    assert make("publishable") == (0, "")
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["urls"]
    if "OWNER" in (ROOT / "pyproject.toml").read_text():
        assert urls["Repository"] == "https://github.com/ann/sharpgp"
        assert urls["Documentation"] == "https://ann.github.io/sharpgp"
    assert "\n[![tests](https://github.com/ann/sharpgp" in (tmp_path / "README.md").read_text()
    assert "address" not in (tmp_path / "README.md").read_text().partition("## ")[0]
    assert "\nrepository-code:" in (tmp_path / "CITATION.cff").read_text()
