"""Experiments of the study of optimisers: what they give, and what every loop is told."""

import math
import random

import pytest

from sharpgp_benchmarks.optimisation.laboratory import CONSTRAINED, MIXED
from sharpgp_benchmarks.optimisation.rivals import PEERS

EVERY = MIXED | CONSTRAINED


@pytest.mark.parametrize("name", EVERY)
def test_no_settings_are_better_than_the_optimum(name):
    experiment, rng = EVERY[name], random.Random(1)
    regrets = []
    for _ in range(300):
        settings = experiment.drawn(rng)
        for mixture in experiment.constraints:
            assert math.fsum(settings[part] for part in mixture.names) == pytest.approx(1.0)
        results = experiment.measured(settings)
        regrets.append(experiment.regret(results))
        if math.isfinite(regrets[-1]):
            assert results["value"] <= experiment.optimum + 1e-6
    assert 0.0 <= min(regrets) < experiment.usual_regret < math.inf


def test_values_beyond_a_limit_do_not_count():
    vessel = CONSTRAINED["vessel"]
    name = next(iter(vessel.limits))
    kept = dict.fromkeys(vessel.limits, -1.0)
    assert vessel.regret({"value": vessel.optimum - 3.0, **kept}) == pytest.approx(3.0)
    assert vessel.regret({"value": vessel.optimum, **kept, name: 0.1}) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("method", ["logei", "botorch_logei"])
@pytest.mark.parametrize("name", ["synthesis", "blend"])
def test_loops_ask_for_settings_that_can_be_run(name, method):
    experiment, rng = CONSTRAINED[name], random.Random(0)
    loop = PEERS[method](experiment, 0, 6)
    for n in range(8):
        settings = experiment.drawn(rng) if n < 6 else loop.ask()
        for mixture in experiment.constraints:
            assert math.fsum(settings[part] for part in mixture.names) == pytest.approx(1.0)
        loop.tell(settings, experiment.measured(settings))
    assert len(loop.levels()) == 2
