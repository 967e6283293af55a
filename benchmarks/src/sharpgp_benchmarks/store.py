"""Result files: one per task, written whole or not at all, and checked when read."""

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sharpgp._files import make_folder
from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp_benchmarks.task import SCHEMA, Result, Task, canonical_json

logger = logging.getLogger("sharpgp")

#: Marks a folder of results; a worker on another machine that does not see it leaves writing to
#: the process that started the run.
MARKER = "results.format"
_STALE = 3600.0


class Store:
    """A folder with one JSON file per finished task, named by the task's key.

    Parameters
    ----------
    folder : path
        Made on the first use of :meth:`prepare`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder).prepare()
    ...     task = Task("rehearsal", "none", "draw", 0)
    ...     store.write(Result(task, "ok", {"width_95": 1.5}))
    ...     store.read(task).metrics
    {'width_95': 1.5}
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def prepare(self) -> "Store":
        """Make the folder, check that it can be written to, and clear away old temporary files."""
        make_folder(self.folder)
        if not self.present:
            self._replace(MARKER, f"sharpgp results, schema {SCHEMA}\n")
        for left in self.folder.glob(".*.tmp"):
            if time.time() - left.stat().st_mtime > _STALE:
                left.unlink(missing_ok=True)
        return self

    @property
    def present(self) -> bool:
        """Whether this machine sees the folder of the run."""
        return (self.folder / MARKER).is_file()

    def write(self, result: Result) -> None:
        """Write a result so that it appears whole or not at all, whenever the process dies."""
        entries = {"schema": SCHEMA, **vars(result), "task": result.task.entries()}
        text = json.dumps({**entries, "checksum": _checksum(entries)}, indent=1, sort_keys=True)
        self._replace(f"{result.task.key}.json", text + "\n")

    def read(self, task: Task) -> Result | None:
        """Result of a task; None if there is none, or if its file is damaged (with a warning)."""
        return self._read(self.folder / f"{task.key}.json")

    def results(self) -> Iterator[Result]:
        """All readable results, in the order of their files' names."""
        if not self.folder.is_dir():
            raise InvalidInputError(f"results: expected a folder, found {self.folder}")
        old = 0
        for file in sorted(self.folder.glob("*.json")):
            try:
                result = self._read(file)
            except _AnotherSchemaError:
                old += 1
                continue
            if result is not None:
                yield result
        if old:
            logger.warning(
                "%s: %d results of another version, which do not compare with those of this one, "
                "are left out; the command that made them computes them again",
                self.folder,
                old,
            )

    def _read(self, file: Path) -> Result | None:
        try:
            entries = json.loads(file.read_bytes())
            checksum = entries.pop("checksum")
            schema = entries.pop("schema")
            if checksum != _checksum({"schema": schema, **entries}):
                raise ValueError("wrong checksum")
            if schema != SCHEMA:
                raise _AnotherSchemaError
            result = Result(**{**entries, "task": Task(**entries["task"])})
            if result.task.key != file.stem:
                raise ValueError("another task's result")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) or type(error).__name__
            logger.warning("%s: damaged result, to be computed again (%s)", file, reason)
            return None
        return result

    def _replace(self, name: str, text: str) -> None:
        temporary = self.folder / f".{name}.{uuid.uuid4().hex}.tmp"
        try:
            with temporary.open("x", encoding="utf-8") as file:
                # No fsync, which a busy disk makes dearer than a short task: a killed process loses
                # nothing, and what a power cut damages is found by its checksum.
                file.write(text)
            temporary.replace(self.folder / name)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise SharpGPError(
                f"out: expected to write {self.folder / name}, found: {error.strerror}"
            ) from error
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


class _AnotherSchemaError(Exception):
    """A sound result that an earlier or a later version wrote."""


def _checksum(entries: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(entries).encode()).hexdigest()
