"""Parts of a command: options, their typed value, and the function that runs it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from commands.console import Console

Options = TypeVar("Options")


@dataclass(frozen=True)
class Call:
    """A command with its options.

    ``run`` returns the exit code. ``resumes``: after an interruption, the same command continues
    from the finished parts.
    """

    run: Callable[[Console], int]
    json_output: bool
    resumes: bool


@dataclass(frozen=True)
class Command(Generic[Options]):
    """One command: its options, their typed value, and the function that runs it.

    ``options_of`` turns the parsed command line into one typed value, and raises
    :class:`argparse.ArgumentError` or :class:`~devices.errors.InputError` for options that exclude
    each other. ``run`` imports its modules when it is called.
    """

    add_options: Callable[[ArgumentParser], None]
    options_of: Callable[[Namespace], Options]
    run: Callable[[Options, Console], int]
    resumes: Callable[[Options], bool] = lambda _options: False

    def call(self, namespace: Namespace) -> Call:
        """Bind the parsed options to the command; raises what ``options_of`` raises."""
        options = self.options_of(namespace)
        return Call(partial(self.run, options), namespace.json, self.resumes(options))
