"""The command ``sharpgp``, also as ``python -m sharpgp``."""

import signal
import sys
import threading
from types import FrameType

# How long after a ctrl-C to look again whether a library is still loading, in seconds.
_PATIENCE = 0.05


def main() -> None:
    """Run the command; ctrl-C is one line, also while libraries load or Python closes down."""
    try:
        wait_for_imports()
        from sharpgp.cli import app

        app(prog_name="sharpgp")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    finally:
        _stop_listening()


def wait_for_imports() -> None:
    """Let ctrl-C interrupt whatever runs but the loading of a library, which it waits for.

    An exception in there would pass through C++ code that does not expect one, and the process
    would end by a signal, with a message of its own.
    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    main_thread = threading.current_thread() is threading.main_thread()
    if usual and main_thread and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGINT, _interrupt)
        signal.signal(signal.SIGALRM, _interrupt_again)


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _interrupt_again(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)  # which may be blocked, or answered otherwise, by now


def _stop_listening() -> None:
    """The command is done: a ctrl-C while Python closes down would only hide how it ended."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


if __name__ == "__main__":
    main()
