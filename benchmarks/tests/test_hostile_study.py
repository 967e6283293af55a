"""What the study of hostile data counts as short, and which warnings it accepts as a reason."""

import warnings
from pathlib import Path

import numpy as np
import torch
from typer.testing import CliRunner

from helpers import trained_posterior
from sharpgp.calibration import cautions
from sharpgp.cli import app
from sharpgp.data.rows import warn_of_repetition
from sharpgp_benchmarks.evidence import hostile


def said(action):
    """Every warning of the library, as the study hears it."""
    with hostile.heard() as messages:
        action()
    assert messages
    return messages


def excused(messages):
    return [any(hostile.concerns(m, c) for m in messages) for c in hostile.COVERAGES]


def test_a_warning_about_a_coverage_excuses_that_coverage_alone():
    assert excused(said(lambda: cautions.warn_of_tail("coverage 0.99", 99, 39))) == [
        False, False, False, False, True,
    ]  # fmt: skip
    levels = torch.tensor([0.025, 0.975], dtype=torch.float64)
    told = said(lambda: cautions.warn_if_unsupported(levels, 0.95, n_cal=8, counted="groups"))
    assert excused(told) == [False, False, False, True, False]
    assert excused(["coverage 0.9 is not backed at 3 of 9 points"]) == [
        False, False, True, False, False,
    ]  # fmt: skip


def test_a_warning_about_all_intervals_excuses_all():
    posterior = trained_posterior(n=12)
    told = said(lambda: cautions.warn_if_overfitted(posterior))
    assert excused(told) == [True] * 5
    # Four hyperparameters: more than 30 points for each are enough.
    posterior = trained_posterior(n=120)
    assert excused(said(lambda: cautions.warn_if_overfitted(posterior))) == [True] * 5
    with hostile.heard() as none:
        cautions.warn_if_overfitted(trained_posterior(n=121))
    assert none == []
    assert excused(said(lambda: cautions.warn_of_dependence(8, 32))) == [True] * 5


def test_a_warning_about_something_else_excuses_nothing():
    copies = said(lambda: warn_of_repetition(40, 20))
    away = torch.full((3, 2), 1e6, dtype=torch.float64)
    far = said(lambda: cautions.warn_if_far(trained_posterior(n=12), away))
    few = said(lambda: cautions.warn_if_few_groups(8, 32, held_out=True))
    for told in (copies, far, few):
        assert not any(excused(told))
    with hostile.heard() as other:
        warnings.warn("intervals cover less", UserWarning, stacklevel=1)
    assert other == []


def test_marks_of_short_cells():
    rng = np.random.default_rng(0)
    off = np.array([0.0, -0.02, -0.10, -0.10, -0.10])
    covered = np.array(hostile.COVERAGES) + off + 0.05 * rng.normal(size=(24, 5))
    warned = np.zeros((24, 5), dtype=bool)
    warned[:, 3] = True
    warned[1:, 4] = True  # all but one
    # Three standard errors are 0.03 here.
    assert hostile.marks(covered, warned) == ["", "", "!", "w", "!"]
    above = hostile.marks(np.minimum(covered - off + 0.05, 1), warned)
    assert above == [""] * 5


def test_every_question_is_heard_by_itself():
    found = hostile.answers("few points", "kuleshov18", 0, "rbf")
    assert found["covered"].shape == found["warned"].shape == (2, 5)
    # Five points calibrate: bands up to 83 %, two quantiles up to 67 %.
    assert found["warned"][0].tolist() == [False, False, True, True, True]
    assert found["warned"][1].tolist() == [False, True, True, True, True]


def test_the_study_prints_a_table_and_counts_its_marks(tmp_path):
    options = ["--repeats", "2", "--workers", "1", "--kinds", "few points", "--methods", "marx22"]
    options += ["--csv", str(tmp_path / "found.csv")]
    done = CliRunner().invoke(app, ["bench", "evidence", "hostile", *options])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.split(" | ")[2] for line in lines[2:4]] == ["interval", "distribution"]
    assert lines[-1].startswith("10 cells: ")
    written = (tmp_path / "found.csv").read_text().splitlines()
    kept = Path(__file__).parents[1] / "results" / "hostile.csv"
    assert written[0] == kept.read_text().splitlines()[0]
    assert len(written) == 11
