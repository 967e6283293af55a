r"""Rows whose unknown target passes a limit, with a bounded share of false ones.

The evidence of a row is a fixed function of its features, such as the score of the limit under the
model's law.  Calibration rows that do *not* pass the limit say how often chance gives so much of
it.  The proof is in ``docs/method.md``, *What is promised*.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sharpgp._validation import as_level, as_numpy
from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.tolerance import scored_parts
from sharpgp.data.folds import one_per_label
from sharpgp.exceptions import InvalidInputError
from sharpgp.models.laws import Law
from sharpgp.rows import Inputs, Rows

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Selection:
    """Chosen rows, and which ``fdr`` would choose how many.

    Attributes
    ----------
    chosen : array of bool, shape (n,)
        At most the share ``fdr`` of these is wrong on average.
    evidence : array of shape (n,)
        Larger where the row is more likely to pass.
    share_wrong : array of shape (n,)
        The smallest ``fdr`` that chooses the row.  One that is picked after looking at these has no
        guarantee; one that was said before has.
    fdr : float
    """

    chosen: NDArray[np.bool_]
    evidence: Floats
    share_wrong: Floats
    fdr: float

    @property
    def rows(self) -> NDArray[np.intp]:
        """Positions of the chosen rows, the surest first."""
        return np.argsort(-self.evidence, kind="stable")[: len(self)]

    @property
    def path(self) -> Floats:
        """Numbers of rows, the surest first, and the share of wrong ones among them (n, 2)."""
        return np.column_stack([np.arange(1, len(self.chosen) + 1), np.sort(self.share_wrong)])

    def __len__(self) -> int:
        return int(self.chosen.sum())

    def __str__(self) -> str:
        lines = [
            f"{len(self)} of {len(self.chosen)} rows chosen, at most {self.fdr:.0%} of them wrong "
            "on average"
        ]
        for share in (0.01, 0.05, 0.1, 0.2, 0.3, 0.5):
            lines.append(f"fdr {share:.2f}: {int((self.share_wrong <= share).sum())} rows")
        return "\n".join(lines)

    __repr__ = __str__


def select(
    predictor: Calibrated,
    X: Inputs,
    *,
    above: float | None = None,
    below: float | None = None,
    fdr: float = 0.1,
    sample_weight: Any = None,
) -> Selection:
    r"""Rows with ``y > above``, ``y < below``, or both.

    With the evidence ``e``, calibration rows ``i`` that do not pass, and ``m`` rows to choose from,
    the rows with ``e >= t`` are chosen for the smallest ``t`` with
    ``m (1 + #{i: e_i >= t}) / ((C + 1) #{j: e_j >= t}) <= fdr``.

    Examples
    --------
    >>> from sharpgp import Exact
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 400, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> exact = Exact().fit(train(X[::4], y[::4])[0], X[1::4], y[1::4])
    >>> found = select(exact, X[2::4], above=0.5)
    >>> wrong = as_numpy(y[2::4] <= 0.5)[found.rows]
    >>> len(found) > 25, bool(wrong.mean() < 0.2)
    (True, True)
    """
    share = as_level(fdr, "fdr")
    ends = -np.inf if above is None else above, np.inf if below is None else below
    if ends == (-np.inf, np.inf) or not ends[0] < ends[1]:
        raise InvalidInputError(
            f"expected above, below, or above < below, found above={above!r}, below={below!r}"
        )
    law, y, weights, _ = held_out_rows(predictor)
    cal = _evidence(law, above, below)
    passes = (y > ends[0]) & (y < ends[1])
    w_cal = np.ones(len(cal)) if weights is None else as_numpy(weights / weights.max())
    rows = Rows.of(X)
    w = predictor.test_weights(rows, sample_weight)
    w_new = np.ones(len(X)) if w is None else as_numpy(w)
    new = _evidence(predictor.law(rows), above, below)  # type: ignore[attr-defined]
    chosen, share_wrong = chosen_rows(cal, as_numpy(~passes).astype(bool), new, share, w_cal, w_new)
    return Selection(chosen, new, share_wrong, share)


def chosen_rows(
    cal: Floats,
    false: NDArray[np.bool_],
    new: Floats,
    fdr: float,
    w_cal: Floats,
    w_new: Floats,
) -> tuple[NDArray[np.bool_], Floats]:
    r"""Which of the ``new`` rows to choose, by e-values, and the estimated share of wrong ones.

    With ``N(t)`` the weight of false calibration rows with evidence of at least ``t``, ``R(t)`` the
    number of such new rows, ``W`` the weight of all calibration rows and ``w_j`` that of a new row,
    ``tau_j`` is the smallest ``t <= e_j`` with ``m (N(t) + w_j) <= fdr (W + w_j) R(t)``, and
    ``E_j = (W + w_j) / (N(tau_j) + w_j)``, or 0 without one.  The ``n`` largest ``E_j`` are chosen,
    for the largest ``n`` such that all of them are at least ``m / (fdr n)``.

    Examples
    --------
    >>> cal, new = np.arange(20.0), np.array([30.0, 25.0, 5.0])
    >>> rows, share = chosen_rows(cal, cal < 15, new, 0.1, np.ones(20), np.ones(3))
    >>> rows.tolist(), share.round(2).tolist()
    ([True, True, False], [0.07, 0.07, 0.52])
    """
    m, W = len(new), w_cal.sum()
    chosen = np.zeros(m, dtype=bool)
    if m == 0:
        return chosen, np.zeros(0)
    t = np.unique(np.concatenate([cal, new]))[::-1]  # from the most evidence on
    order = np.argsort(-cal[false], kind="stable")
    mass = np.concatenate([[0.0], w_cal[false][order].cumsum()])
    N = mass[np.searchsorted(-cal[false][order], -t, side="right")]
    R = np.searchsorted(np.sort(-new), -t, side="right")
    at = np.searchsorted(-t, -new)  # place of each new row's own evidence
    share = np.minimum(1.0, m * (N + w_new.max()) / ((W + w_new.max()) * np.maximum(R, 1)))
    share = np.minimum.accumulate(share[::-1])[::-1][at]
    # The largest w_j for which t is small enough; at most m of m rows are chosen, and fdr < 1.
    bound = (fdr * W * R - m * N) / (m - fdr * R)
    later = np.maximum.accumulate(bound[::-1])[::-1]  # the best bound from each t on
    last = np.searchsorted(-later, -w_new, side="right") - 1  # the smallest t of each row
    E = np.where(last >= at, (W + w_new) / (N[last] + w_new), 0.0)
    ranked = np.sort(E)[::-1]
    enough = np.flatnonzero(ranked * np.arange(1, m + 1) >= (m / fdr) * (1.0 - 1e-12))
    if len(enough):
        chosen = ranked[enough[-1]] <= E
    return chosen, share


def held_out_rows(
    predictor: Calibrated, *, one_per_group: bool = True
) -> tuple[Law, Tensor, Tensor | None, Tensor | None]:
    """Calibration rows under fits without them, their targets, weights and groups.

    Each row once; with ``one_per_group`` one row of each group, drawn at random.
    """
    scored_parts(predictor)  # refuses methods without scores
    each = predictor.each_once()
    rows = torch.arange(len(each.scores), device=each.scores.device)
    if each.groups is not None and one_per_group:
        rows = one_per_label(each.groups, 0)
    weights, groups = (None if one is None else one[rows] for one in (each.weights, each.groups))
    return each.held_out().take(rows), each.y_cal[rows], weights, groups


def _evidence(law: Law, above: float | None, below: float | None) -> Floats:
    """Minus the score of the lower limit, the score of the upper one, or the mass between."""
    with torch.no_grad():
        low, high = (
            None if end is None else law.score(torch.full_like(law.location, end))
            for end in (above, below)
        )
        if low is None or high is None:
            return as_numpy(-low if low is not None else high)
        return as_numpy(torch.special.ndtr(high) - torch.special.ndtr(low))
