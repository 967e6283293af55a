"""What an optimisation knows: its runs, what was predicted of them, and what is still running."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sharpgp._stored import Several, stored
from sharpgp.bo.small_sample import ScoreLaw, leave_one_out_scores
from sharpgp.bo.space import Space
from sharpgp.bo.surrogate import Surrogate

#: What a leave-one-out score counts for beside one that was predicted before it was seen.
LEFT_OUT_WEIGHT = 0.5
#: Runs after which a score counts for half: the model has changed since.
HALF_LIFE = 40.0
#: Degrees of freedom of the GP's own law at least.
LEAST_DEGREES = 4


@stored(
    "Run",
    x=Several(float),
    y=float,
    noise=float | None,
    score=float | None,
    level=float | None,
)
@dataclass(frozen=True)
class Run:
    """One run: inputs, result (NaN: failed), variance of its noise where known.

    ``score`` and ``level`` are what the model that had not seen the result said of it: its score
    ``(y - location) / spread``, and the predictive probability of a smaller result.  None for runs
    that no model predicted.
    """

    x: tuple[float, ...]
    y: float
    noise: float | None = None
    score: float | None = None
    level: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it gave no result."""
        return not math.isfinite(self.y)


@stored(
    "Optimisation",
    space=Space,
    settings=dict,
    runs=Several(Run),
    pending=list,
    asked=int,
    surrogate=Surrogate | None,
)
@dataclass
class Record:
    """The state of an optimisation: everything that its next step depends on.

    Attributes
    ----------
    space : Space
    settings : dict
        Those of the optimiser, as JSON.
    runs : list of Run
        In the order in which they were told.
    pending : list of list of float
        Inputs that were asked for and not told.
    asked : int
        Points asked for so far; every one has random numbers of its own.
    surrogate : Surrogate or None
        The model that the last question was answered with.
    """

    space: Space
    settings: dict[str, Any]
    runs: list[Run] = field(default_factory=list)
    pending: list[list[float]] = field(default_factory=list)
    asked: int = 0
    surrogate: Surrogate | None = None

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

    def features(self, Z: Tensor, noise: Tensor | None = None) -> Tensor:
        """Unit coordinates [..., d] as the GP sees them.

        Where the noise of any run is known, its variance is one more feature, 0 by default.
        """
        F = self.space.features(Z)
        if not self.knows_noise:
            return F
        column = torch.zeros_like(F[..., :1]) if noise is None else noise.unsqueeze(-1)
        return torch.cat([F, column], -1)

    def data(self) -> tuple[Tensor, Tensor]:
        """Features [N, D] and targets [N], to be maximised, of the runs that succeeded."""
        runs = self.succeeded
        Z = self.space.to_unit(inputs_of(runs))
        y = self.sign * torch.tensor([run.y for run in runs], dtype=torch.float64)
        noise = torch.tensor([run.noise or 0.0 for run in runs], dtype=torch.float64)
        return self.features(Z, noise), y

    def law(self) -> ScoreLaw:
        """The law of a score, from the scores so far.

        Those of points that were predicted before they were seen, newer ones counting for more;
        and, for half as much, leave-one-out scores of runs that no model predicted.
        """
        assert self.surrogate is not None
        points = self.surrogate.gp.n_train
        degrees = max(LEAST_DEGREES, points - len(self.surrogate.at))
        return ScoreLaw(*self._scores(), degrees=degrees)

    def law_of_search(self) -> ScoreLaw:
        """The law that the next point is chosen by: the same scores, and the GP's normal tails.

        Student's tails are for intervals; a search that believed in them would look for its luck
        where nothing is known.
        """
        calibration = self.settings["calibration"]
        if calibration == "none":
            return ScoreLaw(torch.zeros(0, dtype=torch.float64))
        return ScoreLaw(*self._scores(), upper=calibration == "upper")

    def _scores(self) -> tuple[Tensor, Tensor]:
        """Scores [C] and what each counts for."""
        assert self.surrogate is not None
        runs = self.succeeded
        left_out = leave_one_out_scores(self.surrogate.gp).tolist()
        scores, weights = [], []
        for place, run in enumerate(runs):
            if run.score is not None:
                scores.append(run.score)
                weights.append(0.5 ** ((len(runs) - 1 - place) / HALF_LIFE))
            elif place < len(left_out):
                scores.append(left_out[place])
                weights.append(LEFT_OUT_WEIGHT)
        return (
            torch.tensor(scores, dtype=torch.float64),
            torch.tensor(weights, dtype=torch.float64),
        )


def inputs_of(runs: Sequence[Run]) -> Tensor:
    """Inputs [n, d] of runs, in the user's units."""
    return torch.tensor([run.x for run in runs], dtype=torch.float64)
