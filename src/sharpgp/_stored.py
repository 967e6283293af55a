"""Objects as JSON and tensors, and back, by a closed table of classes.

A class joins by the decorator :func:`stored`, which reads its attributes and their types from the
fields of a dataclass.  Decoding looks names up in the table and sets plain attributes: nothing is
imported, evaluated or called by a name from the file.  An unknown name makes it load the modules
that few models need, and then all methods that installed distributions offer as entry points,
whatever the name.  The objects of a model form a flat list in which each refers to earlier ones
only.  So shared objects stay shared, and no file can make a loop.

torch is imported where tensors are handled, so that a command can read a table without it.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache, cached_property
from importlib import import_module
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from sharpgp import _skops
from sharpgp._extras import LABORATORY, METHODS, loadable_entry_points
from sharpgp.exceptions import SavedModelError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T", bound=type)
_DTYPES = ("torch.float64", "torch.float32", "torch.int64", "torch.bool")
#: Value in ``transient``: the attribute is not restored.
ABSENT: Any = object()


@dataclass(frozen=True)
class Codec:
    """How objects of one class are taken apart into named values and built from them."""

    name: str
    take: Callable[[Any], dict[str, Any]]
    build: Callable[[dict[str, Any]], Any]


_BY_NAME: dict[str, Codec] = {}
_BY_TYPE: dict[type, Codec] = {}
# Modules with classes that few models hold, or that take long to load, as gpytorch's kernels do.
# sharpgp.bo reads its own files, and is not listed.
_ON_DEMAND = (
    "sharpgp.estimator", "sharpgp._fit", "sharpgp.gp.kernels.from_gpytorch",
    "sharpgp.gp.kernels.gpytorch_state", "sharpgp.gp.adapters",
)  # fmt: skip


def add_codec(cls: type, codec: Codec) -> None:
    """Put a class into the table, under a name that no other class has."""
    taken = [other for other, known in _BY_TYPE.items() if known.name == codec.name]
    own = cls.__module__, cls.__qualname__  # a module that is loaded again replaces its classes
    if any((other.__module__, other.__qualname__) != own for other in taken):
        raise ValueError(f"two classes are stored as {codec.name!r}")
    _BY_NAME[codec.name] = _BY_TYPE[cls] = codec


# ------------------------------------------------------------------ what an attribute has to be


class Spec:
    """Type of a value, beyond its class."""

    def check(self, value: object, sizes: dict[str, int]) -> None:
        """Raise unless ``value`` fits; sizes met for the first time are added to ``sizes``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Array(Spec):
    """A tensor of finite float64 or, if ``whole``, of int64 numbers.

    Named sizes agree within an object; none is 0 unless ``empty`` allows it.

    Examples
    --------
    >>> import torch
    >>> Array("K P", positive=True).check(torch.ones(3, 2, dtype=torch.float64), {"K": 3})
    >>> Array("K").check(torch.ones(4, dtype=torch.float64), {"K": 3})
    Traceback (most recent call last):
    sharpgp.exceptions.SavedModelError: expected size K = 3, found 4
    """

    sizes: str = ""
    positive: bool = False
    increasing: bool = False
    whole: bool = False
    empty: bool = False

    def check(self, value: object, sizes: dict[str, int]) -> None:
        import torch

        expected = torch.int64 if self.whole else torch.float64
        if not isinstance(value, torch.Tensor) or value.dtype != expected:
            name = str(expected).removeprefix("torch.")
            raise SavedModelError(f"expected a {name} tensor, found {_kind(value)}")
        _check_sizes(self.sizes.split(), tuple(value.shape), sizes, empty=self.empty)
        if not bool(torch.isfinite(value).all()):
            raise SavedModelError("expected finite numbers, found NaN or inf")
        if self.positive and not bool((value > 0).all()):
            raise SavedModelError("expected positive numbers")
        if self.increasing and not bool((value.diff() > 0).all()):
            raise SavedModelError("expected increasing numbers")


@dataclass(frozen=True)
class NumPyArray(Spec):
    """A NumPy array of finite float64 or, if ``whole``, of int64 numbers; sizes as of `Array`.

    Examples
    --------
    >>> NumPyArray("K", whole=True).check(np.zeros(3), {})
    Traceback (most recent call last):
    sharpgp.exceptions.SavedModelError: expected an array of int64, found ndarray of float64
    """

    sizes: str = ""
    whole: bool = False

    def check(self, value: object, sizes: dict[str, int]) -> None:
        expected = np.dtype(np.int64 if self.whole else np.float64)
        if not isinstance(value, np.ndarray) or value.dtype != expected:
            raise SavedModelError(f"expected an array of {expected}, found {_kind(value)}")
        _check_sizes(self.sizes.split(), value.shape, sizes)
        if not np.isfinite(value).all():
            raise SavedModelError("expected finite numbers, found NaN or inf")


def _check_sizes(
    names: list[str], shape: tuple[int, ...], sizes: dict[str, int], *, empty: bool = False
) -> None:
    if len(shape) != len(names) or (0 in shape and not empty):
        raise SavedModelError(f"expected sizes {names}, found {shape}")
    for name, size in zip(names, shape, strict=True):
        if sizes.setdefault(name, size) != size:
            raise SavedModelError(f"expected size {name} = {sizes[name]}, found {size}")


@dataclass(frozen=True)
class Several(Spec):
    """A list or tuple of values that all fit ``spec``; sizes are those of each value alone."""

    spec: Any

    def check(self, value: object, sizes: dict[str, int]) -> None:
        if not isinstance(value, list | tuple):
            raise SavedModelError(f"expected a list, found {_kind(value)}")
        for element in value:
            require(element, self.spec)


@dataclass(frozen=True)
class Maybe(Spec):
    """An attribute that may be None or, where none was written, absent."""

    spec: Any

    def check(self, value: object, sizes: dict[str, int]) -> None:
        if value is not None:
            require(value, self.spec, sizes)


@dataclass(frozen=True)
class Of(Spec):
    """An object of a class given by name, so that its module is loaded only if there is one.

    Examples
    --------
    >>> Of("decimal.Decimal").check(1.0, {})
    Traceback (most recent call last):
    sharpgp.exceptions.SavedModelError: expected decimal.Decimal, found float
    """

    name: str

    def check(self, value: object, sizes: dict[str, int]) -> None:
        if self.name not in {f"{cls.__module__}.{cls.__qualname__}" for cls in type(value).__mro__}:
            raise SavedModelError(f"expected {self.name}, found {_kind(value)}")


def require(value: Any, spec: Any, sizes: dict[str, int] | None = None) -> None:
    """Raise unless ``value`` fits ``spec``: a :class:`Spec`, a class or a union of classes."""
    if isinstance(spec, Spec):
        spec.check(value, {} if sizes is None else sizes)
    elif not isinstance(value, spec):
        raise SavedModelError(f"expected {getattr(spec, '__name__', spec)}, found {_kind(value)}")


def agree(what: str, ours: Any, theirs: Any) -> None:
    """Raise unless two parts of a model agree, for use in ``_restored``."""
    if ours != theirs:
        raise SavedModelError(f"{what}: expected {theirs}, found {ours}")


# ------------------------------------------------------------------ the table


def stored(
    name: str,
    /,
    *,
    transient: Mapping[str, Any] | None = None,
    earlier: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    **given: Any,
) -> Callable[[T], T]:
    """Class decorator: objects of exactly this class can be saved, as ``name``.

    Fields of a dataclass are what is saved, each of the type of its annotation, see
    :func:`spec_of`.  One with a default may be missing in a file.  Those with ``init=False`` are
    not saved.

    Parameters
    ----------
    name : str
        Name of the class in files; it must not change.
    transient : mapping, optional
        Attributes that are not saved, with the value that each has after loading.
    earlier : callable, optional
        Turns the values of an earlier schema, by name, into those of this one; others it returns.
    **given
        Attributes that are no fields, with a class, a union of classes or a :class:`Spec`.  Those
        of a stored base class need not be repeated.

    Notes
    -----
    An attribute that is listed nowhere, other than a cached property, is an error when a model is
    saved.  After loading, a method ``_restored`` is called, which raises if parts do not agree,
    and then ``__post_init__``.

    Examples
    --------
    >>> import torch
    >>> @stored("example.Line")
    ... @dataclass
    ... class Line:
    ...     slope: float
    ...     knots: Annotated[Any, Array("K")]
    >>> writer = Writer()
    >>> content = writer.encode(Line(2.0, torch.zeros(3, dtype=torch.float64)), "line")
    >>> Reader(writer.objects, writer.tensors).decode(content).slope
    2.0
    """

    def add(cls: T) -> T:
        setattr(cls, "__stored__", {**getattr(cls, "__stored__", {}), **given})  # noqa: B010
        setattr(cls, "__transient__", {**getattr(cls, "__transient__", {}), **(transient or {})})  # noqa: B010

        def take(instance: Any) -> dict[str, Any]:
            saved = _Saved.of(cls)
            values = {
                key: value
                for key, value in vars(instance).items()
                if key not in saved.unsaved and not (value is None and key in saved.optional)
            }
            if unknown := sorted(values.keys() - saved.specs.keys()):
                raise SavedModelError(
                    f"cannot save {cls.__name__}: its attribute {unknown[0]!r} is not declared in "
                    "@stored"
                )
            return values

        def build(values: dict[str, Any]) -> Any:
            saved = _Saved.of(cls)
            values = values if earlier is None else earlier(values)
            missing = saved.specs.keys() - saved.optional - values.keys()
            if missing or values.keys() - saved.specs.keys():
                odd = sorted(missing or values.keys() - saved.specs.keys())
                raise SavedModelError(
                    f"{name}: {'no' if missing else 'an unknown'} field {odd[0]!r}"
                )
            sizes: dict[str, int] = {}
            for key, value in values.items():
                try:
                    require(value, saved.specs[key], sizes)
                except SavedModelError as error:
                    raise SavedModelError(f"{name}.{key}: {error}") from None
            instance: Any = object.__new__(cls)
            vars(instance).update({k: v for k, v in saved.unsaved.items() if v is not ABSENT})
            vars(instance).update({key: make() for key, make in saved.made.items()})
            vars(instance).update(values)
            for method in ("_restored", "__post_init__"):
                getattr(instance, method, tuple)()
            return instance

        add_codec(cls, Codec(name, take, build))
        return cls

    return add


@dataclass(frozen=True)
class _Saved:
    """What is saved of a class, what may be missing in a file, and what is not saved."""

    specs: dict[str, Any]
    optional: set[str]
    unsaved: dict[str, Any]
    made: dict[str, Callable[[], Any]]

    @staticmethod
    @cache
    def of(cls: Any) -> _Saved:
        """That of a class, once its annotations can be evaluated."""
        every = fields(cls) if is_dataclass(cls) else ()
        specs = {one.name: _spec_of_field(cls, one.name) for one in every if one.init}
        specs |= cls.__stored__
        optional = {one.name for one in every if one.default is not MISSING}
        optional |= {key for key, spec in cls.__stored__.items() if isinstance(spec, Maybe)}
        cached = {
            key: ABSENT
            for base in cls.__mro__
            for key, value in vars(base).items()
            if isinstance(value, cached_property) and key not in specs
        }
        derived = {
            one.name: ABSENT if one.default is MISSING else one.default
            for one in every
            if not one.init
        }
        made = {
            one.name: one.default_factory
            for one in every
            if not one.init and one.default_factory is not MISSING
        }
        return _Saved(specs, optional, cached | derived | cls.__transient__, made)


def _spec_of_field(cls: Any, name: str) -> Any:
    owner = next(base for base in cls.__mro__ if name in vars(base).get("__annotations__", ()))
    alone = {"__annotations__": {name: owner.__annotations__[name]}, "__module__": owner.__module__}
    return spec_of(get_type_hints(type(owner.__name__, (), alone), include_extras=True)[name])


def spec_of(hint: Any) -> Any:
    """What a value of an annotated type has to be; a :class:`Spec` in ``Annotated`` says it itself.

    Examples
    --------
    >>> spec_of(float), spec_of(tuple[int, ...]), spec_of(Annotated[Any, Array("N")] | None)
    (<class 'float'>, Several(spec=<class 'int'>), Maybe(spec=Array(sizes='N', ...)))
    """
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return object
    if origin is Annotated:
        return next((part for part in parts if isinstance(part, Spec)), spec_of(parts[0]))
    if origin in (Union, UnionType) and NoneType in parts:
        return Maybe(spec_of(Union[tuple(part for part in parts if part is not NoneType)]))  # noqa: UP007
    if origin in (list, tuple, Sequence):
        return Several(spec_of(parts[0]))
    return hint if origin in (None, Union, UnionType) else origin


# ------------------------------------------------------------------ encoding and decoding


@dataclass
class Writer:
    """Collects ``objects`` (JSON) and ``tensors`` by name while values are encoded."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    _seen: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def encode(self, value: Any, where: str) -> Any:
        """JSON for a value; ``where`` names it in errors and in the names of tensors."""
        import torch

        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool | np.bool_):
            return bool(value)
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, numbers.Real):
            number = float(value)
            return number if math.isfinite(number) else {"number": str(number)}
        if isinstance(value, list | tuple):
            items = [self.encode(item, where) for item in value]
            return items if isinstance(value, list) else {"tuple": items}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {"dict": {key: self.encode(item, where) for key, item in value.items()}}
        if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
            return {"strings": [self.encode(str(item), where) for item in value.ravel()]}
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        if isinstance(value, np.ndarray):
            # NumPy refuses to wrap read-only arrays without a warning, hence the copy.
            code: dict[str, Any] = {"array": self._tensor(torch.from_numpy(value.copy()), where)}
        elif isinstance(value, torch.Tensor):
            code = {"tensor": self._tensor(value.detach(), where)}
        elif type(value) not in _BY_TYPE and _skops.is_estimator(value):
            code = {"skops": _skops.written(value, where)}
        else:
            code = {"object": self._object(value, where)}
        self._seen[id(value)] = value, code  # the reference keeps the id from being used again
        return code

    def _tensor(self, tensor: Tensor, where: str) -> dict[str, Any]:
        if str(tensor.dtype) not in _DTYPES:
            raise SavedModelError(f"cannot save {where}: found a tensor of {tensor.dtype}")
        name = f"{len(self.tensors)}.{where}"
        # The order in memory stays, as matrix products round differently for rows and columns.
        by_columns = tensor.dim() == 2 and not tensor.is_contiguous() and tensor.t().is_contiguous()
        # A copy, as safetensors refuses tensors that share memory: a level, say, and all of them.
        self.tensors[name] = (tensor.t() if by_columns else tensor).cpu().contiguous().clone()
        return {"name": name, "by_columns": by_columns}

    def _object(self, value: Any, where: str) -> int:
        _load_until(_BY_TYPE, type(value))
        codec = _BY_TYPE.get(type(value))
        if codec is None:
            raise SavedModelError(
                f"cannot save {where}: {type(value).__name__} objects cannot be stored without "
                "code; see the guide on files"
            )
        values = {
            key: self.encode(part, f"{codec.name}.{key}") for key, part in codec.take(value).items()
        }
        self.objects.append({"class": codec.name, "fields": values})
        return len(self.objects) - 1


def _load_until(table: Mapping[Any, Codec], key: Any) -> None:
    for module in _ON_DEMAND:
        if key in table:
            break
        import_module(module)


def _codec(name: str) -> Codec:
    _load_until(_BY_NAME, name)
    if name not in _BY_NAME:  # a method of another distribution, not imported yet
        loadable_entry_points(METHODS)
    if name not in _BY_NAME:
        raise SavedModelError(
            f"expected a known class, found {name!r}; a method of another package, such as those "
            f"of {LABORATORY}, needs that package, a removed one the version that wrote the file"
        )
    return _BY_NAME[name]


class Reader:
    """Builds values from a :class:`Writer`'s output; anything unexpected is a SavedModelError."""

    def __init__(
        self,
        objects: list[Any],
        tensors: Mapping[str, Tensor],
        device: Any = "cpu",
        trusted: Sequence[str] = (),
    ) -> None:
        self._tensors = tensors
        self._device = device
        self._trusted = trusted
        self._estimators: dict[str, Any] = {}
        self._built: list[Any] = []
        for entry in objects:
            require(entry, dict)
            codec = _codec(str(entry.get("class")))
            fields = entry.get("fields")
            require(fields, dict)
            values = {key: self.decode(code) for key, code in fields.items()}
            self._built.append(codec.build(values))

    def decode(self, code: Any) -> Any:
        """The value that was encoded as ``code``."""
        if isinstance(code, list):
            return [self.decode(item) for item in code]
        if not isinstance(code, dict):
            return code
        if len(code) != 1:
            raise SavedModelError("expected one tag per value")
        ((tag, content),) = code.items()
        if tag == "tuple":
            return tuple(self.decode(item) for item in content)
        if tag == "dict":
            return {key: self.decode(item) for key, item in content.items()}
        if tag == "number":
            return float(content)
        if tag == "strings":
            return np.array(content, dtype=object)
        if tag == "skops":
            # Shared objects stay shared.
            if content not in self._estimators:
                self._estimators[content] = _skops.read(content, self._trusted)
            return self._estimators[content]
        if tag == "object":
            return self._built[self._index(content)]
        if tag in ("tensor", "array"):
            tensor = self._tensors[content["name"]]
            tensor = tensor.t() if content["by_columns"] else tensor
            return tensor.numpy() if tag == "array" else tensor.to(self._device)
        raise SavedModelError(f"expected a known kind of value, found {tag!r}")

    def _index(self, content: Any) -> int:
        require(content, int)
        if not 0 <= content < len(self._built):
            raise SavedModelError(f"expected a reference to an earlier object, found {content}")
        return int(content)


def _kind(value: Any) -> str:
    import torch

    if isinstance(value, np.ndarray):
        return f"ndarray of {value.dtype}"
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__
