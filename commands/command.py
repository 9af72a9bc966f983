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
    """A command with its options. ``run`` returns the exit code; ``resumes`` says whether the same
    command goes on with what an interrupted one has finished."""

    run: Callable[[Console], int]
    json_output: bool
    resumes: bool


@dataclass(frozen=True)
class Command(Generic[Options]):
    """``options_of`` makes one typed value of what was read from the command line, and raises
    :class:`argparse.ArgumentError` or :class:`~devices.errors.InputError` for options that exclude
    each other. ``run`` imports what it needs when it is called."""

    add_options: Callable[[ArgumentParser], None]
    options_of: Callable[[Namespace], Options]
    run: Callable[[Options, Console], int]
    resumes: Callable[[Options], bool] = lambda _options: False

    def call(self, namespace: Namespace) -> Call:
        """Raises what ``options_of`` raises."""
        options = self.options_of(namespace)
        return Call(partial(self.run, options), namespace.json, self.resumes(options))
