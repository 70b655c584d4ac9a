"""The command line: one file a verb; it can do nothing that `kvtrace.api` cannot."""

from kvtrace.cli.app import run

__all__ = ["run"]
