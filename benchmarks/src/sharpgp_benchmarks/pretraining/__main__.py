"""Train the prior-fitted network: ``python -m sharpgp_benchmarks.pretraining``.

With ``--seconds 600 --out DIR``, DIR gets a state, from which the same command goes on,
``curve.csv`` (seconds, steps, tables, losses), and ``released.safetensors``, weights to predict
with. ``benchmarks/checkpoint`` holds the state so far.
"""

import argparse
from pathlib import Path

from sharpgp_benchmarks.pretraining.training import train


def main() -> None:
    """Read the command line, and train."""
    parser = argparse.ArgumentParser(prog="python -m sharpgp_benchmarks.pretraining")
    parser.add_argument("--seconds", type=float, required=True, help="of this slice")
    parser.add_argument("--out", type=Path, required=True, help="folder of state and curve")
    parser.add_argument("--finish", type=float, default=0.0, help="share with shrinking steps")
    parser.add_argument("--long", action="store_true", help="tables of up to 4,096 rows")
    parser.add_argument("--workers", type=int, default=10, help="processes that draw from graphs")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=2**19, help="of a step")
    options = vars(parser.parse_args())
    train(options.pop("seconds"), options.pop("out"), **options)


if __name__ == "__main__":
    main()
