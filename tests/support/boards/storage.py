"""The firmware's storage drivers on this computer, with stand-ins for their hardware.

Their C is compiled into a shared object whose bus, registers and clock are Python functions.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.paths import NATIVE, ROOT

FIRMWARE = ROOT / "onboard" / "firmware"
HARNESS = FIRMWARE.parent / "harness"
EXECUTOR = FIRMWARE.parent / "executor"
KERNELS = FIRMWARE.parent / "kernels"
SHIM = NATIVE / "storage_shim.c"

_REGISTERS = """
#include <stdint.h>
uint32_t jw_register(uint32_t address);
void jw_set_register(uint32_t address, uint32_t value);
const void *jw_mapped(uint32_t address);
"""

READ, WRITE, ERASE = range(3)

_Clock = ctypes.CFUNCTYPE(ctypes.c_uint64)
_Exchange = ctypes.CFUNCTYPE(ctypes.c_uint8, ctypes.c_uint8)
_Select = ctypes.CFUNCTYPE(None, ctypes.c_bool)
_Get = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)
_Set = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32)


class _StandIn(ctypes.Structure):
    _fields_ = (
        ("clock_ns", _Clock),
        ("exchange", _Exchange),
        ("select", _Select),
        ("get", _Get),
        ("set", _Set),
        ("flash", ctypes.c_void_p),
        ("flash_address", ctypes.c_uint32),
    )


class _Facts(ctypes.Structure):
    _fields_ = (
        ("card", ctypes.c_char * 48),
        ("capacity_bytes", ctypes.c_uint64),
        ("page_bytes", ctypes.c_uint32),
        ("erase_block_bytes", ctypes.c_uint32),
    )


@dataclass(frozen=True)
class Facts:
    """What a driver reports about its medium."""

    card: str
    capacity_bytes: int
    page_bytes: int
    erase_block_bytes: int


class Hardware:
    """Hardware as a driver sees it; access to a missing part fails.

    ``flash`` is memory-mapped from ``flash_address`` on. Pointers in registers have 32 bits;
    ``high_bits`` holds the upper half of their addresses.
    """

    flash = bytearray(1)
    flash_address = 0
    high_bits = 0

    def exchange(self, byte: int) -> int:
        raise AssertionError("there is no SPI bus")

    def select(self, selected: bool) -> None:
        raise AssertionError("there is no SPI bus")

    def get(self, address: int) -> int:
        raise AssertionError(f"there is no register {address:#x}")

    def set(self, address: int, value: int) -> None:
        raise AssertionError(f"there is no register {address:#x}")


class Refused(Exception):
    """A driver refused a call; the message is the driver's."""


class Driver:
    """A driver on stand-in hardware; its clock advances at every access and every clock read."""

    def __init__(self, library: Path, hardware: Hardware) -> None:
        self._library = ctypes.CDLL(str(library))
        self._hardware = hardware
        self._failure: BaseException | None = None
        self.clock_ns = 0
        self._flash = (ctypes.c_char * len(hardware.flash)).from_buffer(hardware.flash)
        self._stand_in = _StandIn(  # kept alive: the library calls its functions
            _Clock(lambda: self._at(1_000, lambda: self.clock_ns)),
            _Exchange(lambda byte: self._at(20_000, lambda: hardware.exchange(byte))),
            _Select(lambda selected: self._at(0, lambda: hardware.select(selected))),
            _Get(lambda address: self._at(1_000, lambda: hardware.get(address))),
            _Set(lambda address, value: self._at(1_000, lambda: hardware.set(address, value))),
            ctypes.addressof(self._flash),
            hardware.flash_address,
        )
        place = _StandIn.in_dll(self._library, "shim_stand_in")
        ctypes.memmove(ctypes.byref(place), ctypes.byref(self._stand_in), ctypes.sizeof(place))
        for name in ("jw_storage_init", "shim_open", "shim_transfer"):
            getattr(self._library, name).restype = ctypes.c_char_p

    def _at(self, duration_ns: int, call: Callable[[], Any]) -> Any:
        """Call a stand-in; keep its exception, which cannot pass through C, for :meth:`_check`."""
        self.clock_ns += duration_ns
        try:
            return call()
        except BaseException as error:
            self._failure = self._failure or error
            return 0

    def init(self) -> Facts:
        facts = _Facts()
        self._check(self._library.jw_storage_init(ctypes.byref(facts)))
        card = facts.card.decode()
        return Facts(card, facts.capacity_bytes, facts.page_bytes, facts.erase_block_bytes)

    def open(self, offset: int, size_bytes: int) -> None:
        self._check(self._library.shim_open(ctypes.c_uint64(offset), ctypes.c_uint64(size_bytes)))

    def read(self, offset: int, size_bytes: int) -> bytes:
        memory = ctypes.create_string_buffer(size_bytes)
        self._transfer(READ, offset, memory)
        return memory.raw

    def write(self, offset: int, data: bytes) -> None:
        self._transfer(WRITE, offset, ctypes.create_string_buffer(data, len(data)))

    def erase(self, offset: int, size_bytes: int) -> None:
        self._transfer(ERASE, offset, ctypes.create_string_buffer(size_bytes))

    def _transfer(self, method: int, offset: int, memory: ctypes.Array[ctypes.c_char]) -> None:
        self._hardware.high_bits = ctypes.addressof(memory) >> 32 << 32
        size = ctypes.c_size_t(len(memory))
        self._check(self._library.shim_transfer(method, ctypes.c_uint64(offset), memory, size))

    def _check(self, sentence: bytes | None) -> None:
        if self._failure is not None:
            raise self._failure
        if sentence is not None:
            raise Refused(sentence.decode())


def build_driver(name: str, directory: Path, program_end: int = 0) -> Path:
    """Compile the driver ``name`` of a description; the linker would set ``program_end``."""
    source = directory / "storage"
    shutil.copytree(FIRMWARE / "storage", source)
    (source / "support" / "registers.h").write_text(_REGISTERS)
    driver = source / f"{name.replace('-', '_')}.c"
    library = directory / f"{name}.so"
    subprocess.run(
        [
            *("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"),
            "-Wno-pointer-to-int-cast",  # a chip's pointers have 32 bits
            f"-Wl,--defsym=jw_program_end={program_end:#x}",
            *(f"-I{path}" for path in (source, FIRMWARE, HARNESS, EXECUTOR, KERNELS)),
            *map(str, (SHIM, driver, *sorted((source / "support").glob("*.c")))),
            "-o",
            str(library),
        ],
        check=True,
    )
    return library
