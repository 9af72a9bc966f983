"""The image of the emulated Linux board: packages, kernel modules, the archive, and their cache.

Nothing is booted here.
"""

from __future__ import annotations

import hashlib
import lzma
import multiprocessing
import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.description import load_description
from devices.errors import BuildFailed
from devices.firmware import EmulatedNand, EmulatedSensor, Emulator
from profiler.lab import cpio
from profiler.lab.cache import BuildCache, digest
from profiler.lab.image import kernel_words
from profiler.lab.modules import Kernel, dependencies
from profiler.lab.packages import (
    kernel_packages,
    open_apt,
    package_file,
    package_members,
    sources_text,
    unpack,
)
from tests.support.progress import ignore

# --- the archive ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unpacked:
    mode: int
    data: bytes
    device: tuple[int, int]


def read_archive(data: bytes) -> Iterator[tuple[str, Unpacked]]:
    """Entries of an archive, read as the kernel's ``buffer-format.rst`` specifies."""
    offset = 0
    while True:
        assert offset % 4 == 0
        assert data[offset : offset + 6] == b"070701"
        numbers = [int(data[offset + 6 + 8 * i : offset + 14 + 8 * i], 16) for i in range(13)]
        _, mode, _, _, _, _, size, _, _, major, minor, name_size, _ = numbers
        offset += 110
        name = data[offset : offset + name_size]
        assert name.endswith(b"\0")
        offset += name_size
        offset += -offset % 4
        content = data[offset : offset + size]
        assert len(content) == size
        offset += size
        offset += -offset % 4
        if name == b"TRAILER!!!\0":
            assert offset == len(data)
            return
        yield name[:-1].decode(), Unpacked(mode, content, (major, minor))


NAMES = st.lists(st.text("abcö-.", min_size=1, max_size=5), min_size=1, max_size=3).map("/".join)
ENTRIES = st.one_of(
    st.builds(cpio.file, st.binary(max_size=20), st.sampled_from([0o644, 0o755, 0o600])),
    st.builds(cpio.link, st.text("abc/", min_size=1, max_size=9)),
    st.builds(cpio.character_device, st.integers(0, 255), st.integers(0, 255), st.just(0o600)),
)


@given(st.dictionaries(NAMES, ENTRIES, max_size=8))
def test_an_archive_holds_its_entries(entries: dict[str, cpio.Entry]) -> None:
    unpacked = list(read_archive(cpio.archive(entries)))
    assert len(dict(unpacked)) == len(unpacked)
    for path, entry in entries.items():
        assert dict(unpacked)[path] == Unpacked(entry.mode, entry.data, entry.device)


@given(st.dictionaries(NAMES, ENTRIES, max_size=8))
def test_directories_precede_their_contents(entries: dict[str, cpio.Entry]) -> None:
    seen = {""}
    for path, _ in read_archive(cpio.archive(entries)):
        assert path.rpartition("/")[0] in seen
        seen.add(path)


def test_an_explicit_directory_keeps_its_permissions() -> None:
    entries = {"root/.ssh/authorized_keys": cpio.file(b"key", 0o600), "root": cpio.directory(0o700)}
    unpacked = dict(read_archive(cpio.archive(entries)))
    assert unpacked["root"].mode == stat.S_IFDIR | 0o700
    assert unpacked["root/.ssh"].mode == stat.S_IFDIR | 0o755


# --- kernel modules -------------------------------------------------------------------------------


def write_modules(directory: Path, needs: dict[str, str]) -> dict[str, Path]:
    """Write module files with the section that names their dependencies."""
    paths = {}
    for name, needed in needs.items():
        data = b"\x7fELF license=GPL\0depends=" + needed.encode() + b"\0retpoline=Y\0"
        compressed = name.endswith("xz")
        path = directory / (f"{name}.ko.xz" if compressed else f"{name}.ko")
        path.write_bytes(lzma.compress(data) if compressed else data)
        paths[name.replace("-", "_")] = path
    return paths


def test_modules_come_after_their_dependencies(tmp_path: Path) -> None:
    modules = write_modules(
        tmp_path, {"flash": "core,bits", "core": "bits,built-in", "bits": "", "other": "flash"}
    )
    assert dependencies("flash", modules) == ["bits", "core"]
    assert dependencies("other", modules) == ["bits", "core", "flash"]
    assert dependencies("bits", modules) == []


def test_compressed_modules_and_dashes_are_understood(tmp_path: Path) -> None:
    modules = write_modules(tmp_path, {"i2c-stub-xz": "i2c-core-xz", "i2c-core-xz": ""})
    assert dependencies("i2c_stub_xz", modules) == ["i2c_core_xz"]


def test_a_missing_kernel_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="has no module nandsim"):
        dependencies("nandsim", write_modules(tmp_path, {"mtd": ""}))


def test_modules_dep_lists_dependencies_in_reverse_order_of_loading(tmp_path: Path) -> None:
    modules = write_modules(tmp_path, {"flash": "core,bits", "core": "bits", "bits": ""})
    kernel = Kernel("6.1", tmp_path / "Image", modules)
    assert kernel.modules_dep().splitlines() == [
        "bits.ko:",
        "core.ko: bits.ko",
        "flash.ko: core.ko bits.ko",
    ]


# --- Debian's packages ----------------------------------------------------------------------------

RELEASE = "6.1.0-9"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small real repository on disk, as the only source of this computer's apt."""
    directory = tmp_path / "repository"
    directory.mkdir()
    _publish(directory, tmp_path / "tree", "6.1.20-1")
    etc = tmp_path / "etc"
    (etc / "parts").mkdir(parents=True)
    (etc / "list").write_text(f"deb [trusted=yes] file:{directory} ./\n")
    (etc / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{etc}/list"; Dir::Etc::sourceparts "{etc}/parts";'
    )
    monkeypatch.setenv("APT_CONFIG", str(etc / "apt.conf"))
    return directory


def _own_architecture() -> str:
    command = ["dpkg", "--print-architecture"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _publish(directory: Path, tree: Path, version: str, *without: str) -> None:
    """Add a version of all packages, but for some, to the repository."""
    packages = [
        ("linux-image-arm64", "arm64", f"linux-image-{RELEASE}-arm64 (= {version})"),
        (f"linux-image-{RELEASE}-arm64", "arm64", ""),
        (
            f"linux-headers-{RELEASE}-arm64",
            "arm64",
            f"linux-headers-{RELEASE}-common (= {version}), linux-kbuild-6.1, gcc-12",
        ),
        (f"linux-headers-{RELEASE}-common", "all", ""),
        ("linux-kbuild-6.1", _own_architecture(), ""),
        ("linux-source-6.1", "all", ""),
        ("shell", "arm64", "library"),
        ("library", "arm64", ""),
    ]
    records = [
        _add_package(directory, tree / version, name, architecture, version, depends)
        for name, architecture, depends in packages
        if name not in without
    ]
    with (directory / "Packages").open("a") as index:
        index.write("".join(f"{record}\n" for record in records))


def _add_package(
    repository: Path, tree: Path, name: str, architecture: str, version: str, depends: str
) -> str:
    """Build a package and return its record for the index."""
    (tree / name / "DEBIAN").mkdir(parents=True)
    fields = f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n"
    fields += "Maintainer: Test <test@example.org>\nDescription: test\n"
    fields += f"Depends: {depends}\n" if depends else ""
    (tree / name / "DEBIAN" / "control").write_text(fields)
    (tree / name / "usr" / "bin").mkdir(parents=True)
    (tree / name / "usr" / "bin" / name).write_text(f"I am {name}")
    file = f"{name}_{version}_{architecture}.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", str(tree / name), str(repository / file)],
        check=True,
        capture_output=True,
    )
    data = (repository / file).read_bytes()
    checksum = hashlib.sha256(data).hexdigest()
    return f"{fields}Filename: ./{file}\nSize: {len(data)}\nSHA256: {checksum}\n"


@pytest.mark.usefixtures("repository")
def test_packages_of_another_architecture_are_fetched_and_unpacked(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    apt = open_apt(tmp_path / "state")
    names = apt.with_dependencies(["shell:arm64"])
    assert names == ["library:arm64", "shell:arm64"]

    fetched = tmp_path / "fetched"
    fetched.mkdir()
    apt.download(names, fetched)
    unpack(package_file(fetched, "shell:arm64"), tmp_path / "unpacked")
    assert (tmp_path / "unpacked/usr/bin/shell").read_text() == "I am shell"
    with package_members(package_file(fetched, "library")) as members:
        contents = {
            member.name: stream.read()
            for member in members
            if member.isfile() and (stream := members.extractfile(member)) is not None
        }
    assert contents == {"./usr/bin/library": b"I am library"}


@pytest.mark.usefixtures("repository")
def test_all_parts_of_the_kernel_have_one_version(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    apt = open_apt(tmp_path / "state")
    packages = kernel_packages(apt)
    assert packages == [
        f"linux-image-{RELEASE}-arm64:arm64=6.1.20-1",
        f"linux-headers-{RELEASE}-arm64:arm64=6.1.20-1",
        f"linux-headers-{RELEASE}-common=6.1.20-1",
        "linux-kbuild-6.1=6.1.20-1",
        "linux-source-6.1=6.1.20-1",
    ]
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    apt.download(packages, fetched)
    assert len(list(fetched.glob("*.deb"))) == len(packages)


@pytest.mark.slow
@pytest.mark.parametrize(
    "late", ["linux-kbuild-6.1", f"linux-headers-{RELEASE}-arm64", "linux-source-6.1"]
)
def test_a_version_that_is_not_yet_complete_is_left_out(
    repository: Path, tmp_path: Path, late: str
) -> None:
    _publish(repository, tmp_path / "tree", "6.1.21-1", late)
    (tmp_path / "state").mkdir()
    packages = kernel_packages(open_apt(tmp_path / "state"))
    assert {package.partition("=")[2] for package in packages} == {"6.1.20-1"}
    _publish(repository, tmp_path / "tree", "6.1.22-1")
    (tmp_path / "later").mkdir()
    packages = kernel_packages(open_apt(tmp_path / "later"))
    assert {package.partition("=")[2] for package in packages} == {"6.1.22-1"}


def test_what_every_version_lacks_is_named(repository: Path, tmp_path: Path) -> None:
    (repository / "Packages").write_text("")
    _publish(repository, tmp_path / "tree", "6.1.23-1", "linux-kbuild-6.1")
    (tmp_path / "state").mkdir()
    with pytest.raises(BuildFailed, match=r"lack linux-kbuild-6\.1=6\.1\.23-1"):
        kernel_packages(open_apt(tmp_path / "state"))


def test_a_package_that_apt_cannot_find_is_named(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    apt = open_apt(tmp_path / "state")
    with pytest.raises(BuildFailed, match=r"apt-cache failed: .*No packages found"):
        apt.records("linux-image-amiga:arm64")
    (repository / "Packages").unlink()
    (tmp_path / "again").mkdir()
    with pytest.raises(BuildFailed, match=r"apt-get failed: .*Packages"):
        open_apt(tmp_path / "again")


def test_sources_are_read_in_both_formats(repository: Path) -> None:
    before = sources_text()
    assert str(repository) in before
    parts = repository.parent / "etc" / "parts"
    (parts / "debian.sources").write_text("Types: deb\nURIs: file:/elsewhere\nSuites: ./\n")
    (parts / "debian.sources.disabled").write_text("not read")
    assert "file:/elsewhere" in sources_text()
    assert "not read" not in sources_text()


def test_a_missing_apt_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildFailed, match="needs Debian packages, but this computer has no"):
        open_apt(tmp_path)


# --- cache ----------------------------------------------------------------------------------------


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "joulewright" / "lab"


@pytest.mark.usefixtures("lab")
def test_the_cache_builds_once_for_each_key() -> None:
    built = []

    def build(directory: Path) -> None:
        built.append(directory)
        (directory / "content").write_text("whole")

    with BuildCache(ignore) as cache:
        first = cache.directory("kernel", digest("6.1"), build)
        assert cache.directory("kernel", digest("6.1"), build) == first
        assert cache.directory("kernel", digest("6.2"), build) != first
    with BuildCache(ignore) as cache:
        assert cache.directory("kernel", digest("6.1"), build) == first
    assert (first / "content").read_text() == "whole"
    assert len(built) == 2


@pytest.mark.parametrize("error", [BuildFailed("no compiler"), KeyboardInterrupt()])
def test_a_failed_or_interrupted_build_leaves_no_files(lab: Path, error: BaseException) -> None:
    def build(directory: Path) -> None:
        (directory / "half").write_text("half")
        raise error

    with pytest.raises(type(error)), BuildCache(ignore) as cache:
        cache.directory("kernel", "key", build)
    assert [path.name for path in lab.iterdir()] == ["lock"]


def test_a_full_disk_is_reported_in_one_sentence(lab: Path) -> None:
    def build(directory: Path) -> None:
        raise OSError(28, "No space left on device", str(directory / "Image"))

    with (
        pytest.raises(BuildFailed, match=r"the lab's kernel cannot be built .*No space left"),
        BuildCache(ignore) as cache,
    ):
        cache.directory("kernel", "key", build)
    assert [path.name for path in lab.iterdir()] == ["lock"]


def test_a_build_is_in_the_cache_only_once_it_is_on_the_disk(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(BuildFailed, match="No space left"), BuildCache(ignore) as cache:
        cache.directory("kernel", "key", lambda directory: (directory / "Image").touch())
    assert [path.name for path in lab.iterdir()] == ["lock"]


def test_files_of_a_killed_build_are_removed(lab: Path) -> None:
    def die(directory: Path) -> None:
        (directory / "half").write_text("half")
        os._exit(9)

    killed = multiprocessing.get_context("fork").Process(target=_build, args=(die,))
    killed.start()
    killed.join()
    assert killed.exitcode == 9
    assert len(list(lab.iterdir())) == 2
    with BuildCache(ignore):
        assert [path.name for path in lab.iterdir()] == ["lock"]


def test_of_two_processes_one_builds_and_the_other_waits(lab: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    begun, go_on = context.Event(), context.Event()

    def slowly(directory: Path) -> None:
        begun.set()
        go_on.wait(30)
        (directory / "content").write_text("by the first")

    first = context.Process(target=_build, args=(slowly,))
    first.start()
    assert begun.wait(30)
    waiting = []

    def progress(text: str) -> None:
        waiting.append(text)
        go_on.set()

    with BuildCache(progress) as cache:
        built = cache.directory("kernel", "key", lambda _directory: pytest.fail("built twice"))
    first.join()
    assert first.exitcode == 0
    assert (built / "content").read_text() == "by the first"
    assert waiting == ["waiting for another process that builds the lab"]


def _build(build: object) -> None:
    with BuildCache(ignore) as cache:
        assert callable(build)
        cache.directory("kernel", "key", build)


def test_digests_depend_on_where_parts_end() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("a") == digest(b"a")


# --- the kernel's command line --------------------------------------------------------------------


def test_the_kernel_command_line_lists_the_emulated_devices() -> None:
    board = load_description("emulated-a72").emulator
    assert board is not None
    words = kernel_words(board)
    assert "board.card=ext4" in words
    assert "board.nand=25,200,2" in words
    assert "board.sensor=2.5,4.5" in words


def test_only_described_devices_are_emulated() -> None:
    plain = Emulator(program="qemu-system-aarch64", machine="virt")
    assert not [word for word in kernel_words(plain) if word.startswith("board.")]
    other = plain.model_copy(
        update={
            "nand": EmulatedNand(read_delay_us=1, program_delay_us=2, erase_delay_ms=3),
            "sensor": EmulatedSensor(idle_w=0.125, busy_w=30),
        }
    )
    words = [word for word in kernel_words(other) if word.startswith("board.")]
    assert words == ["board.nand=1,2,3", "board.sensor=0.125,30.0"]
