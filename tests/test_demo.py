import csv
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from sharpgp import plots
from sharpgp._extras import METHODS, entry_point_names
from sharpgp.calibration import known_methods
from sharpgp.calibration.recalibrator import PosteriorMethod
from sharpgp.cli import demonstration as demo
from sharpgp.exceptions import InvalidInputError, NumericalError
from sharpgp.toy import make_toy

README = Path(__file__).resolve().parents[1] / "README.md"
FILES = {"results.csv", "results.md", "toy_intervals.png", "reliability.png", "report.html"}


@pytest.fixture
def small(monkeypatch):
    """Two small toy problems in place of the demo's own, so that a run takes a second."""
    parts = [make_toy(20, 40, 60, random_state=seed) for seed in range(2)]
    monkeypatch.setattr(
        demo, "problems", lambda: [demo.Problem("one", parts), demo.Problem("two", parts[:1])]
    )


def console(**settings):
    return Console(file=io.StringIO(), width=100, **settings)


def test_methods_are_those_of_the_library_unless_all_are_asked_for():
    assert set(demo.methods()) == set(known_methods()) - set(entry_point_names(METHODS))
    assert set(demo.methods(everything=True)) == set(known_methods())
    assert len(set(plots.CYCLE)) >= len(known_methods())  # a colour for each


@pytest.mark.slow
def test_run_writes_tables_and_figures(small, tmp_path):
    screen = console()
    demo.run(tmp_path / "new" / "out", console=screen)
    out = tmp_path / "new" / "out"
    assert {file.name for file in out.iterdir()} == FILES
    assert all(file.stat().st_size > 0 for file in out.iterdir())
    with (out / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["data"], row["method"]) for row in rows] == [
        (data, method) for data in ("one", "two") for method in demo.methods()
    ]
    assert all(0.5 < float(row["coverage_95"]) <= 1 for row in rows)
    page = (out / "report.html").read_text()
    assert "<h1>Calibration report: two</h1>" in page
    assert "Calibration cv; 60 points that trained" in page
    text = screen.file.getvalue()
    assert "one: mean of 2 splits into 20 training, 40 calibration, 60 test points" in text
    assert "floor" in text
    assert str(out) in text
    assert "\x1b" not in text, "a console that is no terminal gets neither colours nor progress"


@pytest.mark.slow
def test_a_method_that_fails_is_named_and_the_others_go_on(small, tmp_path, monkeypatch):
    class Failing(PosteriorMethod):
        def _fit(self, posterior, X, y):
            raise NumericalError("nothing came out")

    make = demo.make_recalibrator
    monkeypatch.setattr(
        demo,
        "make_recalibrator",
        lambda name, **s: Failing(**s) if name == "marx22" else make(name, **s),
    )
    screen = console()
    demo.run(tmp_path, console=screen)
    assert "marx22: not run on one (nothing came out)" in screen.file.getvalue()
    assert "marx22" not in (tmp_path / "results.csv").read_text()


def test_the_folder_is_checked_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "problems", lambda: pytest.fail("work before the check"))
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InvalidInputError, match="out: expected a folder to write to"):
        demo.run(file, console=console())


@pytest.mark.slow
def test_the_readme_example_works_as_typed(capsys, tmp_path, monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in blocks:
        exec(block, scope)
    lines = [line for line in blocks[0].splitlines() if line.strip()]
    assert len(lines) <= 12
    for line in lines:  # the shapes that the comments promise
        if match := re.match(r"(\w+) = .*#.*\((\d[\d, ]*)\)", line):
            shape = tuple(int(n) for n in match[2].split(",") if n.strip())
            assert scope[match[1]].shape == shape
    assert "90 % coverage" in capsys.readouterr().out
    assert (tmp_path / "report.html").exists()


def test_the_readme_is_short_and_its_links_lead_somewhere():
    text = README.read_text()
    assert text.count("\n") < 120
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https://") or (README.parent / target).exists(), target
