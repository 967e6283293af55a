"""What an optimisation knows: its runs, what was predicted of them, and what is still running."""

import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import Maybe, stored
from sharpgp._validation import refuse_other_kinds
from sharpgp.bo.small_sample import ScoreLaw, SmallSamplePredictor, leave_one_out_scores
from sharpgp.bo.space import Space
from sharpgp.bo.surrogate import Surrogate, choose
from sharpgp.data.reading import is_missing
from sharpgp.exceptions import InvalidInputError
from sharpgp.rows import Rows

#: Name of a result that the user did not name.
RESULT = "y"
#: What a leave-one-out score counts for beside one that was predicted before it was seen.
LEFT_OUT_WEIGHT = 0.5
#: Runs after which a score counts for half: the model has changed since.
HALF_LIFE = 10.0
#: The same for the law of a search, which is to be steadier, and what a score tells it at most.
HALF_LIFE_OF_SEARCH, MAX_SCORE_OF_SEARCH = 40.0, 4.0
#: Share of surprises in the law of a model without degrees of freedom, and the degrees that halve
#: it.  Fitted, with the half-life and the law of surprises, to the scores of points asked for in
#: the eighteen optimisations of ``sharpgp bench evidence bo_surprises``.
SURPRISE, SURPRISE_HALVED = 0.4, 10.0
#: Results that may be outliers at most, and their distance from the next one, in ranges of all
#: others.  Few: once a search has converged, points of its design are far from the rest, too.
MAX_OUTLIERS, OUTLYING = 2, 5.0
#: A run this close to a point that was asked for, in shares of every input's range, is its run:
#: people round settings.  One that is missed would stay pending, and be asked for once more.
SAME_POINT = 0.05
#: Squares of results, and of their differences, have to be numbers.
LARGEST, _SMALLEST_RANGE = 1e150, 1e-150


@stored("Run")
@dataclass(frozen=True)
class Run:
    """One run: codes of its inputs, result (NaN: failed), variance of its noise where known.

    The score ``(y - location) / spread``, the predictive probability of a smaller result, and the
    ``predicted`` mean and ends of the 95 % interval are those of the model that had not seen it;
    None for runs that no model predicted.  ``acquisition`` is the value for which it was asked,
    ``number`` the place of the run, where a quantity is not measured in all of them.
    """

    x: tuple[float, ...]
    y: float
    noise: float | None = None
    score: float | None = None
    level: float | None = None
    predicted: tuple[float, ...] | None = None
    acquisition: float | None = None
    number: int | None = None

    @property
    def failed(self) -> bool:
        """Whether it gave no result."""
        return not math.isfinite(self.y)


@stored("Optimisation", pending=list, checks=list, values=Maybe(list))
@dataclass
class Record:
    """The state of an optimisation: everything that its next step depends on.

    Runs are in the order in which they were told, ``pending`` has codes of points that were not
    told yet, ``checks`` the number of runs, amount and probability of every answer to how much is
    left to gain, ``surrogate`` is the model of the last question.  Each of the ``asked`` points has
    random numbers of its own.  ``others`` are records of further measured quantities, by name,
    ``values`` the acquisition of each pending point after its codes.
    """

    space: Space
    settings: dict[str, Any]
    runs: list[Run] = field(default_factory=list)
    pending: list[list[float]] = field(default_factory=list)
    asked: int = 0
    checks: list[list[float]] = field(default_factory=list)
    surrogate: Surrogate | None = None
    others: dict[str, "Record"] | None = None
    values: list[list[float]] | None = None

    @property
    def quantities(self) -> dict[str, "Record"]:
        """Records of everything that is measured, by name, the first objective's first."""
        return {self.settings.get("name", RESULT): self, **(self.others or {})}

    @property
    def succeeded(self) -> list[Run]:
        """Runs that gave a result."""
        return [run for run in self.runs if not run.failed]

    @property
    def sign(self) -> float:
        """-1 where results are to be small."""
        return 1.0 if self.settings["maximize"] else -1.0

    @property
    def knows_noise(self) -> bool:
        """Whether any run came with the variance of its noise."""
        return any(run.noise is not None for run in self.runs)

    def averages(self) -> dict[tuple[float, ...], float]:
        """Mean result of each point that was run with success, by its codes."""
        results: dict[tuple[float, ...], list[float]] = {}
        for run in self.succeeded:
            results.setdefault(run.x, []).append(run.y)
        return {x: math.fsum(ys) / len(ys) for x, ys in results.items()}

    def unit(self, coded: Sequence[Sequence[float]]) -> Tensor:
        """Unit coordinates [n, d] of codes."""
        rows = torch.tensor(coded, dtype=torch.float64).reshape(-1, self.space.d)
        return self.space.to_unit(rows)

    def features(self, Z: Tensor) -> Tensor:
        """Unit coordinates [..., d] as a GP sees them."""
        return self.space.features(Z)

    def trained(self) -> Surrogate:
        """The surrogate on all results so far."""
        known = self.surrogate
        if not self.succeeded:
            raise InvalidInputError("X: expected a run with a result, found none; tell one first")
        if known is None or known.posterior.n_train != len(self.runs):
            fit = choose if known is None else known.next
            self.surrogate = known = fit(*self.data(), self.space.ties)
        return known

    def foreseen(self, run: Run) -> Run:
        """A run with what the model of the last question says of it."""
        if self.surrogate is None or run.failed:
            return run
        surrogate, law, sign = self.surrogate, self.law(), self.sign
        F = self.features(self.unit([run.x]))
        own = F.new_tensor([run.noise or 0.0]) if surrogate.knows_noise else None
        with torch.no_grad():
            location, spread = SmallSamplePredictor(surrogate.gp, law).moments(Rows(F, own))
            target = surrogate.inward(torch.tensor([sign * run.y], dtype=torch.float64))
            score = (target - location) / spread
            level = float(law.cdf(score))
            ends = law.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
            inner = torch.cat([location, location + ends * spread])
            mean, low, high = (sign * surrogate.outward(inner)).tolist()
        return replace(
            run,
            score=float(score),
            level=level if sign > 0 else 1.0 - level,
            predicted=(mean, low, high) if sign > 0 else (mean, high, low),
        )

    def add(self, run: Run) -> None:
        """One more run; the pending point that it belongs to, if any, is pending no more."""
        self.runs.append(run)
        if not self.pending:
            return
        distance = (self.unit(self.pending) - self.unit([run.x])).abs().amax(-1)
        nearest = int(distance.argmin())
        if float(distance[nearest]) <= SAME_POINT:
            asked = self.pending.pop(nearest)
            for one in self.values or []:
                if one[:-1] == asked:
                    self.runs[-1] = replace(run, acquisition=one[-1])
            self.values = [one for one in self.values or [] if one[:-1] in self.pending]

    def data(self) -> tuple[Rows, Tensor]:
        """Rows and targets [N] of all runs, to be maximised.

        A run that failed counts as the worst result, so that its surroundings are avoided.  Where
        another quantity has a limit it counts there, as missing it by half of the range, and here
        as the median: it says nothing of how good a category is elsewhere.  A result far below all
        others counts as the lowest of these (:func:`without_outliers`).  Where the
        noise of any run is known, that of the others is 0.
        """
        F = self.space.features(self.unit([run.x for run in self.runs]))
        y = self.sign * torch.tensor([run.y for run in self.succeeded], dtype=torch.float64)
        if 0.0 < (span := float(y.max() - y.min())) < _SMALLEST_RANGE:
            raise InvalidInputError(
                f"y: expected results that differ by {_SMALLEST_RANGE:g} or more, found {span:g}; "
                "choose other units"
            )
        noise = None
        if self.knows_noise:
            noise = torch.tensor([run.noise or 0.0 for run in self.runs], dtype=torch.float64)
        y = without_outliers(y)
        worst, bound = float(y.min()), self.sign * self.settings.get("bound", math.inf)
        others = (self.others or {}).values()
        if any(math.isfinite(one.settings["bound"]) for one in others):
            worst = float(y.median())
        if math.isfinite(bound):
            worst = min(worst, bound - 0.5 * (float(y.max()) - worst))
        targets = y.new_full((len(self.runs),), worst)
        targets[torch.tensor([not run.failed for run in self.runs])] = y
        return Rows(F, noise), targets

    def law(self) -> ScoreLaw:
        """The law of a score, from points predicted before they were seen, newer ones for more.

        And, for half as much, from leave-one-out scores of runs that no model predicted.
        """
        assert self.surrogate is not None
        gp, warped = self.surrogate.gp, self.surrogate.warp is not None
        spare = max(0, gp.n_train + 1 - len(gp.theta_R) - 2 * warped)
        share = SURPRISE * SURPRISE_HALVED / (SURPRISE_HALVED + spare)
        return ScoreLaw(*self._scores(HALF_LIFE), surprise=share)

    def law_of_search(self) -> ScoreLaw:
        """The law of the search, with the GP's normal tails: with surprises it would only explore.

        Scores count for longer, and large ones for less.
        """
        scores, weights = self._scores(HALF_LIFE_OF_SEARCH)
        return ScoreLaw(scores.clamp(-MAX_SCORE_OF_SEARCH, MAX_SCORE_OF_SEARCH), weights)

    def _scores(self, half_life: float) -> tuple[Tensor, Tensor]:
        """Scores [C] and what each counts for."""
        assert self.surrogate is not None
        left_out = leave_one_out_scores(self.surrogate.gp).tolist()
        scores, weights, age = [], [], len(self.succeeded)
        for place, run in enumerate(self.runs):
            age -= not run.failed
            if run.score is not None:
                scores.append(run.score)
                weights.append(0.5 ** (age / half_life))
            elif place < len(left_out) and not run.failed:
                scores.append(left_out[place])
                weights.append(LEFT_OUT_WEIGHT)
        return torch.tensor(scores).double(), torch.tensor(weights).double()


def without_outliers(y: Tensor) -> Tensor:
    """Targets [N], one or two far below all others raised to the lowest of these.

    They would set the scale of the model, and differences between good results pass for noise.
    """
    ordered = y.sort().values
    for n in range(1, min(MAX_OUTLIERS, len(y) - 2) + 1):
        lowest = ordered[n]
        if lowest - ordered[n - 1] > OUTLYING * (ordered[-1] - lowest) > 0:
            return y.clamp_min(float(lowest))
    return y


def numbers_of_runs(values: Any, name: str, count: int) -> list[float]:
    """One number for each of ``count`` runs; NaN for what is missing or not finite."""
    refuse_other_kinds(values, name)
    given = values.detach().cpu() if isinstance(values, Tensor) else values
    items = np.ravel(np.asarray(given, dtype=object)).tolist()
    try:
        numbers = [math.nan if is_missing(item) else float(item) for item in items]
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(
            f"{name}: expected numbers, found {reprlib.repr(given)}; tell None for a run that "
            "failed"
        ) from None
    if len(numbers) != count:
        raise InvalidInputError(f"{name}: expected {count} number(s), found {len(numbers)}")
    largest = max((abs(value) for value in numbers if math.isfinite(value)), default=0.0)
    if largest > LARGEST:
        raise InvalidInputError(
            f"{name}: expected magnitudes below {LARGEST:g}, found {largest:g}; choose other "
            "units, or tell None for a run that failed"
        )
    return [value if math.isfinite(value) else math.nan for value in numbers]
