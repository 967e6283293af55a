"""Models in files: tensors as safetensors, everything else as JSON in its header.

Loading runs no code from the file and never uses pickle: a file names classes from the table in
:mod:`sharpgp._stored`, their attributes are checked, and a checksum covers all of it.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

import sharpgp.calibration  # with classes that can be stored
from sharpgp._files import replacing
from sharpgp._stored import Array, Maybe, Reader, Several, Writer, stored
from sharpgp.exceptions import InvalidInputError, SavedModelError, SharpGPError

__all__ = ["SCHEMA", "Array", "Maybe", "Several", "load", "read", "save", "stored"]

FORMAT = "sharpgp model"
#: Version of the file layout; unknown ones are refused.
SCHEMA = 3
#: Earlier ones, whose files are read unless noise, weights or groups were among their features.
READABLE = ("2", "3")
# Classes of schema 2 that had them there.
_COLUMNS = {"KnownNoise", "Weighted", "GroupModel"}


def save(model: object, path: str | os.PathLike[str], **more: object) -> None:
    """Save a fitted estimator, a calibrated predictor or a posterior in one file.

    The file appears whole or not at all; an earlier one is replaced only at the end.

    Parameters
    ----------
    model : SharpGPRegressor, Calibrated or Posterior
    path : str or path
    **more
        Further objects to keep beside the model, found again by :func:`read`.

    Raises
    ------
    SavedModelError
        If the model contains something that only code can describe, such as a kernel class of your
        own; the message names it.

    Notes
    -----
    Parts from scikit-learn are written by skops (extra ``skops``), as their state without code.

    Examples
    --------
    >>> import os, tempfile, torch
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 30, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, X[:, 0].sin())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(posterior, os.path.join(folder, "gp.sgp"))
    ...     again = load(os.path.join(folder, "gp.sgp"))
    >>> torch.equal(again.mean(X), posterior.mean(X))
    True
    """
    writer = Writer()
    content = {
        name: writer.encode(value, type(value).__name__)
        for name, value in {"model": model, **more}.items()
    }
    text = json.dumps(
        {
            "sharpgp": sharpgp.__version__,
            "device": _device_of(model),
            "objects": writer.objects,
            "content": content,
        },
        allow_nan=False,
    )
    header = {
        "format": FORMAT,
        "schema": str(SCHEMA),
        "checksum": _checksum(text, writer.tensors),
        "content": text,
    }
    data = _in_order(to_bytes(writer.tensors, metadata=header))
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def load(
    path: str | os.PathLike[str],
    *,
    device: str | torch.device = "auto",
    trusted: Sequence[str] = (),
) -> object:
    """Load what :func:`save` saved; its predictions are the same, bit for bit.

    Parameters
    ----------
    path : str or path
    device : {"auto", "cpu", "cuda"} or torch device
        Where the model computes from now on; ``"auto"`` is where it was saved, or the CPU if
        there is no such device here.
    trusted : sequence of str
        Full names of types of scikit-learn parts that may be loaded, besides those that skops
        trusts.  A file that needs others is refused, and they are named.

    Raises
    ------
    SavedModelError
        If the file is damaged, not a model, or written by a newer version.
    """
    return read(path, device=device, trusted=trusted)["model"]


def read(
    path: str | os.PathLike[str],
    *,
    device: str | torch.device = "auto",
    trusted: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything in a file, by name: the model as ``"model"``, and objects saved beside it."""
    try:
        header, tensors = _opened(path)
        if header.get("format") != FORMAT:
            raise SavedModelError("it is not a sharpgp model")
        schema = header.get("schema")
        if schema not in READABLE:
            raise SavedModelError(
                f"it has schema {header.get('schema')}, and sharpgp {sharpgp.__version__} reads "
                f"schema {SCHEMA}; update sharpgp"
            )
        if header.get("checksum") != _checksum(header["content"], tensors):
            raise SavedModelError("its checksum is wrong; it was damaged or changed")
        parts = json.loads(header["content"])
        place = _place(device, parts["device"])
        try:
            reader = Reader(parts["objects"], tensors, place, trusted)
            content = {name: reader.decode(code) for name, code in parts["content"].items()}
        except SavedModelError:
            if schema == str(SCHEMA) or not {one["class"] for one in parts["objects"]} & _COLUMNS:
                raise
            raise SavedModelError(
                f"it has schema {schema}, with noise, weights or groups among its features; read "
                f"it with sharpgp {parts['sharpgp']}, the version that wrote it, or fit again"
            ) from None
        if "model" not in content:
            raise SavedModelError("it contains no model")
        return content
    except InvalidInputError:
        raise  # the device
    except SharpGPError as error:
        raise SavedModelError(f"cannot load {path}: {error}") from None
    except Exception as error:
        # Any error while decoding means a damaged file.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SavedModelError(f"cannot load {path}: it is damaged ({reason})") from error


def _in_order(data: bytes) -> bytes:
    """A file of safetensors with the keys of its header sorted: equal models give equal files."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    text = json.dumps(header, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[end:]


def _opened(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safe_open(os.fspath(path), framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            # Fresh memory, aligned as in the model that was saved: rounding depends on it.
            return header, {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise SavedModelError("there is no such file") from None
    except SafetensorError:
        raise SavedModelError("it is not a sharpgp model, or damaged") from None
    except OSError as error:
        raise SavedModelError(f"it cannot be read ({error.strerror or error})") from None


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _device_of(model: Any) -> str:
    known = getattr(model, "calibrated_", model)
    return str(getattr(getattr(known, "device", None), "type", "cpu"))


def _place(device: Any, saved_on: str) -> torch.device:
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if saved_on == "cuda" and torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, TypeError, AssertionError):
        raise InvalidInputError(
            f"device: expected 'auto', 'cpu' or an available CUDA device, found {device!r}"
        ) from None
    return chosen
