"""What takes the time of a default fit: processor seconds of one thread, by phase and size.

Each phase counts what it does itself: a scale model that is learned while candidates for the spread
are judged counts as a scale model, and everything inside a refit as a refit.  The last columns are
the whole fit, and the evaluations of a likelihood in it.  The set ``drawn`` has the rows of
``choosing``.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np

from sharpgp import SharpGPRegressor
from sharpgp.gp import training, warped
from sharpgp.models import bases, gaussian, refitted, spread_choice
from sharpgp_benchmarks.evidence.choosing import draw
from sharpgp_benchmarks.evidence.common import Clock, calm, header, numbers, row, sets

#: Where each phase is entered, and whether it takes in all that happens inside.
PHASES: dict[str, tuple[tuple[tuple[Any, str], ...], bool]] = {
    "training": (((bases, "train_chosen"),), False),
    "search": (((spread_choice, "_searched"),), False),
    "warp": (((spread_choice, "_warped"),), False),
    "scale": (((spread_choice, "ScaleModel"), (spread_choice, "held_out_log_squares")), False),
    "refits": (((gaussian.GaussianModel, "_refits"),), True),
    "trees": (((bases, "TreeModel"), (refitted.RefittedModel, "out_of_fold")), True),
}


class Profile:
    """Processor seconds by phase, and evaluations, of what runs inside :meth:`watching`."""

    def __init__(self) -> None:
        self.seconds = Counter[str]()
        self.evaluations = 0
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count from here on."""
        with ExitStack() as stack:
            for phase, (places, whole) in PHASES.items():
                for owner, name in places:
                    inner = self._timed(phase, whole, getattr(owner, name))
                    stack.enter_context(mock.patch.object(owner, name, inner))
            for objective in (training._Objective, warped._Objective):
                counted = self._counted(objective.__call__)
                stack.enter_context(mock.patch.object(objective, "__call__", counted))
            yield

    def _switch(self) -> None:
        now = time.process_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def _timed(self, phase: str, whole: bool, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._open and PHASES[self._open[-1]][1]:
                return function(*args, **kwargs)
            self._switch()
            self._open.append(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self._switch()
                self._open.pop()

        return timed

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self.evaluations += 1
            return function(*args)

        return counted


def rows_of(name: str, n: int, seed: int, data_home: str | None) -> tuple[np.ndarray, np.ndarray]:
    """At most ``n`` random rows of a set."""
    rng = np.random.default_rng(seed)
    if name == "drawn":
        return draw(n, rng)
    (data,) = sets(name, data_home)
    chosen = rng.permutation(len(data.y))[:n]
    return data.X[chosen], data.y[chosen]


def main(
    datasets: str = "drawn",
    rows: str = "300,1000,3000",
    base: str = "auto",
    calibration: str = "auto",
    seed: int = 0,
    data_home: str | None = None,
) -> None:
    """Print the table."""
    header("data set", "rows", *PHASES, "whole fit", "evaluations")
    for name in datasets.split(","):
        for n in numbers(rows):
            X, y = rows_of(name, n, seed, data_home)
            model = SharpGPRegressor(base=base, calibration=calibration, random_state=seed)
            profile = Profile()
            with calm(), profile.watching(), Clock() as clock:
                model.fit(X, y)
            shares = [f"{profile.seconds[phase] / clock.cpu:.0%}" for phase in PHASES]
            row(name, len(y), *shares, f"{clock.cpu:.1f} s", profile.evaluations)
