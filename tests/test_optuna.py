"""The optimiser as a sampler of Optuna."""

import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from sharpgp.bo.optuna_sampler import OptunaSampler, input_of, snap
from sharpgp.bo.space import Space
from sharpgp.exceptions import InvalidInputError, MissingExtraError


def number(low, high, log=False, step=None):
    return SimpleNamespace(low=low, high=high, log=log, step=step)


@pytest.mark.parametrize(
    ("distribution", "values"),
    [
        (number(-1.0, 3.0), [-1.0, 0.5, 3.0]),
        (number(1e-3, 0.1, log=True), [1e-3, 0.1]),
        (number(0.0, 1.0, step=0.1), [0.0, 0.3, 1.0]),
        (number(2, 11, step=3), [2, 5, 11]),
        (number(1, 64, log=True, step=1), [1, 7, 64]),
        (number(0, 10**6, step=1), [0, 7, 10**6]),
        (SimpleNamespace(choices=("a", None, 3)), ["a", None, 3]),
        (SimpleNamespace(choices=(16, 32)), [16, 32]),
    ],
)
def test_values_survive_as_inputs(distribution, values):
    space = Space.of({"x": input_of(distribution)})
    for value in values:
        (point,) = space.points(space.codes({"x": value}))
        found = snap(point["x"], distribution)
        assert found == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value)
        assert type(found) is type(value)
    if hasattr(distribution, "low"):  # never beyond the ends, which Optuna would refuse
        for point in space.points(space.from_unit(space.unit_bounds)):
            assert distribution.low <= snap(point["x"], distribution) <= distribution.high


def test_without_the_extra(monkeypatch):
    monkeypatch.setattr("sharpgp._extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install \"sharpgp\[optuna\]\""):
        OptunaSampler()


# ------------------------------------------------------------------ with Optuna


@pytest.fixture
def optuna(monkeypatch):
    monkeypatch.setattr("sharpgp.bo.surrogate.KERNELS", ("rbf",))
    monkeypatch.setattr("sharpgp.bo.surrogate.MIN_WARPED", math.inf)
    found = pytest.importorskip("optuna", reason="no optuna; the extra of that name installs it")
    found.logging.set_verbosity(found.logging.ERROR)
    return found


def test_study_finds_the_optimum(optuna):
    def objective(trial):
        x, rate = trial.suggest_float("x", -1.0, 3.0), trial.suggest_float("r", 1e-4, 1, log=True)
        return (x - 1.0) ** 2 + (math.log10(rate) + 2.0) ** 2

    study = optuna.create_study(sampler=OptunaSampler(design=6))
    study.optimize(objective, n_trials=12)
    assert study.best_value < 0.1
    loop = study.sampler.loop
    assert len(loop.record.runs) == 11  # the last is told when the next is asked for
    assert any(run.level is not None for run in loop.record.runs)
    pickle.loads(pickle.dumps(study.sampler))


def test_failed_running_and_pruned_trials(optuna):
    study = optuna.create_study(sampler=OptunaSampler(design=3), direction="maximize")
    space = {"n": optuna.distributions.IntDistribution(0, 20)}
    states = ("COMPLETE", "FAIL", "PRUNED", "COMPLETE", "COMPLETE", "COMPLETE")
    for n, state in enumerate(states):
        study.add_trial(
            optuna.trial.create_trial(
                params={"n": 3 * n},
                distributions=space,
                state=optuna.trial.TrialState[state],
                value=float(n) if state == "COMPLETE" else None,
            )
        )
    first = study.ask()
    asked = first.suggest_int("n", 0, 20)
    record = study.sampler.loop.record
    assert [run.failed for run in record.runs] == [False, True, False, False, False]
    study.ask().suggest_int("n", 0, 20)
    assert study.sampler.loop.pending[0] == {"n": asked}
    study.tell(first, 1.0)
    study.ask().suggest_int("n", 0, 20)
    assert len(record.runs) == 6


def test_study_ends_when_little_is_left(optuna):
    sampler = OptunaSampler(design=5)
    study = optuna.create_study(sampler=sampler)
    callbacks = [sampler.stop(amount=0.5)]
    study.optimize(lambda t: t.suggest_float("x", -1, 2) ** 2, n_trials=40, callbacks=callbacks)
    assert 6 <= len(study.trials) < 40
    assert sampler.loop.record.checks[-1][2] <= 0.05


def test_trials_that_run_at_the_same_time_are_apart(optuna):
    """Also before they have taken up all parameters."""

    def parameter(trial, name):
        return trial.suggest_float(name, 0, 1)

    def bowl(trial):
        return (parameter(trial, "x") - 0.3) ** 2 + (parameter(trial, "y") - 0.6) ** 2

    study = optuna.create_study(sampler=OptunaSampler(design=5))
    study.optimize(bowl, n_trials=9)
    trials = [study.ask() for _ in range(3)]
    found = np.array([[parameter(trial, name) for trial in trials] for name in "xy"])
    apart = np.abs(found[:, :, None] - found[:, None]).max(0) + np.eye(3)
    assert apart.min() >= 0.01 - 1e-9
    assert len(study.sampler.loop.pending) == 3


def test_a_huge_value_is_a_failure(optuna):
    """Refused, it would end the study, and each one that goes on with its storage."""
    study = optuna.create_study(sampler=OptunaSampler(design=3))
    values = {1: 1e200, 2: math.inf}
    study.optimize(lambda t: t.suggest_float("x", 0, 1) + values.get(t.number, 0.0), n_trials=5)
    assert [run.failed for run in study.sampler.loop.record.runs] == [False, True, True, False]


def test_constraints_as_of_optunas_samplers(optuna):
    """Largest x + z where x^2 + z^2 is at most 1.125: 1.5."""

    def pure(trial):
        return (trial.params["x"] ** 2 + trial.params["z"] ** 2 - 1.125,)

    sampler = OptunaSampler(constraints_func=pure, design=5)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    study.optimize(lambda t: t.suggest_float("x", 0, 1) + t.suggest_float("z", 0, 1), n_trials=15)
    assert [len(trial.system_attrs["constraints"]) for trial in study.trials] == [1] * 15
    good = [t.value for t in study.trials if t.system_attrs["constraints"][0] <= 0]
    assert 1.4 < max(good) <= 1.5
    assert list(sampler.loop.record.quantities) == ["objective 0", "constraint 0"]
    assert sampler.loop.best().y == pytest.approx(max(good), abs=0.1)


def test_two_objectives(optuna):
    study = optuna.create_study(
        sampler=OptunaSampler(design=5), directions=["maximize", "minimize"]
    )

    def traded(trial):
        x, z = trial.suggest_float("x", 0, 1), trial.suggest_float("z", 0, 1)
        return x - z, x * x + z

    study.optimize(traded, n_trials=14)
    assert len(study.best_trials) >= 5
    assert len(study.sampler.loop.front()) >= 5


def test_noise_of_each_trial(optuna):
    study = optuna.create_study(sampler=OptunaSampler(design=3))

    def noisy(trial):
        trial.set_user_attr("noise", 0.04)
        return trial.suggest_float("x", 0, 1)

    study.optimize(noisy, n_trials=5)
    assert [run.noise for run in study.sampler.loop.record.runs] == [0.04] * 4
    assert study.sampler.loop.record.knows_noise


def test_inputs_that_must_not_meet(optuna):
    sampler = OptunaSampler(design=3, constraints=["x + z <= 1"])
    study = optuna.create_study(sampler=sampler, direction="maximize")
    study.optimize(lambda t: t.suggest_float("x", 0, 1) + t.suggest_float("z", 0, 1), n_trials=8)
    assert all(sum(t.params.values()) <= 1 + 1e-6 for t in study.trials[1:])


def test_three_objectives_at_most(optuna):
    study = optuna.create_study(sampler=OptunaSampler(), directions=["minimize"] * 4)
    with pytest.raises(InvalidInputError, match="study: expected one to three objectives, found 4"):
        study.ask()
    with pytest.raises(InvalidInputError, match="acquisition"):
        OptunaSampler(acquisition="ei")
