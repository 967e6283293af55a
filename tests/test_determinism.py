"""The same seed gives the same numbers, whatever the number of threads."""

import copy
import threading

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from helpers import marked, method, wavy
from sharpgp import SharpGPRegressor
from sharpgp.calibration import known_methods
from sharpgp.gp import compute
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.sparse.training import train_sparse
from sharpgp.gp.training import train
from sharpgp.models import pool
from sharpgp.models.laws import Mixture
from sharpgp.models.trees.arrays import TreeArrays

X, Y = wavy(70)
X_TEST, _ = wavy(20, seed=1)
METHODS = [m for m in known_methods() if m not in ("fully_bayesian", "capone22")]


def answers(name, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model = SharpGPRegressor(base="rbf", calibration=method(name), random_state=3).fit(X, Y)
        return np.column_stack([model.predict(X_TEST), model.predict_interval(X_TEST, 0.7)])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", marked(METHODS, slow=set(METHODS) - {"kuleshov18", "vovk20"}))
def test_threads_change_nothing_beyond_rounding(name):
    one = answers(name, 1)
    np.testing.assert_array_equal(answers(name, 1), one)
    np.testing.assert_allclose(answers(name, 2), one, rtol=1e-10, atol=1e-10)


def test_a_call_on_many_rows_uses_the_threads_there_are(monkeypatch):
    monkeypatch.setattr(pool, "pool_weights", lambda products, n: products.new_full((2,), 0.5))
    model = SharpGPRegressor(base=["rbf", "extra_trees"], random_state=0).fit(X, Y)
    rows, used = wavy(3000, seed=2)[0], {}
    for cls, name in ((Stationary, "matrix"), (TreeArrays, "_leaves"), (Mixture, "values_at")):
        counted(monkeypatch, cls, name, used)
    before, found = torch.get_num_threads(), {}
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            used.clear()
            found[threads] = copy.deepcopy(model).predict_interval(rows)  # nothing is known yet
            others = [of - {threading.get_ident()} for of in used.values()]
            assert [0 < len(of) <= threads for of in others] == [threads > 1] * 3
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(found[2], found[1], rtol=1e-12)


def counted(monkeypatch, cls, name, used):
    """Threads that call a method on many rows, by its name."""
    ask = getattr(cls, name)

    def asked(self, *args):
        used.setdefault(name, set()).add(threading.get_ident())
        return ask(self, *args)

    monkeypatch.setattr(cls, name, asked)


def test_a_model_from_a_file_answers_alike_on_several_threads(tmp_path):
    X, y = wavy(330, d=3)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = SharpGPRegressor(base="rbf", calibration="kuleshov18", random_state=0).fit(X, y)
        model.save(tmp_path / "model.sgp")
        again = SharpGPRegressor.load(tmp_path / "model.sgp")
        for one in (again.predict, again.predict_interval):
            np.testing.assert_array_equal(one(X), getattr(model, one.__name__)(X))
    finally:
        torch.set_num_threads(before)


def test_starts_side_by_side_are_those_one_after_the_other():
    X, y = map(torch.from_numpy, wavy(330, d=3))
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(train(X, y))
    finally:
        torch.set_num_threads(before)
    (one, result), (two, same) = found
    assert torch.equal(one.theta_R, two.theta_R)
    assert result == same
    assert result.evaluations > 40


@pytest.mark.parametrize("kernel", marked(["rbf", "gpytorch"], slow={"rbf"}))
def test_threads_do_not_change_a_sparse_gp_at_all(kernel, monkeypatch):
    monkeypatch.setattr(compute, "THREAD_ENTRIES", 2**13)  # six blocks and more
    X, y = map(torch.from_numpy, wavy(1300, d=3))
    given = {"rbf": "rbf", "gpytorch": ScaleKernel(RBFKernel(ard_num_dims=3))}[kernel]
    methods = [method("kuleshov18")]
    if kernel == "rbf":
        methods += [method("exact"), method("paper", levels=3)]
    start = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.1], dtype=torch.float64)
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            gp, _ = train_sparse(X[:1050], y[:1050], given, n_inducing=40, start=start, most=12)
            rows = [gp.theta_R, gp.inducing, *gp.loo(gp.theta_R[None]), gp.mean(X)]
            models = [one.fit(gp, X[1050:], y[1050:]) for one in methods]
            rows += [torch.as_tensor(model.predict_interval(X, 0.7)) for model in models]
            found.append(torch.cat([row.ravel() for row in rows]))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
