"""What a GPU computes, against the CPU; all of it is skipped where there is no GPU.

The file needs neither the fixtures nor the packages of the other tests, so that it also runs where
only torch, gpytorch, BoTorch, scikit-learn and pytest are installed:
``PYTHONPATH=src python -m pytest --noconftest tests/test_cuda.py``.
"""

from functools import cache

import numpy as np
import pytest
import torch
from botorch.optim import optimize_acqf
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import method, wavy
from sharpgp import Kuleshov18, Sharp, SharpGPRegressor, Sparse
from sharpgp._stored import Reader, Writer
from sharpgp.bo import CalibratedUpperConfidenceBound
from sharpgp.calibration import known_methods
from sharpgp.exceptions import MissingExtraError
from sharpgp.gp import compute
from sharpgp.gp.adapters.fitc import FitcPosterior
from sharpgp.gp.conditioning import train_chosen
from sharpgp.gp.exact import in_blocks as inplace
from sharpgp.persistence import load, save
from sharpgp.policy import Policy

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
    pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning"),
]

#: What CPU and GPU may differ by, relative to the greatest value.
CLOSE = 1e-6
#: Methods that search or sample: rounding may lead them elsewhere, to answers as good.  By how
#: much of the predictive standard deviation a fit on the GPU may differ.
SEARCHING = {
    "paper": 0.05,
    "exact": 0.05,
    "cv": 0.1,
    "loo": 0.05,
    "kuleshov22": 0.05,
    "fully_bayesian": 0.5,
    "capone22": 0.5,
}
KINDS = ("exact", "in place", "sparse", "fitc")
LEVELS = (0.025, 0.1, 0.5, 0.8, 0.975)

X, Y = map(torch.from_numpy, wavy(120))
X_CAL, Y_CAL = map(torch.from_numpy, wavy(60, seed=1))
X_NEW = torch.from_numpy(wavy(50, seed=2)[0])


def on_gpu(value):
    """A copy of a GP or predictor, its tensors on the GPU."""
    writer = Writer()
    content = writer.encode(value, "value")
    return Reader(writer.objects, writer.tensors, "cuda").decode(content)


def assert_agree(there, here, tolerance=CLOSE):
    assert there.device.type == "cuda"
    here, there = here.detach(), there.detach().cpu()
    assert float((there - here).abs().max()) <= tolerance * float(here.abs().max())


@cache
def trained(kind):
    """A GP of each kind, trained on the CPU."""
    if kind in ("exact", "in place"):
        return train_chosen(X, Y)
    sparse = train_chosen(X, Y, policy=Policy(inducing=25))
    if kind == "sparse":
        return sparse
    units = {"x_units": sparse.x_units, "y_units": sparse.y_units}
    return FitcPosterior(X, Y, sparse.covariance, sparse.theta_R, sparse.inducing, **units)


@pytest.fixture(params=KINDS)
def gp(request, monkeypatch):
    if request.param == "in place":
        monkeypatch.setattr(inplace, "MAX_ROWS_BATCHED", 50)
    return trained(request.param)


def test_quantities_and_gradients_agree(gp):
    other = on_gpu(gp)
    assert other.device.type == "cuda"
    theta = torch.stack([gp.theta_R, 1.3 * gp.theta_R])
    assert_agree(other.mean(X_NEW.cuda()), gp.mean(X_NEW))
    for ask in (
        lambda p, t, x: p.sigma(t, x),
        lambda p, t, x: p.loo(t)[0],
        lambda p, t, x: p.loo(t)[1],
    ):
        here, there = theta.clone().requires_grad_(), theta.cuda().requires_grad_()
        values = ask(gp, here, X_NEW), ask(other, there, X_NEW.cuda())
        assert_agree(values[1], values[0])
        weight = torch.linspace(0.5, 1.5, values[0].shape[-1], dtype=torch.float64)
        (expected,) = torch.autograd.grad((values[0] * weight).sum(), here)
        (found,) = torch.autograd.grad((values[1] * weight.cuda()).sum(), there)
        assert_agree(found, expected)
    for there, here in zip(
        other.moments(theta.cuda(), X_NEW.cuda()), gp.moments(theta, X_NEW), strict=True
    ):
        assert_agree(there, here)


def fitted(name, posterior, *data):
    try:
        return method(name).fit(posterior, *data)
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("kind", ["exact", "sparse"])
@pytest.mark.parametrize("name", known_methods())
def test_every_method_answers_and_fits(name, kind):
    """The same predictor answers the same; a fit on the GPU ends in the same place."""
    gp = trained(kind)
    here = fitted(name, gp, X_CAL, Y_CAL)
    spread = here.predict_dist(X_NEW).std
    moved = on_gpu(here)
    again = method(name).fit(on_gpu(gp), X_CAL.cuda(), Y_CAL.cuda())
    assert again.posterior.device.type == "cuda"
    for ask in (
        lambda c, x: c.predict_mean(x).unsqueeze(-1),
        lambda c, x: c.predict_quantiles(x, LEVELS),
        lambda c, x: c.predict_interval(x, [0.5, 0.9], symmetric=True)[:, 1],
        lambda c, x: c.predict_dist(x).quantile([0.01, 0.99]),
    ):
        expected = ask(here, X_NEW)
        assert_agree(ask(moved, X_NEW.cuda()), expected)
        difference = (ask(again, X_NEW.cuda()).cpu() - expected).abs() / spread.unsqueeze(-1)
        assert float(difference.max()) < SEARCHING.get(name, CLOSE)


@pytest.mark.parametrize("approximation", ["exact", Sparse(40)])
def test_estimator_on_both(approximation, tmp_path):
    """Training included; and a model saved on the GPU answers the same on the CPU."""
    answers = []
    for device in ("cpu", "cuda"):
        settings = {"calibration": "kuleshov18", "approximation": approximation, "random_state": 0}
        model = SharpGPRegressor(base="rbf", **settings, device=device).fit(*wavy(400))
        assert model.posterior_.device.type == device
        answers.append(model.predict_interval(X_NEW.numpy(), 0.9))
        assert isinstance(answers[-1], np.ndarray)
    np.testing.assert_allclose(*answers, atol=2e-3)
    model.save(tmp_path / "model.sgp")
    assert SharpGPRegressor.load(tmp_path / "model.sgp").posterior_.device.type == "cuda"
    there = SharpGPRegressor.load(tmp_path / "model.sgp", device="cpu")
    np.testing.assert_allclose(
        there.predict_interval(X_NEW.numpy(), 0.9), answers[1], rtol=CLOSE, atol=CLOSE
    )


def test_the_prior_fitted_network_agrees():
    """In single precision on both."""
    X, y = wavy(120)
    rows = wavy(50, seed=1)[0]
    models = [SharpGPRegressor(base="prior", random_state=0, device=on) for on in ("cpu", "cuda")]
    here, there = (model.fit(X, y).predict_interval(rows, 0.9) for model in models)
    np.testing.assert_allclose(there, here, rtol=1e-3, atol=1e-3)


def test_saved_predictors_move(tmp_path):
    save(Kuleshov18().fit(trained("sparse"), X_CAL, Y_CAL), tmp_path / "here.sgp")
    assert load(tmp_path / "here.sgp", device="cuda").posterior.device.type == "cuda"
    assert load(tmp_path / "here.sgp").posterior.device.type == "cpu"


def test_auto_takes_the_gpu_for_many_rows_only():
    for n, expected in ((300, "cpu"), (compute.MIN_ROWS_GPU, "cuda")):
        model = SharpGPRegressor(calibration="vanilla", approximation=Sparse(20), random_state=0)
        assert model.fit(*wavy(n)).posterior_.device.type == expected


# ------------------------------------------------------------------ memory


@pytest.fixture
def little_memory(monkeypatch):
    """A GPU of a few hundred MiB, beyond what is in use; blocks of their usual size."""
    monkeypatch.setitem(compute.BLOCK_ENTRIES, "cuda", 2**26)  # 512 MiB each

    def limit(mib):
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        allowed = torch.cuda.memory_reserved() + mib * 2**20
        torch.cuda.set_per_process_memory_fraction(allowed / total)

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def test_out_of_memory_means_smaller_blocks(little_memory):
    little_memory(600)
    model = SharpGPRegressor(
        base="rbf", calibration="vanilla", approximation=Sparse(64), device="cuda"
    )
    model.fit(*wavy(600_000))
    assert model.posterior_.device.type == "cuda"


def test_out_of_memory_in_any_blocks_means_the_cpu(little_memory):
    little_memory(30)
    model = SharpGPRegressor(calibration="vanilla", device="cuda")
    with pytest.warns(UserWarning, match="continuing on the CPU"):
        model.fit(*wavy(2500))
    assert model.posterior_.device.type == "cpu"


def test_predictions_run_out_of_memory_as_fits_do(little_memory, monkeypatch):
    """Smaller blocks, and then the CPU: the answers stay; the model stays where it is."""
    rows = wavy(40_000, seed=4)[0]
    settings = {"calibration": "kuleshov18", "device": "cuda", "random_state": 0}
    model = SharpGPRegressor(base="rbf", **settings).fit(*wavy(2500))
    expected = model.predict_interval(rows, 0.9)
    little_memory(200)
    np.testing.assert_allclose(model.predict_interval(rows, 0.9), expected, rtol=CLOSE, atol=CLOSE)
    little_memory(12)
    # The smallest blocks are as large as the whole: no gap in what is in use can hold one.
    monkeypatch.setitem(compute.BLOCK_ENTRIES, "cuda", 2**33)
    with pytest.warns(UserWarning, match="continuing on the CPU"):
        found = model.predict_interval(rows, 0.9)
    np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE)
    assert model.posterior_.device.type == "cuda"


class Transfers(TorchDispatchMode):
    """Counts the entries of tensors that are copied from one kind of device to another."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        if isinstance(out, torch.Tensor) and "copy" in func.__name__ and tensors:
            devices = {value.device.type for value in (*tensors, out)}
            self.entries += out.numel() if len(devices) > 1 else 0
        return out


@pytest.mark.parametrize("kind", ["exact", "sparse"])
def test_no_hidden_transfers(kind):
    """What is asked about many rows on the GPU stays there; only theta and levels may travel."""
    predictor = Sharp(levels=7).fit(on_gpu(trained(kind)), X_CAL.cuda(), Y_CAL.cuda())
    rows = torch.from_numpy(wavy(5000, seed=3)[0]).cuda()
    with Transfers() as seen:
        rows.cpu()
    assert seen.entries == rows.numel()
    with Transfers() as seen:
        predictor.predict_quantiles(rows, LEVELS)
        predictor.predict_interval(rows, 0.9)
        predictor.predict_dist(rows).quantile(0.3)
    assert seen.entries < 1000


# ------------------------------------------------------------------ optimisation


@pytest.mark.parametrize("name", ["kuleshov18", "paper", "exact"])
def test_acquisition_agrees(name):
    here = method(name).fit(trained("exact"), X_CAL, Y_CAL)
    acquisitions = [CalibratedUpperConfidenceBound(p, 0.9) for p in (here, on_gpu(here))]
    points = [X_NEW.clone().requires_grad_(), X_NEW.cuda().requires_grad_()]
    values = [a(p.unsqueeze(1)) for a, p in zip(acquisitions, points, strict=True)]
    assert_agree(values[1], values[0])
    grads = [torch.autograd.grad(v.sum(), p)[0] for v, p in zip(values, points, strict=True)]
    assert_agree(grads[1], grads[0])
    bounds = torch.tensor([[-2.0, -2.0], [2.0, 2.0]], dtype=torch.float64, device="cuda")
    best, value = optimize_acqf(acquisitions[1], bounds, q=1, num_restarts=4, raw_samples=128)
    assert best.device.type == "cuda"
    assert float(value) >= float(values[1].detach().max()) - 1e-2
