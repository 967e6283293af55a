"""The files that are published: what is in them, and that what is in them works."""

import email
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import sharpgp

ROOT = Path(__file__).resolve().parents[1]
BUILD = 'from setuptools import build_meta as b; b.build_sdist("dist"); b.build_wheel("dist")'

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist and the wheel, built in a copy of the repository."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("built") / "copy"
    left_out = shutil.ignore_patterns(
        ".git", ".venv*", "dist", "build", "demo", "results", "_build", "*.egg-info", "__pycache__",
        ".*_cache", ".hypothesis",
    )  # fmt: skip
    shutil.copytree(ROOT, folder, ignore=left_out)
    done = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (sdist,), (wheel,) = (list((folder / "dist").glob(end)) for end in ("*.tar.gz", "*.whl"))
    return sdist, wheel


def test_both_carry_the_version_of_the_package(built):
    sdist, wheel = built
    assert sdist.name == f"sharpgp-{sharpgp.__version__}.tar.gz"
    assert wheel.name == f"sharpgp-{sharpgp.__version__}-py3-none-any.whl"


def test_the_wheel_holds_the_package_and_nothing_else(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    package = ROOT / "src"
    expected = {
        path.relative_to(package).as_posix()
        for path in (package / "sharpgp").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_the_wheel_s_metadata_tell_what_the_project_says(built):
    archive = zipfile.ZipFile(built[1])
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    found = email.message_from_bytes(archive.read(name))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert found["Requires-Python"] == project["requires-python"]
    assert set(found.get_all("Provides-Extra")) == set(project["optional-dependencies"])
    assert found.get_payload().lstrip().startswith("# sharpgp")


def test_the_sdist_can_be_tested_by_whoever_packages_it(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = (
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "Makefile",
        "conftest.py",
        "benchmarks/pyproject.toml",
    )
    assert not [name for name in wanted if name not in names]
    assert "src/sharpgp/report/figures.js" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith("docs/_build")]


def test_the_wheel_works_where_it_is_installed(built, tmp_path):
    zipfile.ZipFile(built[1]).extractall(tmp_path)
    code = (
        "import sharpgp, sharpgp.report.page as page; print(sharpgp.__file__);"
        "assert page._resource('style.css') and page._resource('page.html')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(tmp_path))
