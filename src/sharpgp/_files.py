"""Files that appear whole or not at all, and folders to write to."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sharpgp.exceptions import InvalidInputError, SharpGPError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name beside ``path``, moved to ``path`` if all goes well and removed if not.

    Whatever happens in between (a full disk, ctrl-C, a killed process), a file that was at
    ``path`` before stays as it was.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(f"{folder}/a.txt") as temporary:
    ...         _ = temporary.write_text("all of it")
    ...     sorted(os.listdir(folder))
    ['a.txt']
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise SharpGPError(
            f"cannot write {target}: {error.strerror or error}; an existing file is unchanged"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder if missing; raise if it cannot be written to."""
    reason = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror
    if reason or not os.access(folder, os.W_OK):
        raise InvalidInputError(
            f"out: expected a folder to write to, found {folder} ({reason or 'not writable'})"
        )
