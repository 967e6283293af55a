"""The command line that all comparisons share."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from comparison.methods import METHODS
from comparison.results import Load, run
from comparison.tables import summarise


def comma_separated(text: str) -> list[str]:
    """The parts of a list on the command line."""
    return text.split(",")


def main(description: str, names: Sequence[str], load: Load) -> None:
    """Run what is missing on the sets ``names``, then print the tables."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", type=comma_separated, default=list(names))
    parser.add_argument("--methods", type=comma_separated, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--most", type=int, default=2000, help="most training rows")
    parser.add_argument("--data-home", default=None, help="or environment variable SHARPGP_DATA")
    parser.add_argument("--device", default="cpu", help="for the GPs of sharpgp and BoTorch")
    parser.add_argument("--jobs", type=int, default=1, help="splits at a time, a process each")
    parser.add_argument("--table", action="store_true", help="only print what the file holds")
    parser.add_argument("--brief", action="store_true", help="one line per data set, no tables")
    parser.add_argument("--out", type=Path, default=Path("results.csv"))
    arguments = parser.parse_args()
    if unknown := set(arguments.methods) - set(METHODS):
        parser.error(f"unknown methods {sorted(unknown)}; known: {', '.join(METHODS)}")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    status = 0
    try:
        if not arguments.table:
            run(arguments, load)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        status = 130
    summarise(arguments)
    sys.exit(status)
