"""What importing all public names of sharpgp takes beyond importing torch and BoTorch themselves.

    python benchmarks/import_time.py [--repeats 5]

Each import runs in a process of its own; processor time, the least of several attempts.
"""

import argparse
import subprocess
import sys

BEFORE = "import torch, botorch, botorch.models, botorch.optim, gpytorch"
MEASURED = {
    "torch and botorch": ("", BEFORE),
    # ``import sharpgp`` alone loads nothing yet: names are imported when they are asked for.
    "sharpgp after them": (BEFORE, "from sharpgp import *"),
    "the command sharpgp after that": (f"{BEFORE}\nfrom sharpgp import *", "import sharpgp.cli"),
}


def seconds(before: str, measured: str) -> float:
    code = f"{before}\nimport time\nstart = time.process_time()\n{measured}\n"
    code += "print(time.process_time() - start)"
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    return float(found.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    for name, parts in MEASURED.items():
        print(f"{name}: {min(seconds(*parts) for _ in range(repeats)):.2f} s")


if __name__ == "__main__":
    main()
