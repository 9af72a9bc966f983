"""Export of a network from its Python source, by the user's own PyTorch in another process."""

from __future__ import annotations

import filecmp
import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from devices.claims.scratch import ScratchDirectory
from networks.exported.errors import ExportError

_SOURCE = re.compile(r"(?P<path>.+\.py):(?P<function>[A-Za-z_]\w*)")
_NO_TORCH = 3
_LONGEST_REASON = 500
_SEED = 0

# Runs in the user's interpreter, so that it uses nothing of this project. Seeds are the same for
# each export, and places in the source are relative, so that the same source gives the same bytes.
_PROGRAM = f"""
import importlib.util, os, pathlib, random, sys
source, function, target = sys.argv[1:]
try:
    import torch
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit({_NO_TORCH})
random.seed({_SEED})
torch.manual_seed({_SEED})
try:
    import numpy
except ImportError:
    pass
else:
    numpy.random.seed({_SEED})
path = pathlib.Path(source).resolve()
sys.path.insert(0, str(path.parent))
spec = importlib.util.spec_from_file_location(path.stem, path)
loaded = importlib.util.module_from_spec(spec)
sys.modules[path.stem] = loaded
spec.loader.exec_module(loaded)
module, inputs = getattr(loaded, function)()
inputs = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
program = torch.export.export(module.train(), inputs, strict=False)
for part in program.graph_module.modules():
    for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
        if node.meta.get("stack_trace"):
            trace = node.meta["stack_trace"].replace(str(path.parent) + os.sep, "")
            node.meta["stack_trace"] = trace
torch.export.save(program, target)
"""


def source_file(word: str) -> str | None:
    """The Python file that ``net.py:build`` names; None for words of another form."""
    found = _SOURCE.fullmatch(word)
    return None if found is None else found["path"]


def exported(word: str, folder: Path) -> str:
    """Export the network that ``net.py:build`` names; other words name networks already.

    The same source gives the same bytes, wherever it lies: random numbers begin with fixed seeds. A
    file that has them already stays, since a campaign may be using it.

    Args:
        word: Name of a network, path of a file, or path of a Python file and the name of a
            function in it that returns a module and its example inputs.
        folder: Directory of exported files.

    Returns:
        ``word``, or the path of the file that was written.

    Raises:
        ExportError: The source is missing or fails, or no PyTorch is installed.
    """
    found = _SOURCE.fullmatch(word)
    if found is None:
        return word
    source, function = Path(found["path"]), found["function"]
    if not source.is_file():
        raise ExportError(f"{source}: there is no such file; {word} is FILE.py:FUNCTION")
    target = folder / _place(source) / f"{source.stem}.{function}.pt2"
    target.parent.mkdir(parents=True, exist_ok=True)
    with ScratchDirectory(target.parent, ".export-") as scratch:
        fresh = scratch.path / target.name
        _run(word, [_interpreter(), "-c", _PROGRAM, str(source), function, str(fresh)])
        if not (target.is_file() and filecmp.cmp(fresh, target, shallow=False)):
            fresh.replace(target)
    return str(target)


def _place(source: Path) -> str:
    """Name of a directory for the exports of this file: another file of the same name has another
    directory."""
    return hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:8]


def _interpreter() -> str:
    """This interpreter if it has PyTorch, else the first Python on the path."""
    if find_spec("torch") is not None:
        return sys.executable
    return shutil.which("python3") or shutil.which("python") or sys.executable


def _run(word: str, command: list[str]) -> None:
    seeded = {**os.environ, "PYTHONHASHSEED": str(_SEED)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=seeded)
    if done.returncode == _NO_TORCH:
        raise ExportError(
            f"{word}: {command[0]} has no PyTorch, which exports the network; activate the"
            " environment that has it, or export elsewhere with torch.export.save and name the"
            " file *.pt2"
        )
    if done.returncode:
        raise ExportError(f"{word}: the export failed: {_reason(done.stderr)}")


def _reason(errors: str) -> str:
    """Last line of a traceback, with the last place in it that is outside PyTorch."""
    lines = [line for line in errors.splitlines() if line.strip()] or ["no reason was printed"]
    frames = re.findall(r'^  File "([^"<]+)", line (\d+)', errors, re.MULTILINE)
    own = [(file, line) for file, line in frames if "site-packages" not in file]
    at = f" (at {Path(own[-1][0]).name}:{own[-1][1]})" if own else ""
    return lines[-1][:_LONGEST_REASON] + at
