"""Weights of points for a covariate shift: one for each point, or a function of the inputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from sharpgp._validation import as_weights
from sharpgp.exceptions import InvalidInputError
from sharpgp.rows import Inputs, Rows

#: ``(X (n, d)) -> weights (n,)``, both NumPy arrays; and weights, as given or by such a function.
Ratio = Callable[[np.ndarray], ArrayLike]
Weights = ArrayLike | Ratio


def weights_at(X: Inputs, ratio: Ratio) -> Tensor:
    """Weights from a function of the inputs [n, d].

    Examples
    --------
    >>> import torch
    >>> weights_at(torch.ones(3, 1, dtype=torch.float64), lambda X: 2 * X[:, 0]).tolist()
    [2.0, 2.0, 2.0]
    """
    X = Rows.of(X).X
    return as_weights(ratio(X.cpu().numpy()), n_rows=len(X), device=X.device)


def require_positive(weights: Tensor) -> Tensor:
    """The same weights of calibration points; raises if none is positive."""
    if not bool((weights > 0).any()):
        raise InvalidInputError(
            "sample_weight: expected some positive weights, found none among the "
            f"{len(weights)} calibration points"
        )
    return weights


def weights_to_predict(
    X: Rows, sample_weight: Any, weights: Tensor | None, ratio: Ratio | None
) -> Tensor | None:
    """Weights [T] of test points, in units of the largest of the calibration ``weights`` [C].

    The given ones, else those of the function, else the largest; None without weights.
    """
    found = _given(X, sample_weight, weights, ratio)
    if weights is None:
        return None
    return X.X.new_ones(len(X)) if found is None else found / weights.max()


def weights_to_learn(
    X: Rows, sample_weight: Any, weights: Tensor | None, ratio: Ratio | None
) -> Tensor | None:
    """Weights [n] of new calibration points; None without weights."""
    found = _given(X, sample_weight, weights, ratio)
    if found is None and weights is not None:
        raise InvalidInputError(
            "sample_weight: expected weights for the new points, found none; the model was "
            "calibrated with weights"
        )
    return found


def _given(
    X: Rows, sample_weight: Any, weights: Tensor | None, ratio: Ratio | None
) -> Tensor | None:
    if sample_weight is None:
        return None if weights is None or ratio is None else weights_at(X, ratio)
    if weights is None:
        raise InvalidInputError(
            "sample_weight: expected a model that was calibrated with weights, found one "
            "without; give them to fit, too"
        )
    return as_weights(sample_weight, n_rows=len(X), device=X.device)
