"""The optimiser as a sampler of Optuna."""

import math
import threading
from dataclasses import dataclass
from typing import Any

from sharpgp._extras import need
from sharpgp.bo.optimiser import Optimiser
from sharpgp.exceptions import InvalidInputError

# Optuna may ask from several threads, and what is told has to be told once.
_one_at_a_time = threading.Lock()


class OptunaSampler:
    """Suggests the values of Optuna's trials by :class:`~sharpgp.bo.Optimiser`.

    Trials that are complete are told, those that failed as failures, those that run are pending,
    and pruned ones, of which no final value is known, are left out.  The parameters that all trials
    share are suggested jointly; those of the first trial, and those that only some trials have, are
    drawn at random.  Floats, integers, steps, logarithmic scales and categories are taken as they
    are declared.  One objective.  Needs the extra ``optuna``.

    Parameters
    ----------
    seed : int
    **settings
        Those of :class:`~sharpgp.bo.Optimiser`: ``acquisition``, ``calibration``, ``design`` and so
        on.

    Attributes
    ----------
    loop : Optimiser or None
        What answered the last question; ``loop.predict_interval`` has calibrated intervals, for
        parameters in alphabetical order and coded as :class:`Coding` says.

    Examples
    --------
    ::

        study = optuna.create_study(sampler=OptunaSampler(seed=0), direction="maximize")
        study.optimize(objective, n_trials=40)
    """

    def __init__(self, *, seed: int = 0, **settings: Any) -> None:
        need("optuna", "optuna")
        from optuna.samplers import RandomSampler

        self.settings = {"random_state": int(seed), **settings}
        Optimiser([[0.0], [1.0]], **self.settings)  # says at once what is wrong with them
        self.loop: Optimiser | None = None
        self._independent = RandomSampler(seed=seed)
        self._space: dict[str, Any] = {}
        self._told: set[int] = set()

    def __str__(self) -> str:
        return type(self).__name__

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        """Parameters that all finished trials share, those with a single value left out."""
        from optuna.search_space import intersection_search_space

        shared = intersection_search_space(study.get_trials(deepcopy=False))
        return {name: one for name, one in shared.items() if not one.single()}

    def sample_relative(
        self, study: Any, trial: Any, search_space: dict[str, Any]
    ) -> dict[str, Any]:
        """Values of the shared parameters."""
        if not search_space:
            return {}
        with _one_at_a_time:
            codings = {name: Coding.of(search_space[name]) for name in sorted(search_space)}
            loop = self._loop_for(study, search_space, codings)
            self._tell(loop, study, trial, codings)
            x = loop.ask()[0].tolist()
        return {
            name: one.decoded(value) for (name, one), value in zip(codings.items(), x, strict=True)
        }

    def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
        """A random value of a parameter that is not shared."""
        return self._independent.sample_independent(study, trial, name, distribution)

    def before_trial(self, study: Any, trial: Any) -> None:
        """Refuse several objectives."""
        if len(study.directions) != 1:
            raise InvalidInputError(
                f"study: expected one objective, found {len(study.directions)}; "
                "see sharpgp.bo.as_botorch for several"
            )

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        """Nothing to do: results are told before the next question."""

    def reseed_rng(self) -> None:
        """Other random numbers for parameters that are not shared."""
        self._independent.reseed_rng()

    def _loop_for(
        self, study: Any, search_space: dict[str, Any], codings: dict[str, "Coding"]
    ) -> Optimiser:
        """The optimiser of this space; another space has another one."""
        if self.loop is None or search_space != self._space:
            kinds = [one.kind for one in codings.values()]
            self.loop = Optimiser(
                [[one.low for one in codings.values()], [one.high for one in codings.values()]],
                maximize=study.directions[0].name == "MAXIMIZE",
                integer=[j for j, kind in enumerate(kinds) if kind == "integer"],
                categorical=[j for j, kind in enumerate(kinds) if kind == "categorical"],
                **self.settings,
            )
            self._space, self._told = dict(search_space), set()
        return self.loop

    def _tell(self, loop: Optimiser, study: Any, trial: Any, codings: dict[str, "Coding"]) -> None:
        """Results that are new, and what else is running."""
        pending = []
        for other in study.get_trials(deepcopy=False):
            known = other.number in self._told or other.number == trial.number
            if known or not codings.keys() <= other.params.keys():
                continue
            if not all(one.holds(other.params[name]) for name, one in codings.items()):
                continue  # of another range, or enqueued with a value beyond
            x = [one.encoded(other.params[name]) for name, one in codings.items()]
            state = other.state.name
            if state == "RUNNING":
                pending.append(x)
            elif state in ("COMPLETE", "FAIL"):
                loop.tell(x, other.value if state == "COMPLETE" else math.nan)
                self._told.add(other.number)
        loop.record.pending = pending


@dataclass(frozen=True)
class Coding:
    """How a parameter of Optuna is an input of the optimiser.

    Categories are their positions, steps are counted from the lower bound, and what is on a
    logarithmic scale is its logarithm.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> coding = Coding.of(SimpleNamespace(low=1e-4, high=1.0, log=True, step=None))
    >>> coding.low < coding.encoded(0.01) < coding.high
    True
    >>> round(coding.decoded(coding.encoded(0.01)), 6)
    0.01
    """

    low: float
    high: float
    kind: str
    ends: tuple[float, float] = (0.0, 0.0)
    log: bool = False
    step: float | None = None
    whole: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def of(cls, distribution: Any) -> "Coding":
        """From one of Optuna's distributions."""
        if hasattr(distribution, "choices"):
            choices = tuple(distribution.choices)
            return cls(0.0, float(len(choices) - 1), "categorical", choices=choices)
        low, high, step = distribution.low, distribution.high, distribution.step
        how: dict[str, Any] = {"ends": (low, high), "whole": isinstance(low, int)}
        if distribution.log:
            return cls(math.log(low), math.log(high), "continuous", log=True, **how)
        if step is None:
            return cls(low, high, "continuous", **how)
        return cls(0.0, float(round((high - low) / step)), "integer", step=step, **how)

    def holds(self, value: Any) -> bool:
        """Whether a value is one of this parameter's."""
        if self.choices:
            return value in self.choices
        return bool(self.ends[0] <= value <= self.ends[1])

    def encoded(self, value: Any) -> float:
        """The input for a value."""
        if self.choices:
            return float(self.choices.index(value))
        if self.log:
            return math.log(value)
        return float(value if self.step is None else round((value - self.ends[0]) / self.step))

    def decoded(self, x: float) -> Any:
        """The value for an input."""
        if self.choices:
            return self.choices[round(x)]
        if self.log:
            value = math.exp(x)
        else:
            value = x if self.step is None else self.ends[0] + round(x) * self.step
        value = min(max(value, self.ends[0]), self.ends[1])  # rounding may end beyond
        return round(value) if self.whole else value
