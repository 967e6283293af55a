"""The matrix of contracts: every base by name x every structure of rows x every entry point.

What a cell asks needs no truth: answers are finite and ordered, intervals of new rows do not fail
grossly, a file gives the same answers, what says the same changes nothing.  Bases come from the
registry: a new one is taken up by being registered.  A cell that fails for a known reason stands
in :data:`DEFECTS`, and leaves it when the defect is mended.
"""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sharpgp import Online, SharpGPRegressor
from sharpgp.diagnostics import diagnose
from sharpgp.exceptions import InvalidInputError
from sharpgp.models.bases import kind_of
from sharpgp.models.registry import known_bases
from sharpgp.names import BASES, KERNELS

pytestmark = pytest.mark.filterwarnings("ignore")

N, FURTHER, NEW = 40, 16, 120
#: 90 % intervals of few rows scatter; what fails grossly covers less than this.
LEAST_COVERED = 0.7
#: Categories of the rows to fit, to update with and to predict.
LEVELS = ("pqr", "pqr", "pqrs")


@dataclass(frozen=True)
class Table:
    """Rows to fit, rows to update with, new rows; and what each is told beside the features."""

    fit: tuple[Any, Any]
    further: tuple[Any, Any]
    new: tuple[Any, Any]
    roles: frozenset[str] = frozenset()
    fit_more: dict[str, Any] = field(default_factory=dict)
    further_more: dict[str, Any] = field(default_factory=dict)
    new_more: dict[str, Any] = field(default_factory=dict)
    #: Arguments of the estimator.
    settings: dict[str, Any] = field(default_factory=dict)


def _drawn(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=n)


def _three() -> tuple[list[tuple[np.ndarray, np.ndarray]], np.random.Generator]:
    rng = np.random.default_rng(5)
    return [_drawn(n, rng) for n in (N, FURTHER, NEW)], rng


def plain() -> Table:
    return Table(*_three()[0])


def weights() -> Table:
    """Weight and noise both follow the first feature."""
    rng = np.random.default_rng(6)

    def drawn(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, y = _drawn(n, rng)
        loud = X[:, 0] > 0
        return X, y + np.where(loud, 0.5, 0.0) * rng.normal(size=n), np.where(loud, 3.0, 1.0)

    parts = [drawn(n) for n in (N, FURTHER, NEW)]
    w = [part[2] for part in parts]
    more = {"fit_more": {"sample_weight": w[0]}, "further_more": {"sample_weight": w[1]}}
    return Table(*(part[:2] for part in parts), frozenset({"weight"}), **more)


def noise() -> Table:
    """Every other row was measured by a poor instrument."""
    parts, rng = _three()
    v = [np.where(np.arange(len(y)) % 2, 0.01, 0.25) for _, y in parts]
    parts = [
        (X, y + np.sqrt(s) * rng.normal(size=len(y))) for (X, y), s in zip(parts, v, strict=True)
    ]
    more = {
        f"{name}_more": {"noise": s} for name, s in zip(("fit", "further", "new"), v, strict=True)
    }
    return Table(*parts, frozenset({"noise"}), **more)


def groups() -> Table:
    """Ten groups of rows with shifts of their own; later rows are of new groups."""
    parts, rng = _three()
    names = [np.repeat(np.arange(len(y) // 4) + 100 * k, 4) for k, (_, y) in enumerate(parts)]
    shifted = [(X, y + 0.5 * rng.normal(size=len(y) // 4).repeat(4)) for X, y in parts]
    more = {"fit_more": {"groups": names[0]}, "further_more": {"groups": names[1]}}
    return Table(*shifted, **more)


def _copied(jitter: float) -> Table:
    """Half of the rows stand twice; so do half of the new ones."""
    parts, rng = _three()

    def twice(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = np.sort(np.r_[np.arange(len(y)), np.arange(0, len(y), 2)])
        return X[rows] + jitter * rng.normal(size=(len(rows), 2)), y[rows]

    return Table(*(twice(*part) for part in parts))


def copies() -> Table:
    return _copied(0.0)


def near_copies() -> Table:
    return _copied(1e-9)


def hidden_copies() -> Table:
    """Copies that a row number keeps apart."""
    table = copies()
    parts = []
    for X, y in (table.fit, table.further, table.new):
        number = np.random.default_rng(len(y)).permutation(len(y))
        parts.append((np.column_stack([X, number]), y))
    return Table(*parts)


def gaps() -> Table:
    """Missing numbers, and categories one of which only new rows have."""
    parts, rng = _three()

    def framed(X: np.ndarray, y: np.ndarray, levels: str) -> tuple[pd.DataFrame, np.ndarray]:
        level = rng.choice(list(levels), len(y))
        frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": level})
        frame.loc[rng.choice(len(y), len(y) // 8, replace=False), "b"] = np.nan
        return frame, y + 0.3 * (level == "q")

    framed_parts = [framed(*part, levels) for part, levels in zip(parts, LEVELS, strict=True)]
    return Table(*framed_parts)


def bound() -> Table:
    """Targets pile up at zero."""
    return Table(*((X, np.maximum(y, 0.0)) for X, y in _three()[0]))


STRUCTURES: dict[str, Callable[[], Table]] = {
    one.__name__: cache(one)
    for one in (plain, weights, noise, groups, copies, near_copies, hidden_copies, gaps, bound)
}
#: Every kernel, every name in the registry, a sum of kernels, and the default.
NAMES = (*KERNELS, *known_bases(), "rbf+matern12", "auto")


def test_editors_know_every_name():
    assert set(NAMES[:-2]) == set(BASES)


def usable(base: str, structure: str) -> bool:
    return base == "auto" or not kind_of(base).unused(STRUCTURES[structure]().roles)


def new_model(base: str, table: Table) -> SharpGPRegressor:
    return SharpGPRegressor(base=base, random_state=0, **table.settings)


@cache
def fitted(base: str, structure: str) -> SharpGPRegressor:
    table = STRUCTURES[structure]()
    return new_model(base, table).fit(*table.fit, **table.fit_more)


def assert_sane(ends: np.ndarray, y: np.ndarray, least: float = LEAST_COVERED) -> None:
    assert ends.shape == (len(y), 2)
    assert np.isfinite(ends).all()
    assert (ends[:, 0] <= ends[:, 1]).all()
    assert ((ends[:, 0] <= y) & (y <= ends[:, 1])).mean() >= least


# Entry points: each takes a fitted model and its table.


def predict(model: SharpGPRegressor, table: Table) -> None:
    X, y = table.new
    assert_sane(model.predict_interval(X, 0.9, **table.new_more), y)
    quantiles = model.predict_quantiles(X, [0.1, 0.5, 0.9], **table.new_more)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    assert np.isfinite(model.predict(X)).all()


def no_rows(model: SharpGPRegressor, table: Table) -> None:
    X = table.new[0][:0]
    none = {name: value[:0] for name, value in table.new_more.items()}
    assert model.predict(X).shape == (0,)
    assert model.predict_interval(X, 0.9, **none).shape == (0, 2)
    assert model.predict_quantiles(X, [0.1, 0.5, 0.9], **none).shape == (0, 3)


def update(model: SharpGPRegressor, table: Table) -> None:
    again = copy.deepcopy(model).update(*table.further, **table.further_more)
    assert_sane(again.predict_interval(table.new[0], 0.9, **table.new_more), table.new[1])


def online(model: SharpGPRegressor, table: Table) -> None:
    stream = Online(copy.deepcopy(model), coverage=0.9)
    X, y = table.new
    for rows in (slice(0, 8), slice(8, 16)):
        told = {name: value[rows] for name, value in table.new_more.items()}
        ends = stream.predict_interval(X[rows], **told)
        assert not np.isnan(ends).any()
        stream = stream.observe(X[rows], y[rows], **told)
    assert stream.missed <= 0.6 * stream.steps


def file(model: SharpGPRegressor, table: Table, tmp_path: Any) -> None:
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    X = table.new[0]
    found, kept = (one.predict_interval(X, 0.9, **table.new_more) for one in (again, model))
    assert np.array_equal(found, kept)


def report(model: SharpGPRegressor, table: Table) -> None:
    X, y = table.new
    for found in (
        model.calibration_report(coverage=0.9),
        model.calibration_report(X, y, coverage=0.9, **table.new_more),
    ):
        assert np.isfinite([found["crps"], found["width_90"]]).all()
        assert found["coverage_90"] >= LEAST_COVERED
    assert len(diagnose(model, X, y, **table.new_more).y) <= len(y)


def region(model: SharpGPRegressor, table: Table) -> None:
    """Two outputs, whose boxes come from joint scores."""
    (X, y), (X_new, y_new) = table.fit, table.new
    both = new_model(model.base, table).fit(X, np.column_stack([y, -y]), **table.fit_more)
    assert hasattr(both, "joint_")
    box = both.predict_region(X_new, 0.9, **table.new_more)
    assert box.shape == (len(y_new), 2, 2)
    inside = (box[:, 0] <= np.column_stack([y_new, -y_new])) & (
        np.column_stack([y_new, -y_new]) <= box[:, 1]
    )
    assert inside.all(1).mean() >= LEAST_COVERED


ENTRIES: dict[str, Callable[..., None]] = {
    one.__name__: one for one in (predict, no_rows, update, online, file, report, region)
}
#: Cells that fail, and why; (base or None for any, structure or None, entry).
DEFECTS: dict[tuple[str | None, str | None, str | None], str] = {}


def _defect(cell: tuple[str, str, str]) -> str | None:
    for known, why in DEFECTS.items():
        if all(one in (None, other) for one, other in zip(known, cell, strict=True)):
            return why
    return None


def _quick(base: str, structure: str, entry: str) -> bool:
    """One GP with everything, other bases with what differs between them; the rest is slow."""
    if entry == "region":
        return base == "matern32" and structure in ("copies", "groups", "hidden_copies")
    if base in ("rbf", "extra_trees"):
        return True
    return base == "prior" and structure in ("plain", "copies") and entry != "report"


def cells() -> list[Any]:
    found = []
    for structure in STRUCTURES:
        for base in NAMES:
            if not usable(base, structure):
                continue
            for entry in ENTRIES:
                why = _defect((base, structure, entry))
                marks = [pytest.mark.xfail(reason=why, strict=True)] if why else []
                marks += [] if _quick(base, structure, entry) else [pytest.mark.slow]
                found.append(pytest.param(base, structure, entry, marks=marks))
    return found


@pytest.mark.parametrize(("base", "structure", "entry"), cells())
def test_cell(base, structure, entry, tmp_path):
    more = {"tmp_path": tmp_path} if entry == "file" else {}
    ENTRIES[entry](fitted(base, structure), STRUCTURES[structure](), **more)


@pytest.mark.parametrize(
    ("base", "structure"),
    [(b, s) for s in STRUCTURES for b in NAMES if not usable(b, s)],
)
def test_a_role_that_a_base_cannot_use_is_refused_by_name(base, structure):
    table = STRUCTURES[structure]()
    (argument,) = table.fit_more
    with pytest.raises(InvalidInputError, match=f"{argument}: .*{base}"):
        new_model(base, table).fit(*table.fit, **table.fit_more)


# Relations: what says the same gives the same.


def _ends(base: str, X: Any, y: Any, X_new: Any, **more: Any) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (
            SharpGPRegressor(base=base, random_state=0)
            .fit(X, y, **more)
            .predict_interval(X_new, 0.9)
        )


def weights_times_a_constant(base: str) -> tuple[np.ndarray, np.ndarray]:
    table = weights()
    w = table.fit_more["sample_weight"]
    return tuple(_ends(base, *table.fit, table.new[0], sample_weight=k * w) for k in (1.0, 7.0))


def equal_weights(base: str) -> tuple[np.ndarray, np.ndarray]:
    table = plain()
    kept = _ends(base, *table.fit, table.new[0])
    return kept, _ends(base, *table.fit, table.new[0], sample_weight=np.full(N, 3.0))


def jitter(base: str) -> tuple[np.ndarray, np.ndarray]:
    return tuple(_ends(base, *table.fit, copies().new[0]) for table in (copies(), near_copies()))


def single_precision(base: str) -> tuple[np.ndarray, np.ndarray]:
    (X, y), (X_new, _) = copies().fit, copies().new
    rounded = np.where(np.arange(len(y))[:, None] % 2, X.astype(np.float32), X)
    return _ends(base, X, y, X_new), _ends(base, rounded, y, X_new)


def a_constant_column(base: str) -> tuple[np.ndarray, np.ndarray]:
    (X, y), (X_new, _) = plain().fit, plain().new
    wider = [np.column_stack([one, np.full(len(one), 6.0)]) for one in (X, X_new)]
    return _ends(base, X, y, X_new), _ends(base, wider[0], y, wider[1])


def columns_in_another_order(base: str) -> tuple[np.ndarray, np.ndarray]:
    (X, y), (X_new, _) = plain().fit, plain().new
    return _ends(base, X, y, X_new), _ends(base, X[:, ::-1], y, X_new[:, ::-1])


RELATIONS = (
    weights_times_a_constant,
    equal_weights,
    jitter,
    single_precision,
    a_constant_column,
    columns_in_another_order,
)
#: Relations that hold to 1 % of the mean width, but for models that draw columns at random, and
#: for boosted trees, which take the first column of equally good splits.
DRAWS_COLUMNS = {
    columns_in_another_order: {"extra_trees", "random_forest", "boosted_trees", "prior", "auto"}
}
BROKEN: dict[tuple[str | None, str], str] = {}


def relations() -> list[Any]:
    found = []
    for relation in RELATIONS:
        for base in NAMES:
            weighted = "weight" in relation.__name__
            if base in DRAWS_COLUMNS.get(relation, ()) or not usable(
                base, "weights" if weighted else "plain"
            ):
                continue
            why = BROKEN.get((base, relation.__name__)) or BROKEN.get((None, relation.__name__))
            marks = [pytest.mark.xfail(reason=why, strict=True)] if why else []
            marks += [] if base == "rbf" else [pytest.mark.slow]
            found.append(pytest.param(base, relation, marks=marks))
    return found


@pytest.mark.parametrize(("base", "relation"), relations())
def test_what_says_the_same_changes_nothing(base, relation):
    kept, found = relation(base)
    assert np.abs(found - kept).max() <= 0.01 * (kept[:, 1] - kept[:, 0]).mean()


def test_a_known_group_asked_as_new_answers_as_new():
    table = groups()
    model = fitted("rbf", "groups")
    X = table.new[0]
    unknown = np.full(len(X), 999)
    assert np.array_equal(
        model.predict_interval(X, 0.9, groups=unknown), model.predict_interval(X, 0.9)
    )
