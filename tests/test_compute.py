"""One thread for an operation, several for blocks of work, and the user's setting comes back."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from sklearn.linear_model import LinearRegression

from helpers import marked, wavy
from sharpgp import SharpGPRegressor, Sparse
from sharpgp.gp import compute
from sharpgp.policy import EXACT_ROWS, Policy, exact_rows


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("size", "expected"), [(0, 1), (3000, 1), (3001, 2)])
def test_one_thread_up_to_a_size(two_threads, size, expected):
    with compute.threads_for(size):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 2


def test_the_setting_survives_an_error(two_threads):
    with pytest.raises(ZeroDivisionError), compute.threads_for(10):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


def test_results_come_in_order_and_few_at_a_time(two_threads):
    unread, most = threading.Semaphore(0), 0
    later = threading.Event()

    def work(item):
        nonlocal most
        if item == 0:
            assert later.wait(20)  # set by another item, which so runs at the same time
        later.set()
        unread.release()
        most = max(most, unread._value)
        return item, torch.get_num_threads(), torch.is_grad_enabled()

    found = []
    with torch.no_grad():
        for result in compute.in_order(work, range(20)):
            found.append(result)
            unread.acquire()
    assert found == [(item, 1, False) for item in range(20)]
    assert most <= 4
    assert torch.get_num_threads() == 2


def test_an_error_in_a_block_ends_the_others(two_threads):
    started = []

    def work(item):
        started.append(item)
        if item == 1:
            raise ZeroDivisionError
        return item

    with pytest.raises(ZeroDivisionError):
        list(compute.in_order(work, range(50)))
    count = len(started)
    assert count < 6
    assert list(compute.in_order(abs, range(3))) == [0, 1, 2]
    assert len(started) == count
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_has_threads_of_its_own(two_threads):
    assert compute.side_by_side(abs, [1, -2]) == [1, 2]
    child = os.fork()
    if child == 0:
        os._exit(0 if compute.side_by_side(abs, [1, -2]) == [1, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_work_within_work_does_not_wait_for_its_own_threads(two_threads, monkeypatch):
    # As where the setting is the same for all threads: each would see two.
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    inner = []

    def outer(item):
        inner.append(compute._given.get())
        return compute.side_by_side(abs, [item, -item, item]) if inner[-1] == 1 else None

    assert compute.side_by_side(outer, range(4)) == [[n] * 3 for n in range(4)]
    assert compute._given.get() is None


# ------------------------------------------------------------------ devices


def tensors_of(value, seen=None):
    """Every tensor that an object of this package holds, at any depth."""
    seen = {} if seen is None else seen
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, torch.Tensor):
        yield value
    parts = value.values() if isinstance(value, dict) else ()
    parts = value if isinstance(value, list | tuple) else parts
    parts = vars(value).values() if type(value).__module__.startswith("sharpgp.") else parts
    for part in list(parts):
        yield from tensors_of(part, seen)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"approximation": Sparse(10)}, marks=pytest.mark.slow),
        {"base": LinearRegression()},
    ],
)
@pytest.mark.parametrize("calibration", marked(["cv", "exact", "paper"], slow={"cv", "paper"}))
def test_a_model_moves_as_a_whole(calibration, settings):
    settings = {"base": "rbf", "calibration": calibration, "random_state": 0, **settings}
    model = SharpGPRegressor(**settings).fit(*wavy(50))
    model.predict_interval(wavy(3)[0])  # fills what is kept between predictions
    calibrated = model.calibrated_
    elsewhere = compute.moved_to(calibrated, torch.device("meta"))
    assert {tensor.device.type for tensor in tensors_of(elsewhere)} == {"meta"}
    assert {tensor.device.type for tensor in tensors_of(calibrated)} == {"cpu"}
    if calibration != "paper":
        assert elsewhere.posterior is elsewhere.model.gp


GPU = torch.device("cuda")


def seen_by_another_thread():
    """Entries of a block on a thread that is not ours: autograd's, for what is on a GPU."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(compute.block_entries, GPU).result()


def test_out_of_memory_blocks_shrink_on_every_thread():
    usual, tried = compute.block_entries(GPU), []

    def work(device):
        tried.append((device.type, compute.block_entries(GPU), seen_by_another_thread()))
        if len(tried) < 3:
            raise torch.cuda.OutOfMemoryError
        # A call within, as of a prediction during a fit, does not start large again.
        return compute.within_memory(GPU, lambda device: compute.block_entries(device))

    assert compute.within_memory(GPU, work) == usual // 64
    assert tried == [("cuda", usual // n, usual // n) for n in (1, 8, 64)]
    assert compute.block_entries(GPU) == seen_by_another_thread() == usual


def test_out_of_memory_in_any_blocks_means_the_cpu_and_a_warning():
    def work(device):
        if device.type == "cuda":
            raise torch.cuda.OutOfMemoryError
        return device.type, compute.block_entries(GPU)

    usual = compute.block_entries(GPU)
    with pytest.warns(UserWarning, match=r"continuing on the CPU.*approximation=Sparse\(m=300\)"):
        assert compute.within_memory(GPU, work) == ("cpu", usual)


def test_predictions_are_guarded_as_fits_are(monkeypatch):
    """Of the estimator: smaller blocks first, then a copy of the model on the CPU."""
    model = SharpGPRegressor(calibration="vanilla", random_state=0).fit(*wavy(30))
    X = wavy(4)[0]
    expected = model.predict_interval(X)
    tried = []

    def guard(device, work):
        tried.append(device)
        return work(torch.device("meta")) if len(tried) == 2 else work(device)

    monkeypatch.setattr("sharpgp.gp.compute.within_memory", guard)
    assert (model.predict_interval(X) == expected).all()
    moved, moved_to = [], compute.moved_to

    def move(value, device, *seen):
        if not seen:
            moved.append(device.type)
        return moved_to(value, "cpu", *seen)

    monkeypatch.setattr("sharpgp.gp.compute.moved_to", move)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *args, **kwargs: self)
    assert (model.predict_interval(X) == expected).all()
    assert moved == ["meta"]


def test_a_gpu_conditions_on_as_many_points_as_fit_into_its_memory(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (80 * 10**9, 80 * 10**9))
    assert exact_rows("cuda") == 35355
    assert Policy.choose(30_000, 4, "cuda").is_exact(30_000)
    assert not Policy.choose(40_000, 4, "cuda").is_exact(40_000)
    assert exact_rows("cpu") == EXACT_ROWS
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 80 * 10**9))
    assert exact_rows("cuda") == max(EXACT_ROWS, 3952)
