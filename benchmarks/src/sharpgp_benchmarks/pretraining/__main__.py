"""Train the prior-fitted network: ``python -m sharpgp_benchmarks.pretraining``.

With ``--seconds 1050 --out DIR``, DIR gets ``curve.csv`` (seconds, steps, tables, losses),
``prior_fitted.safetensors``, which is what ``sharpgp.models`` ships, and a checkpoint, from which
the same command goes on. In a folder with weights alone, training begins from these.
"""

import argparse
from pathlib import Path

from sharpgp_benchmarks.pretraining.training import train


def main() -> None:
    """Read the command line, and train."""
    parser = argparse.ArgumentParser(prog="python -m sharpgp_benchmarks.pretraining")
    parser.add_argument("--seconds", type=float, required=True, help="of training, in all")
    parser.add_argument("--out", type=Path, required=True, help="folder for curve and weights")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=2**19, help="of a step")
    options = parser.parse_args()
    train(options.seconds, options.out, device=options.device, tokens=options.tokens)


if __name__ == "__main__":
    main()
