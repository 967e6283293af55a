"""What a fit has computed so far, in a folder, so that it goes on after an interruption.

Every file is whole: it appears under its name when all of it is written.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from sharpgp import _progress as progress
from sharpgp import persistence
from sharpgp._files import make_folder, replacing
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular.streamed.rows import Unit
from sharpgp.tabular.streamed.sums import Sums, merged

_ABOUT = "fit.json"
#: Seconds between two saves of sums that are not complete.
SAVE_EVERY = 10.0


class Work:
    """A folder of finished parts of a fit, by name.

    Parameters
    ----------
    folder : path
        Made unless it is there.
    about : mapping
        What the parts depend on, as JSON: files and settings.  A folder that was begun with
        anything else is refused.
    device : torch device
        Where parts are used.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], device: torch.device) -> None:
        self.folder, self.device = folder, device
        make_folder(folder)
        given = json.loads(json.dumps(about))
        path = folder / _ABOUT
        if path.exists():
            _check_same(folder, json.loads(path.read_text(encoding="utf-8")), given)
        elif any(not other.name.startswith(".") for other in folder.iterdir()):
            raise InvalidInputError(
                f"work: expected an empty folder or that of an interrupted fit, found {folder} "
                "with other files"
            )
        else:
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(given, indent=1), encoding="utf-8")

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What ``make()`` gave, now or before the interruption.

        It is read back in either case: what follows must not depend on which.
        """
        path = self._path(name)
        if not path.exists():
            persistence.save(make(), path)
        return persistence.load(path, device=self.device)

    def total(
        self,
        name: str,
        units: Sequence[Unit],
        answers: Callable[[Sequence[Unit]], Iterator[Sums]],
    ) -> Sums:
        """Sums over all units, in their order; every few seconds what there is is saved.

        ``answers`` gives the sums of each of the units that are left.
        """
        return dict(self.once(name, lambda: self._added(name, units, answers)))

    def _added(
        self,
        name: str,
        units: Sequence[Unit],
        answers: Callable[[Sequence[Unit]], Iterator[Sums]],
    ) -> Sums:
        done, total = 0, None
        part = self._path(f"{name}-part")
        if part.exists():
            state = persistence.load(part, device=self.device)
            done, total = state["done"], state["total"]
        for _ in range(done):
            progress.advance()
        saved = time.monotonic()
        for sums in answers(units[done:]):
            total, done = merged(total, sums), done + 1
            progress.advance()
            if time.monotonic() - saved >= SAVE_EVERY and done < len(units):
                persistence.save({"done": done, "total": total}, part)
                saved = time.monotonic()
        assert total is not None
        return total

    def drop(self, *names: str) -> None:
        """Remove parts that are not needed any more."""
        for name in names:
            self._path(name).unlink(missing_ok=True)
            self._path(f"{name}-part").unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.sgp"


def _check_same(folder: Path, began: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    for key in sorted({*began, *given}):
        if began.get(key) != given.get(key):
            raise InvalidInputError(
                f"work: expected {key} as when the fit in {folder} began, "
                f"{_short(began.get(key))}, found {_short(given.get(key))}; remove the folder to "
                "start over"
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."
