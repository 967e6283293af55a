"""What ``base=`` names: kernels, regressors and trees, and what is pooled by default."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gpytorch
import torch
from sklearn.base import is_classifier
from torch import Tensor

from sharpgp import _progress as progress
from sharpgp._validation import check_choice, nearest
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.centred import CentredPosterior
from sharpgp.gp.compute import beside, side_by_side
from sharpgp.gp.covariance import STATIONARY
from sharpgp.gp.kernels import KERNELS, Kernel, named
from sharpgp.gp.posterior import DataPosterior
from sharpgp.gp.sizes import (
    FEW_ROWS_PER_FEATURE,
    MOST_ADDITIVE_FEATURES,
    MOST_ADDITIVE_VALUES,
    MOST_LEFT_OUT,
    MOST_NEAR_FEATURES,
    MOST_ON_ONE_THREAD,
    MOST_WITH_SPARSE,
    Approximation,
    Neighbours,
    approximation_for,
)
from sharpgp.gp.sparse_training import train_chosen
from sharpgp.gp.ties import Ties
from sharpgp.gp.training import REFIT_TOLERANCE
from sharpgp.models.folds import together
from sharpgp.models.foreign import ForeignModel
from sharpgp.models.gaussian import GaussianModel, drawn_part, learn_gaussian
from sharpgp.models.model import Learner
from sharpgp.models.quantiles import gives_quantiles
from sharpgp.models.regressor import ScikitMean, names_for
from sharpgp.models.trees import TREES, TreeModel

#: What ``base="auto"`` pools, by effort; ``sharpgp bench evidence pooling`` shows why.
POOLS = {
    "low": ("matern32",),
    "auto": ("rbf", "matern32", "additive", "extra_trees", "boosted_trees"),
    "high": ("rbf", "matern12", "matern32", "matern52", "additive", "extra_trees", "boosted_trees"),
}
#: The same for many rows, of which trees keep averages: a smooth kernel is sparse, with few
#: features a rough one has neighbours (``sharpgp bench evidence many_rows``).
OF_MANY = ("rbf", "matern32", "random_forest", "boosted_trees")
#: Kernels whose training costs several times that of others, so that these go ahead.
COSTLY = ("additive",)
#: The one GP of methods that take no other model.
ONE_GP = "rbf"


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

    def learned(self, X: Tensor, y: Tensor, labels: Tensor | None = None) -> dict[str, Learner]:
        """Every model, learned from ``X`` [N, d] and ``y`` [N], by name."""
        found: dict[str, Learner] = {}
        if self.weighted:  # rows with equal inputs belong together, whatever weights they have
            labels = together(X[:, :-1], labels)
        named = self._named(len(X), X.shape[1], X.device.type)
        # Trees of many rows do without some of them, which equal inputs must not give away.
        kept = together(X, labels) if len(y) > MOST_LEFT_OUT else None
        work: dict[str, Callable[[], Learner]] = {
            name: partial(self._learned, base, X, y, labels, kept, found) for name, base in named
        }
        ours = all(isinstance(base, str) for _, base in named) and X.device.type == "cpu"

        def learn(name: str) -> Learner:
            progress.at(name)
            model = work[name]()
            progress.advance()
            return model

        progress.begin("training", "model", len(named))
        with beside(kept is not None and X.device.type != "cpu") as begin:
            for name, base in named:
                if _is_tree(base):
                    work[name] = begin(work[name])
            costly = [name for name, base in named if isinstance(base, str) and base in COSTLY]
            following = costly if kept is None and len(costly) < len(named) else []
            for later in (False, True):
                some = [name for name, _ in named if (name in following) == later]
                alone = not ours or len(y) > MOST_ON_ONE_THREAD
                found |= zip(some, side_by_side(learn, some, alone=alone), strict=True)
        return {name: found[name] for name, _ in named}

    def _learned(
        self,
        base: Any,
        X: Tensor,
        y: Tensor,
        labels: Tensor | None,
        kept: Tensor | None,
        others: Mapping[str, Learner],
    ) -> Learner:
        """One model; a GP by what ``others`` that there are already have found.

        An exact GP is learned from a part of many rows, and conditioned on all.
        """
        if _is_tree(base):
            return TreeModel(base, X, y, self.seed or 0, kept, weighted=self.weighted)
        if gives_quantiles(base):
            if self.weighted:
                raise InvalidInputError(
                    "sample_weight: expected kernels, trees or regressors as base, found "
                    f"{_name(base)}"
                )
            return ForeignModel(base, X, y, names_for(base, self.names))
        gps = [one for one in others.values() if isinstance(one, GaussianModel)]
        training = {"tolerance": REFIT_TOLERANCE, "start": _starts(gps)}
        rows = torch.arange(len(y), device=y.device)
        part = drawn_part(rows, self.seed or 0) if self._is_exact(base, X) else rows
        of_part = None if labels is None else labels[part]
        gp = self._trained(base, X[part], y[part], of_part, searched=False, **training)
        like = [one.choice for one in gps] or None
        model = learn_gaussian(gp, self.seed or 0, of_part, like)
        return model if part is rows else model.conditioned_on(X, y)

    def _is_exact(self, base: Any, X: Tensor) -> bool:
        """Whether a kernel's GP of these rows is an exact one, so that it can be conditioned."""
        if not (isinstance(base, str) and base in KERNELS):
            return False
        size = len(X), X.device.type
        return approximation_for(*size, self.approximation, searched=False) is None

    def one_gp(self, X: Tensor, y: Tensor, labels: Tensor | None = None) -> DataPosterior:
        """The one GP of a method that asks no other model."""
        base = self._one
        no_gp = isinstance(base, list | tuple) or gives_quantiles(base)
        if no_gp or _is_tree(base):
            raise InvalidInputError(
                "base: expected one kernel or regressor for a calibration that takes one GP, "
                f"found {base!r}; use calibration='cv' or 'exact'"
            )
        return self._trained(base, X, y, labels, searched=True)

    def model_names(self, n: int, d: int, *, one_gp: bool) -> list[str]:
        """Names of what :meth:`one_gp`, or else :meth:`learned`, gives for ``n`` by ``d`` data."""
        return [_name(self._one)] if one_gp else [name for name, _ in self._named(n, d)]

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.base, str) and self.base == "auto"

    @property
    def _one(self) -> Any:
        return ONE_GP if self._is_auto else self.base

    def _is_possible(self, kernel: str) -> bool:
        """Whether a kernel goes with the approximation that the user asked for."""
        neighbours = self.approximation == "neighbours" or isinstance(
            self.approximation, Neighbours
        )
        return kernel in STATIONARY or not neighbours

    def _named(self, n: int, d: int, device_type: str = "cpu") -> list[tuple[str, Any]]:
        """Names and what each stands for, at ``n`` rows of ``d`` features."""
        if self._is_auto:
            pool = pool_for(n, self.effort, d, device_type, self.ties)
            # Where neighbours were asked for, only of the kernels that have them.
            return [(name, name) for name in pool if name in TREES or self._is_possible(name)]
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
        *,
        searched: bool,
        **training: Any,
    ) -> DataPosterior:
        """A GP of ``y`` itself, or of what a regressor misses of it."""
        train: Callable[..., Any] = train_chosen
        settings = {
            "approximation": self.approximation,
            "searched": searched,
            "random_state": self.seed,
            **training,
        }
        if isinstance(base, gpytorch.kernels.Kernel) or (isinstance(base, str) and base in KERNELS):
            return train(X, y, self._kernel(base, X, searched), **settings)[0]
        mean = ScikitMean(
            base,
            names=names_for(base, self.names),
            seed=self.seed or 0,
            groups=labels,
            weighted=self.weighted,
        )
        regression, centre = mean.fitted(X, y)
        gp, _ = train(X, y - centre, self._kernel(ONE_GP, X, searched), **settings)
        return CentredPosterior(regression, gp, centre)

    def _kernel(self, base: Kernel, X: Tensor, searched: bool) -> Kernel:
        """The kernel for these features; noise that is known needs an exact GP."""
        size = len(X), X.device.type
        chosen = approximation_for(*size, self.approximation, searched=searched)
        if (self.known_noise or self.weighted) and chosen is not None:
            raise InvalidInputError(
                f"{'noise' if self.known_noise else 'sample_weight'}: expected an exact GP, found "
                f"approximation={self.approximation!r}, which is {chosen} for {len(X)} training "
                "rows; use approximation='exact'"
            )
        if self.weighted and len(X) > MOST_LEFT_OUT:
            raise InvalidInputError(
                f"sample_weight: expected at most {MOST_LEFT_OUT:,} training rows, found {len(X):,}"
            )
        return named(base, self.ties, self.known_noise, self.weighted)


def _is_tree(base: Any) -> bool:
    return isinstance(base, str) and base in TREES


def _starts(models: Sequence[GaussianModel]) -> list[int] | None:
    """Numbers of the starts that led to GPs; None for all, where there are none."""
    results = [getattr(one.posterior, "training", None) for one in models]
    found = {one.start for one in results if one is not None and one.start is not None}
    return sorted(found) or None


def _check_model(base: Any) -> None:
    """Raise unless ``base`` is a model, before any is fitted."""
    if isinstance(base, gpytorch.kernels.Kernel):
        return
    if isinstance(base, str) and base == "auto":
        raise InvalidInputError("base: expected 'auto' alone, found it in a list; name its models")
    known = (*KERNELS, *TREES)
    one = base in known if isinstance(base, str) else hasattr(base, "predict")
    if isinstance(base, type) or not (one or gives_quantiles(base)):
        raise InvalidInputError(
            f"base: expected 'auto', {', '.join(known)}, a gpytorch kernel, a scikit-learn "
            f"regressor or a list of these, found {base!r}{nearest(base, ('auto', *known))}"
        )
    if hasattr(base, "__sklearn_tags__") and is_classifier(base):
        raise InvalidInputError(
            f"base: expected a regressor, found the classifier {_name(base)}, whose labels would "
            "pass for numbers"
        )


def _name(base: Any) -> str:
    return base if isinstance(base, str) else type(base).__name__


def pool_for(
    n: int,
    effort: str = "auto",
    n_features: int = 1,
    device_type: str = "cpu",
    ties: Ties | None = None,
) -> tuple[str, ...]:
    """What ``base="auto"`` pools at ``n`` rows of ``n_features`` features, by kind of device.

    ``ties`` tells which features share a lengthscale, and so count as one for an additive GP.

    Examples
    --------
    >>> pool_for(300)
    ('rbf', 'matern32', 'additive', 'extra_trees', 'boosted_trees')
    >>> pool_for(300, "low"), pool_for(1000, n_features=50)
    (('matern32',), ('rbf', 'matern32', 'extra_trees', 'boosted_trees'))
    >>> pool_for(20_000)
    ('rbf', 'matern32', 'random_forest', 'boosted_trees')
    >>> pool_for(20_000, n_features=50), pool_for(10**6)
    (('rbf', 'random_forest', 'boosted_trees'), ('matern32', 'random_forest', 'boosted_trees'))
    """
    check_choice(effort, "effort", POOLS)
    if n > MOST_LEFT_OUT and effort != "low":
        without = ""
        if n_features > MOST_NEAR_FEATURES[device_type]:
            without = "matern32"
        elif n > MOST_WITH_SPARSE[device_type]:
            without = "rbf"
        return tuple(name for name in OF_MANY if name != without)
    # The additive kernel has two hyperparameters for each feature, and costs in proportion.
    d = n_features if ties is None else len(set(ties))
    few_rows = n <= FEW_ROWS_PER_FEATURE * d and n * d <= MOST_ADDITIVE_VALUES
    additive = d <= MOST_ADDITIVE_FEATURES or few_rows
    return tuple(name for name in POOLS[effort] if additive or name != "additive")
