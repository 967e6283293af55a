"""The command ``sharpgp``, also as ``python -m sharpgp``."""

import sys

from sharpgp._extras import need
from sharpgp.exceptions import MissingExtraError


def main() -> None:
    """Run the command."""
    try:
        need("cli", "typer", "rich")
        from sharpgp.cli import app

        app(prog_name="sharpgp")
    except MissingExtraError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:  # while libraries load
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
