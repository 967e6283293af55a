"""Waiting for another process ends with it."""

import subprocess
import sys
import time

import pytest

from processes import wait_for


def started(code):
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


def test_a_process_that_ended_is_not_waited_for():
    begin = time.monotonic()
    with (
        started("import sys; sys.exit('no such package')") as process,
        pytest.raises(AssertionError, match="ended with status 1: no such package"),
    ):
        wait_for(lambda: False, process)
    assert time.monotonic() - begin < 30


def test_patience_has_an_end():
    with (
        started("import time; time.sleep(600)") as process,
        pytest.raises(AssertionError, match="waited for more than"),
    ):
        wait_for(lambda: False, process, patience=0.2)
    assert process.returncode != 0


def test_what_was_waited_for_counts_even_of_a_process_that_ended():
    with started("") as process:
        wait_for(lambda: process.poll() is not None, process)
