"""`python -m kvtrace` and the `kvtrace` command."""

from __future__ import annotations

import sys

from kvtrace.cli import run


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
