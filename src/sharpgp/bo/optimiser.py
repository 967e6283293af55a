"""Ask for points, tell results: a calibrated optimisation that can be stopped and resumed."""

import math
import os
from collections.abc import Sequence
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from sharpgp._validation import as_count, check_choice
from sharpgp.bo.acquisition import (
    CalibratedLogExpectedImprovement,
    CalibratedUpperConfidenceBound,
)
from sharpgp.bo.feasibility import Feasibility, MindingFailures
from sharpgp.bo.record import Record, Run, inputs_of, numbers_of_runs
from sharpgp.bo.search import BEST, candidates, maximise
from sharpgp.bo.small_sample import SmallSamplePredictor
from sharpgp.bo.space import Space
from sharpgp.bo.surrogate import KERNELS, Surrogate, choose
from sharpgp.bo.thompson import joint_draws
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.covariance import STATIONARY
from sharpgp.persistence import load, save

#: Acquisition functions by name.
ACQUISITIONS = ("logei", "ucb", "thompson")
#: What a search may be calibrated by.
CALIBRATIONS = ("all", "upper", "none")
#: What noise may be.
NOISES = ("same", "learned")
#: Successful runs that a model needs.
LEAST_RUNS = 3


class Optimiser:
    r"""Bayesian optimisation with calibrated predictions, from ten points on.

    The first points fill the space.  From then on every question is answered by a GP that was
    trained on all results so far (:mod:`sharpgp.bo.surrogate`), with quantiles that are calibrated
    by what the models before it said of points that they had not seen
    (:mod:`sharpgp.bo.small_sample`).

    Parameters
    ----------
    bounds : array of shape (2, d)
        Lower and upper bounds of the inputs.
    maximize : bool
        False for results that are to be small.
    acquisition : {"logei", "ucb", "thompson"}
        Calibrated expected improvement, calibrated upper bound, or the best point of a calibrated
        joint draw.
    delta : float
        Level of the upper bound.
    calibration : {"all", "upper", "none"}
        What the search is calibrated by: all scores, those above 0, which is the tail that expected
        improvement asks for, or nothing: the GP as trained.  Intervals are calibrated in any case.
    kernels : sequence of str
        Kernels that are tried.
    warp : bool
        Whether a warped target is tried, too.
    noise : {"same", "learned"}
        Noise of one variance everywhere, or, from twenty results on, of a variance that is learned
        and differs from place to place, where leave-one-out densities speak for it.
    integer, categorical : sequences of int
        Positions of inputs that take whole numbers, and of those whose whole numbers are codes.
    design : int, optional
        Points that fill the space first; two for each input, and at least five, by default.
    random_state : int
    file : path, optional
        Where the state is kept: written after every question and every answer, whole or not at
        all.  :meth:`load` goes on from there; a file that exists is an error here, so that no run
        of a program takes the place of the one before.

    Examples
    --------
    >>> loop = Optimiser([[-1.0], [1.0]], design=4)
    >>> for _ in range(8):
    ...     x = loop.ask()
    ...     loop.tell(x, (2 * x[:, 0] - 0.4).cos())
    >>> x, value = loop.best()
    >>> round(x[0].item(), 1)
    0.2
    """

    def __init__(
        self,
        bounds: Any,
        *,
        maximize: bool = True,
        acquisition: str = "logei",
        delta: float = 0.95,
        calibration: str = "all",
        kernels: Sequence[str] = KERNELS,
        warp: bool = True,
        noise: str = "same",
        integer: Sequence[int] = (),
        categorical: Sequence[int] = (),
        design: int | None = None,
        random_state: int = 0,
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        check_choice(acquisition, "acquisition", ACQUISITIONS)
        check_choice(calibration, "calibration", CALIBRATIONS)
        check_choice(noise, "noise", NOISES)
        if isinstance(kernels, str) or not kernels:
            raise InvalidInputError(f"kernels: expected a list of names, found {kernels!r}")
        for kernel in kernels:
            check_choice(kernel, "kernels", STATIONARY)
        if not (isinstance(delta, int | float) and 0.0 < delta < 1.0):
            raise InvalidInputError(f"delta: expected a level in (0, 1), found {delta!r}")
        if file is not None and os.path.exists(file):
            raise InvalidInputError(
                f"file: expected a new one, found {os.fspath(file)}; go on with what is in it by "
                "Optimiser.load, or remove it"
            )
        space = Space.of(bounds, integer, categorical)
        first = max(2 * space.d, 5) if design is None else as_count(design, "design", least=3)
        settings = {
            "maximize": bool(maximize),
            "acquisition": acquisition,
            "delta": float(delta),
            "design": first,
            "seed": as_count(random_state, "random_state", least=0),
            "calibration": calibration,
            "kernels": list(kernels),
            "warp": bool(warp),
            "noise": noise,
        }
        self.record = Record(space, settings)
        self.file = file

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Optimiser":
        """Go on with an optimisation from its file; what it asks next is what it would have asked.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     loop = Optimiser([[0.0], [1.0]], file=f"{folder}/run.sgp")
        ...     asked = loop.ask()
        ...     Optimiser.load(f"{folder}/run.sgp").pending.equal(asked)
        True
        """
        record = load(file)
        if not isinstance(record, Record):
            raise InvalidInputError(
                f"file: expected an optimisation, found a {type(record).__name__} in {file}"
            )
        loop = cls.__new__(cls)
        loop.record, loop.file = record, file
        return loop

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the state to a file: tensors and JSON, no code."""
        save(self.record, file)

    # -------------------------------------------------------------- the loop

    def ask(self, n: int = 1, *, among: Any = None) -> Tensor:
        """The next ``n`` points to run, [n, d]; they are pending until they are told.

        Parameters
        ----------
        n : int
        among : array of shape (m, d), optional
            The points that can be run, where not all of the space can; each is asked for once.
        """
        rows = None if among is None else self.record.space.inputs(among)
        points = []
        for _ in range(as_count(n, "n", least=1)):
            x = self._next() if rows is None else self._next_among(rows)
            self.record.asked += 1
            self.record.pending.append(x.tolist())
            points.append(x)
        self._keep()
        return torch.stack(points)

    def tell(self, x: Any, y: Any, *, noise: Any = None) -> None:
        """Results of runs: ``y`` [n] at ``x`` [n, d], whether or not these were asked for.

        A run within a thousandth of an input's range from a pending point is the run of that point.

        A result that is NaN or infinite is a run that failed: it is recorded, and its surroundings
        are avoided.

        Parameters
        ----------
        x : array of shape (n, d), or (d,) for one run
        y : array of shape (n,), or a number
        noise : array of shape (n,) or number, optional
            Variances of the noise of these results, where they are known.
        """
        X = self.record.space.inputs(x)
        results = numbers_of_runs(y, "y", len(X))
        known = None if noise is None else numbers_of_runs(noise, "noise", len(X))
        if known is not None and not all(value >= 0.0 for value in known):
            raise InvalidInputError(f"noise: expected nonnegative variances, found {known}")
        predicted = [
            self._predicted(point, result) for point, result in zip(X, results, strict=True)
        ]
        for k, (point, result) in enumerate(zip(X.tolist(), results, strict=True)):
            variance = None if known is None else known[k]
            self.record.add(Run(tuple(point), result, variance, *predicted[k]))
        self._keep()

    @property
    def pending(self) -> Tensor:
        """Points [m, d] that were asked for and not told."""
        return torch.tensor(self.record.pending, dtype=torch.float64).reshape(
            -1, self.record.space.d
        )

    def best(self) -> tuple[Tensor, float]:
        """The run with the best mean under the model [d], and that mean; by results before that."""
        runs = self.record.succeeded
        if not runs:
            raise InvalidInputError("best: expected a run with a result, found none; tell one")
        X, values = inputs_of(runs), [self.record.sign * run.y for run in runs]
        if len(runs) >= LEAST_RUNS:
            surrogate = self._trained()
            values = surrogate.outward(surrogate.gp.mean(surrogate.gp.X_train)).tolist()
        place = values.index(max(values))
        return X[place], self.record.sign * values[place]

    def predict_interval(self, X: Any, coverage: float = 0.95) -> Tensor:
        """Calibrated intervals [n, 2] for results at ``X`` [n, d]; from the first result on."""
        surrogate = self._trained()
        Z = self.record.space.to_unit(self.record.space.inputs(X))
        predictor = SmallSamplePredictor(surrogate.gp, self.record.law())
        ends = predictor.predict_interval(self.record.features(Z, observed=True), coverage)
        ends = surrogate.outward(ends)
        return ends if self.record.sign > 0 else -ends.flip(-1)

    def level_of(self, x: Any, y: Any) -> float | None:
        """Predictive probability of a result below ``y`` at ``x``, before it is told.

        Under the model that answered the last question; None where there was none yet.
        """
        X = self.record.space.inputs(x)
        return self._predicted(X[0], numbers_of_runs(y, "y", 1)[0])[1]

    # -------------------------------------------------------------- one question

    def _next(self) -> Tensor:
        """One more point [d]."""
        space = self.record.space
        if self._designing:
            return space.from_unit(self._of_design())
        predictor, best, floor, top = self._state()
        if self.record.settings["acquisition"] == "thompson":
            points = torch.cat(candidates(space, best, self._seed))
            return space.from_unit(points[int(self._draw(predictor, points, floor).argmax())])
        acquisition = self._acquisition(predictor, floor, top)
        as_is = not space.categorical and not self._trained().knows_noise
        features = None if as_is else self.record.features
        return space.from_unit(maximise(acquisition, space, best, self._seed, features)[0])

    def _next_among(self, rows: Tensor) -> Tensor:
        """One more point [d] of ``rows`` [m, d], none of which is asked for twice."""
        done = [list(run.x) for run in self.record.runs] + self.record.pending
        left = torch.tensor([row not in done for row in rows.tolist()])
        if not bool(left.any()):
            raise InvalidInputError("among: expected a point that has not been run, found none")
        rows = rows[left]
        Z = self.record.space.to_unit(rows)
        if self._designing:
            value = -(Z - self._of_design()).square().sum(-1)
        else:
            predictor, _, floor, top = self._state()
            if self.record.settings["acquisition"] == "thompson":
                value = self._draw(predictor, Z, floor)
            else:
                acquisition = self._acquisition(predictor, floor, top)
                with torch.no_grad():
                    value = acquisition(self.record.features(Z).unsqueeze(1))
        return rows[int(value.argmax())]

    @property
    def _designing(self) -> bool:
        record = self.record
        few = len(record.runs) + len(record.pending) < record.settings["design"]
        return few or len(record.succeeded) < LEAST_RUNS

    @property
    def _seed(self) -> int:
        """Of the random numbers of the next question."""
        return 1_000_003 * int(self.record.settings["seed"]) + self.record.asked

    def _of_design(self) -> Tensor:
        """The next point [d] of those that fill the space, in unit coordinates."""
        settings, asked = self.record.settings, self.record.asked
        return self.record.space.sobol(max(settings["design"], asked + 1), settings["seed"])[asked]

    def _state(self) -> tuple[SmallSamplePredictor, Tensor, float, float]:
        """The predictor of the function, the best points so far [b, d], worst and best mean."""
        record = self.record
        surrogate = self._trained()
        law = record.law_of_search()
        predictor = SmallSamplePredictor(surrogate.gp, law, latent=True)
        means = surrogate.gp.mean(surrogate.gp.X_train)
        floor, top = float(means.min()), float(means.max())
        if record.pending:
            # Observations of their own mean: the spread shrinks around them, and what is to be
            # improved on is the best of them, too.
            F = record.features(record.space.to_unit(self.pending))
            with torch.no_grad():
                expected = predictor.location(F)
                predictor = predictor.condition_on_observations(F, expected)
            top = max(top, float(expected.max()))
        leading = means.topk(min(BEST, len(means))).indices
        best = record.space.to_unit(inputs_of(record.succeeded)[leading])
        return predictor, best, floor, top

    def _acquisition(
        self, predictor: SmallSamplePredictor, floor: float, top: float
    ) -> AcquisitionFunction:
        bound = self.record.settings["acquisition"] == "ucb"
        found: AcquisitionFunction
        if bound:
            found = CalibratedUpperConfidenceBound(predictor, self.record.settings["delta"])
        else:
            found = CalibratedLogExpectedImprovement(predictor, top)
        chance = self._feasibility()
        if chance is None:
            return found
        return MindingFailures(found, chance, floor if bound else None)

    def _draw(self, predictor: SmallSamplePredictor, Z: Tensor, floor: float) -> Tensor:
        """A joint draw [m] at unit coordinates, less where runs are likely to fail."""
        F = self.record.features(Z)
        draw = joint_draws(predictor, F, 1, torch.Generator().manual_seed(self._seed))[0]
        chance = self._feasibility()
        return draw if chance is None else floor + (draw - floor) * chance(F)

    def _feasibility(self) -> Feasibility | None:
        """How likely runs succeed, where any has failed."""
        runs = self.record.runs
        succeeded = torch.tensor([not run.failed for run in runs])
        if bool(succeeded.all()):
            return None
        Z = self.record.space.to_unit(inputs_of(runs))
        return Feasibility(self.record.space.features(Z), succeeded)

    # -------------------------------------------------------------- the model

    def _trained(self) -> Surrogate:
        """The surrogate on all results so far."""
        record, known = self.record, self.record.surrogate
        if known is not None and record.knows_noise and not known.told_noise:
            known = None
        if not record.succeeded:
            raise InvalidInputError("X: expected a run with a result, found none; tell one first")
        if known is None or known.posterior.n_train != len(record.succeeded):
            how = {
                "ties": record.space.ties,
                "known_noise": record.knows_noise,
                "kernels": record.settings["kernels"],
                "warped": record.settings["warp"],
                "learned_noise": record.settings["noise"] == "learned",
            }
            fit = choose if known is None else known.next
            record.surrogate = known = fit(*record.data(), **how)
        return known

    def _predicted(self, x: Tensor, y: float) -> tuple[float | None, float | None]:
        """Score and level of a result under the model that answered the last question."""
        surrogate = self.record.surrogate
        if surrogate is None or not math.isfinite(y):
            return None, None
        predictor = SmallSamplePredictor(surrogate.gp, self.record.law())
        sign = self.record.sign
        with torch.no_grad():
            Z = self.record.space.to_unit(x.unsqueeze(0))
            location, spread = predictor.moments(self.record.features(Z, observed=True))
            target = surrogate.inward(torch.tensor([sign * y], dtype=torch.float64))
            score = (target - location) / spread
            level = float(predictor.law.cdf(score))
        return float(score), level if sign > 0 else 1.0 - level

    def _keep(self) -> None:
        if self.file is not None:
            self.save(self.file)
