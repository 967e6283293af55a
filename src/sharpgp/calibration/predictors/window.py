"""New calibration points added to earlier ones, in a window that forgets the oldest."""

import torch
from torch import Tensor

from sharpgp.rows import Rows


def last_rows(old: Tensor, new: Tensor, keep: int | None) -> Tensor:
    """Old rows followed by new ones; only the last ``keep``, if given.

    Examples
    --------
    >>> last_rows(torch.tensor([1, 2, 3]), torch.tensor([4]), 2).tolist()
    [3, 4]
    """
    both = torch.cat([old, new])
    return both if keep is None else both[-keep:]


def last_of_rows(old: Rows, new: Rows, keep: int | None) -> Rows:
    """The same for rows with their roles."""
    both = Rows.join(old, new)
    return both if keep is None else both[-keep:]


def with_new_groups(groups: Tensor | None, n_new: int, keep: int | None) -> Tensor | None:
    """Groups [C] with those of new points, each a group of its own; None without groups.

    Examples
    --------
    >>> with_new_groups(torch.tensor([0, 0, 1]), 2, None).tolist()
    [0, 0, 1, 2, 3]
    """
    if groups is None:
        return None
    new = torch.arange(n_new, device=groups.device) + int(groups.max()) + 1
    return last_rows(groups, new, keep)
