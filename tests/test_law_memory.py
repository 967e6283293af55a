"""What was asked is kept: one law for every question about the same rows, and never a stale one."""

import copy
import gc
import pickle
import threading

import numpy as np
import pytest
import torch
from sklearn.base import clone

from helpers import wavy
from sharpgp import SharpGPRegressor
from sharpgp.models import law_memory
from sharpgp.models.law_memory import law_of, location_of
from sharpgp.models.laws import Law, Normal
from sharpgp.models.model import WrappedModel
from sharpgp.models.pool import PooledModel
from sharpgp.report import write_report

pytestmark = pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")

X, Y = wavy(80)
X_NEW, Y_NEW = wavy(25, seed=1)


@pytest.fixture(scope="module")
def fitted() -> SharpGPRegressor:
    return SharpGPRegressor(base=["rbf", "extra_trees"], random_state=0).fit(X, Y)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of rows for which the pool was asked for laws."""
    rows: list[int] = []
    ask = PooledModel.law

    def counted(self: PooledModel, X: torch.Tensor) -> Law:
        rows.append(len(X))
        return ask(self, X)

    monkeypatch.setattr(PooledModel, "law", counted)
    return rows


def test_all_questions_about_the_same_rows_cost_one_law(
    fitted: SharpGPRegressor, asked: list[int], tmp_path
) -> None:
    rows = X_NEW + 0.0  # another array each time
    fitted.predict_interval(rows)
    fitted.predict_interval(rows.copy(), [0.5, 0.9])
    fitted.predict_quantiles(rows.tolist(), [0.1, 0.5])
    fitted.predict_dist(rows)
    fitted.predict(rows, return_std=True)
    fitted.calibration_report(rows, Y_NEW)
    write_report(fitted, rows, Y_NEW, tmp_path / "report.html")
    assert asked == [25]


def test_a_model_without_memory_gives_the_same_answers(fitted: SharpGPRegressor) -> None:
    first = fitted.predict_dist(X_NEW).quantile([0.01, 0.3, 0.8])
    again = copy.deepcopy(fitted).predict_dist(X_NEW).quantile([0.01, 0.3, 0.8])
    assert np.array_equal(first, fitted.predict_dist(X_NEW).quantile([0.01, 0.3, 0.8]))
    assert np.array_equal(first, again)


def test_an_update_is_asked_again(fitted: SharpGPRegressor) -> None:
    model = copy.deepcopy(fitted)
    before = model.predict(X_NEW), model.predict_interval(X_NEW)
    model.update(X_NEW[:10], Y_NEW[:10] + 3.0)
    after = model.predict(X_NEW), model.predict_interval(X_NEW)
    assert not np.allclose(before[0], after[0])
    assert not np.allclose(before[1], after[1])
    assert np.array_equal(after[1], copy.deepcopy(model).predict_interval(X_NEW))


def test_rows_that_were_changed_in_place_are_other_rows(fitted: SharpGPRegressor) -> None:
    rows = X_NEW.copy()
    before = fitted.predict(rows)
    rows[:, 0] += 1.0
    assert not np.allclose(before, fitted.predict(rows))


def test_answers_belong_to_the_caller(fitted: SharpGPRegressor) -> None:
    before = fitted.predict(X_NEW).copy(), fitted.predict_quantiles(X_NEW, [0.2, 0.7]).copy()
    for answer in (fitted.predict(X_NEW), fitted.predict_quantiles(X_NEW, [0.2, 0.7])):
        answer *= 0.0
    assert np.array_equal(before[0], fitted.predict(X_NEW))
    assert np.array_equal(before[1], fitted.predict_quantiles(X_NEW, [0.2, 0.7]))


def test_memory_is_in_no_pickle_and_no_clone(fitted: SharpGPRegressor, asked: list[int]) -> None:
    size = len(pickle.dumps(fitted))
    fitted.predict_dist(X_NEW + 0.25)
    assert len(pickle.dumps(fitted)) == size
    assert not hasattr(clone(fitted), "calibrated_")
    pickle.loads(pickle.dumps(fitted)).predict_dist(X_NEW + 0.25)
    assert len(asked) == 2


class Counted(WrappedModel):
    """Standard normal laws; how often it was asked."""

    extended = updated = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.times = 0

    def law(self, X: torch.Tensor) -> Normal:
        self.times += 1
        return Normal(X.sum(1), torch.ones(len(X), dtype=X.dtype))


def test_memory_is_bounded_and_goes_with_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    Counted.__abstractmethods__ = frozenset()
    model, rows = Counted(), torch.rand(10, 3, dtype=torch.float64)
    monkeypatch.setattr(law_memory, "MOST_BYTES", 2 * 10 * (3 + 2) * 8)
    for shift in (0.0, 1.0, 2.0, 1.0, 0.0):  # two of them stay
        law_of(model, rows + shift)
    assert model.times == 4
    gc.collect()  # models of other tests
    held = len(law_memory._memory)
    del model
    gc.collect()
    assert len(law_memory._memory) == held - 1


def test_gradients_are_not_kept() -> None:
    model, rows = Counted(), torch.rand(4, 2, dtype=torch.float64)
    law_of(model, rows), location_of(model, rows)
    given = rows.clone().requires_grad_()
    location_of(model, given).sum().backward()
    assert given.grad is not None
    assert torch.equal(given.grad, torch.ones_like(rows))
    assert model.times == 2


def test_threads_get_their_own_answers() -> None:
    model, wrong = Counted(), []

    def work(seed: int) -> None:
        rows = torch.rand(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        for _ in range(200):
            law = law_of(model, rows)
            if not torch.equal(law.location, rows.sum(1)):
                wrong.append(seed)
            z = torch.full((1, 1), float(seed), dtype=torch.float64)
            if not torch.equal(law.value(z)[0], rows.sum(1) + seed):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
