"""What ``base=`` names: kernels, regressors and trees, and what is pooled by default."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.base import is_classifier
from torch import Tensor

from sharpgp import _progress as progress
from sharpgp._validation import check_choice, nearest
from sharpgp.data.folds import Split, row_labels
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.compute import MAX_ROWS_ONE_THREAD, side_by_side
from sharpgp.gp.conditioning import train_chosen
from sharpgp.gp.directions import Directions
from sharpgp.gp.kernels.by_name import Kernel, is_gpytorch_kernel, named
from sharpgp.gp.posterior import DataPosterior
from sharpgp.gp.ties import Ties
from sharpgp.gp.training import REFIT_TOLERANCE
from sharpgp.gp.wrappers.external_mean import CentredPosterior
from sharpgp.models.foreign import ForeignModel, gives_quantiles
from sharpgp.models.gaussian.gaussian_model import drawn_part, learn_gaussian
from sharpgp.models.model import Learner
from sharpgp.models.pilot import promising
from sharpgp.models.prior_fitted import PriorFitted  # noqa: F401 (registers itself, as do trees)
from sharpgp.models.registry import ROLES, Kind, find_base, known_bases
from sharpgp.models.regressor import ScikitMean, names_for
from sharpgp.models.trees.tree_model import TreeModel  # noqa: F401
from sharpgp.names import KERNELS, is_kernel_name
from sharpgp.policy import PILOT_ROWS, POOLS, SEARCHED_ROWS, Approximation, Policy
from sharpgp.rows import Inputs, Rows

#: The one GP of methods that take no other model, and the rows that it learns from at most.
ONE_GP, _ONE_GP_ROWS = "rbf", 1500
#: What has no name in the registry: kernels by name and of gpytorch, regressors that give a mean,
#: and those that give quantiles.
KERNEL, REGRESSOR = Kind(frozenset(ROLES)), Kind(frozenset(ROLES))
GPYTORCH, QUANTILES = Kind(), Kind()
#: Regressors that other libraries' users call by name.
OTHER_LIBRARIES = {
    "xgboost": "XGBRegressor",
    "lightgbm": "LGBMRegressor",
    "catboost": "CatBoostRegressor",
    "ridge": "Ridge",
    "linear": "LinearRegression",
    "tabpfn": "TabPFNRegressor",
}


@dataclass(frozen=True)
class Bases:
    """The models that a user asked for, ready to be learned from rows.

    Parameters
    ----------
    base : "auto", str, gpytorch kernel, scikit-learn regressor, or a list of these
    approximation : "auto", "exact", "sparse", "neighbours", Sparse or Neighbours
    effort : {"low", "auto", "high"}
    seed : int or None
    names : array of str or TableEncoding, optional
        Names of the features, or how columns became features, for regressors that want them.
    ties : tuple of int, optional
        Which features share a lengthscale, see :mod:`sharpgp.gp.ties`.
    roles : frozenset of str
        What is known of rows beside their features, among
        :data:`~sharpgp.models.registry.ROLES`.

    Examples
    --------
    >>> import torch
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> list(Bases(["rbf", "extra_trees"]).learned(X, y))
    ['rbf', 'extra_trees']
    """

    base: Any = "auto"
    approximation: Approximation = "auto"
    effort: str = "auto"
    seed: int | None = None
    names: Any = None
    ties: Ties | None = None
    roles: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_choice(self.effort, "effort", POOLS)
        if not self._is_auto:
            for base in self.base if isinstance(self.base, list | tuple) else [self.base]:
                kind_of(base)

    def policy(self, n: int, d: int, device_type: str = "cpu") -> Policy:
        """How models of ``n`` rows of ``d`` features are learned."""
        return Policy.choose(
            n,
            d,
            device_type,
            effort=self.effort,
            approximation=self.approximation,
            tied_columns=None if self.ties is None else len(set(self.ties)),
            without=[name for name in POOLS[self.effort] if self._refusal(name, d)],
        )

    def _refusal(self, base: Any, d: int) -> str:
        """Why a base cannot learn from ``d`` features and what else is known; empty if it can."""
        kind = kind_of(base)
        for argument in kind.unused(self.roles):
            return f"{argument}: expected bases that use it, found {_name(base)!r}; use base='auto'"
        if kind.columns is not None and d > kind.columns:
            return (
                f"base={_name(base)!r}: expected at most {kind.columns} features, found {d}; use "
                "base='auto'"
            )
        return ""

    def learned(
        self,
        X: Inputs,
        y: Tensor,
        labels: Tensor | None = None,
        pair: Split | None = None,
    ) -> dict[str, Learner]:
        """Every model by name, learned from rows [N] and ``y`` [N] and conditioned on all of them.

        See :meth:`learn` and :meth:`condition`.
        """
        return self.condition(self.learn(X, y, labels, pair), X, y, pair)

    def learn(
        self, X: Inputs, y: Tensor, labels: Tensor | None = None, pair: Split | None = None
    ) -> dict[str, Learner]:
        """Every model by name.

        GPs learn from the rows that a ``pair`` trains on, as a method that scores the others asks
        for, or from a part of all.
        """
        rows = Rows.of(X)
        named = dict(self._named(len(rows), rows.n_features))
        policy = self.policy(len(rows), rows.n_features, rows.device.type)
        some = self._part(y, policy, pair)

        def learn(name: str) -> Learner:
            progress.name_step(name)
            model = self._learned(named[name], rows, y, labels, some, policy, pair is None)
            progress.advance()
            return model

        progress.start_phase("training", "model", len(named))
        found = side_by_side(learn, list(named), in_turn=self._in_turn(named.values(), rows))
        return dict(zip(named, found, strict=True))

    def promising(
        self,
        models: Mapping[str, Any],
        X: Inputs,
        y: Tensor,
        labels: Tensor | None = None,
        pair: Split | None = None,
    ) -> dict[str, Learner]:
        """Those of the models that :meth:`learn` gave that are worth learning from all rows.

        Of what is pooled by default, where rows are many.
        """
        rows = Rows.of(X)
        policy = self.policy(len(rows), rows.n_features, rows.device.type)
        several = self._is_auto and len(models) > 1
        if not several or policy.inducing is not None or len(y) < 2 * PILOT_ROWS:
            return dict(models)
        apart, some = row_labels(rows.X, labels), self._part(y, policy, pair)
        names = promising(models, rows, y, apart, some, self.seed or 0)
        return {name: models[name] for name in names}

    def condition(
        self, models: Mapping[str, Any], X: Inputs, y: Tensor, pair: Split | None = None
    ) -> dict[str, Learner]:
        """The models, those that :meth:`learn` gave a part of the rows with all of them."""
        rows = Rows.of(X)
        policy = self.policy(len(rows), rows.n_features, rows.device.type)
        some = self._part(y, policy, pair)

        def condition(model: Any) -> Learner:
            has_all = len(model.y_train) == len(y)
            found: Learner = model if has_all else model.conditioned_on_all(rows, y, some)
            return found

        bases = [base for _, base in self._named(len(rows), rows.n_features)]
        in_turn = self._in_turn(bases, rows)
        found = side_by_side(condition, list(models.values()), in_turn=in_turn)
        return dict(zip(models, found, strict=True))

    def _part(self, y: Tensor, policy: Policy, pair: Split | None) -> Tensor:
        """Rows that GPs learn from, if they can be conditioned on the others."""
        every = torch.arange(len(y), device=y.device)
        of = (every, every[:0]) if pair is None else pair
        return drawn_part(of, self.seed or 0, policy.learned_rows)

    def _in_turn(self, bases: Iterable[Any], rows: Rows) -> bool:
        """Whether models work one after the other: those of other libraries, and with many rows."""
        ours = all(isinstance(base, str) for base in bases) and rows.device.type == "cpu"
        return not ours or len(rows) > MAX_ROWS_ONE_THREAD

    def _learned(
        self,
        base: Any,
        rows: Rows,
        y: Tensor,
        labels: Tensor | None,
        some: Tensor,
        policy: Policy,
        confirm: bool,
    ) -> Learner:
        """One model; what can be conditioned on further rows learns from ``some`` of them only."""
        seed, kind = self.seed or 0, kind_of(base)
        if kind.model is not None:
            return kind.model.learned(base, rows, y, seed=seed)
        if kind is QUANTILES:
            return ForeignModel(base, rows, y, names_for(base, self.names))
        training: dict[str, Any] = {"tolerance": REFIT_TOLERANCE, "most": policy.learned_rows}
        # What is conditioned on rows that it did not learn from learns from some of them.
        if kind is not KERNEL or policy.inducing is not None:
            gp = self._trained(base, rows, y, labels, policy, searched=False, **training)
            return learn_gaussian(gp, seed, labels, policy=policy)
        of_some = None if labels is None else labels[some]
        part = rows[some], y[some], of_some
        gp = self._trained(base, *part, policy, searched=False, **training)
        return learn_gaussian(gp, seed, of_some, policy=policy, confirm=confirm)

    def one_gp(self, X: Inputs, y: Tensor, labels: Tensor | None = None) -> DataPosterior:
        """The one GP of a method that asks no other model."""
        base, rows = self._one, Rows.of(X)
        kind = QUANTILES if isinstance(base, list | tuple) else kind_of(base)
        if kind is QUANTILES or kind.model is not None:
            raise InvalidInputError(
                "base: expected one kernel or regressor for a calibration that takes one GP, "
                f"found {base!r}; use calibration='cv' or 'exact'"
            )
        self._check_usable([base], rows.n_features)
        policy = self.policy(len(rows), rows.n_features, rows.device.type)
        return self._trained(base, rows, y, labels, policy, searched=True, most=_ONE_GP_ROWS)

    def model_names(self, n: int, d: int, *, one_gp: bool) -> list[str]:
        """Names of what :meth:`one_gp`, or else :meth:`learned`, gives for [n, d] features."""
        return [_name(self._one)] if one_gp else [name for name, _ in self._named(n, d)]

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.base, str) and self.base == "auto"

    @property
    def _one(self) -> Any:
        return ONE_GP if self._is_auto else self.base

    def _named(self, n: int, d: int) -> list[tuple[str, Any]]:
        """Names and what each stands for, with ``n`` rows of ``d`` features."""
        if self._is_auto:
            return [(name, name) for name in self.policy(n, d).pool]
        several = list(self.base) if isinstance(self.base, list | tuple) else [self.base]
        if not several:
            raise InvalidInputError("base: expected one or more models, found an empty list")
        self._check_usable(several, d)
        names = [_name(base) for base in several]
        before = [names[:k].count(name) for k, name in enumerate(names)]
        return [
            (f"{name} {count + 1}" if count else name, base)
            for name, count, base in zip(names, before, several, strict=True)
        ]

    def _trained(
        self,
        base: Any,
        rows: Rows,
        y: Tensor,
        labels: Tensor | None,
        policy: Policy,
        *,
        searched: bool,
        **training: Any,
    ) -> DataPosterior:
        """A GP of ``y`` itself, or of what a regressor misses of it."""
        settings: dict[str, Any] = {"searched": searched, "random_state": self.seed, **training}
        if is_gpytorch_kernel(base) or is_kernel_name(base):
            kernel = self._kernel(base, len(y), rows.device.type, policy, searched)
            return train_chosen(rows, y, kernel, policy, **settings)
        mean = ScikitMean(
            base,
            names=names_for(base, self.names),
            seed=self.seed or 0,
            groups=labels,
        )
        regression, centre = mean.fitted(rows, y)
        kernel = self._kernel(ONE_GP, len(y), rows.device.type, policy, searched)
        gp = train_chosen(rows, y - centre, kernel, policy, **settings)
        return CentredPosterior(regression, gp, centre)

    def _check_usable(self, bases: Sequence[Any], d: int) -> None:
        """Raise unless each can learn from ``d`` features, and what else is known of rows."""
        for base in bases:
            if reason := self._refusal(base, d):
                raise InvalidInputError(reason)

    def _kernel(
        self, base: Kernel, n: int, device_type: str, policy: Policy, searched: bool
    ) -> Kernel:
        """The kernel for these features; noise that is known goes with no sparse GP."""
        many = searched and policy.exact_rows is not None and n > SEARCHED_ROWS[device_type]
        if "noise" in self.roles and (many or policy.inducing is not None):
            raise InvalidInputError(
                f"noise: expected a GP that is not sparse, found approximation="
                f"{self.approximation!r} for {n} training rows; use approximation='exact'"
            )
        ties: Ties | Directions | None = self.ties
        if policy.directions is not None:
            asked = Directions(policy.directions, self.ties or ())
            # A GP that is searched, as in the paper, has the lengthscales of all its columns.
            ties = self.ties if searched and asked.asks_for_all(policy.columns) else asked
        return named(base, ties)


def kind_of(base: Any) -> Kind:
    """What a base uses of a row; an error unless it is a model.

    Examples
    --------
    >>> sorted(kind_of("rbf").roles), sorted(kind_of("extra_trees").roles), kind_of("prior").columns
    (['noise', 'weight'], ['weight'], 45)
    """
    if is_gpytorch_kernel(base):
        return GPYTORCH
    if is_kernel_name(base):
        return KERNEL
    if isinstance(base, str) and base == "auto":
        raise InvalidInputError("base: expected 'auto' alone, found it in a list; name its models")
    if kind := find_base(base):
        return kind
    given = gives_quantiles(base)
    if isinstance(base, str | type) or not (given or hasattr(base, "predict")):
        raise InvalidInputError(_no_model(base))
    if hasattr(base, "__sklearn_tags__") and is_classifier(base):
        raise InvalidInputError(
            f"base: expected a regressor, found the classifier {_name(base)}, whose labels would "
            "pass for numbers"
        )
    return QUANTILES if given else REGRESSOR


def _no_model(base: Any) -> str:
    """What is wrong with a base that is none."""
    if isinstance(base, type) and hasattr(base, "predict"):
        return f"base: expected a model, found the class {base.__name__}; use {base.__name__}()"
    if isinstance(base, str) and base.lower() in OTHER_LIBRARIES:
        return (
            f"base: expected one of sharpgp's own by name, found {base!r}; pass the regressor, "
            f"such as base={OTHER_LIBRARIES[base.lower()]}()"
        )
    known = (*KERNELS, *known_bases())
    return (
        f"base: expected 'auto', {', '.join(known)}, a sum such as 'rbf+matern12', a gpytorch "
        f"kernel, a scikit-learn regressor or a list of these, found {base!r}"
        f"{nearest(base, ('auto', *known))}"
    )


def _name(base: Any) -> str:
    return base if isinstance(base, str) else type(base).__name__
