"""Where to compute, and how much one block of work may hold there."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from sharpgp.exceptions import InvalidInputError, warn

logger = logging.getLogger("sharpgp")

#: Matrix entries in one block of rows: 2 MiB on a CPU, where larger ones leave the cache and are
#: too few for all its threads, and 512 MiB on a GPU, where smaller ones leave it idle.
BLOCK_ENTRIES = {"cpu": 2**18, "cuda": 2**26}
#: Training rows from which ``device="auto"`` takes a GPU, where there is one.
LEAST_ON_GPU = 2000
# How often blocks are made eight times smaller before a GPU without memory is given up.
_SHRINKINGS = 2

T = TypeVar("T")


def block_entries(device: torch.device) -> int:
    """Entries that one block of rows may hold on a device.

    Examples
    --------
    >>> block_entries(torch.device("cpu"))
    262144
    """
    return BLOCK_ENTRIES[device.type]


def choose_device(device: Any, n_rows: int) -> torch.device:
    """The device that the user asked for; ``"auto"`` is a GPU for :data:`LEAST_ON_GPU` rows.

    Examples
    --------
    >>> choose_device("auto", 100)
    device(type='cpu')
    """
    if isinstance(device, str) and device == "auto":
        large = n_rows >= LEAST_ON_GPU and torch.cuda.is_available()
        return torch.device("cuda" if large else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        raise InvalidInputError(
            f"device: expected 'auto', 'cpu' or 'cuda', found {device!r}"
        ) from None
    if chosen.type not in ("cpu", "cuda"):
        raise InvalidInputError(f"device: expected 'auto', 'cpu' or 'cuda', found {device!r}")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInputError("device: expected a CUDA device, found none; use device='cpu'")
    return chosen


def within_memory(device: torch.device, work: Callable[[torch.device], T]) -> T:
    """``work(device)``; out of GPU memory, again in smaller blocks, and then on the CPU.

    Smaller blocks give the same answers, more slowly.  They stay for the rest of the process, as
    the next call would run out of memory, too.
    """
    for _ in range(_SHRINKINGS if device.type == "cuda" else 0):
        try:
            return work(device)
        except torch.cuda.OutOfMemoryError:
            BLOCK_ENTRIES["cuda"] = max(2**16, BLOCK_ENTRIES["cuda"] // 8)
            logger.info(
                "out of GPU memory; going on with blocks of %d entries", block_entries(device)
            )
        torch.cuda.empty_cache()
    try:
        return work(device)
    except torch.cuda.OutOfMemoryError:
        if device.type != "cuda":
            raise
        warn(
            "out of GPU memory, even in small blocks: going on with the CPU, which is slower; use "
            "fewer rows or inducing=300",
            UserWarning,
        )
    torch.cuda.empty_cache()
    return work(torch.device("cpu"))
