"""What ``base=`` names: kernels, regressors and trees, and what is pooled by default."""

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
from sharpgp.gp.kernels.by_name import KERNELS, Kernel, is_gpytorch_kernel, is_kernel_name, named
from sharpgp.gp.posterior import DataPosterior
from sharpgp.gp.ties import Ties
from sharpgp.gp.training import REFIT_TOLERANCE
from sharpgp.gp.wrappers.external_mean import CentredPosterior
from sharpgp.models.foreign import ForeignModel, gives_quantiles
from sharpgp.models.gaussian.gaussian_model import drawn_part, learn_gaussian
from sharpgp.models.model import Learner
from sharpgp.models.prior_fitted import PRIOR, PriorFitted
from sharpgp.models.regressor import ScikitMean, names_for
from sharpgp.models.trees.tree_model import TREES, TreeModel
from sharpgp.policy import MOST_LEFT_OUT, POOLS, SEARCHED_ROWS, Approximation, Policy

#: The one GP of methods that take no other model, and the rows that it learns from at most.
ONE_GP, _ONE_GP_ROWS = "rbf", 1500


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
    known_noise : bool
        Whether there is one more feature, the variance of each observation's noise.
    weighted : bool
        Whether there is one more feature, the logarithm of each observation's relative noise.

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
    known_noise: bool = False
    weighted: bool = False

    def __post_init__(self) -> None:
        check_choice(self.effort, "effort", POOLS)
        if not self._is_auto:
            for base in self.base if isinstance(self.base, list | tuple) else [self.base]:
                _check_model(base)

    def policy(self, n: int, d: int, device_type: str = "cpu") -> Policy:
        """How models of ``n`` rows of ``d`` features are learned; noise and weights are none."""
        return Policy.choose(
            n,
            d - (self.known_noise or self.weighted),
            device_type,
            effort=self.effort,
            approximation=self.approximation,
            tied_columns=None if self.ties is None else len(set(self.ties)),
        )

    def learned(
        self,
        X: Tensor,
        y: Tensor,
        labels: Tensor | None = None,
        pair: Split | None = None,
    ) -> dict[str, Learner]:
        """Every model, learned from ``X`` [N, d] and ``y`` [N], by name.

        GPs learn from the rows that a ``pair`` trains on, as a method that scores the others asks
        for, or from a part of all; and are conditioned on all rows.
        """
        named = dict(self._named(*X.shape))
        policy = self.policy(X.shape[0], X.shape[1], X.device.type)
        if self.weighted:
            self._check_weights(len(y), policy, any(not _is_tree(base) for base in named.values()))
            # Rows with equal inputs belong together, whatever weights they have.
            labels = row_labels(X[:, :-1], labels)
        every = torch.arange(len(y), device=y.device)
        rows = drawn_part(
            (every, every[:0]) if pair is None else pair, self.seed or 0, policy.learned_rows
        )
        ours = all(isinstance(base, str) for base in named.values()) and X.device.type == "cpu"
        in_turn = not ours or len(y) > MAX_ROWS_ONE_THREAD

        def learn(name: str) -> Learner:
            progress.name_step(name)
            model = self._learned(named[name], X, y, labels, rows, policy, pair is None)
            progress.advance()
            return model

        progress.start_phase("training", "model", len(named))
        return dict(zip(named, side_by_side(learn, list(named), in_turn=in_turn), strict=True))

    def _learned(
        self,
        base: Any,
        X: Tensor,
        y: Tensor,
        labels: Tensor | None,
        rows: Tensor,
        policy: Policy,
        confirm: bool,
    ) -> Learner:
        """One model; what can be conditioned on further rows learns from some ``rows`` only."""
        if _is_tree(base):
            return TreeModel(base, X, y, self.seed or 0, weighted=self.weighted)
        if _is_prior(base) or gives_quantiles(base):
            if self.weighted:
                raise InvalidInputError(
                    "sample_weight: expected kernels, trees or regressors as base, found "
                    f"{_name(base)}"
                )
            if _is_prior(base):
                return PriorFitted(X, y)
            return ForeignModel(base, X, y, names_for(base, self.names))
        training: dict[str, Any] = {"tolerance": REFIT_TOLERANCE, "most": policy.learned_rows}
        seed = self.seed or 0
        if not _is_conditioned(base, policy):
            gp = self._trained(base, X, y, labels, policy, searched=False, **training)
            return learn_gaussian(gp, seed, labels, policy=policy)
        of_rows = None if labels is None else labels[rows]
        some = X[rows], y[rows], of_rows
        gp = self._trained(base, *some, policy, searched=False, **training)
        model = learn_gaussian(gp, seed, of_rows, policy=policy, confirm=confirm)
        return model if len(rows) == len(y) else model.conditioned_on_all(X, y, rows)

    def one_gp(self, X: Tensor, y: Tensor, labels: Tensor | None = None) -> DataPosterior:
        """The one GP of a method that asks no other model."""
        base = self._one
        no_gp = isinstance(base, list | tuple) or gives_quantiles(base)
        if no_gp or _is_tree(base) or _is_prior(base):
            raise InvalidInputError(
                "base: expected one kernel or regressor for a calibration that takes one GP, "
                f"found {base!r}; use calibration='cv' or 'exact'"
            )
        policy = self.policy(X.shape[0], X.shape[1], X.device.type)
        if self.weighted:
            self._check_weights(len(y), policy, True)
        return self._trained(base, X, y, labels, policy, searched=True, most=_ONE_GP_ROWS)

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
            pool = self.policy(n, d).pool
            return [(name, name) for name in pool if not (self.weighted and _is_prior(name))]
        several = list(self.base) if isinstance(self.base, list | tuple) else [self.base]
        if not several:
            raise InvalidInputError("base: expected one or more models, found an empty list")
        names = [_name(base) for base in several]
        before = [names[:k].count(name) for k, name in enumerate(names)]
        return [
            (f"{name} {count + 1}" if count else name, base)
            for name, count, base in zip(names, before, several, strict=True)
        ]

    def _trained(
        self,
        base: Any,
        X: Tensor,
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
            kernel = self._kernel(base, len(y), X.device.type, policy, searched)
            return train_chosen(X, y, kernel, policy, **settings)
        mean = ScikitMean(
            base,
            names=names_for(base, self.names),
            seed=self.seed or 0,
            groups=labels,
            weighted=self.weighted,
        )
        regression, centre = mean.fitted(X, y)
        kernel = self._kernel(ONE_GP, len(y), X.device.type, policy, searched)
        gp = train_chosen(X, y - centre, kernel, policy, **settings)
        return CentredPosterior(regression, gp, centre)

    def _check_weights(self, n: int, policy: Policy, of_gps: bool) -> None:
        """Raise unless models of ``n`` rows can be weighted."""
        if n > MOST_LEFT_OUT:
            raise InvalidInputError(
                f"sample_weight: expected at most {MOST_LEFT_OUT:,} training rows, found {n:,}"
            )
        if of_gps and (policy.inducing is not None or not policy.is_exact(n)):
            raise InvalidInputError(
                f"sample_weight: expected an exact GP, found approximation="
                f"{self.approximation!r} for {n} training rows; use approximation='exact'"
            )

    def _kernel(
        self, base: Kernel, n: int, device_type: str, policy: Policy, searched: bool
    ) -> Kernel:
        """The kernel for these features; noise that is known goes with no sparse GP."""
        many = searched and policy.exact_rows is not None and n > SEARCHED_ROWS[device_type]
        if self.known_noise and (many or policy.inducing is not None):
            raise InvalidInputError(
                f"noise: expected a GP that is not sparse, found approximation="
                f"{self.approximation!r} for {n} training rows; use approximation='exact'"
            )
        ties: Ties | Directions | None = self.ties
        if policy.directions is not None:
            ties = Directions(policy.directions, self.ties or ())
        return named(base, ties, self.known_noise, self.weighted)


def _is_conditioned(base: Any, policy: Policy) -> bool:
    """Whether a model is conditioned on rows that it did not learn from."""
    return is_kernel_name(base) and policy.inducing is None


def _is_tree(base: Any) -> bool:
    return isinstance(base, str) and base in TREES


def _is_prior(base: Any) -> bool:
    return isinstance(base, str) and base == PRIOR


def _check_model(base: Any) -> None:
    """Raise unless ``base`` is a model, before any is fitted."""
    if is_gpytorch_kernel(base):
        return
    if isinstance(base, str) and base == "auto":
        raise InvalidInputError("base: expected 'auto' alone, found it in a list; name its models")
    known = (*KERNELS, *TREES, PRIOR)
    named = isinstance(base, str)
    one = base in (*TREES, PRIOR) or is_kernel_name(base) if named else hasattr(base, "predict")
    if isinstance(base, type) or not (one or gives_quantiles(base)):
        raise InvalidInputError(
            f"base: expected 'auto', {', '.join(known)}, a sum such as 'rbf+matern12', a gpytorch "
            f"kernel, a scikit-learn regressor or a list of these, found {base!r}"
            f"{nearest(base, ('auto', *known))}"
        )
    if hasattr(base, "__sklearn_tags__") and is_classifier(base):
        raise InvalidInputError(
            f"base: expected a regressor, found the classifier {_name(base)}, whose labels would "
            "pass for numbers"
        )


def _name(base: Any) -> str:
    return base if isinstance(base, str) else type(base).__name__
