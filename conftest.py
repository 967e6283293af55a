"""Fixtures shared by the tests of the library and of the laboratory."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import numpy as np
import pytest

# What takes seconds to import is left to the workers: the process that hands out the tests loads
# this file, too, before it starts them.
if TYPE_CHECKING:
    from sharpgp.gp.posterior import Posterior

# A busy machine may take a second over anything: time limits are no property of the code.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

# A shell starts background jobs with ctrl-C switched off, and what they start inherits that: the
# tests that interrupt a command need it.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore = ["tests/stress"]  # run by `make stress`
if find_spec("triton") is None:  # PyTorch for a CPU comes without it
    collect_ignore.append("benchmarks/src/sharpgp_benchmarks/pretraining/row_attention.py")

#: Methods that take a second and more wherever they are one of many: those that sample
#: hyperparameters, a network, and one whose every answer compares fits to parts.
SLOW_METHODS = {"fully_bayesian", "capone22", "kuleshov22", "cv+"}
SAMPLERS = Path(__file__).parent / "benchmarks" / "src" / "sharpgp_benchmarks" / "methods"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes a second and more as slow."""
    for item in items:
        given = getattr(item, "callspec", None)
        one_of_many = given and any(
            isinstance(v, str) and v in SLOW_METHODS for v in given.params.values()
        )
        if one_of_many or SAMPLERS in item.path.parents:  # doctests have no marks of their own
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def gp() -> Posterior:
    """A small GP, trained once; every test must leave it as it is."""
    from helpers import trained_posterior

    return trained_posterior()


@pytest.fixture
def one_start(request: pytest.FixtureRequest) -> Iterator[None]:
    """Quick tests train from one start instead of several; for those of what a GP is used for."""
    from helpers import from_one_start

    slow = request.node.get_closest_marker("slow")
    with nullcontext() if slow else from_one_start():
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same for every test."""
    return np.random.default_rng(0)
