"""What a fit in batches is asked to do, checked before any row is read."""

import numbers
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import sharpgp
from sharpgp._inputs import seed_of
from sharpgp._validation import as_count
from sharpgp.calibration.recalibrator import Recalibrator, chosen_recalibrator
from sharpgp.estimator import SharpGPRegressor
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.kernels import KERNELS, is_gpytorch_kernel
from sharpgp.gp.sizes import MOST_CALIBRATING, MOST_SAMPLED_ROWS, Sparse, approximation_for
from sharpgp.tabular.files import names_in
from sharpgp.tabular.labelled import features_among
from sharpgp.tabular.streamed.draw import Draw
from sharpgp.tabular.streamed.memory import Memory
from sharpgp.tabular.streamed.rows import Paths, table_files

# Rows that stand for "very many" where a choice depends on them.
_MANY = 10**9


@dataclass(frozen=True)
class Plan:
    """What is to be fitted, checked as far as that is possible without reading rows."""

    paths: tuple[Path, ...]
    features: tuple[str, ...]
    target: str
    groups: str | None
    memory: Memory
    steps: int
    m: int
    seed: int
    recalibrator: Recalibrator
    missing: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        given: Paths,
        target: str,
        model: SharpGPRegressor,
        drop: Iterable[str],
        groups: str | None,
        memory: Memory,
        steps: int,
        missing: Sequence[str] = (),
    ) -> "Plan":
        """Check arguments and columns."""
        paths = tuple(table_files(given))
        found = names_in(paths[0])
        try:
            features = tuple(features_among(found, target, drop, groups))
        except InvalidInputError as error:
            raise InvalidInputError(f"{paths[0]}: {error}") from None
        memory.batch_rows(len(features))
        seed = seed_of(model.random_state) or 0
        return cls(
            paths,
            features,
            target,
            groups,
            memory,
            as_count(steps, "steps", least=0),
            _inducing(model),
            seed,
            _method(model, seed),
            tuple(missing),
        )

    @property
    def names(self) -> list[str]:
        """Features and target."""
        return [*self.features, self.target]

    def about(self, model: SharpGPRegressor) -> dict[str, Any]:
        """What the result depends on, for the folder of an interrupted fit."""
        files = [
            [os.path.abspath(path), path.stat().st_size, path.stat().st_mtime_ns]
            for path in self.paths
        ]
        settings = {
            name: repr(value)
            for name, value in model.get_params(deep=False).items()
            if name not in ("verbose", "device")
        }
        return {
            "files": files,
            "columns": [*self.features, self.target, self.groups],
            "missing": list(self.missing),
            "memory": self.memory.limit,
            "steps": self.steps,
            "settings": settings,
            "versions": [sharpgp.__version__, torch.__version__],
        }

    def draw(self, cal_size: float | int, n: int) -> Draw:
        """Shares of ``n`` rows that calibrate and that are sampled."""
        whole = isinstance(cal_size, numbers.Integral) and not isinstance(cal_size, bool)
        if not (isinstance(cal_size, numbers.Real) and 0 < cal_size < (n if whole else 1)):
            raise InvalidInputError(
                f"cal_size: expected a fraction in (0, 1) or a count below {n}, found {cal_size!r}"
            )
        wanted = float(cal_size) if whole else min(float(cal_size) * n, MOST_CALIBRATING)
        return Draw(self.seed, wanted / n, min(1.0 - wanted / n, MOST_SAMPLED_ROWS / n))


def _inducing(model: SharpGPRegressor) -> int:
    asked = "sparse" if model.approximation == "auto" else model.approximation
    chosen = approximation_for(_MANY, "cpu", asked)
    if not isinstance(chosen, Sparse):
        raise InvalidInputError(
            "approximation: expected 'auto', 'sparse' or Sparse(m=...) for a fit in batches, found "
            f"{model.approximation!r}"
        )
    kernel = is_gpytorch_kernel(model.base)
    if not kernel and not (isinstance(model.base, str) and model.base in ("auto", *KERNELS)):
        raise InvalidInputError(
            f"base: expected 'auto', {', '.join(KERNELS)} or a gpytorch kernel for a fit in "
            f"batches, found {model.base!r}"
        )
    return chosen.m


def _method(model: SharpGPRegressor, seed: int) -> Recalibrator:
    method = chosen_recalibrator(model.calibration, seed, guarantee=True)
    if not method.needs_calibration:
        raise InvalidInputError(
            "calibration: expected 'auto', 'exact' or another method that holds rows out for a fit "
            f"in batches, found {model.calibration!r}"
        )
    return method
