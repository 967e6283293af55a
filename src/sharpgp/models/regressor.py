"""Means from scikit-learn: any regressor or pipeline, fitted inside."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from sharpgp._stored import stored
from sharpgp.data.encoding import TableEncoding
from sharpgp.data.folds import row_labels, split_parts
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.wrappers.external_mean import Mean
from sharpgp.models.splitters import complements
from sharpgp.rows import Inputs, Rows

#: Parts in which out-of-fold predictions are made.
FOLDS = 5


@stored("ScikitMean", transient={"groups": None})
@dataclass(frozen=True, eq=False)
class ScikitMean(Mean):
    """A scikit-learn regressor as the mean; the given one is cloned, never fitted.

    Parameters
    ----------
    regressor : scikit-learn regressor
        Anything with ``fit`` and ``predict``.
    names : array of str or TableEncoding, optional
        Names of the features; with them the regressor is given data frames.  With an encoding, data
        frames of the user's own columns, as a ``ColumnTransformer`` wants them.
    seed : int
        Draws the parts of out-of-fold predictions.
    groups : Tensor [N], optional
        Which training rows belong together, and so share a part.

    Attributes
    ----------
    regressor : scikit-learn regressor
        As given or, after :meth:`fitted`, fitted.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> X = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
    >>> mean, out_of_fold = ScikitMean(LinearRegression()).fitted(X, 3 * X[:, 0])
    >>> mean(X[:2]).shape, out_of_fold.shape
    (torch.Size([2]), torch.Size([20]))
    """

    regressor: Any
    _: KW_ONLY
    names: Any = None
    seed: int = 0
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        given = self.regressor
        usable = all(callable(getattr(given, name, None)) for name in ("fit", "predict"))
        if isinstance(given, type) or not usable:
            found = f"the class {given.__name__}" if isinstance(given, type) else given
            raise InvalidInputError(
                f"mean: expected None or a scikit-learn regressor, found {found!r}"
            )

    def keeping_together(self, groups: Tensor | None) -> "ScikitMean":
        return replace(self, groups=groups)

    def fitted(self, rows: Inputs, y: Tensor) -> tuple["ScikitMean", Tensor]:
        """Out-of-fold predictions from five parts; with ``sample_weight`` if rows have weights."""
        rows = Rows.of(rows)
        table, target = as_table(rows.X, self.names), y.cpu().numpy()
        weights = {}
        if rows.weight is not None:
            weights = {weights_name(self.regressor): rows.weight.cpu().numpy()}
        out_of_fold = cross_val_predict(
            clone(self.regressor),
            table,
            target,
            cv=self._splits(row_labels(rows.X, self.groups).cpu()),
            params=weights,
        )
        whole = clone(self.regressor).fit(table, target, **weights)
        return replace(self, regressor=whole, groups=None), _checked(out_of_fold, y)

    def _splits(self, labels: Tensor) -> Any:
        if len(labels.unique()) == len(labels):
            return KFold(min(FOLDS, len(labels)), shuffle=True, random_state=self.seed)
        tests = split_parts(labels, FOLDS, self.seed)
        return [(rest.numpy(), test.numpy()) for rest, test in complements(len(labels), tests)]

    def __call__(self, X: Tensor) -> Tensor:
        if X.requires_grad:
            raise InvalidInputError(
                "mean: expected the GP's own mean where gradients are needed, found "
                f"{type(self.regressor).__name__}, which has none"
            )
        return _checked(self.regressor.predict(as_table(X, self.names)), X[:, 0])


def weights_name(regressor: Any) -> str:
    """Argument by which the ``fit`` of a regressor, or of a pipeline's last step, takes weights.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> weights_name(make_pipeline(Ridge()))
    'ridge__sample_weight'
    """
    steps = getattr(regressor, "steps", None)
    name, last = steps[-1] if steps else ("", regressor)
    if not has_fit_parameter(last, "sample_weight"):
        raise InvalidInputError(
            "sample_weight: expected a base whose fit takes sample_weight, found "
            f"{type(last).__name__}"
        )
    return f"{name}__sample_weight" if name else "sample_weight"


def as_table(X: Tensor, names: Any) -> Any:
    """``X`` [T, d] as an array; with names of the features, or an encoding, as a data frame."""
    array = X.detach().cpu().numpy()
    if names is None:
        return array
    from pandas import Categorical, DataFrame, to_datetime  # installed: the names came with it

    if not isinstance(names, TableEncoding):
        return DataFrame(array, columns=names)
    columns = {}
    for name, values in names.decode(array).items():
        if values.holds == "date":
            columns[name] = to_datetime(values.data, unit="D")
        elif values.holds == "text":
            texts = values.data.astype(object)
            texts[values.missing] = None
            ordered = values.order is not None
            columns[name] = Categorical(texts, values.order, ordered=True) if ordered else texts
        else:
            columns[name] = values.data
    return DataFrame(columns)


def names_for(regressor: Any, names: Any) -> Any:
    """Names for a regressor: the user's own columns if it selects columns, else features.

    Parameters
    ----------
    regressor : scikit-learn regressor
    names : TableEncoding, list of str or None

    Returns
    -------
    TableEncoding, list of str or None
        For :func:`as_table`.
    """
    if not isinstance(names, TableEncoding):
        return names
    settings = regressor.get_params(deep=True) if hasattr(regressor, "get_params") else {}
    selectors = [one for one in settings.values() if isinstance(one, ColumnTransformer)]
    asked = [part[2] for one in selectors for part in one.transformers]
    wanted = [
        name
        for columns in asked
        if not callable(columns)
        for name in ([columns] if isinstance(columns, str) else columns)
        if isinstance(name, str)
    ]
    of_features = any(name not in names.names and name in names.features for name in wanted)
    return names if selectors and not of_features else names.features


def _checked(predictions: Any, like: Tensor) -> Tensor:
    """Predictions [T] as a tensor on the device of ``like`` [T]."""
    array = np.asarray(predictions, dtype=np.float64)
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.shape != tuple(like.shape) or not np.isfinite(array).all():
        found = "NaN or inf" if array.shape == tuple(like.shape) else f"shape {array.shape}"
        raise InvalidInputError(
            f"mean: expected {len(like)} finite predictions, one per row, found {found}"
        )
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device)
