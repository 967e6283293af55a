"""Files that appear whole or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sharpgp.exceptions import SharpGPError


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
            f"expected to write {target}, found: {error.strerror or error}; "
            "a file that was there before is unchanged"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
