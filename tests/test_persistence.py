"""Saved models come back bit for bit; files that are damaged, forged or foreign do no harm."""

import builtins
import contextlib
import json
import math
import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from gpytorch import constraints, kernels, priors
from safetensors.torch import save_file
from sklearn.exceptions import NotFittedError

import sharpgp
from helpers import marked, wavy
from processes import python
from random_models import answers, damaged, forged, random_kernel, random_model
from sharpgp import Sharp, SharpGPError, SharpGPRegressor, Sparse, persistence
from sharpgp._files import replacing
from sharpgp._stored import Array, Maybe, Reader, Writer, stored
from sharpgp.exceptions import InvalidInputError, SavedModelError
from sharpgp.gp.kernels import gpytorch_state as stored_kernels

pytestmark = pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
X_TEST = torch.from_numpy(wavy(50, seed=2)[0])


@pytest.fixture(scope="module")
def fitted():
    X, y = wavy(40)
    return SharpGPRegressor(base="rbf", calibration="exact", random_state=0).fit(X, y)


@pytest.fixture
def file(fitted, tmp_path):
    path = tmp_path / "model.sgp"
    fitted.save(path)
    return path


def rewritten(path, change):
    """Apply ``change`` to the header of a file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header["__metadata__"])
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


# ------------------------------------------------------------------ round trips


@pytest.mark.parametrize("seed", marked(range(9), slow={2, 6, 7}))
def test_random_models(seed, tmp_path):
    model, X = random_model(seed)
    model.save(tmp_path / "a.sgp")
    again = SharpGPRegressor.load(tmp_path / "a.sgp")
    for ours, theirs in zip(answers(model, X), answers(again, X), strict=True):
        np.testing.assert_array_equal(theirs, ours)
    assert vars(again).keys() == vars(model).keys()
    assert repr(again.training_) == repr(model.training_)
    if not isinstance(model.base, kernels.Kernel):
        assert repr(again) == repr(model)
    if hasattr(model, "feature_names_in_"):
        assert list(again.feature_names_in_) == list(model.feature_names_in_)


def test_a_loaded_model_is_a_whole_estimator(fitted, file):
    again = SharpGPRegressor.load(file)
    X, y = wavy(40)
    np.testing.assert_array_equal(again.fit(X, y).predict(X), fitted.predict(X))


def test_shared_parts_stay_shared(fitted, file):
    again = SharpGPRegressor.load(file)
    assert again.posterior_ is again.calibrated_.posterior
    assert again.calibrated_.model.gp is again.posterior_


def test_settings_of_a_method_come_back(tmp_path):
    X, y = wavy(24)
    ours = Sharp(levels=0.7, family="scaled", random_state=3)
    model = SharpGPRegressor(base="rbf", calibration=ours, approximation=Sparse(m=5)).fit(X, y)
    model.save(tmp_path / "a.sgp")
    again = SharpGPRegressor.load(tmp_path / "a.sgp")
    assert repr(again.calibration) == repr(ours)
    assert again.approximation == Sparse(m=5)


@pytest.mark.parametrize("seed", range(12))
def test_kernels_come_back_with_constraints_and_priors(seed, tmp_path):
    kernel = random_kernel(np.random.default_rng(seed), 3)
    for parameter in list(kernel.parameters())[:1]:
        parameter.requires_grad_(False)
    writer = Writer()
    code = writer.encode(kernel, "kernel")
    again = Reader(json.loads(json.dumps(writer.objects)), writer.tensors).decode(code)
    assert str(again) == str(kernel)
    ours, theirs = kernel.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    flags = [p.requires_grad for p in kernel.parameters()]
    assert [p.requires_grad for p in again.parameters()] == flags
    X = torch.randn(5, 3)
    assert torch.equal(kernel(X).to_dense(), again(X).to_dense())
    for (_, _, prior, _, _), (_, module, other, read, _) in zip(
        kernel.named_priors(), again.named_priors(), strict=True
    ):
        assert torch.equal(prior.log_prob(torch.tensor(0.7)), other.log_prob(torch.tensor(0.7)))
        assert torch.is_tensor(read(module))


def test_files_of_equal_models_are_equal_byte_for_byte(tmp_path):
    models = [{"a": torch.arange(3.0), "b": torch.ones(2)} for _ in range(8)]
    for k, model in enumerate(models):
        persistence.save(model, tmp_path / f"{k}.sgp")
    assert len({(tmp_path / f"{k}.sgp").read_bytes() for k in range(8)}) == 1
    assert torch.equal(persistence.load(tmp_path / "0.sgp")["a"], models[0]["a"])


def test_tensors_that_share_memory_are_kept_each(tmp_path):
    writer, whole = Writer(), torch.arange(6.0).reshape(3, 2)
    code = writer.encode([whole, whole[1]], "theta")
    save_file(writer.tensors, tmp_path / "tensors")
    again, row = Reader(writer.objects, writer.tensors).decode(code)
    assert torch.equal(again, whole)
    assert torch.equal(row, whole[1])


def test_order_in_memory_is_kept():
    """Products of matrices stored by rows and by columns differ in the last bit."""
    by_columns = torch.arange(6.0, dtype=torch.float64).reshape(2, 3).t()
    writer = Writer()
    code = writer.encode([by_columns, by_columns.t()], "it")
    again = Reader([], writer.tensors).decode(code)
    assert [tensor.stride() for tensor in again] == [(1, 3), (3, 1)]
    assert torch.equal(again[0], by_columns)


def test_a_posterior_alone(gp, tmp_path):
    persistence.save(gp, tmp_path / "gp.sgp")
    again = persistence.load(tmp_path / "gp.sgp")
    assert torch.equal(again.mean(X_TEST), gp.mean(X_TEST))
    theta = 2 * gp.theta_R.unsqueeze(0)
    assert torch.equal(again.sigma(theta, X_TEST), gp.sigma(theta, X_TEST))
    assert torch.equal(again.loo(theta)[1], gp.loo(theta)[1])
    with pytest.raises(SavedModelError, match="expected a SharpGPRegressor, found ExactPosterior"):
        SharpGPRegressor.load(tmp_path / "gp.sgp")


# ------------------------------------------------------------------ what cannot be saved


class OwnKernel(kernels.RBFKernel):
    pass


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (OwnKernel(), "OwnKernel"),
        (kernels.RBFKernel() + OwnKernel(), "OwnKernel"),
        (kernels.ScaleKernel(kernels.RBFKernel(batch_shape=torch.Size([2]))), "batch"),
        (np.random.RandomState(0), "RandomState"),
        (torch.zeros(2, dtype=torch.complex128), "complex"),
    ],
)
def test_what_cannot_be_saved_is_named(fitted, file, part, named):
    before = file.read_bytes()
    X, y = wavy(40)
    other = SharpGPRegressor(base="rbf", calibration="exact", random_state=0).fit(X, y)
    other.base = part
    with pytest.raises(SavedModelError, match=named) as caught:
        other.save(file)
    assert "\n" not in str(caught.value)
    assert file.read_bytes() == before


def test_only_fitted_models_are_saved(tmp_path):
    with pytest.raises(NotFittedError):
        SharpGPRegressor().save(tmp_path / "a.sgp")
    assert not list(tmp_path.iterdir())


def test_undeclared_attributes_are_refused(fitted, tmp_path):
    @stored("test.Undeclared", a=int)
    class Undeclared:
        def __init__(self):
            self.a, self.b = 1, 2

    with pytest.raises(SavedModelError, match="'b' is not declared"):
        Writer().encode(Undeclared(), "it")


def test_subclasses_are_not_taken_for_their_base():
    @stored("test.Base", a=int, c=Maybe(Array("K")))
    class Base:
        def __init__(self):
            self.a = 1

    class Derived(Base):
        pass

    writer = Writer()
    code = writer.encode(Base(), "it")
    assert Reader(writer.objects, {}).decode(code).a == 1
    with pytest.raises(SavedModelError, match="Derived"):
        Writer().encode(Derived(), "it")


# ------------------------------------------------------------------ files


def test_interrupted_writing_leaves_the_old_file(fitted, file, monkeypatch):
    before = file.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SharpGPError, match="No space left"):
        fitted.save(file)
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == [file.name]


def test_ctrl_c_while_writing_leaves_nothing(tmp_path):
    def interrupted():
        with replacing(tmp_path / "a") as temporary:
            temporary.write_text("half of")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(fitted, tmp_path):
    with pytest.raises(SharpGPError, match="No such file"):
        fitted.save(tmp_path / "none" / "model.sgp")


def test_loading_runs_no_code(file, monkeypatch):
    """Neither pickle nor eval nor an import by a name from the file."""

    def forbidden(*_, **__):
        raise AssertionError("code from a file")

    for module, name in ((pickle, "loads"), (pickle, "load"), (builtins, "eval"), (torch, "load")):
        monkeypatch.setattr(module, name, forbidden)
    SharpGPRegressor.load(file)


def set_schema(header):
    header["schema"] = "99"


def set_format(header):
    header["format"] = "other"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_schema, "schema 99, and sharpgp .* reads schema 3; update sharpgp"),
        (set_format, "not a sharpgp model"),
        (lambda h: h.update(content=h["content"].replace("rbf", "dna")), "checksum"),
        (lambda h: h.pop("content"), "damaged"),
    ],
)
def test_other_versions_and_changes_are_refused(file, change, message):
    rewritten(file, change)
    with pytest.raises(SavedModelError, match=message):
        SharpGPRegressor.load(file)


def _first(values, **changes):
    """Change the entry of one parameter."""
    name = next(iter(values))
    values[name] = {**values[name], **changes} if changes else torch.zeros(7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v["settings"].pop("ard_num_dims"), "RBFKernel: found the settings"),
        (lambda v: v["settings"].update(ard_num_dims=10**9), "ard_num_dims: found 1000000000"),
        (lambda v: v["parts"].append(torch.zeros(1)), "expected .*Kernel"),
        (lambda v: v["parameters"].clear(), r"RBFKernel: found the parameters \[\]"),
        (lambda v: _first(v["parameters"]), "raw_lengthscale: found"),
        (lambda v: v["parameters"]["raw_lengthscale"].fill_(math.nan), "or no number"),
        (lambda v: v["constraints"].update(other=dict(v["constraints"])), "constraint on other"),
        (lambda v: _first(v["constraints"], lower=torch.tensor(9.0)), "a lower bound below"),
        (lambda v: v.update(active_dims=torch.tensor([-1])), "expected active dimensions"),
        (lambda v: v.update(active_dims=torch.tensor([0.5])), "expected active dimensions"),
    ],
)
def test_forged_kernels_are_refused(change, message):
    kernel = kernels.RBFKernel(ard_num_dims=2, lengthscale_constraint=constraints.Interval(0.1, 5))
    values = stored_kernels._take(kernel)
    values["parameters"] = {name: value.clone() for name, value in values["parameters"].items()}
    assert str(stored_kernels._build(kernels.RBFKernel, values)) == str(kernel)
    change(values)
    with pytest.raises(SavedModelError, match=message) as caught:
        stored_kernels._build(kernels.RBFKernel, values)
    assert "\n" not in str(caught.value)


class OwnPrior(priors.GammaPrior):
    pass


@pytest.mark.parametrize(
    ("kernel", "named"),
    [
        (kernels.RBFKernel(lengthscale_prior=OwnPrior(2.0, 1.0)), "found OwnPrior"),
        (
            kernels.RBFKernel(
                lengthscale_constraint=constraints.Positive(
                    transform=torch.square, inv_transform=torch.sqrt
                )
            ),
            "Positive with the transform",
        ),
    ],
)
def test_priors_and_constraints_with_code_are_named(kernel, named):
    with pytest.raises(SavedModelError, match=f"cannot save RBFKernel: .*{named}"):
        Writer().encode(kernel, "kernel")


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text").write_text("x1,x2,y\n1,2,3\n")
    (tmp_path / "empty").write_bytes(b"")
    save_file({"weight": torch.ones(2)}, tmp_path / "other")
    for name in ("text", "empty", "other", "missing", "."):
        with pytest.raises(SavedModelError, match="cannot load") as caught:
            SharpGPRegressor.load(tmp_path / name)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [damaged, forged])
def test_damaged_files_load_or_give_an_error(file, change):
    data = file.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        spoilt = change(data, rng)
        while spoilt == data:  # zeros in place of zeros
            spoilt = change(data, rng)
        file.write_bytes(spoilt)
        try:
            model = SharpGPRegressor.load(file)
        except SharpGPError as error:
            assert "\n" not in str(error)  # noqa: PT017
            refused += 1
        else:
            assert change is forged
            with contextlib.suppress(SharpGPError):
                model.predict_interval(X_TEST.numpy())
    assert refused == 150 if change is damaged else 75 <= refused < 150


def test_devices(file):
    assert SharpGPRegressor.load(file, device="cpu").posterior_.device.type == "cpu"
    for device in ("tpu", "cuda:99", 3.5):
        with pytest.raises(InvalidInputError, match="device: expected"):
            SharpGPRegressor.load(file, device=device)


def test_a_model_of_a_gpu_loads_on_a_cpu(file):
    header_says_cuda = file.with_name("cuda.sgp")
    header_says_cuda.write_bytes(file.read_bytes())

    def moved(header):
        header["content"] = header["content"].replace('"device": "cpu"', '"device": "cuda"', 1)
        tensors = persistence._opened(file)[1]
        header["checksum"] = persistence._checksum(header["content"], tensors)

    rewritten(header_says_cuda, moved)
    model = SharpGPRegressor.load(header_says_cuda)
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert model.posterior_.device.type == expected


@pytest.mark.slow
def test_a_process_that_has_imported_nothing_else_loads_an_estimator(tmp_path):
    X, y = wavy(30)
    SharpGPRegressor(base="rbf", calibration="vanilla").fit(X, y).save(tmp_path / "model.sgp")
    code = (
        "import sys; from sharpgp.persistence import load; print(type(load(sys.argv[1])).__name__)"
    )
    done = python("-c", code, tmp_path / "model.sgp")
    assert done.stdout == "SharpGPRegressor\n", done.stderr


def test_a_new_process_knows_every_class_that_can_be_stored():
    """Whatever it has imported before; :mod:`sharpgp.bo` reads files of its own."""
    source = Path(sharpgp.__file__).parent
    names = {
        name
        for path in source.rglob("*.py")
        if "bo" not in path.relative_to(source).parts
        for name in re.findall(r'^@stored\(\s*"(\w+)"', path.read_text("utf-8"), re.MULTILINE)
    }
    assert {"FitcPosterior", "SharpGPRegressor"} <= names
    code = """
from sharpgp import _stored, persistence
try:
    _stored.Reader([{"class": "no such class"}], {})
except persistence.SavedModelError:
    print(*_stored._BY_NAME)
"""
    assert names <= set(python("-c", code).stdout.split())
