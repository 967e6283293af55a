"""Ask for points, tell results: a calibrated optimisation that can be stopped and resumed."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.utils.multi_objective.pareto import is_non_dominated
from numpy.typing import ArrayLike
from torch import Tensor

from sharpgp._table import as_html
from sharpgp._validation import as_count, as_level, check_choice, nearest
from sharpgp.bo.acquisition import (
    CalibratedLogExpectedImprovement,
    CalibratedUpperConfidenceBound,
)
from sharpgp.bo.constraints import AtMost, Constraint, Fixed, Mixture, Region, placed
from sharpgp.bo.quantities import (
    Limit,
    Objectives,
    Quantity,
    Within,
    added_volume,
    hypervolume_improvement,
    reference_of,
    volume_of,
)
from sharpgp.bo.record import RESULT, Record, Run, numbers_of_runs
from sharpgp.bo.search import BEST, GLOBAL, apart, candidates, maximise
from sharpgp.bo.small_sample import probability_of_gain
from sharpgp.bo.space import Space
from sharpgp.exceptions import InvalidInputError
from sharpgp.persistence import load, save

if TYPE_CHECKING:
    import pandas as pd

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
#: Runs without a gain after which a category is tried that was run least.
STALLED = 4
# What other libraries call what is here.
_SETTINGS = {
    "minimize": "maximize=False",
    "direction": "maximize=True or False",
    "directions": 'objectives={"cost": "min", "yield": "max"}',
    **dict.fromkeys(("seed", "random_seed"), "random_state=0"),
    **dict.fromkeys(("bounds", "space", "parameters"), "the inputs first"),
    **dict.fromkeys(("n_init", "n_initial_points", "n_startup_trials", "init_points"), "design=10"),
}
_METHODS = {
    **dict.fromkeys(("suggest", "propose", "recommend", "get_next_trial"), "ask()"),
    **dict.fromkeys(("observe", "register", "complete", "add"), "tell(x, y)"),
    **dict.fromkeys(("minimize", "maximize", "optimize", "run"), "a loop of ask() and tell(x, y)"),
    **dict.fromkeys(("trials_dataframe", "history", "trials"), "results()"),
    **dict.fromkeys(("pareto", "best_trials", "pareto_front"), "front()"),
}


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
        Inputs by name: ``(low, high)`` for numbers between, ``(low, high, step)`` for steps,
        ``Log(low, high)`` for a logarithmic scale, ``range(1, 11)`` for whole numbers, a list for
        values.  Numbers in a list keep their order, anything else is a category.  Points are then
        dicts.  Or one row ``(low, high)`` for each input, or SciPy's ``Bounds``; points are then
        arrays.
    maximize : bool
        False for results that are to be small.
    constraints : list, optional
        What a point has to meet to be run: text such as ``"2 * a + b <= 10"`` (names with blanks in
        backticks; inputs without names are x0, x1, ...), :class:`Mixture`, :class:`AtMost`, or a
        function whose arguments are named as inputs, and which gives True or False.
    objectives : dict, optional
        Name and ``"max"`` or ``"min"`` of each objective, in place of ``maximize``.  Two or three
        are searched for their Pareto front.
    limits : list, optional
        What a result has to meet to count: ``"impurity <= 0.5"``, of an objective or of anything
        else that is measured.
    context : list, optional
        Inputs that are given with every question (``ask(fixed=...)``), and not chosen.
    acquisition : {"logei", "ucb"}
        Calibrated expected improvement or calibrated upper bound.  Several objectives have the
        expected improvement of their hypervolume.
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
        constraints: Sequence[Constraint] = (),
        objectives: Mapping[str, str] | None = None,
        limits: Sequence[str] = (),
        context: Sequence[Any] = (),
        acquisition: str = "logei",
        delta: float = 0.95,
        design: int | None = None,
        random_state: int = 0,
        file: str | os.PathLike[str] | None = None,
        **unknown: object,
    ) -> None:
        for word in unknown:
            hint = f"write {_SETTINGS[word]}" if word in _SETTINGS else "see help(Optimiser)"
            raise TypeError(f"Optimiser: found no setting {word!r}; {hint}")
        check_choice(acquisition, "acquisition", ACQUISITIONS)
        space, level = Space.of(inputs), as_level(delta, "delta")
        first = max(2 * space.d, 5) if design is None else as_count(design, "design", least=3)
        seed = as_count(random_state, "random_state", least=0)
        goals = _goals(objectives, maximize)
        if acquisition != "logei" and (len(goals) > 1 or limits):
            raise InvalidInputError(
                f"acquisition: several objectives and limits go with 'logei', found {acquisition!r}"
            )
        constraints = [constraints] if isinstance(constraints, _ONE) else list(constraints)
        self.region, self.file = Region(space, constraints), file
        settings: dict[str, Any] = {
            "maximize": next(iter(goals.values())),
            "acquisition": acquisition,
            "delta": level,
            "design": first,
            "seed": seed,
            "constraints": [_kept(one) for one in constraints],
            "name": next(iter(goals)),
            "objectives": goals,
            "limits": [Limit.of(one) for one in ([limits] if isinstance(limits, str) else limits)],
            "context": [
                space.column(one, "context")
                for one in ([context] if isinstance(context, str) else context)
            ],
        }
        others = dict.fromkeys([*list(goals)[1:], *(one.name for one in settings["limits"])])
        others.pop(settings["name"], None)
        # Of a quantity that only has a limit, what is far from the limit is good.
        above = {one.name: one.high == math.inf for one in settings["limits"]} | goals
        bound = {one.name: one.low if above[one.name] else one.high for one in settings["limits"]}
        more = {
            name: Record(space, {"maximize": above[name], "bound": bound.get(name, math.inf)})
            for name in others
        }
        self.record = Record(space, settings, others=more or None)
        # Points that an earlier process asked for and did not tell.
        self._again: list[list[float]] = []
        if file is not None and os.path.exists(file):
            record = self.load(file, constraints=constraints).record
            had = {**_DEFAULTS, **record.settings}
            had.setdefault("objectives", {RESULT: had["maximize"]})
            changed = ["inputs"] * (record.space != space)
            changed += [name for name in settings if had.get(name) != settings[name]]
            if objectives is None:
                changed = [name for name in changed if name != "objectives"]
            if changed:
                found = ", ".join(changed).replace("seed", "random_state")
                raise InvalidInputError(
                    f"file: expected the same inputs and settings, found other {found} in "
                    f"{os.fspath(file)}; go on with these by Optimiser.load, or name another file"
                )
            self.record, self._again = record, list(record.pending)

    @classmethod
    def load(
        cls, file: str | os.PathLike[str], *, constraints: Sequence[Constraint] | None = None
    ) -> "Optimiser":
        """Go on with an optimisation from its file; what it asks next is what it would have asked.

        Points that were asked for and not told are still pending.  Files hold no functions: give
        ``constraints`` again if there is one among them.
        """
        record = load(file)
        if not isinstance(record, Record):
            raise InvalidInputError(
                f"file: expected an optimisation, found a {type(record).__name__} in {file}"
            )
        known = record.settings.get("constraints", [])
        given = list(known if constraints is None else constraints)
        for one in given:
            if isinstance(one, dict):
                raise InvalidInputError(
                    f"constraints: the file does not hold the function {one['function']!r}; give "
                    "all of them: Optimiser.load(file, constraints=[...])"
                )
        loop = cls.__new__(cls)
        loop.record, loop.file, loop._again = record, file, []
        loop.region = Region(record.space, given)
        return loop

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the state to a file: tensors and JSON, no code."""
        save(self.record, file)

    def __getattr__(self, name: str) -> Any:
        hint = f"; write {_METHODS[name]}" if name in _METHODS else ""
        raise AttributeError(f"'Optimiser' object has no attribute {name!r}{hint}")

    # -------------------------------------------------------------- the loop

    def ask(
        self,
        n: int | None = None,
        *,
        among: Points | None = None,
        fixed: Mapping[Any, object] | None = None,
    ) -> Point | list[dict[str, object]]:
        """The next point to run, or the next ``n``; they are pending until they are told.

        One point is a dict, or an array (d,); ``n`` points are a list of dicts, or an array (n, d).
        ``among`` are the points that can be run, where not all of the space can; each is asked for
        once.  ``fixed`` are values by input that all of these points have, as
        ``{"temperature": 60}``.
        """
        record, held = self.record, self._held(fixed)
        rows = None if among is None else self._rows(among, held)
        if held and rows is None:
            self.region.check(held)
        points = []
        for _ in range(1 if n is None else as_count(n, "n", least=1)):
            self._again = [x for x in self._again if x in record.pending]
            again = [x for x in self._again if self._has(x, held)]
            if again:
                x = again[0]
                self._again.remove(x)
            else:
                chosen, value = self._next(held) if rows is None else self._next_among(rows, held)
                x = chosen.tolist()
                record.asked += 1
                record.pending.append(x)
                if value is not None:
                    record.values = [*(record.values or []), [*x, value]]
            points.append(x)
        self._keep()
        found = record.space.points(points)
        return found[0] if n is None else found

    def tell(self, x: Points, y: Any, *, noise: Any = None) -> None:
        """Results of runs, whether or not these were asked for.

        A run within a twentieth of every input's range from a pending point is the run of that
        point: settings may be rounded.
        A result of None, NaN or infinity is a run that failed: it is recorded, and its surroundings
        are avoided.  Results of the same point are averaged.  ``x`` is a dict, a list of dicts, a
        data frame or an array; ``noise`` are variances of the results, where they are known.

        Where several quantities are measured ``y`` has all by name: a dict, a list of dicts, a data
        frame, or an array (n, k) in the order of objectives and limits.  One that is missing was
        not measured.  The name of a column of the frame ``x`` will do for ``y``.
        """
        record, coded = self.record, self.record.space.codes(x)
        if isinstance(y, str) and hasattr(x, "columns"):
            check_choice(y, "y: columns", map(str, x.columns))
            y = x[y]  # type: ignore[call-overload,index]
        told = self._told(y, "y", len(coded))
        known = None if noise is None else self._told(noise, "noise", len(coded))
        for values in known.values() if known else ():
            if not all(math.isnan(value) or value >= 0.0 for value in values):
                raise InvalidInputError(f"noise: expected nonnegative variances, found {values}")
        new: list[tuple[Record, Run]] = []
        for i, code in enumerate(map(tuple, coded.tolist())):
            failed = all(math.isnan(values[i]) for values in told.values())
            for name, one in record.quantities.items():
                if one is record or failed or not math.isnan(told[name][i]):
                    variance = math.nan if known is None else known[name][i]
                    run = Run(code, told[name][i], None if math.isnan(variance) else variance)
                    number = None if one is record else self.n_runs + i
                    new.append((one, replace(one.foreseen(run), number=number)))
        for one, run in new:  # all of them were foreseen before any is known
            one.add(run)
        self._keep()

    @property
    def n_runs(self) -> int:
        """Number of runs that were told, failed ones included."""
        return len(self.record.runs)

    @property
    def pending(self) -> np.ndarray | list[dict[str, object]]:
        """Points that were asked for and not told."""
        return self.record.space.points(self.record.pending)

    def best(self, *, fixed: Mapping[Any, object] | None = None) -> Best:
        """The best point by results, and the best by the model; see :class:`Best`.

        Only runs that meet the limits count.  With ``fixed`` values all is the model's: the best
        of the runs' other settings at these values.
        """
        record, means = self.record, self.record.averages()
        if len(self._goals) > 1:
            raise InvalidInputError("best: several objectives have no best point; see front()")
        if not means:
            raise InvalidInputError("best: expected a run with a result, found none; tell one")
        held = self.record.space.fixed(fixed) if fixed else {}
        Z = placed(record.unit(list(means)), held)
        met = self._met(Z)
        if not bool(met.any()):
            limits = " and ".join(map(str, self._limits))
            raise InvalidInputError(f"best: expected a run that meets {limits}, found none so far")
        points = [x for x, ok in zip(means, met.tolist(), strict=True) if ok]
        known = [means[x] for x in points]
        first = model = int(np.argmax(record.sign * np.array(known)))
        y, interval = known[first], None
        if len(record.succeeded) >= MIN_RUNS:
            quantity = Quantity(record)
            expected = quantity.means(Z[met])
            model = int(expected.argmax())
            first, y = model if held else first, float(quantity.results(expected[model]))
            low, high = quantity.interval(Z[met][[first]], 0.95)[0].tolist()
            interval = low, high
        shown = record.space.points([points[first], points[model]])
        if held:
            shown = record.space.points(record.space.from_unit(Z[met][[model, model]]))
        return Best(shown[0], y if held else known[first], interval, shown[1], y)

    def front(self) -> "pd.DataFrame":
        """The Pareto front of the runs that meet the limits: inputs, and means of each objective.

        ``low`` and ``high`` of an objective are the ends of the calibrated 95 % interval of its
        function.  Needs pandas.
        """
        import pandas as pd

        record, means = self.record, self._averages()
        if len(self._goals) < 2:
            raise InvalidInputError("front: expected several objectives, found one; see best()")
        met = self._met(record.unit(list(means))).tolist()
        points = [x for x, ok in zip(means, met, strict=True) if ok]
        if not points:
            raise InvalidInputError("front: expected a run with all objectives, found none")
        signs = torch.tensor([1.0 if up else -1.0 for up in self._goals.values()]).double()
        Y = torch.tensor([means[x] for x in points]).double() * signs
        best = is_non_dominated(Y, deduplicate=False).tolist()
        points = [x for x, ok in zip(points, best, strict=True) if ok]
        table = self._columns(points)
        for k, name in enumerate(self._goals):
            table[name] = [means[x][k] for x in points]
            one = record.quantities[name]
            if len(one.succeeded) >= MIN_RUNS:
                ends = Quantity(one).interval(record.unit(points), 0.95).mT.tolist()
                table[f"{name} low"], table[f"{name} high"] = ends
        return pd.DataFrame(table).sort_values(next(iter(self._goals)), ignore_index=True)

    def results(self) -> "pd.DataFrame":
        """All runs as a data frame: inputs, results, what was predicted of them, and why they ran.

        ``predicted``, ``low`` and ``high`` are mean and ends of the calibrated 95 % interval before
        the run, empty for the design; ``acquisition`` is the value for which a point was asked.
        Where several quantities are measured the columns begin with their names.  Needs pandas.
        """
        import pandas as pd

        record = self.record
        table = self._columns([run.x for run in record.runs])
        for name, one in record.quantities.items():
            before = f"{name} " if record.others else ""
            runs: list[Run | None] = [None] * len(record.runs)
            for place, run in enumerate(one.runs):
                runs[place if run.number is None else run.number] = run
            table[name] = [math.nan if run is None else run.y for run in runs]
            foreseen = [run.predicted if run and run.predicted else [math.nan] * 3 for run in runs]
            for k, column in enumerate(("predicted", "low", "high")):
                table[before + column] = [each[k] for each in foreseen]
        if record.knows_noise:
            table["noise"] = [run.noise for run in record.runs]
        table["acquisition"] = [run.acquisition for run in record.runs]
        table["failed"] = [run.failed for run in record.runs]
        frame = pd.DataFrame(table, index=pd.RangeIndex(1, len(record.runs) + 1, name="run"))
        return frame.astype({"acquisition": float})

    def remaining(
        self,
        amount: float = 0.0,
        runs: int = 50,
        *,
        among: Points | None = None,
        fixed: Mapping[Any, object] | None = None,
    ) -> float:
        """Probability that the next ``runs`` runs gain more than ``amount`` on the best point.

        See :func:`sharpgp.bo.small_sample.probability_of_gain`.  1 while the design is run, while
        all results are the same, and while no run meets the limits.  With ``amount=0`` it stays
        near 1 in a continuous space, where some point is always a little better: name the gain that
        would be worth these runs.  With several objectives ``amount`` is a share of the hypervolume
        of their front, and the gain is that of one run.  ``among`` and ``fixed`` are as in
        :meth:`ask`.

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
        found, held = 1.0, self._held(fixed)
        every = [set(self.record.quantities[name].averages().values()) for name in self._goals]
        if not self._designing and all(len(one) > 1 for one in every):
            found = self._chance(float(amount), runs, among, held)
        self.record.checks.append([float(self.n_runs), float(amount), found])
        self._keep()
        return found

    def stop(self, probability: float = 0.05, *, amount: float, **remaining: Any) -> bool:
        """Whether to stop: :meth:`remaining`, which takes the rest, is at most ``probability``."""
        most = as_level(probability, "probability")
        return self.remaining(amount, **remaining) <= most

    def predict(self, X: Points, *, of: str | None = None) -> np.ndarray:
        """The model's means (n,) for points; ``of`` names a quantity other than the first."""
        quantity = self._quantity(of)
        Z = self.record.space.to_unit(self.record.space.codes(X))
        found: np.ndarray = quantity.results(quantity.means(Z)).numpy()
        return found

    def predict_interval(
        self, X: Points, coverage: float = 0.95, *, of: str | None = None
    ) -> np.ndarray:
        """Calibrated intervals (n, 2) for results at points; from the first result on."""
        Z = self.record.space.to_unit(self.record.space.codes(X))
        found: np.ndarray = self._quantity(of).interval(Z, coverage).numpy()
        return found

    def predict_feasible(self, X: Points) -> np.ndarray:
        """Calibrated probability (n,) that results at points meet all limits."""
        Z = self.record.space.to_unit(self.record.space.codes(X))
        found = torch.ones(len(Z), dtype=torch.float64)
        for limit in self._limits:
            found = found * self._quantity(limit.name).probability(Z, limit)
        return found.numpy()

    def _quantity(self, name: str | None) -> Quantity:
        known = self.record.quantities
        name = next(iter(known)) if name is None else name
        check_choice(name, "of", known)
        return Quantity(known[name], latent=False)

    # -------------------------------------------------------------- one question

    def _next(self, held: Fixed) -> tuple[Tensor, float | None]:
        """Codes [d] of one more point, and the acquisition there."""
        space, pending = self.record.space, self.record.unit(self.record.pending)
        if self._designing:
            return space.from_unit(self._of_design(held)[None])[0], None
        best, acquisition = self._state(held)
        held = {**held, **self._neglected(held)}
        z = maximise(acquisition, self.region, best, pending, self._seed, held)[None]
        with torch.no_grad():
            return space.from_unit(z)[0], float(acquisition(z.unsqueeze(1)))

    def _neglected(self, held: Fixed) -> dict[int, float]:
        """Where nothing was gained for some runs, the category that was run least; else nothing.

        A model that sees no difference between categories would never look.
        """
        record = self.record
        counts = {
            (j, float(k)): sum(run.x[j] == k for run in record.runs)
            + sum(x[j] == k for x in record.pending)
            for j, one in enumerate(record.space.inputs)
            if one.categories > 2 and j not in held
            for k in range(one.categories)
        }
        best, since = -math.inf, 0
        for run in record.runs:
            since = 0 if record.sign * run.y > best else since + 1
            best = max(best, record.sign * run.y if not run.failed else best)
        since += len(record.pending)
        if not counts or since % STALLED or not since or len(self._goals) > 1:
            return {}
        j, z = min(counts, key=lambda one: (counts[one], one))
        return {} if self.region.solved({**held, j: z}) is None else {j: z}

    def _next_among(self, rows: Tensor, held: Fixed) -> tuple[Tensor, float | None]:
        """The same of ``rows`` [m, d], none of which is asked for twice."""
        rows = self._left(rows)
        if not len(rows):
            raise InvalidInputError("among: expected a point that has not been run, found none")
        Z = self.record.space.to_unit(rows)
        if self._designing:
            far = (Z - self._of_design(held)).square().sum(-1)
            return rows[int(far.argmin())], None
        acquisition = self._state(held)[1]
        with torch.no_grad():
            value = acquisition(Z.unsqueeze(1))
        return rows[int(value.argmax())], float(value.max())

    def _rows(self, among: Any, held: Fixed) -> Tensor:
        """Codes [m, d] of the points that can be run and meet the constraints."""
        rows = self.record.space.codes(among)
        allowed = self.region.allows(rows) & torch.tensor(
            [self._has(x, held) for x in rows.tolist()]
        )
        if not bool(allowed.any()):
            raise InvalidInputError(
                "among: expected a point that meets the constraints, found none"
            )
        return rows[allowed]

    def _left(self, rows: Tensor) -> Tensor:
        """Those of ``rows`` [m, d] that were not run and are not pending."""
        done = {run.x for run in self.record.runs} | {tuple(x) for x in self.record.pending}
        return rows[[tuple(row) not in done for row in rows.tolist()]]

    def _held(self, fixed: Mapping[Any, object] | None) -> dict[int, float]:
        """Unit coordinates that are given, those of the context among them."""
        held = {} if fixed is None else self.record.space.fixed(fixed)
        for j in self._context:
            if j not in held:
                name = self.region.names[j]
                raise InvalidInputError(
                    f"fixed: expected a value of the context {name!r}, found none; write "
                    f"ask(fixed={{{name!r}: ...}})"
                )
        return held

    def _has(self, x: Sequence[float], held: Fixed) -> bool:
        z = self.record.unit([list(x)])[0]
        return all(abs(float(z[j]) - value) < 1e-9 for j, value in held.items())

    @property
    def _context(self) -> list[int]:
        return list(self.record.settings.get("context", []))

    @property
    def _goals(self) -> dict[str, bool]:
        """Whether each objective, by name, is to be large."""
        settings = self.record.settings
        found: dict[str, bool] = settings.get("objectives") or {RESULT: settings["maximize"]}
        return found

    @property
    def _limits(self) -> list[Limit]:
        return list(self.record.settings.get("limits", []))

    @property
    def _designing(self) -> bool:
        record = self.record
        few = len(record.runs) + len(record.pending) < record.settings["design"]
        return few or any(len(one.succeeded) < MIN_RUNS for one in record.quantities.values())

    @property
    def _seed(self) -> int:
        """Of the random numbers of the next question."""
        return 1_000_003 * int(self.record.settings["seed"]) + self.record.asked

    def _of_design(self, held: Fixed) -> Tensor:
        """The next point [d] of those that fill the space, in unit coordinates.

        Where inputs take few values, those that are known already are passed over.  Under
        constraints, the point of the region that is farthest from those known.
        """
        record, k, space = self.record, self.record.asked, self.record.space
        known = record.unit([*(run.x for run in record.runs), *record.pending])
        if held or self.region.given:
            Z = self.region.sample(GLOBAL, self._seed, held)
            F, others = space.features(Z), space.features(known)
            return Z[int(torch.cdist(F, others).amin(1).argmax())] if len(known) else Z[0]
        Z = space.sobol(k + GLOBAL, record.settings["seed"])[k:]
        new = Z[apart(Z, known)]
        return (new if len(new) else Z)[0]

    def _standing(self, held: Fixed) -> Tensor:
        """The points [n, d] that were run, as they would be in the context of a question."""
        record = self.record
        Z = record.unit([run.x for run in record.runs])
        return placed(Z, {j: z for j, z in held.items() if j in self._context})

    def _state(self, held: Fixed) -> tuple[Tensor, AcquisitionFunction]:
        """The best points so far [b, d] and what is searched, in unit coordinates."""
        record, goals = self.record, list(self._goals)
        pending, Z = record.unit(record.pending), self._standing(held)
        every = {
            name: Quantity(one, search=True, pending=pending)
            for name, one in record.quantities.items()
        }
        limits = [(every[limit.name], limit) for limit in self._limits]
        first = every[goals[0]]
        with torch.no_grad():
            means, met = first.means(Z), self._met(Z)
            if len(goals) > 1:
                model = Objectives([every[name] for name in goals])
                Y = model.means(Z)
                means = (Y - Y.mean(0)).sum(-1)
            likely = torch.zeros(len(Z), dtype=torch.float64)
            for one, limit in limits:
                likely = likely + torch.stack(one.log_met(Z, limit)).sum(0)
        # The best of those that meet the limits, or of those that are closest to it.
        rank = torch.where(met, means, -math.inf) if bool(met.any()) else likely
        best = Z[rank.topk(min(BEST, len(Z))).indices]
        if len(goals) > 1:
            worst = {}
            for k, name in enumerate(goals):
                for limit in self._limits:
                    bound = limit.low if self._goals[name] else limit.high
                    if limit.name == name and math.isfinite(bound):
                        worst[k] = record.quantities[name].sign * bound
            volume = hypervolume_improvement(model, Z, met, worst)
            return best, Within(volume, lambda Z: Z, limits)
        inner: AcquisitionFunction | None = None
        if record.settings["acquisition"] == "ucb":
            inner = CalibratedUpperConfidenceBound(first.predictor, record.settings["delta"])
        elif bool(met.any()):
            top = torch.cat([means[met], first.means(pending)[self._met(pending)]]).max()
            inner = CalibratedLogExpectedImprovement(first.predictor, top)
        return best, Within(inner, record.features, limits)

    def _met(self, Z: Tensor) -> Tensor:
        """Whether each point [n, d] meets the limits, by its results or, without any, the model."""
        met = torch.ones(len(Z), dtype=torch.bool)

        def keys(Z: Tensor) -> list[tuple[float, ...]]:
            """Points to nine digits: the way to unit coordinates and back rounds."""
            return list(map(tuple, (1e9 * Z).round().tolist()))

        for limit in self._limits:
            one = self.record.quantities[limit.name]
            means = one.averages()
            known = dict(zip(keys(one.unit(list(means))), means.values(), strict=True))
            values = [known.get(key, math.nan) for key in keys(Z)]
            if any(map(math.isnan, values)) and len(one.succeeded) >= MIN_RUNS:
                quantity = Quantity(one)
                model = quantity.results(quantity.means(Z)).tolist()
                values = [m if math.isnan(v) else v for v, m in zip(values, model, strict=True)]
            met &= torch.tensor([limit.low <= value <= limit.high for value in values]).bool()
        return met

    def _averages(self) -> dict[tuple[float, ...], list[float]]:
        """Mean result of each objective, by the codes of the points that have all of them."""
        every = [self.record.quantities[name].averages() for name in self._goals]
        return {x: [one[x] for one in every] for x in every[0] if all(x in one for one in every)}

    def _chance(self, amount: float, runs: int, among: Any, held: Fixed) -> float:
        """The probability that :meth:`remaining` answers."""
        record, goals = self.record, list(self._goals)
        best, standing = self._state(held)[0], self._standing(held)
        met = self._met(standing)
        if not bool(met.any()):
            return 1.0
        if among is None:
            Z = torch.cat(candidates(self.region, best, self._seed, held))
        else:
            Z = record.space.to_unit(self._left(self._rows(among, held)))
        Z = torch.cat([best[:1], Z])
        every = {name: Quantity(one) for name, one in record.quantities.items()}
        draws = {
            name: one.draws(Z, DRAWS, self._seed + k) for k, (name, one) in enumerate(every.items())
        }
        ok = torch.ones(DRAWS, len(Z), dtype=torch.bool)
        for limit in self._limits:
            value = record.quantities[limit.name].sign * draws[limit.name]
            ok &= (value >= limit.low) & (value <= limit.high)
        if len(goals) == 1:
            gain = draws[goals[0]]
            gain = torch.cat([gain[:, :1], torch.where(ok, gain, -math.inf)[:, 1:]], 1)
            return probability_of_gain(gain, amount, runs)
        means = [every[g].surrogate.outward(every[g].means(standing)) for g in goals]
        Y = torch.stack(means, -1)
        reference, Y = reference_of(Y), Y[met]
        volume = added_volume(torch.stack([draws[g] for g in goals], -1), Y, reference) * ok
        volume[:, 0] = 0.0
        return probability_of_gain(volume, amount * volume_of(Y, reference), runs)

    def _told(self, given: Any, what: str, n: int) -> dict[str, list[float]]:
        """Values of ``n`` runs by quantity; NaN for what is missing."""
        names = list(self.record.quantities)
        empty = [math.nan] * n
        rows: Any = [given] if isinstance(given, Mapping) and n == 1 else given
        if isinstance(rows, list | tuple) and rows and all(isinstance(r, Mapping) for r in rows):
            rows = {key: [row.get(key) for row in rows] for row in rows for key in row}
        if isinstance(rows, Mapping) or hasattr(rows, "columns"):
            found = list(rows.keys() if isinstance(rows, Mapping) else rows.columns)
            odd = [key for key in found if key not in names] if isinstance(rows, Mapping) else []
            if odd or (what == "y" and names[0] not in found):
                hint = nearest(odd[0], names) if odd else ""
                raise InvalidInputError(
                    f"{what}: expected {', '.join(map(repr, names))}, found "
                    f"{', '.join(map(repr, odd or found))}{hint}"
                )
            return {
                name: numbers_of_runs(rows[name], f"{what} of {name}", n)
                if name in found
                else empty
                for name in names
            }
        if len(names) == 1 or (given is None or (what == "noise" and np.ndim(given) < 2)):
            values = numbers_of_runs([None] * n if given is None and n > 1 else given, what, n)
            return {name: values if name == names[0] else empty for name in names}
        table = (
            np.asarray(given, dtype=object).reshape(n, -1) if np.size(given) else np.empty((0, 0))
        )
        if table.shape[1] != len(names):
            raise InvalidInputError(
                f"{what}: expected {', '.join(map(repr, names))} by name, or {len(names)} numbers "
                f"for each run, found {given!r}"
            )
        return {name: numbers_of_runs(table[:, k], what, n) for k, name in enumerate(names)}

    def _columns(self, points: Sequence[Sequence[float]]) -> dict[Any, list[Any]]:
        """Values of the inputs at codes [n, d], by name."""
        rows = self.record.space.points([list(x) for x in points])
        if not self.record.space.named:
            return dict(
                zip(self.region.names, np.reshape(rows, (len(points), -1)).T.tolist(), strict=True)
            )
        return {name: [row[name] for row in rows] for name in self.region.names}

    def _keep(self) -> None:
        if self.file is not None:
            self.save(self.file)

    def plot(self) -> "Figure":
        """A matplotlib figure: results, whether the model foresaw them, what is left to gain.

        Of several objectives their front, too.
        """
        from sharpgp.plots import optimisation_figure

        return optimisation_figure(self)

    def _facts(self) -> dict[str, Any]:
        record, means, space = self.record, self.record.averages(), self.record.space
        ways = {True: "maximise", False: "minimise"}
        named = self._goals.keys() != {RESULT}
        facts: dict[str, Any] = {
            "goal": ", ".join(
                f"{ways[up]} {name}" if named else ways[up] for name, up in self._goals.items()
            ),
            "inputs": "; ".join(
                f"{n} {one.shown}" for n, one in zip(self.region.names, space.inputs, strict=True)
            ),
        }
        if self.region.given:
            facts["constraints"] = len(self.region.given)
        if self._limits:
            facts["limits"] = ", ".join(map(str, self._limits))
        facts |= {
            "runs": self.n_runs,
            "failed": self.n_runs - len(record.succeeded),
            "pending": len(record.pending),
        }
        met = self._met(record.unit(list(means))).tolist()
        if len(self._goals) == 1 and any(met):
            points = [x for x, ok in zip(means, met, strict=True) if ok]
            best = max(points, key=lambda x: record.sign * means[x])
            facts["best"] = f"{means[best]:.6g} at {space.shown(best)}"
        if record.checks:
            n, amount, chance = record.checks[-1]
            facts["remaining"] = f"{chance:.1%} for more than {amount:g} after {n:.0f} runs"
        return facts

    def __repr__(self) -> str:
        return f"<Optimiser: {', '.join(f'{k}: {v}' for k, v in self._facts().items())}>"

    def _repr_html_(self) -> str:
        rows = [(name, str(value)) for name, value in self._facts().items()]
        return as_html(rows, text=2, caption="Optimiser", head=False)


#: One constraint rather than a list of them.
_ONE = (str, Mixture, AtMost)
# Of settings that files of earlier versions do not have.
_DEFAULTS: dict[str, Any] = {"constraints": [], "name": RESULT, "limits": [], "context": []}


def _kept(constraint: Constraint) -> Any:
    """A constraint as files have it: functions by name."""
    if isinstance(constraint, _ONE):
        return constraint
    return {"function": getattr(constraint, "__name__", type(constraint).__name__)}


def _goals(objectives: Mapping[str, str] | None, maximize: bool) -> dict[str, bool]:
    """Whether each objective, by name, is to be large."""
    if objectives is None:
        return {RESULT: bool(maximize)}
    if not isinstance(objectives, Mapping) or not 1 <= len(objectives) <= 3:
        raise InvalidInputError(
            'objectives: expected one to three, as {"yield": "max", "cost": "min"}, found '
            f"{objectives!r}"
        )
    for name, way in objectives.items():
        check_choice(way, f"objectives: {name}", ("max", "min"))
    return {str(name): way == "max" for name, way in objectives.items()}
