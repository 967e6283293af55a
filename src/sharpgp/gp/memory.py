"""How much one block of work may hold."""

import torch

#: Matrix entries in one block of rows: 32 MiB on a CPU, where larger ones leave the cache, and
#: 512 MiB on a GPU, where smaller ones leave it idle.
BLOCK_ENTRIES = {"cpu": 2**22, "cuda": 2**26}


def block_entries(device: torch.device) -> int:
    """Entries that one block of rows may hold on a device.

    Examples
    --------
    >>> block_entries(torch.device("cpu"))
    4194304
    """
    return BLOCK_ENTRIES[device.type]
