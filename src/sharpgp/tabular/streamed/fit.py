"""A fit to files of any size: passes over the rows, in bounded memory, on one machine or many."""

import copy
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sharpgp import _progress as progress
from sharpgp._fitted import Fitted, forget
from sharpgp._inputs import check_training_data, columns_of, training_data
from sharpgp._rows import group_numbers
from sharpgp._validation import as_count, as_features, as_target
from sharpgp.bounds import bounds_for
from sharpgp.calibration.recalibrator import PosteriorMethod
from sharpgp.estimator import SharpGPRegressor
from sharpgp.exceptions import InvalidInputError
from sharpgp.frames.encoding import Encoded, TableEncoding
from sharpgp.gp.compute import choose_device, threads_for
from sharpgp.gp.sizes import LEAST_ON_GPU, MOST_SPREAD_ROWS, Sparse
from sharpgp.gp.sparse import SparsePosterior
from sharpgp.gp.summed import SummedPosterior
from sharpgp.models.bases import Bases
from sharpgp.models.gaussian import GaussianModel, learn_gaussian
from sharpgp.models.pool import Base, members_of
from sharpgp.tabular.labelled import groups_in
from sharpgp.tabular.models import SavedModel
from sharpgp.tabular.streamed.engines import Visitors, visitors
from sharpgp.tabular.streamed.memory import Memory
from sharpgp.tabular.streamed.plan import Plan
from sharpgp.tabular.streamed.refine import refined
from sharpgp.tabular.streamed.rows import Paths, Unit, as_parquet, check_types, units_of
from sharpgp.tabular.streamed.sums import Pull, Sums, Training, Visit
from sharpgp.tabular.streamed.survey import Census, Survey, Table, drawn_rows, encoding_of
from sharpgp.tabular.streamed.work import Work


def fit_files(
    paths: Paths,
    target: str,
    model: SharpGPRegressor,
    *,
    drop: Iterable[str] = (),
    groups: str | None = None,
    missing: Sequence[str] = (),
    memory: float = 2.0,
    steps: int = 0,
    work: str | os.PathLike[str] | None = None,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
) -> SavedModel:
    r"""Fit a model on CSV or Parquet files of any size, in batches.

    1. A first pass counts gaps and categories, holds out the rows that calibrate, and keeps a
       sample of the others, up to 40,000: both are drawn by a hash of a row's place, or of its
       group's name.
    2. The sample gives the units, the hyperparameters and inducing inputs ``Z`` of a sparse GP,
       and the spread.
    3. With ``steps``, Titsias' bound of all training rows is maximised from there: each of its
       evaluations is two passes, one for its sums and one for its gradient.
    4. A last pass adds up ``V V'`` and ``V y``, ``V = L^-1 k(Z, X)``, over all training rows.
    5. The held-out rows calibrate.

    The model is one like any other, except that its GP, a
    :class:`~sharpgp.gp.summed.SummedPosterior`, does not keep its training rows.  It is the same to
    the last bit after interruptions and for any number of workers.

    Parameters
    ----------
    paths : path, or several
        Of a folder, all CSV and Parquet files in it.  CSV files are copied to Parquet first.
    target : str
        Name of the target's column.
    model : SharpGPRegressor
        With one kernel as ``base`` (``"auto"`` is ``"rbf"``), a sparse ``approximation`` and a
        ``calibration`` that holds rows out (``"auto"`` is ``"exact"``).  At most 10,000 rows
        calibrate if ``cal_size`` is a fraction.
    drop : names of columns that are not used
    groups : str, optional
        Name of a column, no feature, that tells which rows belong together.
    missing : sequence of str
        Texts that mark a missing value, see :func:`sharpgp.tabular.fit_file`.
    memory : float
        GiB that this process may take, and each worker of a cluster.
    steps : int
        Evaluations of the bound of all rows.
    work : path, optional
        Folder for what has been computed so far.  After an interruption the same call goes on from
        there; it stays until it is removed.
    engine : {"local", "ray", "dask"}
        Who visits the rows.
    address : str, optional
        Of a cluster; without one, ray and dask are started on this machine.  Files and ``work``
        have to be visible under the same names on all its machines.
    workers : int, optional
        Threads of this machine or processes of the cluster; all by default.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-3, 3, 400)
    >>> table = pa.table({"x": x, "y": np.sin(x) + 0.1 * rng.normal(size=400)})
    >>> settings = {"base": "rbf", "approximation": Sparse(10), "random_state": 0}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(table, f"{folder}/data.parquet")
    ...     fitted = fit_files(f"{folder}/data.parquet", "y", SharpGPRegressor(**settings))
    >>> fitted.model.calibration_, fitted.model.inducing_
    ('exact', 10)
    """
    plan = Plan.of(paths, target, model, drop, groups, Memory.of(memory), steps, missing)
    device = torch.device("cpu")
    if engine == "local":
        device = choose_device(model.device, LEAST_ON_GPU)
        threads = torch.get_num_threads() if workers is None else workers
        wanted = as_count(threads, "workers", least=1)
        workers = plan.memory.workers(wanted, len(plan.names), plan.m)
    visiting = visitors(engine, workers=workers, address=address, device=device)
    with progress.shown(bool(model.verbose)), _folder(work) as folder, visiting as visit_all:
        fit = _Fit(plan, model, Work(folder, plan.about(model), device), visit_all)
        # Work on the sample must not depend on the threads that visit units.
        with threads_for(0):
            return fit.run()


@contextmanager
def _folder(work: str | os.PathLike[str] | None) -> Iterator[Path]:
    if work is not None:
        yield Path(work)
        return
    with tempfile.TemporaryDirectory(prefix="sharpgp-") as folder:
        yield Path(folder)


@dataclass(frozen=True)
class _Fit:
    plan: Plan
    model: SharpGPRegressor
    work: Work
    visit_all: Visitors

    def run(self) -> SavedModel:
        plan, model, work = self.plan, self.model, self.work
        units = self._units()
        table = Table(
            plan.features,
            plan.target,
            plan.groups,
            plan.draw(model.cal_size, sum(unit.rows for unit in units)),
        )
        rows = work.once("survey", lambda: self._survey(table, units))
        encoding: TableEncoding = rows["encoding"]
        forget(model)
        bounds = bounds_for(model.y_bounds, rows["y"], rows["y_cal"])
        missing = np.zeros((len(rows["X"]), len(encoding.columns)), dtype=bool)
        training_data(model, Encoded(rows["X"], missing, encoding), rows["y"])
        labels = None if rows["groups"] is None else torch.from_numpy(rows["groups"])

        progress.begin("training on a sample")
        gp = work.once("sample", lambda: self._trained(rows, encoding, labels))
        columns = max(len(plan.names), len(encoding.features))
        training = Training.of(table, encoding, gp, plan.memory.batch_rows(columns))

        def added(name: str, visit: Visit | Pull) -> Sums:
            progress.begin("passing over all rows", "part", len(units))
            progress.at(name)
            return work.total(name, units, lambda left: self.visit_all(visit, left))

        if plan.steps:
            gp = work.once("refined", partial(refined, gp, training, added, work, plan.steps))
        one_gp = isinstance(plan.recalibrator, PosteriorMethod)
        progress.begin("learning the spread")
        learned = work.once("spread", lambda: self._learned(gp, labels))
        sums = added("sums", Visit(training, gp.theta_R, gp.inducing_standardised))
        posterior = _summed(gp, sums)

        progress.begin("calibrating")
        base: Base = posterior if one_gp else _on(learned, posterior)
        calibrated = plan.recalibrator.for_columns(columns_of(model)).fit(
            base, rows["X_cal"], rows["y_cal"], groups_cal=rows["groups_cal"]
        )
        calibrated = calibrated.within(bounds)
        name = model.base if isinstance(model.base, str) else type(model.base).__name__
        Fitted(
            calibrated,
            plan.recalibrator,
            members_of(learned, "rbf" if name == "auto" else name),
            rows["groups_cal"],
            plan.groups is not None,
        ).keep_on(model)
        return SavedModel(model, plan.target)

    def _units(self) -> list[Unit]:
        progress.begin("reading files", "file", len(self.plan.paths))
        files = []
        for k, path in enumerate(self.plan.paths):
            copy = self.work.folder / f"rows-{k}.parquet"
            files.append(as_parquet(path, copy, self.plan.missing))
            progress.advance()
        check_types(files, self.plan.paths, self.plan.names)
        units = units_of(files, self.plan.paths)
        if sum(unit.rows for unit in units) < 4:
            raise InvalidInputError(f"{self.plan.paths[0]}: expected rows, found almost none")
        return units

    def _survey(self, table: Table, units: Sequence[Unit]) -> dict[str, Any]:
        """The encoding, and the rows that were drawn, as features."""
        progress.begin("looking at all rows", "part", len(units))
        census = Census()
        survey = Survey(table, self.plan.memory.batch_rows(len(table.names)))
        for part in self.visit_all(survey, units):
            census.add(part)
            progress.advance()
        sample = drawn_rows(census.sample, "train on")
        held = drawn_rows(census.held, "calibrate with")
        encoding = encoding_of(sample.select(list(table.features)), census, self.plan.missing)
        self.plan.memory.batch_rows(len(encoding.features))
        found: dict[str, Any] = {"encoding": encoding}
        of_sample, of_held = groups_in(sample, table.groups), groups_in(held, table.groups)
        found["groups"], found["groups_cal"] = group_numbers(
            of_sample, sample.num_rows, of_held, held.num_rows
        )
        for rows, end in ((sample, ""), (held, "_cal")):
            found[f"X{end}"] = encoding.encode(rows).features
            found[f"y{end}"] = table.targets(rows, 1)[0]
        check_training_data(found["X"], found["y"], encoding)
        return found

    def _trained(
        self, rows: dict[str, Any], encoding: TableEncoding, labels: torch.Tensor | None
    ) -> SparsePosterior:
        model, device = self.model, self.work.device
        X, y = as_features(rows["X"], device=device), as_target(rows["y"], device=device)
        approximation = Sparse(min(self.plan.m, len(y)))
        bases = Bases(model.base, approximation, seed=self.plan.seed, ties=encoding.ties)
        gp = bases.one_gp(X, y, labels)
        assert isinstance(gp, SparsePosterior)
        return gp

    def _learned(self, gp: SparsePosterior, labels: torch.Tensor | None) -> GaussianModel:
        """The spread that suits a part of the sample best."""
        draw = torch.Generator().manual_seed(self.plan.seed)
        rows = torch.randperm(gp.n_train, generator=draw)[:MOST_SPREAD_ROWS].sort().values
        part = gp.at_rows(rows.to(gp.device))
        return learn_gaussian(part, self.plan.seed, None if labels is None else labels[rows])


def _summed(gp: SparsePosterior, sums: Sums) -> SummedPosterior:
    return SummedPosterior(
        gp.covariance,
        gp.theta_R,
        gp.inducing_standardised,
        sums["square"][0],
        sums["product"][0],
        n_train=int(sums["n"]),
        input_range=(sums["low"], sums["high"]),
        x_units=gp.x_units,
        y_units=gp.y_units,
        training=gp.training,
    )


def _on(learned: GaussianModel, posterior: SummedPosterior) -> GaussianModel:
    """The spread that suits the sample best, around a GP of all rows."""
    other = copy.copy(learned)
    other.posterior, other.trained = posterior, None
    return other
