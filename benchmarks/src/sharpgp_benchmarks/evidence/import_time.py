"""What importing all public names of sharpgp takes beyond importing torch and BoTorch themselves.

Each import runs in a process of its own; processor time, the least of several attempts.
"""

import subprocess
import sys

BEFORE = "import torch, botorch, botorch.models, botorch.optim, gpytorch"
MEASURED = {
    "torch and botorch": ("", BEFORE),
    # ``import sharpgp`` alone loads nothing yet: names are imported when they are asked for.
    "sharpgp after them": (BEFORE, "from sharpgp import *"),
    "the command sharpgp after that": (f"{BEFORE}\nfrom sharpgp import *", "import sharpgp.cli"),
}


def main(repeats: int = 5) -> None:
    """Print a line for each."""
    for name, parts in MEASURED.items():
        print(f"{name}: {min(processor_seconds(*parts) for _ in range(repeats)):.2f} s")


def processor_seconds(before: str, measured: str) -> float:
    """Processor seconds of ``measured`` after ``before``, in a new process."""
    code = f"{before}\nimport time\nstart = time.process_time()\n{measured}\n"
    code += "print(time.process_time() - start)"
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    return float(found.stdout)
