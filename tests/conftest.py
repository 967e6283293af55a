"""Fixtures shared by the tests."""

import numpy as np
import pytest

from helpers import trained_posterior
from sharpgp.gp.posterior import Posterior

collect_ignore = ["stress"]  # run by `make stress`


@pytest.fixture(scope="session")
def gp() -> Posterior:
    """A small GP, trained once; every test must leave it as it is."""
    return trained_posterior()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
