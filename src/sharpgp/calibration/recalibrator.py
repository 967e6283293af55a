"""The interface of every calibration method, and the registry of methods."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from sharpgp._extras import (
    LABORATORY,
    LABORATORY_METHODS,
    METHODS,
    entry_point,
    entry_point_names,
    need_distribution,
)
from sharpgp._stored import Codec, add_codec
from sharpgp._validation import as_count, as_target, nearest
from sharpgp.calibration.predictors.base import Calibrated, n_dense
from sharpgp.calibration.predictors.covariate_shift import Weights
from sharpgp.calibration.predictors.seen_or_new import from_held_out
from sharpgp.data.folds import Split
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.compute import threads_for
from sharpgp.gp.posterior import Posterior
from sharpgp.models.gaussian.spread_choice import loo_of
from sharpgp.models.laws import Normal
from sharpgp.models.model import HeldOut, Learner
from sharpgp.models.pool import Base, models_of, posterior_of
from sharpgp.models.repeats import Repeats
from sharpgp.rows import Rows


@dataclass(frozen=True)
class CalibrationPoints:
    """Checked data to calibrate on, and which rows belong together."""

    rows: Rows
    """Rows [C]."""
    y: Tensor
    """Targets [C]."""
    groups: Tensor | None = None
    """Groups [C] of these points."""
    groups_train: Tensor | None = None
    """Groups [N] of the points that the base was trained on."""
    repeats: Repeats | None = None
    """The rows that trained the base, where inputs repeat among them."""
    weights: Weights | None = None
    """Weights of the points that calibrate, or a function of ``X`` that gives them."""


@dataclass(frozen=True)
class Scored:
    """A model, and what says how it scores points that it has not seen."""

    model: Any
    """The model that predicts; a GP for methods that take one."""
    held: HeldOut | None = None
    """Its training points, each under fits without it, if the method asks for them."""
    pairs: Sequence[Split] | None = None
    """By which rows these fits were trained and scored."""
    fits: Sequence[Learner] = ()
    """These fits, where the method asks them again."""
    groups: Tensor | None = None
    """Groups [N] of the training points."""


class Recalibrator(ABC):
    """A calibration method: ``fit`` turns a model and held-out data into a predictor.

    It scores points that the model has not seen, and ranks the scores (``_scored``, ``_ranked``).

    Parameters
    ----------
    random_state : int or None
        Seed of whatever a method draws.
    """

    #: Name in the registry; empty for a method that is not registered.
    name: ClassVar[str] = ""
    #: Whether ``fit`` uses the calibration data at all.
    needs_calibration: ClassVar[bool] = True
    #: Whether predictions at known inputs are calibrated separately.
    knows_inputs: ClassVar[bool] = False
    #: Whether rows may come in groups.
    takes_groups: ClassVar[bool] = True
    #: Whether it calibrates one GP, and no other model.
    takes_one_gp: ClassVar[bool] = False

    def __init__(self, *, random_state: int | None = None) -> None:
        self.random_state = random_state

    @property
    def seed(self) -> int:
        """``random_state`` as a number; None is 0, so that a fit can always be repeated."""
        if self.random_state is None:
            return 0
        return as_count(self.random_state, "random_state", least=0)

    def check(self, n_train: int, n_cal: int) -> None:
        """Raise if the settings do not fit the number of points, before anything is learned."""
        assert self.seed >= 0  # refuses an invalid random_state

    def fit(
        self,
        base: Base,
        X_cal: ArrayLike | Rows | None,
        y_cal: ArrayLike | None,
        *,
        sample_weight: Weights | None = None,
        groups: ArrayLike | None = None,
        groups_cal: ArrayLike | None = None,
        repeats: Repeats | None = None,
    ) -> Calibrated:
        """Calibrate ``base`` on data it was not trained on; ``base`` is not changed.

        ``base`` is a posterior; for methods that learn a spread (``exact``, ``cv``, ``loo``) it may
        also be a model, or several by name, which are pooled.

        ``sample_weight``, an array (C,) or a function of ``X`` (n, d) that gives one, weights the
        calibration points; see :class:`sharpgp.calibration.predictors.scored.ScoredPredictor`.
        ``groups`` (N,) and ``groups_cal`` (C,), whole numbers, say which training and which
        calibration points belong together; methods that split points keep these on the same side,
        and methods that rank scores count groups, see :meth:`Calibrated.for_groups`.  ``repeats``
        are the rows that ``base`` was fitted to, where some have equal inputs: then known inputs
        and new ones are calibrated apart, see :mod:`sharpgp.calibration.predictors.seen_or_new`.
        """
        roles = sample_weight, groups, groups_cal, repeats
        points = self.checked(base, X_cal, y_cal, *roles)
        return self.ranked(self.scored(base, points), points)

    def checked(
        self,
        base: Base,
        X_cal: ArrayLike | Rows | None,
        y_cal: ArrayLike | None,
        sample_weight: Weights | None = None,
        groups: ArrayLike | None = None,
        groups_cal: ArrayLike | None = None,
        repeats: Repeats | None = None,
    ) -> CalibrationPoints:
        """What :meth:`fit` is given, checked."""
        first = models_of(base)[0]
        d, device = first.n_features, first.device
        if not self.needs_calibration and X_cal is None:
            y = torch.empty(0, dtype=torch.float64, device=device)
            rows = Rows(y.reshape(0, d))
        else:
            rows = Rows.checked(X_cal, n_features=d, device=device)
            y = as_target(y_cal, n_rows=len(rows), device=device)
        labels = None if groups is None else _labels(groups, len(first.y_train), device)
        labels_cal = None if groups_cal is None else _labels(groups_cal, len(y), device)
        return CalibrationPoints(rows, y, labels_cal, labels, repeats, sample_weight)

    def scored(self, base: Base, points: CalibrationPoints) -> Scored:
        """What the method predicts with, and how it scores points that it has not seen."""
        with threads_for(max(n_dense(one.gp) for one in models_of(base))):
            return self._scored(base, points)

    def ranked(self, scored: Scored, points: CalibrationPoints) -> Calibrated:
        """The predictor whose quantiles are ranks of the scores."""
        with threads_for(n_dense(scored.model.gp)):
            found = self._ranked(scored, points)
        return found if points.weights is None else self._weighted(found, points)

    @abstractmethod
    def _scored(self, base: Base, points: CalibrationPoints) -> Scored:
        """See :meth:`scored`."""

    @abstractmethod
    def _ranked(self, scored: Scored, points: CalibrationPoints) -> Calibrated:
        """See :meth:`ranked`, without weights."""

    def _weighted(self, found: Calibrated, points: CalibrationPoints) -> Calibrated:
        assert points.weights is not None
        return found.weighted(points.weights)

    def first_pair(self, X: Tensor, y: Tensor, groups: Tensor | None) -> Split | None:
        """Rows that the first learning of every model may see, and rows that it scores.

        None if it sees all rows.
        """
        return None

    def for_columns(self, features: Mapping[str, Sequence[int]]) -> "Recalibrator":
        """The same method, with the columns it names replaced by the features that encode them."""
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({given})"


class PosteriorMethod(Recalibrator):
    """A method that needs only a GP, and splits no points."""

    takes_one_gp = True

    @abstractmethod
    def _fit(self, posterior: Posterior, X: Rows, y: Tensor) -> Calibrated:
        """Calibrate on checked rows and targets [C]."""

    def _scored(self, base: Base, points: CalibrationPoints) -> Scored:
        return Scored(posterior_of(base))

    def _ranked(self, scored: Scored, points: CalibrationPoints) -> Calibrated:
        gp: Posterior = scored.model
        found = self._fit(gp, points.rows, points.y)
        each = found.each_once()
        if points.repeats is not None and each is not None:
            data = points.repeats, points.rows, points.y
            without = partial(left_out_of, gp)
            return from_held_out(each.model, without, *data, draw=each.draw, seed=self.seed)
        return found if points.groups is None else found.for_groups(points.groups)


def left_out_of(posterior: Posterior) -> HeldOut:
    """The training points of a GP, each without itself."""
    residuals, sigma = loo_of(posterior)
    rows = posterior.scored_rows
    return HeldOut(rows, Normal(posterior.y_train[rows] - residuals, sigma), residuals / sigma)


_REGISTRY: dict[str, type[Recalibrator]] = {}
R = TypeVar("R", bound=type[Recalibrator])


def register(name: str) -> Callable[[R], R]:
    """Class decorator: make a method available as ``SharpGPRegressor(calibration=name)``.

    Its settings are the arguments of its constructor, kept as attributes of the same names, so that
    calibrated models can be saved.  A distribution that names the class as an entry point of the
    group ``sharpgp.methods`` need not be imported first.

    Examples
    --------
    >>> from sharpgp import Kuleshov18, SharpGPRegressor
    >>> @register("mine")
    ... class Mine(Kuleshov18):
    ...     "As ``kuleshov18``, under another name."
    >>> SharpGPRegressor(calibration="mine").fit([[0.0], [1.0], [2.0], [4.0]], [0.0, 1.0, 2.0, 3.0])
    SharpGPRegressor(calibration='mine')
    >>> del _REGISTRY["mine"]
    """

    def add(cls: R) -> R:
        cls.name = name
        _REGISTRY[name] = cls
        # Its attributes are its settings, a convention that its repr and clone also rely on.
        add_codec(
            cls, Codec(f"method.{name}", lambda method: dict(vars(method)), lambda s: cls(**s))
        )
        return cls

    return add


def known_methods() -> list[str]:
    """Names of all methods: registered, or entry points of the group `sharpgp.methods`.

    Examples
    --------
    >>> import sharpgp
    >>> "kuleshov18" in known_methods()
    True
    """
    return sorted({*_REGISTRY, *entry_point_names(METHODS)})


def find_method(name: str) -> type[Recalibrator]:
    """Class of a method, loaded from its distribution if need be; an unknown name is an error.

    Examples
    --------
    >>> import sharpgp
    >>> find_method("cv").__name__
    'CrossValidated'
    """
    if name not in _REGISTRY:
        entry_point(METHODS, name)  # importing its module registers it
    if name in _REGISTRY:
        return _REGISTRY[name]
    if name in LABORATORY_METHODS.values():
        need_distribution(LABORATORY, f"calibration={name!r}")
    raise InvalidInputError(
        f"calibration: expected auto, {', '.join(known_methods())} or a Recalibrator, "
        f"found {name!r}{nearest(name, known_methods())}"
    )


def make_recalibrator(name: str, **settings: Any) -> Recalibrator:
    """Recalibrator by name; an unknown name gets an error that lists the known ones."""
    return find_method(name)(**settings)


def chosen_recalibrator(calibration: Any, seed: int | None, *, guarantee: bool) -> Recalibrator:
    """The method that ``calibration=`` names.

    ``guarantee``: there are calibration data or weights, which call for ``exact``.

    Examples
    --------
    >>> import sharpgp
    >>> [chosen_recalibrator("auto", 0, guarantee=given).name for given in (False, True)]
    ['cv', 'exact']
    """
    if isinstance(calibration, Recalibrator):
        return calibration
    if not isinstance(calibration, str):
        found = type(calibration).__name__
        if isinstance(calibration, type):
            found = f"the class {calibration.__name__}; use {calibration.__name__}()"
        raise InvalidInputError(
            f"calibration: expected a method's name or a Recalibrator, found {found}"
        )
    if calibration == "auto":
        calibration = "exact" if guarantee else "cv"
    return make_recalibrator(calibration, random_state=seed)


def _labels(groups: Any, n_rows: int, device: torch.device) -> Tensor:
    labels = torch.as_tensor(groups, device=device)
    if labels.shape != (n_rows,) or labels.is_floating_point() or labels.is_complex():
        raise InvalidInputError(
            f"groups: expected {n_rows} whole numbers, one per point, found "
            f"{labels.dtype} of shape {tuple(labels.shape)}"
        )
    return labels.long()
