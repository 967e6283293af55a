"""The optimiser as a sampler of Optuna."""

import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpgp._extras import need
from sharpgp.bo.optimiser import Optimiser
from sharpgp.bo.record import LARGEST
from sharpgp.bo.space import MAX_VALUES, Log
from sharpgp.exceptions import InvalidInputError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

#: Where Optuna keeps what constraints give; best_trial and the plots look there.
CONSTRAINTS = "constraints"
# Optuna may ask from several threads, and what is told has to be told once.
_one_at_a_time = threading.Lock()


class OptunaSampler:
    """Suggests the values of Optuna's trials by :class:`~sharpgp.bo.Optimiser`.

    Failed trials are told as failures, those that run are pending, pruned ones are left out.  The
    parameters that all trials share are suggested jointly; those of the first trial, and those that
    only some trials have, are drawn at random.  One to three objectives.  A trial that sets the
    user attribute ``noise`` has a result with noise of that variance, or of these variances, one
    for each objective.  Needs the extra ``optuna``.

    Parameters
    ----------
    seed : int
    constraints_func : callable, optional
        As of Optuna's samplers: from a finished trial to numbers, none of which is to be above 0.
        They have calibrated laws of their own (``limits`` of :class:`~sharpgp.bo.Optimiser`).
    **settings
        Those of :class:`~sharpgp.bo.Optimiser`: ``constraints``, ``design`` and so on.

    Examples
    --------
    ::

        sampler = OptunaSampler(seed=0)
        study = optuna.create_study(sampler=sampler, direction="maximize")
        study.optimize(objective, n_trials=200, callbacks=[sampler.stop(amount=0.01)])
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        constraints_func: "Callable[[FrozenTrial], Sequence[float]] | None" = None,
        **settings: Any,
    ) -> None:
        need("optuna", "optuna")
        from optuna.samplers import RandomSampler

        self.settings = {"random_state": int(seed), **settings}
        checked = {key: one for key, one in self.settings.items() if key != "constraints"}
        Optimiser({"x": (0, 1)}, **checked)  # says at once what is wrong with them
        self.constraints_func = constraints_func
        self.loop: Optimiser | None = None
        self._independent = RandomSampler(seed=seed)
        self._space: dict[str, Any] = {}
        self._told: set[int] = set()
        # What was suggested to each trial: one that runs may not have taken it up yet.
        self._asked: dict[int, Any] = {}

    def stop(
        self, probability: float = 0.05, *, amount: float, runs: int = 50
    ) -> "Callable[[Study, FrozenTrial], None]":
        """A callback that ends the study; see :meth:`~sharpgp.bo.Optimiser.stop`."""

        def callback(study: Any, trial: Any) -> None:
            with _one_at_a_time:
                if self.loop is not None:
                    self._tell(self.loop, study)
                    if self.loop.stop(probability, amount=amount, runs=runs):
                        study.stop()

        return callback

    def infer_relative_search_space(
        self, study: "Study", trial: "FrozenTrial"
    ) -> "dict[str, BaseDistribution]":
        """Parameters that all finished trials share, those with a single value left out."""
        from optuna.search_space import intersection_search_space

        shared = intersection_search_space(study.get_trials(deepcopy=False))
        return {name: one for name, one in sorted(shared.items()) if not one.single()}

    def sample_relative(
        self, study: "Study", trial: "FrozenTrial", search_space: "dict[str, BaseDistribution]"
    ) -> dict[str, object]:
        """Values of the shared parameters."""
        if not search_space:
            return {}
        with _one_at_a_time:
            if self.loop is None or search_space != self._space:
                inputs = {name: input_of(one) for name, one in search_space.items()}
                self.loop = Optimiser(inputs, **self._goals(study), **self.settings)
                self._space, self._told, self._asked = dict(search_space), set(), {}
            self._tell(self.loop, study, but=trial.number)
            point: Any = self.loop.ask()
            self._asked[trial.number] = point
        return {name: snap(point[name], one) for name, one in search_space.items()}

    def _goals(self, study: "Study") -> dict[str, Any]:
        """Objectives and limits; what constraints give is known from the trials that have it."""
        ways = ["max" if one.name == "MAXIMIZE" else "min" for one in study.directions]
        trials = study.get_trials(deepcopy=False)
        count = max((len(trial.system_attrs.get(CONSTRAINTS, ())) for trial in trials), default=0)
        limits = [f"constraint {k} <= 0" for k in range(count)]
        objectives = {f"objective {k}": way for k, way in enumerate(ways)}
        return {"objectives": objectives, "limits": limits}

    def sample_independent(
        self, study: "Study", trial: "FrozenTrial", name: str, distribution: "BaseDistribution"
    ) -> object:
        """A random value of a parameter that is not shared."""
        return self._independent.sample_independent(study, trial, name, distribution)

    def before_trial(self, study: "Study", trial: "FrozenTrial") -> None:
        """Refuse more than three objectives."""
        if len(study.directions) > 3:
            raise InvalidInputError(
                f"study: expected one to three objectives, found {len(study.directions)}"
            )

    def after_trial(
        self, study: "Study", trial: "FrozenTrial", state: Any, values: "Sequence[float] | None"
    ) -> None:
        """Keep what constraints give, where Optuna looks for it; results are told when asked."""
        if self.constraints_func is None or state.name not in ("COMPLETE", "PRUNED"):
            return
        found = tuple(float(one) for one in self.constraints_func(trial))
        if any(math.isnan(one) for one in found):
            raise InvalidInputError(f"constraints_func: expected numbers, found {found}")
        study._storage.set_trial_system_attr(trial._trial_id, CONSTRAINTS, found)

    def reseed_rng(self) -> None:
        """Other random numbers for parameters that are not shared."""
        self._independent.reseed_rng()

    def _tell(self, loop: Optimiser, study: Any, but: int | None = None) -> None:
        """Results that are new, and what else is running."""
        pending = []
        for other in study.get_trials(deepcopy=False):
            if other.number in self._told or other.number == but:
                continue
            running = other.state.name == "RUNNING"
            point = self._asked.get(other.number, other.params) if running else other.params
            try:
                (coded,) = loop.record.space.codes(point).tolist()
            except InvalidInputError:
                continue  # without some parameter, or enqueued with a value beyond its range
            if running:
                pending.append(coded)
            elif other.state.name in ("COMPLETE", "FAIL"):
                values = other.values if other.state.name == "COMPLETE" else None
                found = [*values, *other.system_attrs.get(CONSTRAINTS, ())] if values else []
                # A trial cannot be told again: a value that stands for a failure is one.
                found = [None if abs(one) > LARGEST else one for one in found]
                names = list(loop.record.quantities)
                known = dict(zip(names, found, strict=False)) if found else None
                noise = other.user_attrs.get("noise")
                given = dict(zip(names, np.atleast_1d(noise).tolist(), strict=False))
                loop.tell(other.params, known, noise=given if noise is not None else None)
                self._told.add(other.number)
        loop.record.pending = pending


def input_of(distribution: Any) -> Any:
    """One of Optuna's distributions as an input of :class:`~sharpgp.bo.Optimiser`."""
    if hasattr(distribution, "choices"):
        choices = list(distribution.choices)
        return set(choices) if len(choices) == 2 else choices
    low, high, step = distribution.low, distribution.high, distribution.step
    if distribution.log:
        return Log(low, high)
    if step is None or (count := round((high - low) / step) + 1) > MAX_VALUES:
        return (low, high)
    return {low + k * step for k in range(count)}


def snap(value: Any, distribution: Any) -> Any:
    """The value that a distribution has nearest to one that its input gave."""
    step = getattr(distribution, "step", None)
    if step is None:
        return value
    low, high = distribution.low, distribution.high
    return min(low + round((value - low) / step) * step, high)
