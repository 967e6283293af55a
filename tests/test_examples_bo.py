"""The examples on optimisation run, and say what they should."""

from pathlib import Path

import pytest

from processes import python

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def output_of(name):
    done = python(EXAMPLES / name)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_own_loop():
    *steps, summary, batch = output_of("bo_own_loop.py")
    assert len(steps) == 16
    best, minimum = (float(part.split()[-1]) for part in summary.split(", "))
    assert minimum == pytest.approx(0.398)
    assert minimum <= best < 0.6
    assert batch.startswith("a batch: [[")


@pytest.mark.slow
def test_ax():
    pytest.importorskip("ax")
    (last,) = output_of("bo_ax.py")[-1:]
    assert last in ("{'a': 0.3, 'b': -0.2}", "{'b': -0.2, 'a': 0.3}")
