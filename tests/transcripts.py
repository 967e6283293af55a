"""Pages whose outputs come from a real run.

In such a page a ``python`` block is followed by a ``text`` block with what it prints, and a
``console`` block holds commands after ``$`` with what they print. All blocks of a page run in
order, in one folder and one namespace. ``python tests/transcripts.py PAGE`` writes the outputs of
a fresh run into the page, and ``python tests/transcripts.py --notebook PAGE NOTEBOOK`` makes a
notebook of it.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^```(python|console)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def replay(page: str, folder: Path) -> str:
    """The page with the outputs of a run in ``folder``."""
    scope = {"__name__": "__main__"}
    before = Path.cwd()
    os.chdir(folder)
    try:
        return BLOCK.sub(lambda match: _run(match, scope), page)
    finally:
        os.chdir(before)


def _run(match: re.Match, scope: dict) -> str:
    kind, code, shown = match.groups()
    if kind == "console":
        commands = [line[2:] for line in code.splitlines() if line.startswith("$ ")]
        return "```console\n" + "".join(f"$ {c}\n{_shell(c)}" for c in commands) + "```\n"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "page", "exec"), scope)
    if not printed.getvalue():
        assert shown is None, f"nothing was printed by\n{code}"
        return f"```python\n{code}```\n"
    return f"```python\n{code}```\n\n```text\n{_tidy(printed.getvalue())}```\n"


def _shell(command: str) -> str:
    bin_folder = str(Path(sys.executable).parent)
    env = os.environ | {
        "PATH": os.pathsep.join([bin_folder, os.environ["PATH"]]),
        "COLUMNS": "90",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, env=env, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return _tidy(done.stdout)


def _tidy(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip("\n").splitlines())


def differences(page: str, again: str) -> list[str]:
    """Lines that differ by more than the rounding of another machine."""
    old, new = page.splitlines(), again.splitlines()
    if len(old) != len(new):
        return [f"{len(old)} lines became {len(new)}"]
    return [f"- {a}\n+ {b}" for a, b in zip(old, new, strict=True) if not _alike(a, b)]


def _alike(a: str, b: str) -> bool:
    if a == b:
        return True
    if " ".join(NUMBER.sub("#", a).split()) != " ".join(NUMBER.sub("#", b).split()):
        return False
    pairs = zip(map(float, NUMBER.findall(a)), map(float, NUMBER.findall(b)), strict=True)
    return all(abs(x - y) <= 0.05 * max(abs(x), abs(y)) + 0.011 for x, y in pairs)


def as_notebook(page: str) -> dict:
    """A page as a notebook: text between blocks, ``python`` blocks as code, commands as ``!``.

    What blocks print is left out, as the notebook prints it itself; so are links to other pages.
    """
    cells: list[dict] = []
    for part in re.split(r"(^```\w+\n.*?^```\n)", page, flags=re.M | re.S):
        block = re.fullmatch(r"```(\w+)\n(.*?)```\n", part, re.S)
        kind, text = block.groups() if block else ("", part.strip())
        if kind == "console":
            lines = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
            kind, text = "python", "\n".join(f"!{line}" for line in lines)
        if kind == "sh":
            kind, text = "python", '%pip install -q "sharpgp[cli,plots]"'
        if kind == "text" or not text:
            continue
        text = text if kind else re.sub(r"\[([^]]+)\]\((?!http)[^)]*\)", r"\1", text)
        cells.append(_cell(text.rstrip("\n"), is_code=bool(kind), number=len(cells)))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _cell(text: str, *, is_code: bool, number: int) -> dict:
    cell = {
        "cell_type": "code" if is_code else "markdown",
        "id": f"cell-{number}",
        "metadata": {},
        "source": text.splitlines(keepends=True),
    }
    return cell | {"execution_count": None, "outputs": []} if is_code else cell


def notebook_text(page: Path) -> str:
    """The file of a notebook."""
    return json.dumps(as_notebook(page.read_text(encoding="utf-8")), indent=1) + "\n"


if __name__ == "__main__":
    if sys.argv[1] == "--notebook":
        Path(sys.argv[3]).write_text(notebook_text(Path(sys.argv[2])), encoding="utf-8")
        sys.exit()
    for name in sys.argv[1:]:
        path = Path(name)
        with tempfile.TemporaryDirectory() as folder:
            path.write_text(
                replay(path.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8"
            )
