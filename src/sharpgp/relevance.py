"""How much predictions depend on each feature."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sharpgp._validation import as_numpy

#: Rows that are predicted again for each feature; more of them change the third digit.
MOST_ROWS = 200


def relevance(model: Any, X: Any, *, random_state: int | None = 0) -> NDArray[np.float64]:
    r"""How much the predicted mean changes if one feature's values are shuffled among the rows.

    .. math:: r_j = \sqrt{\frac{1}{n} \sum_i \left(\mu(x_i) - \mu(x_i^{(j)})\right)^2}
              \Big/ \sqrt{2 \operatorname{Var}_i \mu(x_i)}

    with :math:`x^{(j)}` the row with feature ``j`` from another row. Shuffling all features at
    once would give 1. It describes the model, whatever models were pooled, not causes; of two
    features that say the same, each may look unimportant.

    Parameters
    ----------
    model : SharpGPRegressor or Calibrated
        Fitted.
    X : array of shape (n, d)
        At most :data:`MOST_ROWS` of its rows are used.
    random_state : int or None

    Returns
    -------
    array of shape (d,)

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (60, 2))
    >>> model = SharpGPRegressor(base="rbf", calibration="vanilla").fit(X, np.sin(X[:, 0]))
    >>> found = relevance(model, X)
    >>> bool(found[0] > 0.8), bool(found[1] < 0.1)
    (True, True)
    """
    X = as_numpy(X)
    rng = np.random.default_rng(random_state)
    if len(X) > MOST_ROWS:
        X = X[rng.choice(len(X), MOST_ROWS, replace=False)]
    predict = getattr(model, "calibrated_", model).predict_mean
    mean = as_numpy(predict(X))
    spread = float(np.sqrt(2 * mean.var()))
    # A shift of the rows moves every one of them, and all features by other distances.
    change = np.zeros(X.shape[1])
    order = rng.permutation(len(X))
    for j in range(X.shape[1]):
        other = X.copy()
        other[order, j] = X[np.roll(order, 1 + j % max(1, len(X) - 1)), j]
        change[j] = np.sqrt(np.mean((as_numpy(predict(other)) - mean) ** 2))
    return change / spread if spread > 0 else change
