"""The paper's method: ``beta`` and ``theta`` per level, calibrated and as sharp as possible."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sharpgp._ranks import q_lin
from sharpgp._validation import as_count
from sharpgp.calibration.methods.sharp.curves import Curves
from sharpgp.calibration.methods.sharp.levels import Levels, resolve_levels
from sharpgp.calibration.methods.sharp.path import (
    LevelResult,
    keep_order,
    objective_of,
    solve_path,
)
from sharpgp.calibration.methods.sharp.predictor import SharpPredictor
from sharpgp.calibration.methods.sharp.search.families import get_family
from sharpgp.calibration.methods.sharp.search.level_search import Problem
from sharpgp.calibration.methods.sharp.search.objective import get_objective
from sharpgp.calibration.methods.sharp.search.shared_theta import solve_shared
from sharpgp.calibration.recalibrator import PosteriorMethod, register
from sharpgp.exceptions import warn
from sharpgp.gp.posterior import Posterior
from sharpgp.rows import Rows


@register("paper")
class Sharp(PosteriorMethod):
    r"""Sharp calibrated GP: the method of Capone, Hirche and Pleiss (2023).

    At each level, ``theta`` minimises ``mean_i (beta sigma(theta, x_i))^2`` over the calibration
    points, where ``beta = q_lin(delta, z)`` with ``z_i = r_i / sigma(theta, x_i)``.  Outward from
    the level where ``beta`` is 0, ``theta`` and ``|beta|`` only grow, so that quantiles do not
    cross.

    Because ``theta`` is chosen on the points that fix ``beta``, coverage on new data falls short
    of the level by a few points when calibration data are few; see the documentation.

    Parameters
    ----------
    levels : None, int, "all", float or array
        Levels to train.  ``None``: a grid of about 25; ``"all"``: the ``C`` levels ``j/(C+1)`` of
        the theorem; one number: that level alone.
    family : {"ard", "scaled", "shared"}
        All hyperparameters per level; ``theta = s * theta_R`` per level (a line search); or one
        ``theta`` for all levels.
    objective : {"sharpness", "pinball"}
        The paper's objective, a mean square; or the pinball loss of the quantile.
    subset : int, optional
        Number of training points used while searching ``theta``; ``beta`` always uses all.
    restarts : int
        Searches from random starts besides the one from ``theta_R``; the best counts.
    effort : int
        1 is a quick search; each further unit continues where the last one ended, with four times
        its evaluations.  Neither more effort nor more restarts can give a worse path; but both
        lower the coverage further, since ``theta`` is chosen on the points that fix ``beta``.
    random_state : int, optional
        Seed of restarts and subset.

    References
    ----------
    A. Capone, S. Hirche and G. Pleiss, "Sharp Calibrated Gaussian Processes", NeurIPS 2023.

    Examples
    --------
    >>> import torch
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X[::2], y[::2])
    >>> calibrated = Sharp(levels=5).fit(posterior, X[1::2], y[1::2])
    >>> calibrated.predict_quantiles(X[:3], [0.1, 0.5, 0.9]).shape
    torch.Size([3, 3])
    >>> [result.status for result in calibrated.results].count("optimised") > 0
    True
    """

    def __init__(
        self,
        *,
        levels: Levels = None,
        family: str = "ard",
        objective: str = "sharpness",
        subset: int | None = None,
        restarts: int = 0,
        effort: int = 1,
        random_state: int | None = None,
    ) -> None:
        super().__init__(random_state=random_state)
        self.levels = levels
        self.family = family
        self.objective = objective
        self.subset = subset
        self.restarts = restarts
        self.effort = effort

    def check(self, n_train: int, n_cal: int) -> None:
        """Refuse settings of the search, and levels that ``n_cal`` points cannot serve."""
        super().check(n_train, n_cal)
        get_family(self.family)
        get_objective(self.objective)
        resolve_levels(self.levels, n_cal)
        as_count(self.restarts, "restarts", least=0)
        as_count(self.effort, "effort", least=1)
        if self.subset is not None:
            as_count(self.subset, "subset", least=1)

    def _fit(self, posterior: Posterior, X: Rows, y: Tensor) -> SharpPredictor:
        self.check(0, len(y))  # a GP may not know its training points; they do not matter here
        r = y - posterior.mean(X)
        delta = resolve_levels(self.levels, len(r)).to(posterior.device)
        settings = {"restarts": self.restarts, "effort": self.effort, "seed": self.seed}
        searched = posterior
        if self.subset is not None:
            n = min(self.subset, posterior.n_train)
            searched = posterior.subset(n, torch.Generator().manual_seed(self.seed))
        problem = self._problem(posterior, searched, X, r)
        solve = solve_shared if self.family == "shared" else solve_path
        found = solve(problem, delta, **settings)
        theta, budget = found.theta, found.budget
        if searched is not posterior:
            # A better path on part of the data need not be better on all of them.
            whole = self._problem(posterior, posterior, X, r)
            theta = min(found.passed, key=lambda path: objective_of(whole, delta, path))
        if budget.failed:
            warn(
                f"the covariance could not be factorised at {budget.failed} of {budget.used} "
                "points of the calibration search; these were skipped"
            )
        return self._calibrated(posterior, X, y, delta, theta, found.evaluations, budget.used)

    def rescored(self, predictor: SharpPredictor, X: Rows, y: Tensor) -> SharpPredictor:
        """A predictor's ``theta`` with ``beta`` from other calibration points."""
        return self._calibrated(
            predictor.posterior,
            X,
            y,
            y.new_tensor([result.delta for result in predictor.results]),
            predictor.theta_searched,
            [result.evaluations for result in predictor.results],
            predictor.evaluations,
        )

    def _problem(self, posterior: Posterior, searched: Posterior, X: Rows, r: Tensor) -> Problem:
        """What to minimise, with ``sigma`` of ``searched``.

        In units of the residuals, so that the search does not depend on the target's units.
        """
        unit = r.abs().mean()
        unit = torch.where(unit > 0, unit, torch.ones_like(unit))
        return Problem(
            get_family(self.family)(posterior),
            get_objective(self.objective),
            lambda theta: searched.sigma(theta, X) / unit,
            r / unit,
        )

    def _calibrated(
        self,
        posterior: Posterior,
        X: Rows,
        y: Tensor,
        delta: Tensor,
        theta_searched: Tensor,
        evaluations: Sequence[int] | np.ndarray,
        evaluations_in_all: int,
    ) -> SharpPredictor:
        """From ``theta`` [K, P] per level: ``|beta|`` put in order, the curves and the results."""
        r = y - posterior.mean(X)
        whole = self._problem(posterior, posterior, X, r)
        theta, beta, value, changed = keep_order(whole, delta, theta_searched)
        base = posterior.theta_R.expand(len(delta), -1)
        value_base, _ = whole.objective(delta, whole.r, whole.sigma(base[:1]))
        kept = (theta == base).all(-1)
        jitter = posterior.jitter(theta)
        if bool((jitter > 0).any()):
            shaky = ", ".join(f"{level:g}" for level in delta[jitter > 0].tolist())
            warn(
                f"the covariance at level(s) {shaky} needed a jitter of {float(jitter.max()):g} of "
                "its diagonal; remove duplicate rows"
            )
        curves = self._curves(posterior, X, r, delta, beta, theta)
        results = [
            LevelResult(
                delta=float(delta[k]),
                beta=float(beta[k]),
                theta=theta[k],
                objective=float(value[k]),
                objective_base=float(value_base[k]),
                evaluations=int(evaluations[k]),
                status="neighbour" if changed[k] else "base" if kept[k] else "optimised",
                jitter=float(jitter[k]),
            )
            for k in range(len(delta))
        ]
        return SharpPredictor(
            posterior,
            curves,
            X,
            y,
            results=results,
            evaluations=evaluations_in_all,
            method=copy.copy(self),
            theta_searched=theta_searched,
        )

    def _curves(
        self,
        posterior: Posterior,
        X: Rows,
        r: Tensor,
        delta: Tensor,
        beta: Tensor,
        theta: Tensor,
    ) -> Curves:
        """Curves through the trained levels, continued by the outermost ``theta`` on both sides.

        Every level ``j/(C+1)`` beyond the outermost trained one has its own ``beta``: the same
        ``theta`` gives the same z-scores, whose order is kept.  With one ``theta`` for all levels
        (the family ``shared``, or a single level) every level is such a level.
        """
        C = len(r)
        every = torch.arange(1, C + 1, dtype=torch.float64, device=delta.device) / (C + 1)
        one_theta = bool((theta == theta[:1]).all())
        below = every[every < delta[0] - 1e-12]
        above = every[every > delta[-1] + 1e-12]
        if one_theta:
            missing = every[(every.unsqueeze(-1) - delta).abs().amin(-1) > 1e-12]
            below, above = missing[:0], missing
        extra = torch.cat([below, above])
        if len(extra) == 0:
            return Curves.through(delta, beta, theta)
        ends = torch.cat([theta[:1].expand(len(below), -1), theta[-1:].expand(len(above), -1)])
        z = r / posterior.sigma(torch.stack([theta[0], theta[-1]]), X)
        beta_ends = torch.cat([q_lin(below, z[0]), q_lin(above, z[1])])
        order = torch.cat([delta, extra]).argsort()
        return Curves.through(
            torch.cat([delta, extra])[order],
            torch.cat([beta, beta_ends])[order],
            torch.cat([theta, ends])[order],
        )
