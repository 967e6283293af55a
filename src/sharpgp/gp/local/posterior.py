"""The posterior of a local GP: every prediction from landmarks and the rows nearest to it."""

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from sharpgp._stored import Array, Maybe, agree, stored
from sharpgp._validation import as_count
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.compute import threads_for
from sharpgp.gp.kernel_posterior import STORED, KernelPosterior
from sharpgp.gp.kernels.covariance import Covariance, Named
from sharpgp.gp.local.blocks import Blocks, Layout, greedy_landmarks
from sharpgp.gp.local.conditionals import Conditionals, vecchia_likelihood
from sharpgp.gp.local.nearest import Nearest
from sharpgp.gp.posterior import DataPosterior, TrainingResult
from sharpgp.gp.scaling import Affine
from sharpgp.gp.sparse.whitening import Data
from sharpgp.policy import BLOCK_LANDMARKS, HALO, NEIGHBOURS, SCORED_ROWS, drawn_rows
from sharpgp.rows import Inputs, rows_of_earlier

# Points whose conditional densities stand for all in the likelihood.
_MOST_CONDITIONALS = 1000


@stored(
    "LocalPosterior",
    **STORED | {"covariance": Named},
    earlier=rows_of_earlier,
    neighbours=int,
    landmarks=int,
    seed=int,
    block_rows=Maybe(int),
    chosen=Maybe(Array("M", whole=True)),
    transient={"_asked": None, "_kept": None, "_given": None},
)
class LocalPosterior(KernelPosterior):
    r"""Posterior of a GP that predicts from random landmarks and from the nearest other rows.

    ``mu(x) = k' Ky^-1 y`` under ``theta_R`` and
    ``sigma^2(theta, x) = k(x, x) + noise - k' Ky^-1 k`` under ``theta``, where ``Ky``, ``k`` and
    ``y`` are those of ``M`` training rows drawn at random, the landmarks, and of the ``m`` other
    rows nearest to ``x`` in units of the lengthscales of ``theta_R``.  Landmarks tell what varies
    slowly, neighbours what does not.  Without landmarks it is a nearest-neighbour GP; with
    ``M = N`` or ``m >= N`` everything equals :class:`ExactPosterior`.

    Leave-one-out answers are those of the same predictor without the row: it is not among its own
    neighbours, and a landmark is left out of the landmarks in closed form.

    ``O(m^2 M + m^3)`` for each point, after ``O(N M^2)`` once
    (:class:`~sharpgp.gp.local.conditionals.Conditionals`).  With ``block_rows`` the points of a
    cell share the rows nearest to its centre, and landmarks are chosen one after another: a tenth
    of the time for each point (:class:`~sharpgp.gp.local.blocks.Blocks`).  Blocks of points run
    side by side, everything else on one thread: answers do not depend on the number of threads.

    Parameters
    ----------
    X, y, covariance, theta_R, x_units, y_units, training
        As in :class:`~sharpgp.gp.kernel_posterior.KernelPosterior`; a named covariance.
    neighbours, landmarks : int
        Their numbers ``m`` and ``M``.
    seed : int
        Of the draw of landmarks.
    block_rows : int
        Rows of a cell, about; 0: every point has neighbours of its own.

    References
    ----------
    M. Katzfuss and J. Guinness, "A General Framework for Vecchia Approximations of Gaussian
    Processes", Statistical Science 36 (2021).

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> X = torch.linspace(0, 1, 50, dtype=torch.float64)[:, None]
    >>> theta = torch.tensor([1.0, 1.0, 0.01], dtype=torch.float64)
    >>> given = X, X[:, 0].sin(), Stationary("rbf", 1), theta
    >>> gp = LocalPosterior(*given, neighbours=8, landmarks=5)
    >>> gp.mean(X).shape, gp.sigma(theta[None], X).shape, gp.n_neighbours
    (torch.Size([50]), torch.Size([1, 50]), 8)
    """

    covariance: Named
    _asked: tuple[Tensor, Tensor] | None = None
    _kept: tuple[Tensor, Tensor, tuple[Tensor, Tensor]] | None = None
    _given: tuple[Tensor, Conditionals | Blocks] | None = None
    block_rows: int = 0
    chosen: Tensor | None = None

    def __init__(
        self,
        X: Inputs,
        y: Tensor,
        covariance: Covariance,
        theta_R: Tensor,
        *,
        neighbours: int = NEIGHBOURS,
        landmarks: int = 0,
        seed: int = 0,
        block_rows: int = 0,
        x_units: Affine | None = None,
        y_units: Affine | None = None,
        training: TrainingResult | None = None,
    ) -> None:
        given = X, y, covariance, theta_R
        super().__init__(*given, x_units=x_units, y_units=y_units, training=training)
        require_named(covariance)
        self.neighbours = as_count(neighbours, "neighbours", least=1)
        self.landmarks = as_count(landmarks, "landmarks", least=0)
        self.seed = seed
        if block_rows:
            self.block_rows = block_rows
            count = min(BLOCK_LANDMARKS, landmarks)
            with torch.no_grad(), threads_for(0):
                self.chosen = greedy_landmarks(self.covariance, theta_R, self._X, count, seed)

    @classmethod
    def from_trained(
        cls,
        trained: DataPosterior,
        X: Inputs,
        y: Tensor,
        *,
        landmarks: int,
        neighbours: int,
        seed: int = 0,
    ) -> Self:
        """A GP with the hyperparameters and units of another one, conditioned on ``X`` and ``y``.

        Parameters
        ----------
        trained : DataPosterior
            With a named kernel.
        X : Rows or Tensor [N, d]
        y : Tensor [N]
        landmarks, neighbours, seed : int
            As of the class.

        Examples
        --------
        >>> from sharpgp.gp import train
        >>> X = torch.linspace(0, 6, 200, dtype=torch.float64)[:, None]
        >>> trained, _ = train(X[::5], X[::5, 0].sin())
        >>> gp = LocalPosterior.from_trained(trained, X, X[:, 0].sin(), landmarks=20, neighbours=10)
        >>> gp.n_train, torch.equal(gp.theta_R, trained.theta_R)
        (200, True)
        """
        if not isinstance(trained, KernelPosterior):
            raise InvalidInputError(
                "trained: expected a GP of this library with its data, found "
                f"{type(trained).__name__}; use train(X, y)"
            )
        own = {name: getattr(trained, name) for name in ("x_units", "y_units", "training")}
        sizes: dict[str, Any] = {"neighbours": neighbours, "landmarks": landmarks, "seed": seed}
        return cls(X, y, trained.covariance, trained.theta_R, **sizes, **own)

    def _restored(self) -> None:
        super()._restored()
        agree("neighbours and landmarks", self.neighbours >= 1 and self.landmarks >= 0, True)
        agree("blocks with landmarks", self.block_rows > 0, self.chosen is not None)
        if self.chosen is not None:
            inside = (self.chosen >= 0) & (self.chosen < self.n_train)
            agree("rows of landmarks", bool(inside.all()), True)

    @property
    def n_neighbours(self) -> int:
        """Number of rows, landmarks aside, that each prediction uses."""
        most = HALO if self.block_rows else self.neighbours
        return min(most, self.n_train - len(self.landmark_rows))

    @threads_for(0)
    def mean(self, rows: Inputs) -> Tensor:
        if self.block_rows:
            return self.y_units.back(self._blocks(self.theta_R).mean(self._inward(rows).X))
        return self.moments(self.theta_R.unsqueeze(0), rows)[0][0]

    def mean_and_sigma(self, rows: Inputs) -> tuple[Tensor, Tensor]:
        mean, sigma = self.moments(self.theta_R.unsqueeze(0), rows)
        return mean[0], sigma[0]

    @threads_for(0)
    def sigma(self, theta: Tensor, rows: Inputs) -> Tensor:
        return self.moments(theta, rows)[1]

    @threads_for(0)
    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.arange(self.n_train, device=self.device)
        if self.block_rows:
            return self._in_user_units(self._of_levels(lambda one: one.left_out(rows), theta), None)
        return self.loo_at(theta, rows, self._others)

    @threads_for(0)
    def loo_at(self, theta: Tensor, rows: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`loo` [K, R] of the points in ``rows`` [R], given those in ``near`` [R, m]."""
        numbers = rows.new_full((self.n_train,), -1)
        numbers[self.landmark_rows] = torch.arange(len(self.landmark_rows), device=self.device)
        own = numbers[rows] if bool((numbers[rows] >= 0).any()) else None
        found = self._at(theta).moments(self._X[rows], near, own)
        return self._in_user_units(found, None if self._noise is None else self._noise[rows])

    def others_of(self, rows: Tensor) -> Tensor:
        """Neighbours [R, m] of training points, given by index [R], excluding each itself."""
        m = min(self.neighbours, max(0, len(self._nearest.among) - 1))
        return self._nearest.others(m, rows)

    @threads_for(0)
    def left_out(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        theta = self.theta_R.unsqueeze(0)
        if self.block_rows:
            found = self._of_levels(lambda one: one.left_out(rows), theta)
            mean, sigma = self._in_user_units(found, None)
        else:
            mean, sigma = self.loo_at(theta, rows, self.others_of(rows))
        return mean[0], sigma[0]

    @property
    def scored_rows(self) -> Tensor:
        """At most :data:`SCORED_ROWS` random points."""
        return drawn_rows(self.n_train, SCORED_ROWS).to(self.device)

    @threads_for(0)
    def moments(self, theta: Tensor, rows: Inputs) -> tuple[Tensor, Tensor]:
        """Cached, as ``mean`` and ``sigma`` alternate."""
        inside = self._inward(rows)
        S, noise = inside.X, inside.noise
        if self.block_rows:
            return self._in_user_units(self._of_levels(lambda one: one.moments(S), theta), noise)
        if torch.is_grad_enabled() and (theta.requires_grad or S.requires_grad):
            return self._in_user_units(self._at(theta).moments(S, self._near(S.detach())), noise)
        kept = self._kept
        if kept is None or not (torch.equal(kept[0], theta) and torch.equal(kept[1], S)):
            found = self._at(theta).moments(S, self._near(S))
            kept = self._kept = theta.detach().clone(), S, found
        return self._in_user_units(kept[2], noise)

    @threads_for(0)
    def log_likelihood(self) -> float:
        """Vecchia's approximation of it.

        Landmarks come first, then all others in random order; of those after the first ``m``, a
        random subset of at most 1,000 represents all.
        """
        rest = self._nearest.among
        m = min(self.neighbours, len(rest))
        drawn = torch.randperm(len(rest), generator=torch.Generator().manual_seed(0))
        order = rest[drawn.to(self.device)]
        later = order[m + 1 :][:: max(1, -(-(len(rest) - m - 1) // _MOST_CONDITIONALS))]
        with torch.no_grad():
            near = self._nearest.earlier(order, later, m) if len(later) else later
            first = torch.cat([self.landmark_rows, order[: m + 1]])
            theta = self.theta_R.unsqueeze(0)
            given = self._data, theta, self.landmark_rows, first, later, near
            return self._per_point(vecchia_likelihood(*given))

    def retargeted(self, y: Tensor) -> Self:
        """What depends on inputs only is kept."""
        other = copy.copy(self)
        other._y, other._kept = self.y_units.forward(y), None
        if self._given is not None:
            other._given = self._given[0], self._given[1].with_targets(other._y)
        return other

    @property
    def _settings(self) -> dict[str, Any]:
        names = "neighbours", "landmarks", "seed", "block_rows"
        return {name: getattr(self, name) for name in names}

    @property
    def _data(self) -> Data:
        return Data(self.covariance, self._X, self._y, self._noise)

    @cached_property
    def landmark_rows(self) -> Tensor:
        """Rows [M] that are landmarks, none twice."""
        if self.chosen is not None:
            return self.chosen
        n = self.n_train
        drawn = torch.randperm(n, generator=torch.Generator().manual_seed(self.seed))
        return drawn[: self.landmarks].to(self.device)

    @cached_property
    def _nearest(self) -> Nearest:
        """Finds neighbours among all rows but landmarks."""
        return Nearest(self._scaled(self._X), self._rest)

    @property
    def _rest(self) -> Tensor:
        """Rows that are no landmarks."""
        rest = torch.ones(self.n_train, dtype=torch.bool, device=self.device)
        rest[self.landmark_rows] = False
        return rest.nonzero()[:, 0]

    def _scaled(self, S: Tensor) -> Tensor:
        """Standardised inputs as points among which the nearest are searched."""
        return self.covariance.scaled(self.theta_R, S)

    @cached_property
    def _layout(self) -> Layout:
        """Cells, and the rows that each of them sees."""
        cells = -(-self.n_train // self.block_rows)
        return Layout.of_rows(self._X, self._scaled, self._rest, cells, HALO)

    def in_blocks(self, block_rows: int) -> Self:
        """The same GP whose points share the rows of their cell."""
        other = copy.copy(self)
        other.block_rows = block_rows
        return other.conditioned_on(self.rows, self.y_train)

    def rows_of_some_cells(self, count: int) -> Tensor:
        """Rows [R] by which blocks are judged: those of few cells, as each cell has factors."""
        n = self.n_train
        drawn = drawn_rows(n, n // 5).to(self.device)
        cell = self._layout.cell_of(self._X[drawn])
        order = drawn_rows(len(self._layout.centres), len(self._layout.centres))
        return drawn[order.to(cell)[cell].argsort(stable=True)[:count]]

    @cached_property
    def _others(self) -> Tensor:
        return self.others_of(torch.arange(self.n_train, device=self.device))

    def _near(self, S: Tensor) -> Tensor:
        """Neighbours [T, m] of standardised inputs; the last ones are kept, see ``sigma``."""
        if self._asked is None or not torch.equal(self._asked[0], S):
            self._asked = S, self._nearest.to(self._scaled(S), self.n_neighbours)
        return self._asked[1]

    def _of_levels(
        self, ask: Callable[[Blocks], tuple[Tensor, Tensor]], theta: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean and variance [K, .] under each ``theta`` [K, P]."""
        mean, variance = zip(*(ask(self._blocks(one)) for one in theta), strict=True)
        return torch.stack(mean), torch.stack(variance)

    def _blocks(self, theta: Tensor) -> Blocks:
        """What cells are conditioned on under ``theta`` [P]; that of ``theta_R`` is kept."""
        kept = self._given
        if (
            kept is not None
            and torch.equal(kept[0], theta.unsqueeze(0))
            and not theta.requires_grad
        ):
            assert isinstance(kept[1], Blocks)
            return kept[1]
        found = Blocks(self._data, self.landmark_rows, theta, self._layout)
        if torch.equal(theta, self.theta_R) and not theta.requires_grad:
            self._given = theta.unsqueeze(0).clone(), found
        return found

    def _at(self, theta: Tensor) -> Conditionals:
        """What points are conditioned on under ``theta`` [K, P]; the last is kept."""
        if torch.is_grad_enabled() and theta.requires_grad:
            return Conditionals(self._data, self.landmark_rows, theta)
        if self._given is None or not torch.equal(self._given[0], theta):
            given = Conditionals(self._data, self.landmark_rows, theta.detach())
            self._given = theta.detach().clone(), given
        assert isinstance(self._given[1], Conditionals)
        return self._given[1]

    def _in_user_units(
        self, moments: tuple[Tensor, Tensor], noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """With the noise [T] that the points have of their own."""
        mean, variance = moments
        variance = variance if noise is None else variance + noise
        return self.y_units.back(mean), variance.sqrt() * self.y_units.scale


def require_named(covariance: Covariance) -> None:
    """Raise unless a covariance's lengthscales are known, in units of which points are near."""
    if not isinstance(covariance, Named):
        raise InvalidInputError(
            "approximation: expected a named kernel, such as 'matern52', for neighbours, found "
            f"{type(covariance).__name__}; use approximation='sparse'"
        )
