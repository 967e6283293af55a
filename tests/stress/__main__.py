"""``python -m stress`` (with tests/ on the path) or ``make stress``: everything, with counts.

The time is bounded by ``--minutes``: data sets are generated until it is used up, after all else
has run. A failure prints the number from which the case can be drawn again.
"""

import argparse
import logging
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from stress import bad_input, data_sets, faults, files, threads

LEAST_DATA_SETS, LEAST_BAD_INPUTS = 1000, 300


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make stress", description=__doc__)
    parser.add_argument("--minutes", type=float, default=40.0, help="data sets stop after this")
    parser.add_argument("--data-sets", type=int, default=LEAST_DATA_SETS, help="at most this many")
    parser.add_argument("--first", type=int, default=0, help="number of the first data set")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--interruptions", type=int, default=24)
    parser.add_argument("--files", type=int, default=300, help="damaged files of each kind")
    parser.add_argument("--case", type=int, help="only this data set")
    given = parser.parse_args(arguments)
    logging.getLogger("sharpgp").setLevel(logging.ERROR)
    # A shell's background jobs ignore ctrl-C, and what they start inherits that: undo it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if given.case is not None:
        tally = data_sets.examine(given.case, given.seed)
        print(tally.name, *tally.problems, *tally.errors, sep="\n  ")
        return 1 if tally.problems else 0
    start = time.monotonic()
    problems: list[str] = []
    _bad_inputs(problems)
    _files(given.files, given.seed, problems)
    _faults(given, problems)
    _threads(problems)
    _data_sets(given, start, problems)
    for problem in problems:
        print(f"PROBLEM {problem}")
    print(f"problems: {len(problems)}, after {(time.monotonic() - start) / 60:.1f} minutes")
    return 1 if problems else 0


def _bad_inputs(problems: list[str]) -> None:
    judged = [bad_input.judge(case) for case in bad_input.cases()]
    found = [problem for _, problem in judged if problem]
    errors = sum(kind == "error" for kind, _ in judged)
    print(f"bad inputs: {len(judged)}, clean errors: {errors - len(found)}, "
          f"answered: {len(judged) - errors}, problems: {len(found)}", flush=True)  # fmt: skip
    problems += found
    if len(judged) < LEAST_BAD_INPUTS:
        problems.append(f"expected {LEAST_BAD_INPUTS} bad inputs, found {len(judged)}")


def _files(count: int, seed: int, problems: list[str]) -> None:
    for name in ("tables", "models", "results"):
        judged = [files.judge(step) for step in getattr(files, name)(count, seed)]
        found = [problem for _, problem in judged if problem]
        refused = sum(refused for refused, _ in judged)
        print(f"damaged {name}: {count} files read {len(judged)} times, refused: {refused}, "
              f"problems: {len(found)}", flush=True)  # fmt: skip
        problems += found


def _faults(given: argparse.Namespace, problems: list[str]) -> None:
    if given.kills:
        hit, found = faults.kills(given.kills, given.seed)
        print(f"kill -9 in one run: {hit}, problems: {len(found)}", flush=True)
        problems += found
    for name, made in (
        ("ctrl-C at random moments", faults.interruptions(given.interruptions, given.seed)),
        ("commands on a full disk", faults.full_disk()),
    ):
        outcomes = list(made)
        found = [problem for _, problem in outcomes if problem]
        print(f"{name}: {len(outcomes)}, problems: {len(found)}", flush=True)
        problems += found


def _threads(problems: list[str]) -> None:
    for name, fits, answers, problem in threads.changes():
        print(f"one thread or two, {name}: fits differ by {fits:.1e} standard deviations, "
              f"answers by {answers:.1e}", flush=True)  # fmt: skip
        problems += [problem] if problem else []


def _data_sets(given: argparse.Namespace, start: float, problems: list[str]) -> None:
    summary = data_sets.Summary()
    with ProcessPoolExecutor(given.workers) as pool:
        numbers = iter(range(given.first, given.first + given.data_sets))
        running = set()
        while True:
            in_time = (time.monotonic() - start) / 60 < given.minutes
            while in_time and len(running) < 2 * given.workers:
                number = next(numbers, None)
                if number is None:
                    break
                running.add(pool.submit(partial(data_sets.examine, seed=given.seed), number))
            if not running:
                break
            done = {future for future in running if future.done()}
            running -= done
            for future in done:
                summary.add(future.result())
            time.sleep(0.01)
    clean = sum(summary.errors.values())
    print(f"data sets: {summary.data_sets}, fits with all answers: {summary.fits}, "
          f"clean errors: {clean}, problems: {len(summary.problems)}")  # fmt: skip
    models = (f"{kind} {count}" for kind, count in summary.models.most_common())
    print("  models: " + ", ".join(models))
    for error, count in summary.errors.most_common(8):
        print(f"  clean error, {count} times: {error}")
    for name, share, promised, error, fine in summary.coverage():
        verdict = "" if fine else "  OUT OF RANGE"
        print(f"  coverage of {name}: {share:.3f}, promised {promised:.3f} +- {error:.3f}{verdict}")
        if not fine:
            problems.append(f"coverage of {name}: {share:.3f} where {promised:.3f} was promised")
    problems += summary.problems
    if summary.data_sets < min(given.data_sets, LEAST_DATA_SETS):
        problems.append(
            f"only {summary.data_sets} data sets within {given.minutes:g} minutes; give it more"
        )


if __name__ == "__main__":
    sys.exit(main())
