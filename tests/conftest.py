"""Fixtures of several test modules, and a check that unmarked tests boot no emulated board.

Every process that runs tests has its own locks on ports and boards: tests measure this computer in
several processes at once. What a killed run leaves is removed by the next one.
"""

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir

import pytest
import yaml
from hypothesis import settings

from devices.claims.scratch import ScratchDirectory
from devices.description import CATALOG
from devices.user_cache import user_cache
from tests.support.boards.unmarked import NoEmulators
from tests.support.compiling import share_compiled

pytest_plugins = [
    "tests.support.boards.emulated",
    "tests.support.boards.measuring",
    "tests.support.boards.sshd",
]

# No deadline: examples are slow on a busy machine. pytest's own time limit ends a test that hangs.
settings.register_profile("patient", settings.default, deadline=None)
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    # Whoever starts the tests in the background, or with nohup, has these ignored; processes of the
    # tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    share_compiled(config)
    no_emulators = scratch(config, Path(gettempdir()), "no-emulators")
    config.pluginmanager.register(NoEmulators(no_emulators))
    # Whoever makes a scratch directory locks the directory around it, which must be no other one.
    locks = scratch(config, Path(gettempdir()), "locks") / "tmp"
    locks.mkdir()
    # Another session may use this computer as a board meanwhile, so this one has its own locks and
    # claims. The user of an SSH server reads files below TMPDIR.
    os.environ["XDG_RUNTIME_DIR"] = os.environ["TMPDIR"] = str(locks)
    for directory in (locks.parent, locks):
        directory.chmod(0o755)
    # The storage of this computer is a file below its home, for one program at a time. What was
    # compiled stays where it is.
    caches = user_cache().parent
    os.environ["XDG_CACHE_HOME"] = str(caches)
    os.environ["HOME"] = str(scratch(config, caches, "home"))


def scratch(config: pytest.Config, parent: Path, name: str) -> Path:
    """A new directory for this process of the run."""
    made = ScratchDirectory(parent, f"jw-test-{name}-")
    config.add_cleanup(made.remove)
    return made.path


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what is collected out of garbage collection, which would visit it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _small_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Describe this computer, ``local`` in the catalogue, with a small cache."""
    from tests.support.boards.measuring import PROCESSOR

    directory = tmp_path_factory.mktemp("catalogue") / "catalog"
    shutil.copytree(CATALOG, directory)
    with (directory / "local.yaml").open("a") as local:
        local.write(yaml.safe_dump({"processor": PROCESSOR}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("devices.description.CATALOG", directory)
        yield


@pytest.fixture
def _kept_engines() -> Iterator[None]:
    """Keep idle engines: to start one takes far longer than a search in a small graph."""
    from solver.engines.processes import kept_processes

    with kept_processes():
        yield
