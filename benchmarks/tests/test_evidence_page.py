"""``docs/evidence.md`` is what the command writes from ``benchmarks/results``."""

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from sharpgp.exceptions import InvalidInputError
from sharpgp_benchmarks import evidence_page
from sharpgp_benchmarks.commands import bench

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


PAGES = ["README.md", "docs/benchmarks.md", "docs/choosing.md", "docs/numerics.md"]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "evidence.md"
    options = ["--results", str(RESULTS), "--out", str(out), "--pages", ""]
    assert CliRunner().invoke(bench, ["evidence-page", *options]).exit_code == 0
    return out.read_text(encoding="utf-8")


def test_the_page_is_what_the_command_writes(page):
    assert (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8") == page


def test_the_page_is_short(page):
    assert len(page.split()) < 3200  # some hundred words a section


def test_every_file_has_a_command_and_backs_a_claim():
    files = {file.stem for file in RESULTS.glob("*.csv")} - {"runs"}
    assert files == {file[:-4] for file in evidence_page.Results(RESULTS).runs["file"]}
    assert files == {file for section in evidence_page.SECTIONS for file in section.files}


def test_a_file_without_a_command_is_an_error(tmp_path):
    pd.DataFrame(columns=evidence_page.COLUMNS).to_csv(tmp_path / "runs.csv", index=False)
    with pytest.raises(InvalidInputError, match=r"drift\.csv"):
        evidence_page.Results(tmp_path).commands(["drift"])
    with pytest.raises(InvalidInputError, match=r"drift\.csv"):
        evidence_page.Results(tmp_path)["drift"]


def test_ratios_are_of_the_same_splits_and_of_the_better_band():
    columns = ["dataset", "most", "seed", "method", "band", "score", "coverage", "crps", "error"]
    rows = [
        ["a", 9, 0, "rk", "centred", 4.0, 0.9, 1.0, None],
        ["a", 9, 0, "rk", "symmetric", 2.0, 0.9, 1.0, None],
        ["a", 9, 1, "rk", "centred", 4.0, 0.9, 1.0, None],
        ["a", 9, 1, "rk", "symmetric", 8.0, 0.9, 1.0, None],
        ["a", 9, 0, "mine", "default", 1.0, 0.8, 0.5, None],
    ]
    found = evidence_page.relative_to_rk(pd.DataFrame(rows, columns=columns))
    assert found.loc["mine", "score"] == 1 / 4  # centred is better over both seeds
    assert found.loc["rk", "score"] == 1
    assert found.loc["mine", "coverage"] == 0.8


@pytest.mark.parametrize("name", PAGES)
def test_passages_of_other_pages_say_what_the_results_say(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "<!-- results: " in text
    assert evidence_page.filled(text, RESULTS) == text


def test_a_passage_is_replaced_and_an_unknown_one_refused():
    text = "a\n<!-- results: {} -->\nold\n<!-- /results -->\nb"
    found = evidence_page.filled(text.format("picture"), RESULTS)
    assert "old" not in found
    assert found.startswith("a\n")
    assert found.endswith("\nb")
    with pytest.raises(InvalidInputError, match="results"):
        evidence_page.filled(text.format("nothing"), RESULTS)
