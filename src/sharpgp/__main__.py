"""The command ``sharpgp``, also as ``python -m sharpgp``."""

import sys


def main() -> None:
    """Run the command; ctrl-C is one line, also while the libraries are still being loaded."""
    try:
        from sharpgp.cli import app

        app(prog_name="sharpgp")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
