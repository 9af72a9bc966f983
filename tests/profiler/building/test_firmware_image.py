"""Firmware builds for every supported board, once, or an error gives the reason."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from devices.description import DeviceDescription, load_description
from devices.errors import BuildFailed, BuildInterrupted
from devices.operation import OpSpec
from devices.plan import Action, ArenaRange, Compute, ExecutionPlan
from devices.user_cache import user_cache
from profiler.building.firmware_image import build_firmware, firmware_identity
from profiler.building.firmware_sources import FIRMWARE, FirmwareSources, firmware_boards
from profiler.building.toolchain import KERNEL_FLAGS

QUICK = "-O0"  # for tests in which it is enough that everything compiles

# Boards that test_firmware.py starts are compiled there.
WITHOUT_EMULATOR = ("mkr1000", "nrf52840-dk", "stm32f4-discovery")
OTHER_CORES = {
    "cortex-m7": ("-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"),
    "cortex-m33": ("-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"),
}


@pytest.fixture(scope="module")
def kept() -> Path:
    """The cache of the test run."""
    return user_cache().parent


@pytest.fixture(scope="module", autouse=True)
def cache(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty cache."""
    with pytest.MonkeyPatch.context() as patch:
        directory = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(directory))
        yield directory


@pytest.fixture
def shared_builds(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share builds with other modules and the next run: with a board's own flags they take long."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))


def changed(name: str, **parts: Any) -> DeviceDescription:
    """A board of the catalogue with some keys of some parts changed, and quick to compile."""
    described = load_description(name).model_dump(by_alias=True)
    flags = described["toolchain"]["flags"]
    described["toolchain"]["flags"] = [QUICK if flag in {"-O2", "-O3"} else flag for flag in flags]
    for part, keys in parts.items():
        described[part] |= keys
    return DeviceDescription.model_validate(described)


def quick(name: str) -> DeviceDescription:
    return changed(name)


def tiny_plan(arena_bytes: int) -> ExecutionPlan:
    spec = OpSpec.of("relu.forward", elements=16)
    relu = Compute("relu", spec, reads=(0,), writes=(0,), workspace=None, scalars={})
    inputs = {"x": ArenaRange(0, 64)}
    return ExecutionPlan("tiny", arena_bytes, inputs, kept=(), actions=(Action(relu),))


@pytest.mark.slow
@pytest.mark.usefixtures("shared_builds")
@pytest.mark.parametrize("name", WITHOUT_EMULATOR)
def test_boards_without_an_emulator_compile_and_fit(name: str) -> None:
    description = load_description(name)
    image = build_firmware(description)
    assert description.memory is not None
    assert description.memory.flash_bytes is not None
    assert 0 < image.bin.stat().st_size <= description.memory.flash_bytes
    assert image.record.flags == (*KERNEL_FLAGS, *description.toolchain.flags)
    assert image.record.kernels_sha256 == image.identity.kernels_sha256
    assert image.elf.read_bytes()[:4] == b"\x7fELF"
    assert image.hex.read_text().startswith(":")


def test_every_board_is_built_by_some_test() -> None:
    started = {"lm3s6965evb", "microbit", "mps2-an386", "netduinoplus2"}
    assert set(firmware_boards()) == {*WITHOUT_EMULATOR, *started}


def test_a_board_is_a_page_of_data_in_the_folder_of_its_chip() -> None:
    pages = list((FIRMWARE / "boards").glob("*/*"))
    assert sorted(page.stem for page in pages) == firmware_boards()
    for page in pages:
        assert page.suffix == ".h"
        assert f'#include "chips/{page.parent.name}.h"' in page.read_text()
        assert (FIRMWARE / "chips" / f"{page.parent.name}.c").exists()


def test_an_image_has_the_code_of_its_own_chip_only() -> None:
    files = FirmwareSources(load_description("nrf52840-dk")).files
    own = {path for path in files if path.startswith(("chips/", "boards/"))}
    assert own == {"chips/nrf5.c", "chips/nrf5.h", "boards/nrf5/nrf52840-dk.h"}


@pytest.mark.slow
@pytest.mark.parametrize("core", OTHER_CORES)
def test_firmware_compiles_for_other_cores_too(core: str) -> None:
    flags = [QUICK, f"-mcpu={core}", "-mthumb", *OTHER_CORES[core]]
    assert build_firmware(changed("emulated-m4f", toolchain={"flags": flags})).elf.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("shared_builds")
def test_a_program_begins_at_the_described_address() -> None:
    image = build_firmware(load_description("mkr1000"))
    stack_end = int.from_bytes(image.bin.read_bytes()[:4], "little")
    reset = int.from_bytes(image.bin.read_bytes()[4:8], "little")
    assert stack_end == 0x20000000 + 32768
    assert 0x2000 < reset < 0x2000 + image.bin.stat().st_size
    assert reset % 2 == 1  # Thumb


@pytest.mark.slow
@pytest.mark.usefixtures("shared_builds")
def test_the_firmwares_own_data_may_lie_in_a_separate_memory() -> None:
    image = build_firmware(load_description("stm32f4-discovery"))
    listed = subprocess.run(
        ["arm-none-eabi-nm", str(image.elf)], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split() for line in listed.splitlines())
    places = {name: int(address, 16) for address, _, name in rows}
    assert (places["jw_arena_begin"], places["jw_arena_end"]) == (0x20000000, 0x20020000)
    assert 0x10000000 <= places["jw_bss_begin"] < places["jw_stack_begin"]
    assert places["jw_stack_end"] == 0x10010000


@pytest.mark.slow
def test_unchanged_firmware_is_not_built_again() -> None:
    steps: list[str] = []
    first = build_firmware(quick("emulated-m4f"), steps.append)
    assert steps[-1] == "linking the firmware"
    steps.clear()
    assert build_firmware(quick("emulated-m4f"), steps.append) == first
    assert steps == []


@pytest.mark.slow
def test_files_that_a_power_cut_emptied_are_built_again() -> None:
    steps: list[str] = []
    first = build_firmware(quick("emulated-m4f"), steps.append)
    contents = [path.read_bytes() for path in (first.elf, first.bin, first.hex)]
    for path in (first.elf, first.bin, first.hex):
        path.write_bytes(b"")
        steps.clear()
        assert build_firmware(quick("emulated-m4f"), steps.append) == first
        assert steps[-1] == "linking the firmware"
        assert [path.read_bytes() for path in (first.elf, first.bin, first.hex)] == contents


@pytest.mark.slow
def test_firmware_is_in_the_cache_only_once_it_is_on_the_disk(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    build_firmware(quick("emulated-m4f"))
    before = set((cache / "joulewright" / "firmware").iterdir())
    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(BuildFailed, match="cannot be written to the cache: No space left"):
        build_firmware(changed("emulated-m4f", transport={"baud": 38400}))
    assert set((cache / "joulewright" / "firmware").iterdir()) == before


@pytest.mark.slow
def test_what_was_compiled_for_another_firmware_is_the_same_program(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = cache / "joulewright" / "firmware-objects"
    others = changed("emulated-m4f", memory={"reserved_bytes": 60000})
    with_kept = build_firmware(others).bin.read_bytes()
    kept = set(objects.iterdir())
    assert len(kept) > 50
    for damaged in sorted(kept)[:2]:
        damaged.write_bytes(damaged.read_bytes()[:-1])
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "again"))
    assert build_firmware(others).bin.read_bytes() == with_kept
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    more = changed("emulated-m4f", memory={"reserved_bytes": 61000})
    assert build_firmware(more).elf.exists()
    assert set(objects.iterdir()) == kept


@pytest.mark.slow
def test_firmware_with_a_plan_compiles_only_what_the_plan_changes(cache: Path) -> None:
    description = quick("emulated-m4f")
    build_firmware(description)
    before = set((cache / "joulewright" / "firmware-objects").iterdir())
    build_firmware(description, plans=[tiny_plan(512)])
    new = set((cache / "joulewright" / "firmware-objects").iterdir()) - before
    assert len(new) == 1  # the table of kernels: those of the plan


@pytest.mark.slow
def test_the_identity_needs_no_build_and_differs_between_descriptions() -> None:
    description = quick("emulated-m4f")
    identity = firmware_identity(description)
    assert identity == build_firmware(description).identity
    other = {
        firmware_identity(changed("emulated-m4f", **parts)).firmware_sha256
        for parts in (
            {"transport": {"baud": 921600}},
            {"firmware": {"stack_bytes": 8192}},
            {"memory": {"ram_bytes": 2097152}},
        )
    }
    assert len(other | {identity.firmware_sha256}) == 4
    flags = changed("emulated-m4f", toolchain={"flags": ["-O2", "-mcpu=cortex-m4", "-mthumb"]})
    assert firmware_identity(flags).kernels_sha256 != identity.kernels_sha256


def refusal(description: DeviceDescription) -> str:
    """Message of the failed build, which may have lines of the compiler's own."""
    with pytest.raises(BuildFailed) as caught:
        build_firmware(description)
    return str(caught.value)


def test_a_missing_compiler_is_named_with_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert refusal(quick("emulated-m4f")) == (
        "emulated-m4f: arm-none-eabi-gcc is not installed on this computer; install with:"
        " sudo apt install gcc-arm-none-eabi libnewlib-arm-none-eabi"
    )


def test_a_compiler_without_time_is_told_from_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler.building.firmware_image._COMPILER_LIMIT_S", 0.0)
    with pytest.raises(BuildInterrupted, match="timed out"):
        build_firmware(quick("emulated-m4f"))


def test_only_gcc_compiles_firmware() -> None:
    described = changed("emulated-m4f", toolchain={"compiler": "python -m ziglang cc"})
    assert "such as arm-none-eabi-gcc" in refusal(described)


@pytest.mark.slow
def test_the_error_states_how_much_flash_is_missing() -> None:
    said = refusal(changed("emulated-m4f", memory={"flash_bytes": 32768}))
    assert "bytes larger than the board's flash" in said
    assert "-Os in toolchain.flags" in said


@pytest.mark.slow
def test_the_error_states_how_much_ram_the_firmware_needs() -> None:
    said = refusal(changed("emulated-m4f", memory={"reserved_bytes": 4096}))
    assert "memory.reserved_bytes is only 4096; set it to at least" in said
    enough = int(said.split("; set it to at least ")[1].split()[0])
    build_firmware(changed("emulated-m4f", memory={"reserved_bytes": enough}))


@pytest.mark.slow
def test_a_plan_may_use_all_ram_that_its_own_firmware_leaves() -> None:
    """This may be more or less RAM than the description leaves to every program."""
    plan = tiny_plan(16 << 10)
    description = quick("emulated-m0-flash")
    with pytest.raises(BuildFailed) as caught:
        build_firmware(description, plans=[plan])
    said = str(caught.value)
    assert "the plan has an arena of 16384 bytes, but the firmware that replays it leaves " in said
    left_bytes = int(said.split("schedule it for a RAM budget of at most ")[1].split()[0])
    most = replace(plan, arena_bytes=left_bytes)
    assert build_firmware(description, plans=[most]).identity == firmware_identity(
        description, [most]
    )
    assert firmware_identity(description, [most]) != firmware_identity(description)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"firmware": {"board": "mps3"}}, "the board 'mps3' is not supported; supported boards:"),
        (
            {"storage": {"driver": "sd-sqi"}},
            "the storage driver 'sd-sqi' does not exist; existing drivers: ",
        ),
    ],
)
def test_an_unknown_board_or_driver_is_refused_with_a_list_of_the_known_ones(
    parts: dict[str, dict[str, str]], said: str
) -> None:
    assert said in refusal(changed("emulated-m3-sd", **parts))


@pytest.mark.slow
@pytest.mark.parametrize("board", ["microbit", "netduinoplus2"])
def test_a_card_on_a_board_without_spi_is_refused(board: str) -> None:
    """Either the chip's file has no SPI, or the board's page names no pins for a card."""
    said = refusal(changed("emulated-m3-sd", firmware={"board": board}))
    assert "board_spi_" in said
    assert "docs/porting-a-board.md" in said


def test_firmware_for_a_linux_board_is_refused() -> None:
    assert refusal(load_description("pi4")) == "pi4 is not a board with firmware of this project"


@pytest.mark.slow
def test_an_interrupted_build_leaves_no_files(cache: Path) -> None:
    before = set((cache / "joulewright" / "firmware").iterdir())

    def interrupt(step: str) -> None:
        if "(5 of" in step:
            raise KeyboardInterrupt

    description = changed("emulated-m4f", transport={"baud": 57600})
    with pytest.raises(KeyboardInterrupt):
        build_firmware(description, interrupt)
    assert set((cache / "joulewright" / "firmware").iterdir()) == before
    assert build_firmware(description).bin.exists()
