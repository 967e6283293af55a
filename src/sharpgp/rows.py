"""Rows of a table with the roles that a row has besides its features."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

import torch
from torch import Tensor

from sharpgp._stored import Array, stored
from sharpgp._validation import as_features
from sharpgp.exceptions import InvalidInputError


@stored("Rows")
@dataclass(frozen=True, eq=False)
class Rows:
    """Features of rows, and what else is known of each row: the argument of models and GPs.

    ``X`` holds features and nothing else.  Targets travel beside rows, as ``(rows, y)``.  There may
    be no rows at all.  Where roles do not matter, the features alone stand for the rows, see
    :meth:`of`.

    Parameters
    ----------
    X : Tensor [N, d]
        Features.
    noise : Tensor [N], optional
        Variance of the noise of an observation of each row, where it is known; a GP adds it to its
        diagonal and, for rows to predict, to the variance of its law.
    weight : Tensor [N], optional
        How much each row counts in whatever is averaged over rows.  No law depends on it.
    unit : Tensor [N], optional
        Whole numbers, equal for rows that are left out together.  The law of a model depends on it
        only if the model knows units, see :mod:`sharpgp.calibration.predictors.known_groups`.

    Examples
    --------
    >>> rows = Rows(torch.eye(3).double(), noise=torch.tensor([0.1, 0.2, 0.3]).double())
    >>> len(rows), rows.n_features, rows[1:].noise.tolist()
    (3, 3, [0.2, 0.3])
    >>> Rows.join(rows[:1], rows[2:]).X.tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """

    X: Annotated[Tensor, Array("N d", empty=True)]
    noise: Annotated[Tensor | None, Array("N", empty=True)] = None
    weight: Annotated[Tensor | None, Array("N", empty=True)] = None
    unit: Annotated[Tensor | None, Array("N", whole=True, empty=True)] = None

    def __post_init__(self) -> None:
        if not isinstance(self.X, Tensor) or self.X.dim() != 2 or not self.X.is_floating_point():
            raise InvalidInputError(f"rows: expected features [N, d], found {_kind(self.X)}")
        for name in ROLES:
            role = getattr(self, name)
            if role is None:
                continue
            if not isinstance(role, Tensor) or role.shape != self.X.shape[:1]:
                raise InvalidInputError(
                    f"{name}: expected {len(self)} numbers, one per row, found {_kind(role)}"
                )
            if role.is_floating_point() == (name == "unit"):
                wanted = "whole numbers" if name == "unit" else "floating point numbers"
                raise InvalidInputError(f"{name}: expected {wanted}, found {_kind(role)}")

    @classmethod
    def of(cls, X: "Inputs") -> "Rows":
        """Rows as they are; features [N, d] as rows without roles."""
        return X if isinstance(X, Rows) else cls(X)

    @classmethod
    def checked(cls, X: Any, *, n_features: int | None = None, device: Any = None) -> "Rows":
        """Rows on a device, with finite features of this number; from rows, a table or a tensor."""
        given = X.X if isinstance(X, Rows) else X
        features = as_features(given, n_features=n_features, device=device, least=0)
        return replace(X.to(features.device), X=features) if isinstance(X, Rows) else cls(features)

    @classmethod
    def join(cls, *parts: "Inputs") -> "Rows":
        """Several as one, in order.

        A row without a weight counts one.  Noise and units are known for all rows or for none.
        """
        rows = [cls.of(part) for part in parts]
        joined: dict[str, Tensor] = {"X": torch.cat([one.X for one in rows])}
        for name in ROLES:
            given = [getattr(one, name) for one in rows]
            known = [role for role in given if role is not None]
            if not known:
                continue
            if name == "weight":
                known = [one.weight_or_one for one in rows]
            elif any(role is None and len(one) for role, one in zip(given, rows, strict=True)):
                raise InvalidInputError(
                    f"{name}: expected it for all rows or for none, found it for some; give it "
                    "with every part"
                )
            joined[name] = torch.cat(known)
        return cls(**joined)

    def __getitem__(self, rows: Any) -> "Rows":
        """Some of the rows: by mask, whole numbers or slice."""
        return self._each(lambda role: role[rows])

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        roles = [name for name in ROLES if getattr(self, name) is not None]
        known = f", with {' and '.join(roles)}" if roles else ""
        return f"<Rows: {len(self):,} of {self.n_features} features{known}>"

    def to(self, device: Any) -> "Rows":
        """The same on a device."""
        return self._each(lambda role: role.to(device))

    def split(self, size: int) -> Iterator["Rows"]:
        """Blocks of at most ``size`` rows, in order; one empty block if there are no rows."""
        return (self[start : start + size] for start in range(0, max(1, len(self)), size))

    def without(self, *names: str) -> "Rows":
        """The same without some of the roles."""
        changed: dict[str, Any] = dict.fromkeys(names)
        return replace(self, **changed)

    def _each(self, change: Any) -> "Rows":
        given = {name: getattr(self, name) for name in ("X", *ROLES)}
        changed: dict[str, Any] = {
            name: None if role is None else change(role) for name, role in given.items()
        }
        return replace(self, **changed)

    @property
    def n_features(self) -> int:
        """Number of features ``d``."""
        return self.X.shape[1]

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.X.device

    @property
    def weight_or_one(self) -> Tensor:
        """Weights [N]; ones where rows have none."""
        return self.X.new_ones(len(self)) if self.weight is None else self.weight


#: What a row may have besides its features.
ROLES = ("noise", "weight", "unit")

#: Rows, or features [N, d] alone, which stand for rows without roles.
Inputs: TypeAlias = Rows | Tensor


def rows_of_earlier(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a stored object in which features of schema 2 (``_X``, ``X_cal``) become rows.

    Examples
    --------
    >>> rows_of_earlier({"_X": torch.ones(2, 3).double(), "seed": 0})
    {'seed': 0, '_rows': <Rows: 2 of 3 features>}
    """
    now = {"_X": "_rows", "X_cal": "rows_cal"}
    rest = {name: value for name, value in values.items() if name not in now}
    return {**rest, **{now[name]: Rows.of(values[name]) for name in now if name in values}}


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    return type(value).__name__
