"""The line that shows where a fit stands: only where someone can see it, and gone afterwards."""

import io
import re
import sys
import threading

import numpy as np
import pytest

from helpers import wavy
from sharpgp import CrossValidated, SharpGPRegressor
from sharpgp import _progress as progress
from sharpgp.cli.display import short_warnings
from sharpgp.exceptions import warn


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def at_once(monkeypatch):
    """The line appears at once, and is written again without a pause."""
    monkeypatch.setattr(progress, "_ASKED", 0.0)
    monkeypatch.setattr(progress, "_UNASKED", 0.0)
    monkeypatch.setattr(progress, "_EVERY", 0.001)


CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def screen(text):
    """What stands on the line after it was last wiped, and everything that was shown."""
    return CODE.sub("", text.rpartition("\x1b[2K")[2]).strip(), CODE.sub("", text)


@pytest.mark.parametrize("verbose", [0, 1])
def test_a_fit_tells_phase_step_and_time_left(monkeypatch, at_once, verbose):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    X, y = wavy(40)
    calibration = CrossValidated(folds=4)
    kernels = ["rbf", "matern32"]
    SharpGPRegressor(base=kernels, calibration=calibration, verbose=verbose).fit(X, y)
    left, text = screen(terminal.getvalue())
    assert left == "", "the line is wiped in the end"
    assert re.search(r"training: model [12] of 2 \((rbf|matern32)\), \d+ s", text)
    assert re.search(
        r"cross-validating: fit \d+ of 8 \((rbf|matern32)\), \d+ \w+, about \d+ \w+ left", text
    )


@pytest.mark.parametrize(("verbose", "stream"), [(-1, Terminal), (1, io.StringIO)])
def test_nothing_is_written_if_unwanted_or_into_a_pipe(monkeypatch, at_once, verbose, stream):
    out = stream()
    monkeypatch.setattr("sys.stderr", out)
    X, y = wavy(40)
    SharpGPRegressor(base="rbf", calibration="loo", verbose=verbose).fit(X, y)
    assert out.getvalue() == ""


def test_a_quick_fit_shows_no_line(monkeypatch):
    monkeypatch.setattr(progress, "_ASKED", 0.0)
    monkeypatch.setattr(progress, "_UNASKED", 1e3)
    for verbose, shown in ((0, False), (1, True)):
        monkeypatch.setattr("sys.stderr", out := Terminal())
        SharpGPRegressor(base="rbf", calibration="loo", verbose=verbose).fit(*wavy(40))
        assert bool(out.getvalue()) == shown


def test_a_notebook_counts_as_a_place_to_write_to(monkeypatch, at_once):
    pytest.importorskip("IPython")
    shown = []
    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda *found, **_: shown.append(found))
    with progress.show_progress(1, io.StringIO()):
        progress.start_phase("working")
        threading.Event().wait(0.2)
    assert shown


def test_a_warning_stands_above_the_line(monkeypatch, at_once):
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with progress.show_progress(1):
        progress.start_phase("working", "step", 3)
        threading.Event().wait(0.2)
        sys.stderr.write("warning: something\n")
        threading.Event().wait(0.1)
    _, text = screen(terminal.getvalue())
    assert any(line.strip() == "warning: something" for line in re.split("[\r\n]", text))


def test_warnings_of_a_command_are_a_block_above_the_line(monkeypatch, at_once):
    """Into the bytes below a stream, as click writes, they would land in the line itself."""

    class Bytes(io.TextIOWrapper):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stderr", terminal := Bytes(io.BytesIO(), "utf-8", write_through=True))
    with short_warnings(), progress.show_progress(1):
        progress.start_phase("loading")
        for name in ("sex", "site"):
            threading.Event().wait(0.2)
            warn(f"{name} is constant, and says nothing about the target", UserWarning)
        threading.Event().wait(0.2)
    _, text = screen(terminal.buffer.getvalue().decode())
    told = [f"- {name} is constant, and says nothing about the target" for name in ("sex", "site")]
    lines = [line.strip() for line in re.split("[\r\n]+", text)]
    assert [line for line in lines if line in ("Worth a look:", *told)] == ["Worth a look:", *told]


def test_an_interrupted_computation_leaves_no_line_and_no_thread(at_once):
    out, before = Terminal(), threading.active_count()

    def interrupted():
        with progress.show_progress(1, out):
            progress.start_phase("working", "step", 3)
            threading.Event().wait(0.05)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert screen(out.getvalue())[0] == ""
    for _ in range(100):  # the thread ends at its next turn
        if threading.active_count() == before:
            break
        threading.Event().wait(0.05)
    assert threading.active_count() == before


def test_an_inner_computation_adds_no_second_line(at_once):
    out = Terminal()
    with progress.show_progress(1, out), progress.show_progress(1, out):
        progress.start_phase("working")
        threading.Event().wait(0.2)
    assert out.getvalue().count("\x1b[?25l") == 1  # the cursor was hidden once


def test_results_do_not_depend_on_being_watched(monkeypatch, at_once):
    monkeypatch.setattr("sys.stderr", Terminal())
    X, y = wavy(40)
    ends = [
        SharpGPRegressor(
            base="rbf", calibration=CrossValidated(folds=2), random_state=0, verbose=verbose
        )
        .fit(X, y)
        .predict_interval(X)
        for verbose in (0, 1)
    ]
    np.testing.assert_array_equal(*ends)
