r"""Does the assumption hold?  New labelled rows beside those that calibrated the model.

Everything that calibration promises rests on new rows being like the calibration rows.  If they
are, the scores of both are exchangeable, and a rank test has the p-value that it says: for a model
that has not seen either (``exact`` and other methods with a holdout) in finite samples, for those
whose training points calibrate (``cv``) nearly.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import ks_2samp, mannwhitneyu

from sharpgp._inputs import encoded, plain
from sharpgp._validation import as_numpy, as_target
from sharpgp.calibration.calibrated import calibrated_of
from sharpgp.calibration.scored import ScoredPredictor
from sharpgp.exceptions import InvalidInputError, warn

#: p-values below this are warned of.
ALARM = 0.01


@dataclass(frozen=True)
class Exchangeability:
    """What a comparison of new rows with calibration rows found.

    Attributes
    ----------
    p_value : float
        Of all tests together: twice the smaller of the two below.
    centre, size : float
        p-values of rank tests on the scores (is the prediction off to one side?) and on their
        absolute values (are errors larger or smaller than they were?).
    moved : dict from str to float
        Features whose distribution differs from that in training, with p-values that count all
        features; the clearest first.
    n_old, n_new : int
    """

    p_value: float
    centre: float
    size: float
    moved: dict[str, float]
    n_old: int
    n_new: int

    def __str__(self) -> str:
        verdict = "no sign of a change" if self.p_value >= ALARM else "the data have changed"
        moved = ", ".join(f"{name} (p = {p:.2g})" for name, p in self.moved.items()) or "none"
        return (
            f"{verdict}: p = {self.p_value:.2g} ({self.n_new} new rows beside {self.n_old}; centre "
            f"{self.centre:.2g}, size of errors {self.size:.2g}); features that moved: {moved}"
        )


def compare(model: Any, X: Any, y: Any) -> Exchangeability:
    """Test whether new labelled rows are like those that calibrated a model.

    Warns where they are not, and names the features that moved.

    Parameters
    ----------
    model : SharpGPRegressor or Calibrated
        By a method that ranks scores: ``exact``, ``cv``, ``kuleshov18``, ...
    X : array or data frame (n, d)
    y : array of shape (n,)
        Rows that neither trained nor calibrated the model.

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)
    >>> model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    >>> compare(model.fit(X[:100], y[:100]), X[100:], y[100:]).p_value > 0.01
    True
    """
    calibrated = calibrated_of(model)
    if not isinstance(calibrated, ScoredPredictor):
        raise InvalidInputError(
            "expected a model by a method that ranks scores, such as 'exact' or 'cv', found a "
            f"{type(calibrated).__name__}"
        )
    rows = encoded(model, X)
    checked = getattr(model, "_checked", calibrated._features)
    features = checked(X if rows is None else rows)
    target = as_target(plain(y), n_rows=len(features), device=features.device)
    new = as_numpy(calibrated.model.scores_of(features, target))
    old = as_numpy(calibrated.scores)
    centre = float(mannwhitneyu(old, new).pvalue)
    size = float(mannwhitneyu(np.abs(old), np.abs(new)).pvalue)
    names = _names(model, rows, features.shape[1])
    # A GP that has let its training rows go is compared by those that calibrated it.
    known = getattr(calibrated.model, "X_train", calibrated.X_cal)
    before, after = as_numpy(known), as_numpy(features)
    moved = {}
    for name, ours, theirs in zip(names, before.T, after.T, strict=True):
        p = min(1.0, len(names) * float(ks_2samp(ours, theirs).pvalue))
        if p < ALARM:
            moved[name] = p
    moved = dict(sorted(moved.items(), key=lambda item: item[1]))
    found = Exchangeability(
        min(1.0, 2.0 * min(centre, size)), centre, size, moved, *map(len, (old, new))
    )
    if found.p_value < ALARM:
        warn(
            f"new rows are unlike those that calibrated the model (p = {found.p_value:.2g}): "
            "coverage is not promised for them; features that moved: "
            f"{', '.join(moved) or 'none alone'}"
        )
    return found


def _names(model: Any, rows: Any, n_features: int) -> list[str]:
    names = None if rows is None else rows.encoding.features
    names = [f"x{j}" for j in range(n_features)] if names is None else list(names)
    return names if len(names) == n_features else [*names, "noise variance"]
