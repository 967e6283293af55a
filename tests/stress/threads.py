"""Large problems with one thread and with two: how far threads change what a model answers."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from helpers import wavy
from sharpgp import SharpGPRegressor

ROWS = 1050
#: Largest change of a fit between numbers of threads, and of one model's answers, in standard
#: deviations of the target.
FITS, ANSWERS = 1e-6, 1e-10


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

    def fitted(inducing: int | None) -> SharpGPRegressor:
        model = SharpGPRegressor(calibration="kuleshov18", inducing=inducing, random_state=3)
        return model.fit(X, y)

    def answers(model: SharpGPRegressor) -> np.ndarray:
        ends = model.predict_interval(X_new, 0.9)
        return np.column_stack([model.predict(X_new), ends]) / y.std()

    for kind, inducing in (("exact", None), ("sparse", 50)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _threads(1):
                model = fitted(inducing)
                one = answers(model)
            with _threads(2):
                same_model = np.abs(answers(model) - one).max()
                two, again = answers(fitted(inducing)), answers(fitted(inducing))
        fits = np.abs(two - one).max()
        problem = None
        if not np.array_equal(two, again):
            problem = f"{kind}: two fits with the same number of threads differ"
        elif same_model > ANSWERS:
            problem = f"{kind}: threads change a model's answers by {same_model:.1e}"
        elif fits > FITS:
            problem = f"{kind}: threads change a fit's answers by {fits:.1e}"
        yield f"{kind} GP of {ROWS} rows", fits, same_model, problem
