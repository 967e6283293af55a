"""The paper's spread for every level, and a finite-sample guarantee: no point is used twice."""

import copy

import torch
from torch import Tensor

from sharpgp._ranks import q_lin
from sharpgp._stored import Array, Maybe, stored
from sharpgp._validation import as_count
from sharpgp.calibration.methods.sharp.curve_predictor import CurvePredictor, spread_of
from sharpgp.calibration.methods.sharp.curves import Curves
from sharpgp.calibration.methods.sharp.levels import Levels, resolve_levels
from sharpgp.calibration.methods.sharp.path import keep_order, solve_path
from sharpgp.calibration.methods.sharp.search.families import get_family
from sharpgp.calibration.methods.sharp.search.level_search import Problem
from sharpgp.calibration.methods.sharp.search.objective import get_objective
from sharpgp.calibration.recalibrator import PosteriorMethod, register
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.posterior import Posterior
from sharpgp.rows import Rows

# A quantile goes through a calibration point itself; this much of a step on the path keeps rounding
# from excluding the point.
_NUDGE = 1e-10
# Most training points whose leave-one-out quantities a search uses.
_MOST_SEARCHED = 600


@register("paper_exact")
class SharpExact(PosteriorMethod):
    r"""Sharp per level as in the paper, calibrated with a finite-sample guarantee.

    A path ``beta_k, theta_k`` over levels is searched as by :class:`Sharp`, but on leave-one-out
    quantities of the training points alone.  It is then a function of ``x`` that does not depend on
    the calibration points: ``q(u, x) = mu(x) + beta_u sigma(theta_u, x)`` at its levels
    ``u = 0, ..., K - 1``, linear in ``u`` between and beyond them, and increasing in ``u``.  The
    score of a calibration point is the ``u`` at which the path passes through it,
    ``q(u_i, x_i) = y_i``, and ``Q(delta, x) = q(q_lin(delta, u), x)``.  A new point's score is
    exchangeable with these, so that ``P(y <= Q(delta)) = delta`` at ``delta = j/(C+1)`` and within
    ``1/(C+1)`` of it in between, whatever the kernel; intervals as for :class:`Exact`.

    Parameters
    ----------
    levels, family, objective, restarts, effort, random_state
        As for :class:`Sharp`; ``levels`` are those of the path.

    References
    ----------
    A. Capone, S. Hirche and G. Pleiss, "Sharp Calibrated Gaussian Processes", NeurIPS 2023.

    C. Marx, S. Zhou, W. Neiswanger and S. Ermon, "Modular Conformal Calibration", ICML 2022.

    Examples
    --------
    >>> import torch
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 90, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X[::2], y[::2])
    >>> calibrated = SharpExact(levels=5).fit(posterior, X[1::2], y[1::2])
    >>> int((y[1::2] <= calibrated.predict_quantiles(X[1::2], 23 / 46)).sum())  # of 45 points
    23
    """

    def __init__(
        self,
        *,
        levels: Levels = None,
        family: str = "ard",
        objective: str = "sharpness",
        restarts: int = 0,
        effort: int = 1,
        random_state: int | None = None,
    ) -> None:
        super().__init__(random_state=random_state)
        self.levels = levels
        self.family = family
        self.objective = objective
        self.restarts = restarts
        self.effort = effort

    def check(self, n_train: int, n_cal: int) -> None:
        """Refuse settings of the search, and levels that the training points cannot serve."""
        super().check(n_train, n_cal)
        if self.family == "shared":
            raise InvalidInputError(
                "family: expected ard or scaled, found 'shared'; for one theta for all levels, "
                "chosen on the training points, use calibration='exact'"
            )
        get_family(self.family)
        get_objective(self.objective)
        resolve_levels(self.levels, min(n_train, _MOST_SEARCHED))
        as_count(self.restarts, "restarts", least=0)
        as_count(self.effort, "effort", least=1)

    def _fit(self, posterior: Posterior, X: Rows, y: Tensor) -> "PathPredictor":
        self.check(posterior.n_train, len(y))
        part = posterior
        if posterior.n_train > _MOST_SEARCHED:
            part = posterior.subset(_MOST_SEARCHED, torch.Generator().manual_seed(self.seed))
        with torch.no_grad():
            mean, _ = part.loo(part.theta_R.unsqueeze(0))
        r = part.y_train - mean[0]
        unit = r.abs().mean().clamp_min(torch.finfo(r.dtype).tiny)
        problem = Problem(
            get_family(self.family)(posterior),
            get_objective(self.objective),
            lambda theta: part.loo(theta)[1] / unit,
            r / unit,
        )
        delta = resolve_levels(self.levels, len(r)).to(r.device)
        found = solve_path(
            problem,
            delta,
            restarts=self.restarts,
            effort=self.effort,
            seed=self.seed,
        )
        theta, beta, _, _ = keep_order(problem, delta, found.theta)
        path = Curves.through(delta, beta, theta)
        return PathPredictor(posterior, path, X, y, method=copy.copy(self))


@stored(
    "PathPredictor",
    transient={"_scores": None},
    posterior=Posterior,
    path=Curves,
    rows_cal=Rows,
    y_cal=Array("C"),
    n_cal=int,
    scored_by=Maybe(Posterior),
    method=PosteriorMethod,
)
class PathPredictor(CurvePredictor):
    """Quantiles along a path over levels that does not depend on the calibration points.

    Parameters
    ----------
    posterior : Posterior
    path : Curves
        Its knots are the levels of the path.
    X_cal, y_cal : Tensor [C, d], Tensor [C]
        Calibration points, which determine where on the path each level lies.
    method : SharpExact
        The settings.
    """

    def __init__(
        self,
        posterior: Posterior,
        path: Curves,
        rows_cal: Rows,
        y_cal: Tensor,
        *,
        method: SharpExact,
    ) -> None:
        super().__init__(posterior, rows_cal, y_cal, method)
        self.path = path
        self._scores: Tensor | None = None

    @property
    def theta_curves(self) -> Curves:
        return self.path

    @property
    def scores(self) -> Tensor:
        """Where on the path each calibration point lies [C]."""
        if self._scores is None:
            scored_by = self.scored_by or self.posterior
            with torch.no_grad():
                r = self.y_cal - scored_by.mean(self.rows_cal)
                self._scores = positions(*self._steps(scored_by, self.rows_cal), r)
        return self._scores

    def quantiles_inside(self, X: Rows, delta: Tensor) -> Tensor:
        u = q_lin(delta, self.scores)
        u = u + _NUDGE * len(self.path.delta)
        return self.posterior.mean(X) + offsets(*self._steps(self.posterior, X), u)

    def calibrated_on(self, X: Rows, y: Tensor) -> "PathPredictor":
        """The path stays the same; new points determine where on it each level lies."""
        other = PathPredictor(self.posterior, self.path, X, y, method=self.method)
        other.scored_by = self.scored_by
        return other

    def _steps(self, posterior: Posterior, X: Rows) -> tuple[Tensor, Tensor]:
        """Offsets [K, T] of the path's levels from the mean, increasing, and its ends' slopes."""
        sigma = spread_of(posterior, self.path.theta, X)
        offset = (self.path.beta.unsqueeze(-1) * sigma).cummax(0).values
        return offset, torch.stack([sigma[0], sigma[-1]])


def positions(offset: Tensor, slope: Tensor, r: Tensor) -> Tensor:
    """Smallest ``u`` [T] at which a path is at ``r`` [T].

    The path has the offsets [K, T] at ``0, ..., K - 1``, is linear in between, and continues beyond
    its ends with the slopes [2, T].

    Examples
    --------
    >>> offset = torch.tensor([[-1.0], [1.0], [2.0]]).expand(3, 4)
    >>> positions(offset, torch.ones(2, 4), torch.tensor([-3.0, -1.0, 1.5, 3.0])).tolist()
    [-2.0, 0.0, 1.5, 3.0]
    """
    last = len(offset) - 1
    below = (offset < r).sum(0)  # levels under r, so that offset[below - 1] < r <= offset[below]
    left = (below - 1).clamp(0, max(last - 1, 0))
    right = (left + 1).clamp(max=last)
    at, after = (offset.gather(0, k.unsqueeze(0))[0] for k in (left, right))
    step = torch.where(after > at, after - at, 1.0)
    within = left + (r - at) / step
    before = (r - offset[0]) / slope[0]
    beyond = last + (r - offset[-1]) / slope[1]
    return torch.where(below == 0, before, torch.where(below > last, beyond, within))


def offsets(offset: Tensor, slope: Tensor, u: Tensor) -> Tensor:
    """The path [n, T] at ``u`` [n]: the inverse of :func:`positions`.

    Examples
    --------
    >>> offset = torch.tensor([[-1.0], [1.0], [2.0]])
    >>> offsets(offset, torch.ones(2, 1), torch.tensor([-2.0, 0.5, 3.0]))[:, 0].tolist()
    [-3.0, 0.0, 3.0]
    """
    last = len(offset) - 1
    inner = u.clamp(0, last)
    left = inner.floor().long().clamp(max=max(last - 1, 0))
    right = (left + 1).clamp(max=last)
    weight = (inner - left).unsqueeze(-1)
    found = torch.lerp(offset[left], offset[right], weight.to(offset))
    below, above = u.clamp(max=0.0).unsqueeze(-1), (u - last).clamp(min=0.0).unsqueeze(-1)
    return found + below * slope[0] + above * slope[1]
