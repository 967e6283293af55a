"""A mean from elsewhere, with a GP of its residuals for the spread."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Self

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.gp.posterior import DataPosterior, Start
from sharpgp.gp.wrappers.wrapper import WrappedPosterior
from sharpgp.rows import Inputs, Rows


class Mean(ABC):
    """The user's own regression, used in place of the GP's mean."""

    @abstractmethod
    def fitted(self, rows: Inputs, y: Tensor) -> "tuple[Mean, Tensor]":
        """The same regression fitted to these data, and its out-of-fold predictions [N] there.

        Each point's prediction comes from a fit that has not seen the point.
        """

    @abstractmethod
    def __call__(self, X: Tensor) -> Tensor:
        """Predictions [T] from features [T, d]."""

    def keeping_together(self, groups: Tensor | None) -> "Mean":
        """The same regression, told the groups [N] of the rows of its next :meth:`fitted`."""
        return self


@stored("CentredPosterior")
@dataclass(frozen=True, eq=False, repr=False)
class CentredPosterior(WrappedPosterior):
    r"""``mu(x)`` from a regression, ``sigma`` from a GP of its residuals.

    The GP is trained on out-of-fold residuals ``e_i = y_i - m_(-i)(x_i)``, where ``m_(-i)`` has not
    seen point ``i``: a regression's residuals on the points it was fitted to are too small.  With
    the GP's mean ``g`` and standard deviation ``s`` of such a residual,

    ``mu(x) = m(x)`` and ``sigma^2(theta, x) = s^2(theta, x) + g^2(x)``,

    the mean square of ``y - m(x)`` as the GP sees it.  (Adding ``g`` to the mean instead helps a
    regression that is too stiff and hurts one that is not, as the whole regression has fewer such
    errors than those fitted to parts.)

    Parameters
    ----------
    regression : Mean
        Fitted to the training data.
    base : DataPosterior
        GP of the out-of-fold residuals.
    centre : Tensor [N]
        Out-of-fold predictions of the training points.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> class Line(Mean):
    ...     def fitted(self, rows, y):
    ...         return self, self(rows.X)
    ...
    ...     def __call__(self, X):
    ...         return 2 * X[:, 0]
    >>> X = torch.linspace(0, 6, 40, dtype=torch.float64)[:, None]
    >>> y = 2 * X[:, 0] + 0.1 * torch.cos(37 * X[:, 0])
    >>> line, centre = Line().fitted(Rows.of(X), y)
    >>> posterior = CentredPosterior(line, train(X, y - centre)[0], centre)
    >>> bool(torch.equal(posterior.mean(X), 2 * X[:, 0]))
    True
    """

    regression: Mean
    base: DataPosterior
    centre: Annotated[Tensor, Array("N")]

    def _restored(self) -> None:
        agree("out-of-fold predictions", len(self.centre), self.base.n_train)

    @property
    def can_leave_out(self) -> bool:
        """False: the regression has seen every point."""
        return False

    def _around(self, base: DataPosterior, rows: Rows, y: Tensor) -> Self:
        return self._with(base, y - base.y_train)

    def _targets(self, rows: Rows, y: Tensor) -> Tensor:
        return y - self.regression(rows.X)

    @property
    def y_train(self) -> Tensor:
        return self.centre + self.base.y_train

    def mean(self, rows: Inputs) -> Tensor:
        """Predictions ``m(x)`` [T] of the regression."""
        return self.regression(Rows.of(rows).X)

    def sigma(self, theta: Tensor, rows: Inputs) -> Tensor:
        """Root mean square [K, T] of a new observation's distance from ``m(x)``."""
        return (self.base.sigma(theta, rows).square() + self.base.mean(rows).square()).sqrt()

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Out-of-fold mean, and ``sigma`` without the point itself [K, N]."""
        s = self.base.loo(theta)[1]
        return self.centre.expand_as(s), (s.square() + self._g_loo.square()).sqrt()

    @cached_property
    def _g_loo(self) -> Tensor:
        with torch.no_grad():
            return self.base.loo(self.theta_R.unsqueeze(0))[0][0]

    def left_out(self, which: Tensor) -> tuple[Tensor, Tensor]:
        g, s = self.base.left_out(which)
        return self.centre[which], (s.square() + g.square()).sqrt()

    def loo_log_density(self) -> Tensor:
        """That of the targets themselves."""
        return DataPosterior.loo_log_density(self)

    def extended(self, rows: Inputs, y: Tensor) -> Self:
        """The same, conditioned on additional points that the regression has not seen."""
        centre = self.regression(Rows.of(rows).X)
        return self._with(self.base.extended(rows, y - centre), torch.cat([self.centre, centre]))

    def at_rows(self, which: Tensor) -> Self:
        """The same, conditioned on some of the training points only."""
        return self._with(self.base.at_rows(which), self.centre[which])

    def retargeted(self, y: Tensor) -> Self:
        """The same out-of-fold predictions with other targets [N]."""
        return self._with(self.base.retargeted(y - self.centre), self.centre)

    def keeping_together(self, groups: Tensor | None) -> Self:
        """Out-of-fold predictions need the groups."""
        return type(self)(self.regression.keeping_together(groups), self.base, self.centre)

    def retrained(self, rows: Inputs, y: Tensor, *, start: Start = "same") -> DataPosterior:
        """Regression and GP fitted to other data, the regression from scratch."""
        regression, centre = self.regression.fitted(rows, y)
        gp = self.base.retrained(rows, y - centre, start=start)
        return CentredPosterior(regression, gp, centre)

    def _with(self, base: DataPosterior, centre: Tensor) -> Self:
        return type(self)(self.regression, base, centre)
