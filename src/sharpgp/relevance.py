"""How much predictions depend on each feature, or on each column of a table."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sharpgp._validation import as_numpy
from sharpgp.calibration.predictors.base import FittedModel, calibrated_of
from sharpgp.data.inputs import encode_rows

#: Most rows predicted again for each feature; more would change the third digit.
MAX_ROWS_SHUFFLED = 200
#: Most rows for all features together, and fewest for each, which give an error of a tenth: with
#: 40 features, relevance would take longer than the fit.
MAX_ROWS_IN_ALL, MIN_ROWS_SHUFFLED = 2000, 50
# Rows of one question: a prediction costs something besides its rows.
_MAX_ROWS_ASKED = 500


def relevance(
    model: FittedModel, X: ArrayLike, *, random_state: int | None = 0
) -> NDArray[np.float64]:
    r"""How much the predicted mean changes if one feature's values are shuffled among the rows.

    .. math:: r_j = \sqrt{\frac{1}{n} \sum_i \left(\mu(x_i) - \mu(x_i^{(j)})\right)^2}
              \Big/ \sqrt{2 \operatorname{Var}_i \mu(x_i)}

    with :math:`x^{(j)}` the row with feature ``j`` from another row. Shuffling all features at
    once would give 1. The features that encode one column of a table, such as its categories, are
    shuffled together and get one number. It describes the (pooled) model, not causes; two features
    with the same information may both look unimportant.

    Parameters
    ----------
    model : SharpGPRegressor or Calibrated
        Fitted.
    X : array of shape (n, d), or a table with d columns
        At most 200 of its rows are used, and fewer with more than ten features: 50 from 40 on.
    random_state : int or None

    Returns
    -------
    array of shape (d,)
        For a model of a table, in the order of ``model.encoding_.names``.

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
    rows = encode_rows(model, X)
    X = as_numpy(X) if rows is None else rows.features
    parts = [[j] for j in range(X.shape[1])] if rows is None else [*rows.encoding.places.values()]
    X = as_numpy(model.rows(X if rows is None else rows).X)
    rng = np.random.default_rng(random_state)
    most = int(np.clip(MAX_ROWS_IN_ALL // len(parts), MIN_ROWS_SHUFFLED, MAX_ROWS_SHUFFLED))
    if len(X) > most:
        X = X[rng.choice(len(X), most, replace=False)]
    order, predict = rng.permutation(len(X)), calibrated_of(model).predict_mean
    mean = as_numpy(predict(X))
    several = max(1, _MAX_ROWS_ASKED // len(X))
    change: list[float] = []
    for i in range(0, len(parts), several):
        others = []
        for j, part in enumerate(parts[i : i + several], start=i):
            # A shift of the rows moves all of them, and each part by a different distance.
            moved = np.roll(order, 1 + j % max(1, len(X) - 1))
            others.append(X.copy())
            others[-1][order[:, None], part] = X[moved[:, None], part]
        means = as_numpy(predict(np.concatenate(others))).reshape(len(others), len(X))
        change += [*np.sqrt(np.mean((means - mean) ** 2, axis=1))]
    spread = float(np.sqrt(2 * mean.var()))
    return np.array(change) / spread if spread > 0 else np.zeros(len(parts))
