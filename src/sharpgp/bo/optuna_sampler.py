"""The optimiser as a sampler of Optuna."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sharpgp._extras import need
from sharpgp.bo.optimiser import Optimiser
from sharpgp.bo.record import LARGEST
from sharpgp.bo.space import MAX_VALUES, Log
from sharpgp.exceptions import InvalidInputError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

# Optuna may ask from several threads, and what is told has to be told once.
_one_at_a_time = threading.Lock()


class OptunaSampler:
    """Suggests the values of Optuna's trials by :class:`~sharpgp.bo.Optimiser`.

    Failed trials are told as failures, those that run are pending, pruned ones are left out.  The
    parameters that all trials share are suggested jointly; those of the first trial, and those that
    only some trials have, are drawn at random.  One objective.  Needs the extra ``optuna``.

    Parameters
    ----------
    seed : int
    **settings
        Those of :class:`~sharpgp.bo.Optimiser`: ``acquisition``, ``design`` and so on.

    Examples
    --------
    ::

        sampler = OptunaSampler(seed=0)
        study = optuna.create_study(sampler=sampler, direction="maximize")
        study.optimize(objective, n_trials=200, callbacks=[sampler.stop(amount=0.01)])
    """

    def __init__(self, *, seed: int = 0, **settings: Any) -> None:
        need("optuna", "optuna")
        from optuna.samplers import RandomSampler

        self.settings = {"random_state": int(seed), **settings}
        Optimiser({"x": (0, 1)}, **self.settings)  # says at once what is wrong with them
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
                maximize = study.directions[0].name == "MAXIMIZE"
                inputs = {name: input_of(one) for name, one in search_space.items()}
                self.loop = Optimiser(inputs, maximize=maximize, **self.settings)
                self._space, self._told, self._asked = dict(search_space), set(), {}
            self._tell(self.loop, study, but=trial.number)
            point: Any = self.loop.ask()
            self._asked[trial.number] = point
        return {name: snap(point[name], one) for name, one in search_space.items()}

    def sample_independent(
        self, study: "Study", trial: "FrozenTrial", name: str, distribution: "BaseDistribution"
    ) -> object:
        """A random value of a parameter that is not shared."""
        return self._independent.sample_independent(study, trial, name, distribution)

    def before_trial(self, study: "Study", trial: "FrozenTrial") -> None:
        """Refuse several objectives."""
        if len(study.directions) != 1:
            raise InvalidInputError(
                f"study: expected one objective, found {len(study.directions)}; "
                "see sharpgp.bo.as_botorch for several"
            )

    def after_trial(self, *_: object) -> None:
        """Nothing to do: results are told before the next question."""

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
                value = other.value if other.state.name == "COMPLETE" else None
                # A trial cannot be told again: a value that stands for a failure is one.
                loop.tell(other.params, None if value is None or abs(value) > LARGEST else value)
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
