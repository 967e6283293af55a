"""Ask for points, tell results: a calibrated optimisation that can be stopped and resumed."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from numpy.typing import ArrayLike
from torch import Tensor

from sharpgp._validation import as_count, as_level, check_choice
from sharpgp.bo.acquisition import (
    CalibratedLogExpectedImprovement,
    CalibratedUpperConfidenceBound,
)
from sharpgp.bo.record import Record, Run, numbers_of_runs
from sharpgp.bo.search import BEST, GLOBAL, OfUnit, apart, candidates, maximise
from sharpgp.bo.small_sample import SmallSamplePredictor, joint_draws, probability_of_gain
from sharpgp.bo.space import Space
from sharpgp.bo.surrogate import Surrogate, choose
from sharpgp.exceptions import InvalidInputError
from sharpgp.persistence import load, save

if TYPE_CHECKING:
    from sharpgp.plots.models import Figure

#: A point: a dict by name, or an array (d,); and points, of which data frames are another kind.
Point = dict[str, object] | np.ndarray
Points = Mapping[str, object] | Sequence[Mapping[str, object]] | ArrayLike
#: Acquisition functions by name.
ACQUISITIONS = ("logei", "ucb")
#: Successful runs that a model needs.
MIN_RUNS = 3
#: Joint draws of the function behind a probability.
DRAWS = 1000


@dataclass(frozen=True)
class Best:
    """The best point so far, by results and by the model.

    ``x`` has the best result ``y`` (the mean, if it was run more than once).  ``interval`` is the
    calibrated 95 % interval of the function there, without noise; None before three results.
    ``model_x`` is the point that was run whose mean under the model, ``model_y``, is best.  Where
    results are noisy it is the better recommendation: the best of many was also lucky.
    """

    x: Point
    y: float
    interval: tuple[float, float] | None
    model_x: Point
    model_y: float


class Optimiser:
    r"""Bayesian optimisation with calibrated predictions, from ten points on.

    The first points fill the space.  From then on every question is answered by a GP of all results
    so far, calibrated by what the models before it said of points that they had not seen.

    Parameters
    ----------
    inputs : dict or array of shape (d, 2)
        Inputs by name: ``(low, high)`` for numbers between, ``Log(low, high)`` for a logarithmic
        scale, ``range(1, 11)`` for whole numbers, a list for values.  Numbers in a list keep their
        order, anything else is a category.  Points are then dicts.  Or one row ``(low, high)`` for
        each input, or SciPy's ``Bounds``; points are then arrays.
    maximize : bool
        False for results that are to be small.
    acquisition : {"logei", "ucb"}
        Calibrated expected improvement or calibrated upper bound.
    delta : float
        Level of the upper bound.
    design : int, optional
        Points that fill the space first; two for each input, and at least five, by default.
    random_state : int
    file : path, optional
        Where the state is kept: written after every question and every answer, whole or not at
        all.  If the file exists, the optimisation in it goes on, with the same inputs and settings;
        points that were asked for and not told are asked for again first.

    Examples
    --------
    Minimise:

    >>> loop = Optimiser({"x": (-1, 1), "kind": ["a", "b"]}, maximize=False, design=5)
    >>> while loop.n_runs < 30 and not loop.stop(amount=0.3):
    ...     point = loop.ask()
    ...     loop.tell(point, (point["x"] - 0.2) ** 2 + (point["kind"] == "b"))
    >>> best = loop.best()
    >>> round(best.x["x"], 1), best.x["kind"], loop.n_runs < 30
    (0.2, 'a', True)
    """

    def __init__(
        self,
        inputs: Mapping[str, object] | ArrayLike,
        *,
        maximize: bool = True,
        acquisition: str = "logei",
        delta: float = 0.95,
        design: int | None = None,
        random_state: int = 0,
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        check_choice(acquisition, "acquisition", ACQUISITIONS)
        space, level = Space.of(inputs), as_level(delta, "delta")
        first = max(2 * space.d, 5) if design is None else as_count(design, "design", least=3)
        seed = as_count(random_state, "random_state", least=0)
        names = "maximize", "acquisition", "delta", "design", "seed"
        settings = dict(zip(names, (bool(maximize), acquisition, level, first, seed), strict=True))
        self.record, self.file = Record(space, settings), file
        # Points that an earlier process asked for and did not tell.
        self._again: list[list[float]] = []
        if file is not None and os.path.exists(file):
            record = self.load(file).record
            changed = ["inputs"] * (record.space != space)
            changed += [name for name in names if record.settings[name] != settings[name]]
            if changed:
                found = ", ".join(changed).replace("seed", "random_state")
                raise InvalidInputError(
                    f"file: expected the same inputs and settings, found other {found} in "
                    f"{os.fspath(file)}; go on with these by Optimiser.load, or name another file"
                )
            self.record, self._again = record, list(record.pending)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Optimiser":
        """Go on with an optimisation from its file; what it asks next is what it would have asked.

        Points that were asked for and not told are still pending.
        """
        record = load(file)
        if not isinstance(record, Record):
            raise InvalidInputError(
                f"file: expected an optimisation, found a {type(record).__name__} in {file}"
            )
        loop = cls.__new__(cls)
        loop.record, loop.file, loop._again = record, file, []
        return loop

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the state to a file: tensors and JSON, no code."""
        save(self.record, file)

    # -------------------------------------------------------------- the loop

    def ask(
        self, n: int | None = None, *, among: Points | None = None
    ) -> Point | list[dict[str, object]]:
        """The next point to run, or the next ``n``; they are pending until they are told.

        One point is a dict, or an array (d,); ``n`` points are a list of dicts, or an array (n, d).
        ``among`` are the points that can be run, where not all of the space can; each is asked for
        once.
        """
        rows = None if among is None else self.record.space.codes(among)
        points = []
        for _ in range(1 if n is None else as_count(n, "n", least=1)):
            self._again = [x for x in self._again if x in self.record.pending]
            if self._again:
                x = self._again.pop(0)
            else:
                x = (self._next() if rows is None else self._next_among(rows)).tolist()
                self.record.asked += 1
                self.record.pending.append(x)
            points.append(x)
        self._keep()
        found = self.record.space.points(points)
        return found[0] if n is None else found

    def tell(self, x: Points, y: ArrayLike | None, *, noise: ArrayLike | None = None) -> None:
        """Results of runs, whether or not these were asked for.

        A run within a twentieth of every input's range from a pending point is the run of that
        point: settings may be rounded.
        A result of None, NaN or infinity is a run that failed: it is recorded, and its surroundings
        are avoided.  Results of the same point are averaged.  ``x`` is a dict, a list of dicts, a
        data frame or an array; ``noise`` are variances of the results, where they are known.
        """
        coded = self.record.space.codes(x)
        results = numbers_of_runs(y, "y", len(coded))
        known: list[Any] = [None] * len(coded)
        if noise is not None:
            known = numbers_of_runs(noise, "noise", len(coded))
            if not all(value >= 0.0 for value in known):
                raise InvalidInputError(f"noise: expected nonnegative variances, found {known}")
        told = zip(coded, results, known, strict=True)
        for run in [self._predicted(*one) for one in told]:  # before any of them is known
            self.record.add(run)
        self._keep()

    @property
    def n_runs(self) -> int:
        """Number of runs that were told, failed ones included."""
        return len(self.record.runs)

    @property
    def pending(self) -> np.ndarray | list[dict[str, object]]:
        """Points that were asked for and not told."""
        return self.record.space.points(self.record.pending)

    def best(self) -> Best:
        """The best point by results, and the best by the model; see :class:`Best`."""
        record, means = self.record, self.record.averages()
        if not means:
            raise InvalidInputError("best: expected a run with a result, found none; tell one")
        x = by_model = max(means, key=lambda one: record.sign * means[one])
        y, interval = means[x], None
        if len(record.succeeded) >= MIN_RUNS:
            surrogate = self._trained()
            F = record.features(record.unit(list(means)))
            expected = surrogate.outward(surrogate.gp.mean(F))
            by_model, y = list(means)[int(expected.argmax())], record.sign * float(expected.max())
            low, high = self._intervals(record.unit([x]), 0.95, latent=True)[0].tolist()
            interval = low, high
        shown = record.space.points([x, by_model])
        return Best(shown[0], means[x], interval, shown[1], y)

    def remaining(
        self, amount: float = 0.0, runs: int = 50, *, among: Points | None = None
    ) -> float:
        """Probability that the next ``runs`` runs gain more than ``amount`` on the best point.

        See :func:`sharpgp.bo.small_sample.probability_of_gain`.  1 while the design is run, and
        while all results are the same.  With ``amount=0`` it stays near 1 in a continuous space,
        where some point is always a little better: name the gain that would be worth these runs.
        ``among`` is as in :meth:`ask`.

        Examples
        --------
        >>> loop = Optimiser([(0, 1)], design=4, maximize=False)
        >>> for _ in range(12):
        ...     x = loop.ask()
        ...     loop.tell(x, (x[0] - 0.3) ** 2)
        >>> loop.remaining(amount=0.1) < 0.05
        True
        """
        if not (isinstance(amount, Real) and 0.0 <= amount < math.inf):
            raise InvalidInputError(f"amount: expected a nonnegative number, found {amount!r}")
        as_count(runs, "runs", least=1)
        found = 1.0
        if not self._designing and len(set(self.record.averages().values())) > 1:
            found = probability_of_gain(self._draws(among), float(amount), runs)
        self.record.checks.append([float(self.n_runs), float(amount), found])
        self._keep()
        return found

    def stop(self, probability: float = 0.05, *, amount: float, **remaining: Any) -> bool:
        """Whether to stop: :meth:`remaining`, which takes the rest, is at most ``probability``."""
        most = as_level(probability, "probability")
        return self.remaining(amount, **remaining) <= most

    def predict_interval(self, X: Points, coverage: float = 0.95) -> np.ndarray:
        """Calibrated intervals (n, 2) for results at points; from the first result on."""
        Z = self.record.space.to_unit(self.record.space.codes(X))
        return self._intervals(Z, coverage, latent=False).numpy()

    # -------------------------------------------------------------- one question

    def _next(self) -> Tensor:
        """Codes [d] of one more point."""
        space, pending = self.record.space, self.record.unit(self.record.pending)
        if self._designing:
            z = self._of_design()
        else:
            best, acquisition = self._state()
            z = maximise(acquisition, space, best, pending, self._seed)
        return space.from_unit(z.unsqueeze(0))[0]

    def _next_among(self, rows: Tensor) -> Tensor:
        """Codes [d] of one more point of ``rows`` [m, d], none of which is asked for twice."""
        rows = self._left(rows)
        if not len(rows):
            raise InvalidInputError("among: expected a point that has not been run, found none")
        Z = self.record.space.to_unit(rows)
        if self._designing:
            value = -(Z - self._of_design()).square().sum(-1)
        else:
            acquisition = self._state()[1]
            with torch.no_grad():
                value = acquisition(Z.unsqueeze(1))
        return rows[int(value.argmax())]

    def _left(self, rows: Tensor) -> Tensor:
        """Those of ``rows`` [m, d] that were not run and are not pending."""
        done = {run.x for run in self.record.runs} | {tuple(x) for x in self.record.pending}
        return rows[[tuple(row) not in done for row in rows.tolist()]]

    @property
    def _designing(self) -> bool:
        record = self.record
        few = len(record.runs) + len(record.pending) < record.settings["design"]
        return few or len(record.succeeded) < MIN_RUNS

    @property
    def _seed(self) -> int:
        """Of the random numbers of the next question."""
        return 1_000_003 * int(self.record.settings["seed"]) + self.record.asked

    def _of_design(self) -> Tensor:
        """The next point [d] of those that fill the space, in unit coordinates.

        Where inputs take few values, those that are known already are passed over.
        """
        record, k = self.record, self.record.asked
        known = record.unit([*(run.x for run in record.runs), *record.pending])
        Z = record.space.sobol(k + GLOBAL, record.settings["seed"])[k:]
        new = Z[apart(Z, known)]
        return (new if len(new) else Z)[0]

    def _state(self) -> tuple[Tensor, AcquisitionFunction]:
        """The best points so far [b, d] and what is searched, in unit coordinates."""
        record, gp = self.record, self._trained().gp
        pending = record.features(record.unit(record.pending))
        predictor = SmallSamplePredictor(gp, record.law_of_search(), latent=True, pending=pending)
        means = gp.mean(gp.X_train)
        leading = means.topk(min(BEST, len(means))).indices.tolist()
        best = record.unit([record.runs[place].x for place in leading])
        if record.settings["acquisition"] == "ucb":
            bound = CalibratedUpperConfidenceBound(predictor, record.settings["delta"])
            return best, OfUnit(bound, record.features)
        top = torch.cat([means, gp.mean(pending)]).max()
        return best, OfUnit(CalibratedLogExpectedImprovement(predictor, top), record.features)

    def _draws(self, among: Any) -> Tensor:
        """Draws for :func:`probability_of_gain`; candidates are those of ``among``, if given."""
        record, surrogate = self.record, self._trained()
        best = self._state()[0]
        if among is None:
            Z = torch.cat(candidates(record.space, best, self._seed))
        else:
            Z = record.space.to_unit(self._left(record.space.codes(among)))
        predictor = SmallSamplePredictor(surrogate.gp, record.law(), latent=True)
        F, generator = record.features(torch.cat([best[:1], Z])), torch.Generator()
        draws = joint_draws(predictor, F, DRAWS, generator.manual_seed(self._seed))
        return surrogate.outward(draws)

    def _trained(self) -> Surrogate:
        """The surrogate on all results so far."""
        record, known = self.record, self.record.surrogate
        if not record.succeeded:
            raise InvalidInputError("X: expected a run with a result, found none; tell one first")
        if known is None or known.posterior.n_train != len(record.runs):
            fit = choose if known is None else known.next
            record.surrogate = known = fit(*record.data(), record.space.ties, record.knows_noise)
        return known

    def _intervals(self, Z: Tensor, coverage: float, *, latent: bool) -> Tensor:
        """Intervals [n, 2] of results, or of the function, at unit coordinates [n, d]."""
        surrogate = self._trained()
        predictor = SmallSamplePredictor(surrogate.gp, self.record.law(), latent=latent)
        ends = surrogate.outward(predictor.predict_interval(self.record.features(Z), coverage))
        return ends if self.record.sign > 0 else -ends.flip(-1)

    def _predicted(self, x: Tensor, y: float, noise: float | None) -> Run:
        """A run, with its score and level under the model that answered the last question."""
        surrogate, sign, code = self.record.surrogate, self.record.sign, tuple(x.tolist())
        if surrogate is None or not math.isfinite(y):
            return Run(code, y, noise)
        law, F = self.record.law(), self.record.features(self.record.space.to_unit(x[None]))
        if surrogate.knows_noise:
            F[:, -1] = noise or 0.0
        with torch.no_grad():
            location, spread = SmallSamplePredictor(surrogate.gp, law).moments(F)
            target = surrogate.inward(torch.tensor([sign * y], dtype=torch.float64))
            score = (target - location) / spread
            level = float(law.cdf(score))
        return Run(code, y, noise, float(score), level if sign > 0 else 1.0 - level)

    def _keep(self) -> None:
        if self.file is not None:
            self.save(self.file)

    def plot(self) -> "Figure":
        """A matplotlib figure: results, whether the model foresaw them, what is left to gain."""
        from sharpgp.plots import optimisation_figure

        return optimisation_figure(self)

    def _facts(self) -> dict[str, Any]:
        record, means, space = self.record, self.record.averages(), self.record.space
        low, high = map(space.shown, space.from_unit(space.unit_bounds).tolist())
        facts: dict[str, Any] = {
            "goal": "maximise" if record.sign > 0 else "minimise",
            "inputs": f"{low} to {high}",
            "runs": self.n_runs,
            "failed": self.n_runs - len(record.succeeded),
            "pending": len(record.pending),
        }
        if means:
            x = max(means, key=lambda one: record.sign * means[one])
            facts["best"] = f"{means[x]:.6g} at {space.shown(x)}"
        if record.checks:
            n, amount, chance = record.checks[-1]
            facts["remaining"] = f"{chance:.1%} for more than {amount:g} after {n:.0f} runs"
        return facts

    def __repr__(self) -> str:
        return f"<Optimiser: {', '.join(f'{k}: {v}' for k, v in self._facts().items())}>"

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{k}</th><td>{escape(str(v))}</td></tr>" for k, v in self._facts().items())
        return f"<table><caption>Optimiser</caption>{''.join(rows)}</table>"
