"""The registry of bases: what a name in ``base=`` stands for, and what it can use of a row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sharpgp._extras import BASES, entry_point, entry_point_names
from sharpgp.models.without_gp import RefittedModel

#: What ``fit`` is told of a row beside its features: the argument of each role.
ROLES = {"noise": "noise", "weight": "sample_weight"}


@dataclass(frozen=True)
class Kind:
    """What models of a kind use of a row, and how many features they take.

    Attributes
    ----------
    roles : frozenset of str
        What it uses beside the features, among :data:`ROLES`.  Where ``fit`` is given another role,
        the base is left out of ``"auto"``, and refused if it was asked for.
    columns : int or None
        Features at most.
    model : class or None
        The class of a registered name, whose :meth:`RefittedModel.learned` makes its model.

    Examples
    --------
    >>> Kind(frozenset({"noise"})).unused(frozenset({"noise", "weight"}))
    ['sample_weight']
    """

    roles: frozenset[str] = frozenset()
    columns: int | None = None
    model: type[RefittedModel] | None = None

    def unused(self, given: frozenset[str]) -> list[str]:
        """Arguments of ``fit`` that such a model cannot use, of the roles that were given."""
        return [argument for role, argument in ROLES.items() if role in given - self.roles]


_REGISTRY: dict[str, Kind] = {}
M = TypeVar("M", bound=type[RefittedModel])


def base(*names: str, roles: tuple[str, ...] = (), columns: int | None = None) -> Callable[[M], M]:
    """Class decorator: make a model available as ``SharpGPRegressor(base=name)``.

    Its classmethod :meth:`~sharpgp.models.without_gp.RefittedModel.learned` is given the name and
    the rows.  A distribution that names the class as an entry point of the group ``sharpgp.bases``
    need not be imported first.  The matrix of contracts takes up every registered name.

    Examples
    --------
    >>> from sharpgp.models.laws import Normal
    >>> @base("flat", columns=10)
    ... class Flat(RefittedModel):
    ...     "The same law everywhere."
    >>> find_base("flat").columns
    10
    >>> del _REGISTRY["flat"]
    """

    def add(model: M) -> M:
        for name in names:
            _REGISTRY[name] = Kind(frozenset(roles), columns, model)
        return model

    return add


def known_bases() -> list[str]:
    """Names of registered models, or entry points of the group ``sharpgp.bases``."""
    return [*_REGISTRY, *(name for name in entry_point_names(BASES) if name not in _REGISTRY)]


def find_base(name: Any) -> Kind | None:
    """What a name stands for, loaded from its distribution if need be; None for anything else."""
    if isinstance(name, str) and name not in _REGISTRY:
        entry_point(BASES, name)  # importing its module registers it
    return _REGISTRY.get(name) if isinstance(name, str) else None
