"""Large problems with one thread and with two: how far threads change what a model answers."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import product

import numpy as np
import torch

from helpers import method, wavy
from sharpgp import SharpGPRegressor, Sparse

ROWS = 1050
#: Largest change between numbers of threads, in standard deviations of the target.
MOST = 1e-10


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def changes() -> Iterator[tuple[str, float, float, str | None]]:
    """Kind of GP, change between fits, change between answers, and what is wrong, if anything."""
    X, y = wavy(ROWS * 4 // 3, d=3)
    X_new, _ = wavy(300, d=3, seed=1)

    def fitted(name: str, approximation: str | Sparse) -> SharpGPRegressor:
        model = SharpGPRegressor(
            calibration=method(name), approximation=approximation, random_state=3
        )
        return model.fit(X, y)

    def answers(model: SharpGPRegressor) -> np.ndarray:
        ends = model.predict_interval(X_new, 0.8)
        return np.column_stack([model.predict(X_new), ends]) / y.std()

    kinds = [("exact", "exact"), ("sparse", Sparse(50))]
    for (kind, given), name in product(kinds, ("kuleshov18", "paper")):
        what = f"{name} on {'an' if kind == 'exact' else 'a'} {kind} GP of {ROWS} rows"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _threads(1):
                one = answers(fitted(name, given))
            with _threads(2):
                model = fitted(name, given)
                unasked = deepcopy(model)  # answers keep factors, which the next ones would reuse
                two, again = answers(model), answers(fitted(name, given))
            with _threads(1):
                fits = np.abs(answers(unasked) - one).max()
        answered = np.abs(two - one).max()
        problem = None
        if not np.array_equal(two, again):
            problem = f"{what}: two fits with the same number of threads differ"
        elif fits > 0:
            problem = f"{what}: threads change a fit, and with it answers by {fits:.1e}"
        elif answered > MOST:
            problem = f"{what}: threads change what a model answers by {answered:.1e}"
        yield what, fits, answered, problem
