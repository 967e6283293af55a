"""Saved models: 200 random ones come back bit for bit; 2,000 damaged files do no harm.

    PYTHONPATH=tests python -m stress.persistence [--models 200] [--files 2000]

Half of the files are damaged at random (bits, blocks, truncations, lengths); in the other half one
value is changed and the checksum made right again, as an attacker would.  Each must load or give a
SharpGPError within ten seconds; one that loads must also predict, or give a SharpGPError.
"""

import argparse
import signal
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from random_models import answers, damaged, forged, random_model
from sharpgp import SharpGPError, SharpGPRegressor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--files", type=int, default=2000)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        contents = round_trips(args.models, Path(folder) / "model.sgp")
        for name, change in (("damaged at random", damaged), ("forged", forged)):
            faults(name, change, args.files // 2, contents, Path(folder) / "damaged.sgp")


def round_trips(count: int, path: Path) -> list[tuple[bytes, object]]:
    kinds: Counter[str] = Counter()
    contents = []
    spent = [0.0, 0.0]
    for seed in range(count):
        model, X = random_model(seed)
        start = time.perf_counter()
        model.save(path)
        spent[0] += time.perf_counter() - start
        start = time.perf_counter()
        again = SharpGPRegressor.load(path)
        spent[1] += time.perf_counter() - start
        for ours, theirs in zip(answers(model, X), answers(again, X), strict=True):
            assert np.array_equal(ours, theirs), f"model {seed} differs"
        kinds[type(model.calibrated_).__name__] += 1
        contents.append((path.read_bytes(), X))
    print(f"{count} random models came back bit for bit: {dict(sorted(kinds.items()))}")
    print(f"  {1e3 * spent[0] / count:.1f} ms to save, {1e3 * spent[1] / count:.1f} ms to load")
    return contents


def faults(name, change, count, contents, path) -> None:
    rng = np.random.default_rng(0)
    outcomes: Counter[str] = Counter()
    longest = 0.0
    for i in range(count):
        data, X = contents[i % len(contents)]
        path.write_bytes(change(data, rng))
        signal.alarm(10)  # a file that hangs ends this script
        start = time.perf_counter()
        try:
            model = SharpGPRegressor.load(path)
        except SharpGPError as error:
            assert "\n" not in str(error)  # noqa: PT017
            outcomes["refused"] += 1
            continue
        finally:
            longest = max(longest, time.perf_counter() - start)
            signal.alarm(0)
        try:
            finite = all(np.isfinite(answer).all() for answer in answers(model, X))
            outcomes["loaded, predicts" if finite else "loaded, predicts NaN or inf"] += 1
        except SharpGPError:
            outcomes["loaded, predicting gives an error"] += 1
    print(f"{count} files {name}: {dict(sorted(outcomes.items()))}; longest {longest:.2f} s")


if __name__ == "__main__":
    main()
