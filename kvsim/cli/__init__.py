"""The command line: a trace and options in; a table, JSON or CSV out.

Modules that compile take most of a second to load, which ``kvsim --help`` or a misspelt
option should not cost: the commands import them.
"""

from kvsim.cli.app import main

__all__ = ["main"]
