"""Fixtures shared by the tests."""

import hypothesis
import numpy as np
import pytest

from helpers import trained_posterior
from sharpgp.gp.posterior import Posterior

# A busy machine may take a second over anything: time limits are no property of the code.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

collect_ignore = ["stress"]  # run by `make stress`


@pytest.fixture(scope="session")
def gp() -> Posterior:
    """A small GP, trained once; every test must leave it as it is."""
    return trained_posterior()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
