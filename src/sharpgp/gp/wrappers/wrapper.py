"""The base class of GPs that wrap another: what a wrapper does not change is forwarded."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Self

from torch import Tensor

from sharpgp._forwarded import forwarded
from sharpgp.gp.posterior import DataPosterior, Start
from sharpgp.rows import Inputs, Rows


class WrappedPosterior(DataPosterior):
    """A GP with changed inputs, targets or predictions; without changes, it forwards everything.

    A wrapper overrides what it changes: :meth:`_inputs` and :meth:`_targets` where these differ
    from those of the wrapped GP; :meth:`_around`, to wrap another GP; and the predictions that
    differ.

    Parameters
    ----------
    base : DataPosterior
        The wrapped GP.
    """

    base: DataPosterior

    @abstractmethod
    def _around(self, base: DataPosterior, rows: Rows, y: Tensor) -> Self:
        """The same wrapper around another GP, whose data are ``rows`` and ``y`` before it."""

    def _inputs(self, rows: Rows) -> Rows:
        """Rows of the wrapped GP, from the user's."""
        return rows

    def _targets(self, rows: Rows, y: Tensor) -> Tensor:
        """Targets [T] of the wrapped GP, from the user's of rows [T]."""
        return y

    theta_R = forwarded("base.theta_R")
    names = forwarded("base.names")
    searched = forwarded("base.searched")
    training = forwarded("base.training")
    n_train = forwarded("base.n_train")
    n_features = forwarded("base.n_features")
    n_inverse = forwarded("base.n_inverse")
    ties = forwarded("base.ties")
    n_inducing = forwarded("base.n_inducing")
    n_neighbours = forwarded("base.n_neighbours")
    n_dense = forwarded("base.n_dense")
    device = forwarded("base.device")
    input_range = forwarded("base.input_range")
    rows = forwarded("base.rows")
    y_train = forwarded("base.y_train")
    can_leave_out = forwarded("base.can_leave_out")
    scored_rows = forwarded("base.scored_rows")

    def keeping_together(self, groups: Tensor | None) -> Self:
        return self._around(self.base.keeping_together(groups), self.rows, self.y_train)

    def mean(self, rows: Inputs) -> Tensor:
        return self.base.mean(self._inputs(Rows.of(rows)))

    def sigma(self, theta: Tensor, rows: Inputs) -> Tensor:
        return self.base.sigma(theta, self._inputs(Rows.of(rows)))

    def jitter(self, theta: Tensor) -> Tensor:
        return self.base.jitter(theta)

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return self.base.loo(theta)

    def left_out(self, which: Tensor) -> tuple[Tensor, Tensor]:
        return self.base.left_out(which)

    def loo_log_density(self) -> Tensor:
        return self.base.loo_log_density()

    def log_likelihood(self) -> float:
        return self.base.log_likelihood()

    def conditioned_on(self, rows: Inputs, y: Tensor) -> Self:
        return self.conditioned_by(lambda base, *data: base.conditioned_on(*data), rows, y)

    def conditioned_by(
        self,
        condition: Callable[[DataPosterior, Rows, Tensor], DataPosterior],
        rows: Inputs,
        y: Tensor,
    ) -> Self:
        """The same wrapper around what ``condition`` makes of the wrapped GP and its data."""
        rows = Rows.of(rows)
        base = condition(self.base, self._inputs(rows), self._targets(rows, y))
        return self._around(base, rows, y)

    def at_rows(self, which: Tensor) -> Self:
        return self._around(self.base.at_rows(which), self.rows[which], self.y_train[which])

    def retrained(self, rows: Inputs, y: Tensor, *, start: Start = "same") -> DataPosterior:
        """What the wrapper changes stays as it is."""
        rows = Rows.of(rows)
        again = self.base.retrained(self._inputs(rows), self._targets(rows, y), start=start)
        return self._around(again, rows, y)
