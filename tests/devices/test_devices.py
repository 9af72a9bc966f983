"""Documents, board descriptions, published profiles."""

from __future__ import annotations

import copy
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

import cli
from devices.claims.claim import sole_writer
from devices.description import (
    CATALOG,
    DeviceDescription,
    SshTransport,
    Storage,
    catalog_names,
    load_description,
)
from devices.documents import core_yaml
from devices.documents.document import (
    DocumentError,
    StrictModel,
    dump_yaml,
    read_json,
    read_yaml,
    require_writable,
    validate,
    write_atomically,
)
from devices.errors import InputError
from devices.library import resolve_profile, stated_energy_source
from devices.meters import HwmonMeter
from devices.operation import SIGNATURES, OperationError, OpSpec
from devices.profile import (
    AffinePageCost,
    BoardIdentity,
    Build,
    ComputeRates,
    DeviceProfile,
    StorageCosts,
)
from devices.program import COMMAND
from devices.published import load_published, published_flop, published_names
from devices.replay import ReplayReport
from devices.wear import wear
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule
from tests.support.graphs.profiles import made_up_profile
from tests.support.onboard.kernels import required_sizes

SSH_BOARD = """\
schema: device/1
name: bench-pi
model: Raspberry Pi 4 Model B
processor: {model: BCM2711, cores: 4, clock_hz: 1.5e9, architecture: aarch64}
transport:
  kind: ssh
  host: pi.lab
  user: pi
toolchain:
  kind: native
memory:
  ram_bytes: 4294967296
  reserved_bytes: 536870912
storage:
  medium: sd
  path: ~/pages
nominal_power_w: 3
"""


def description(tmp_path: Path, text: str) -> DeviceDescription:
    path = tmp_path / "board.yaml"
    path.write_text(text, encoding="utf-8")
    return load_description(str(path))


def complaint(tmp_path: Path, text: str) -> str:
    """The message about a description, without the name of its directory."""
    with pytest.raises(DocumentError) as caught:
        description(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/", "")


# --- the catalogue ----------------------------------------------------------------------------


def test_the_catalogue_holds_the_promised_boards() -> None:
    assert catalog_names() == [
        "emulated-a72",
        "emulated-m0-flash",
        "emulated-m3-sd",
        "emulated-m4f",
        "emulated-m4f-psram",
        "emulated-m4f-sd",
        "jetson-orin-nano",
        "jetson-tx2",
        "local",
        "mkr1000",
        "nrf52840-dk",
        "pi4",
        "pi5",
        "pizero2w",
        "stm32f4-discovery",
    ]


@pytest.mark.parametrize("name", catalog_names())
def test_every_board_of_the_catalogue_is_valid_and_named_like_its_file(name: str) -> None:
    board = load_description(name)
    assert board.name == name
    assert (board.storage is None) == (name == "emulated-m4f")
    assert board.meter is not None or board.nominal_power_w is not None


@pytest.mark.parametrize("name", catalog_names())
def test_nominal_power_is_marked_as_nominal_in_every_template(name: str) -> None:
    comment, _, _ = (CATALOG / f"{name}.yaml").read_text().partition("nominal_power_w:")
    assert "NOMINAL, not measured" in comment


@pytest.mark.parametrize(
    ("name", "cores", "clock_hz", "usable_bytes", "architecture"),
    [
        ("pi4", 4, 1.8e9, 7 * 2**29, "aarch64"),
        ("pi5", 4, 2.4e9, 15 * 2**29, "aarch64"),
        ("pizero2w", 4, 1.0e9, 320 * 2**20, "aarch64"),
        ("jetson-tx2", 6, 2.0e9, 7 * 2**30, "aarch64"),
        ("jetson-orin-nano", 6, 1.5e9, 7 * 2**30, "aarch64"),
        ("nrf52840-dk", 1, 64e6, 240 * 2**10, "armv7e-m"),
        ("mkr1000", 1, 48e6, 24 * 2**10, "armv6-m"),
        ("stm32f4-discovery", 1, 168e6, 128 * 2**10, "armv7e-m"),
    ],
)
def test_templates_state_the_facts_of_their_boards(
    name: str, cores: int, clock_hz: float, usable_bytes: int, architecture: str
) -> None:
    board = load_description(name)
    assert board.processor is not None
    assert board.memory is not None
    assert (board.processor.cores, board.processor.clock_hz) == (cores, clock_hz)
    assert board.processor.architecture == architecture
    assert board.memory.usable_bytes == usable_bytes


def test_description_of_this_computer_states_no_facts_that_can_be_queried() -> None:
    board = read_yaml(CATALOG / "local.yaml", DeviceDescription)
    assert board.processor is None
    assert board.memory is None


def test_build_decides_only_settings_that_the_description_leaves_open() -> None:
    local = load_description("local")
    assert local.with_matmul(None) == local
    decided = local.with_matmul("cblas")
    assert decided.toolchain.matmul == "cblas"
    assert decided.with_matmul("in-tree") == decided
    firmware = load_description("nrf52840-dk")
    assert firmware.with_matmul("cblas") == firmware


def test_the_jetsons_name_their_rails_by_label() -> None:
    for name in ("jetson-tx2", "jetson-orin-nano"):
        meter = load_description(name).meter
        assert isinstance(meter, HwmonMeter)
        assert (meter.driver, meter.label) == ("ina3221", "VDD_IN")


PPK2_BY_LINE = {"kind": "ppk2", "port": "/dev/ttyACM0", "mode": "source", "voltage_v": 3.3}


@pytest.mark.parametrize(
    ("board", "changes", "said"),
    [
        (
            "pi4",
            {"storage": {"medium": "sd", "driver": "sd-spi", "scratch_bytes": 4096}},
            "needs path or mtd_partition",
        ),
        ("pi4", {"meter": {**PPK2_BY_LINE, "sync": {"kind": "gpio", "input": 0}}}, "chip and line"),
        (
            "emulated-m4f",
            {
                "meter": {
                    **PPK2_BY_LINE,
                    "sync": {"kind": "gpio", "input": 0, "chip": "/dev/gpiochip0", "line": 3},
                }
            },
            "firmware knows its line",
        ),
        ("emulated-m4f", {"conditions": {"governor": "performance"}}, "are for Linux boards only"),
        (
            "emulated-m4f",
            {"emulator": {"program": "qemu-system-arm", "machine": "x", "sensor": {}}},
            "nand and sensor are for Linux boards only",
        ),
        ("emulated-a72", {"transport": {"kind": "local"}}, "needs transport ssh or serial"),
        (
            "emulated-a72",
            {
                "emulator": {
                    "program": "qemu-system-aarch64",
                    "machine": "virt",
                    "card": {"spi_port": 0x40026000},
                }
            },
            "card.spi_port is for boards on a serial transport",
        ),
        (
            "emulated-m3-sd",
            {
                "emulator": {
                    "program": "qemu-system-arm",
                    "machine": "x",
                    "icount_shift": 6,
                    "card": {"throttle": {"read_iops": 100, "write_iops": 100}},
                }
            },
            "no effect with icount_shift",
        ),
    ],
)
def test_description_that_cannot_be_honoured_is_refused(
    board: str, changes: dict[str, object], said: str
) -> None:
    described = load_description(board).model_dump(mode="json", by_alias=True, exclude_none=True)
    with pytest.raises(ValueError, match=said):
        DeviceDescription.model_validate(described | changes)


def test_an_unknown_board_suggests_the_near_one() -> None:
    with pytest.raises(DocumentError, match=r"no device 'pizero2' .* did you mean pizero2w\?"):
        load_description("pizero2")


def test_lab_keeps_its_descriptions_in_separate_files(tmp_path: Path) -> None:
    board = description(tmp_path, SSH_BOARD)
    assert isinstance(board.transport, SshTransport)
    assert board.transport.host == "pi.lab"
    assert board.memory is not None
    assert board.memory.usable_bytes == 4294967296 - 536870912


# --- messages about invalid files -------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (
            "kind: ssh",
            "kind: shh",
            "board.yaml: transport.kind: found 'shh'; did you mean ssh?"
            " allowed: local, ssh, serial",
        ),
        (
            "  kind: ssh\n",
            "",
            "board.yaml: transport.kind: missing; this key is required;"
            " allowed: local, ssh, serial",
        ),
        (
            "transport:\n  kind: ssh\n  host: pi.lab\n  user: pi\n",
            "transport: ssh\n",
            "board.yaml: transport: found 'ssh'; allowed: keys with values, one of them kind:"
            " local, ssh, serial",
        ),
        (
            "host: pi.lab",
            "hots: pi.lab",
            "board.yaml: transport.host: missing; this key is required\n"
            "board.yaml: transport.hots: unknown key; did you mean host? allowed: kind, host, user,"
            " port, key, known_hosts, jump, connect_timeout_s, keep_alive_s, deadline_s",
        ),
        ("name: bench-pi\n", "", "board.yaml: name: missing; this key is required"),
        (
            "4294967296",
            "4GB",
            "board.yaml: memory.ram_bytes: found '4GB'; allowed: a whole number of bytes, plainly"
            " written, such as 4096 or 4e9",
        ),
        (
            "4294967296",
            '"4294967296"',
            "board.yaml: memory.ram_bytes: found '4294967296'; allowed: a whole number of bytes,"
            " plainly written, such as 4096 or 4e9",
        ),
        (
            "4294967296",
            "4.5",
            "board.yaml: memory.ram_bytes: found 4.5; allowed: a whole number of bytes",
        ),
        (
            "nominal_power_w: 3",
            "nominal_power_w: 3 W",
            "board.yaml: nominal_power_w: found '3 W'; allowed: a number of watts, plainly written,"
            " such as 4096 or 4e9",
        ),
        (
            "nominal_power_w: 3",
            "nominal_power_w: -3",
            "board.yaml: nominal_power_w: found -3; allowed: at least 1e-12 watts",
        ),
        (
            "nominal_power_w: 3",
            "nominal_power_w: .nan",
            "board.yaml: nominal_power_w: found NaN; allowed: a number of watts",
        ),
        (
            "cores: 4",
            "cores: true",
            "board.yaml: processor.cores: found true; allowed: a whole number",
        ),
        (
            "user: pi",
            "user: pi\n  port: 70000",
            "board.yaml: transport.port: found 70000; allowed: at most 65535",
        ),
        (
            "host: pi.lab",
            "host: 4711",
            'board.yaml: transport.host: found 4711; allowed: text, in quotes: "4711"',
        ),
        (
            "host: pi.lab",
            "host: ''",
            "board.yaml: transport.host: found ''; allowed: text that is not empty",
        ),
        (
            "medium: sd",
            "medium: floppy",
            "board.yaml: storage.medium: found 'floppy'; allowed: sd, emmc, nvme, ssd, usb,"
            " nor-flash, nand, qspi-flash, psram, disk",
        ),
        (
            "path: ~/pages",
            "page_bytes: 512",
            "board.yaml: storage: storage needs exactly one of path, driver and mtd_partition",
        ),
        (
            "reserved_bytes: 536870912",
            "reserved_bytes: 5e9",
            "board.yaml: memory: reserved_bytes 5000000000 leaves nothing of ram_bytes 4294967296;"
            " make it smaller",
        ),
        (
            "kind: native",
            "kind: native\n  flags: -O3",
            "board.yaml: toolchain.flags: found '-O3'; allowed: a list",
        ),
        (
            "memory:\n  ram_bytes: 4294967296\n  reserved_bytes: 536870912\n",
            "memory: 4294967296\n",
            "board.yaml: memory: found 4294967296; allowed: keys with values (ram_bytes,"
            " flash_bytes, reserved_bytes)",
        ),
        (
            "schema: device/1\nname",
            "schema: device-profile/1\nnaem",
            "board.yaml: this is a device profile (schema: device-profile/1), but a device"
            " description is needed (device/1)",
        ),
    ],
)
def test_wrong_value_is_reported_with_the_allowed_ones(
    tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    assert right in SSH_BOARD
    assert complaint(tmp_path, SSH_BOARD.replace(right, wrong)) == said


def test_errors_inside_a_union_name_the_path_that_stands_in_the_file(tmp_path: Path) -> None:
    text = SSH_BOARD + "meter: {kind: hwmon, driver: ina3221, label: VDD_IN, rate_hz: fast}\n"
    assert complaint(tmp_path, text).startswith("board.yaml: meter.rate_hz: found 'fast'")


def test_a_value_of_one_of_several_types_is_named_by_its_own_key(tmp_path: Path) -> None:
    said = complaint(tmp_path, SSH_BOARD + "meter: {kind: nvml, gpu: -1.5}\n")
    assert said == (
        "board.yaml: meter.gpu: found -1.5; allowed: a whole number\n"
        'board.yaml: meter.gpu: found -1.5; allowed: text, in quotes: "-1.5"'
    )


class Circle(StrictModel):
    shape: Literal["circle"]
    radius: int


class Square(StrictModel):
    shape: Literal["square"]
    side: int


class Drawing(StrictModel):
    parts: tuple[Annotated[Circle | Square, Field(discriminator="shape")], ...]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            {"shape": "cricle"},
            "parts[1].shape: found 'cricle'; did you mean circle? allowed: circle, square",
        ),
        ({"side": 1}, "parts[1].shape: missing; this key is required; allowed: circle, square"),
        ({"shape": "square", "side": "a"}, "parts[1].side: found 'a'; allowed: a whole number"),
        ({"shape": "square", "sied": 1}, "parts[1].side: missing; this key is required"),
        (
            "square",
            "parts[1]: found 'square'; allowed: keys with values, one of them shape: circle,",
        ),
    ],
)
def test_an_item_of_a_list_is_named_by_its_place(part: object, said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        validate({"parts": [{"shape": "square", "side": 1}, part]}, Drawing, "drawing")
    assert str(caught.value).startswith(f"drawing: {said}")


def test_only_the_first_problems_are_reported(tmp_path: Path) -> None:
    text = SSH_BOARD + "".join(f"unknown{i}: 1\n" for i in range(9))
    lines = complaint(tmp_path, text).splitlines()
    assert len(lines) == 6
    assert lines[-1] == "board.yaml: and 4 more problems"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "board.yaml: the file is empty"),
        ("# nothing yet\n", "board.yaml: the file is empty"),
        ("- a\n- b\n", "board.yaml: found a list; allowed: keys with values (schema, name, model,"),
        ("just words\n", "board.yaml: found 'just words'; allowed: keys with values (schema,"),
        (
            "name: pi\nmodel: a\nname: pi4\n",
            "board.yaml: not valid YAML: line 3, column 1: the key 'name' is already given in"
            " line 1",
        ),
        (
            "memory:\n  ram_bytes: 1\n  ram_bytes: 2\n",
            "board.yaml: not valid YAML: line 3, column 3: the key 'ram_bytes' is already given in"
            " line 2",
        ),
        ("name: [a, b\n", "board.yaml: not valid YAML: line 2, column 1: "),
        ('name: "pi4\n', "board.yaml: not valid YAML: line 2, column 1: "),
        ("name:\n\t- a\n", "board.yaml: not valid YAML: line 2, column 1: "),
        ("model: a: b\n", "board.yaml: not valid YAML: line 1, column 9: "),
        ("a: 1\n--- \nb: 1\n", "board.yaml: not valid YAML: "),
        (
            "key: !secret pi\n",
            "board.yaml: not valid YAML: line 1, column 6: the tag !secret has no",
        ),
        ("? [a, b]\n: c\n", "board.yaml: not valid YAML: line 1, column 3: a key must be a word"),
        (
            "a: &x [*x]\n",
            "board.yaml: not valid YAML: line 1, column 8: the alias *x is a part of what it",
        ),
        ("a: *x\n", "board.yaml: not valid YAML: line 1, column 4: no anchor &x comes before"),
        ("a: &x b\n*x : c\n", "board.yaml: not valid YAML: line 2, column 1: a key must be a word"),
    ],
)
def test_unusable_yaml_is_reported_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert complaint(tmp_path, text).startswith(said)


def test_a_file_cut_off_at_any_byte_is_never_read_as_whole(tmp_path: Path) -> None:
    path = tmp_path / "board.yaml"
    required = SSH_BOARD.index("memory:")  # everything before it is required
    for length in range(required - 1):
        path.write_text(SSH_BOARD[:length], encoding="utf-8")
        with pytest.raises(DocumentError, match=r"board\.yaml"):
            read_yaml(path, DeviceDescription)


def test_hints_say_what_may_be_wrong_with_the_yaml(tmp_path: Path) -> None:
    assert "indent with spaces, not tabs" in complaint(tmp_path, "name:\n\t- a\n")
    assert "does a text with a colon need quotes?" in complaint(tmp_path, "model: a: b\n")
    assert "is the file cut off?" in complaint(tmp_path, 'name: "pi4\n')


@pytest.mark.parametrize(
    ("compiler", "said"),
    [("gcc 'x", 'found "gcc \'x": no closing quotation'), ("' '", "the name of a program")],
)
def test_a_compiler_is_a_command(compiler: str, said: str) -> None:
    described = load_description("local").model_dump(mode="json", by_alias=True, exclude_none=True)
    described["toolchain"]["compiler"] = compiler
    with pytest.raises(DocumentError, match=f"toolchain.compiler: .*{said}"):
        validate(described, DeviceDescription, "local")


@pytest.mark.parametrize(
    ("right", "wrong", "key"),
    [
        ("path: ~/pages", r'path: "a\0b"', "storage.path"),
        ("kind: native", 'kind: native\n  flags: ["-O\\0"]', "toolchain.flags[0]"),
        ("kind: native", 'kind: native\n  compiler: "cc\\e"', "toolchain.compiler"),
        ("host: pi.lab", 'host: pi.lab\n  key: "a\\0"', "transport.key"),
        ("model: Raspberry", r'model: "a\x7f" #', "model"),
    ],
)
def test_control_characters_are_refused_in_names_and_paths(
    tmp_path: Path, right: str, wrong: str, key: str
) -> None:
    assert right in SSH_BOARD
    said = complaint(tmp_path, SSH_BOARD.replace(right, wrong))
    assert said.startswith(f"board.yaml: {key}: found '")
    assert said.endswith("; allowed: text without control characters")


def test_the_advice_to_measure_a_description_can_be_pasted(tmp_path: Path) -> None:
    path = tmp_path / "my board;touch x.yaml"
    path.write_text(dump_yaml(load_description("pi4")))
    with pytest.raises(DocumentError) as refused:
        resolve_profile(str(path), tmp_path / "measured")
    assert str(refused.value).endswith(f"profile --device '{path}'")


def test_a_missing_file_a_directory_and_binary_content_are_plain_errors(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"missing\.yaml: cannot be read: No such file"):
        load_description(str(tmp_path / "missing.yaml"))
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(DocumentError, match=r"pipe\.yaml: cannot be read: it is a named pipe;"):
        read_yaml(tmp_path / "pipe.yaml", DeviceProfile)
    with pytest.raises(DocumentError, match=r"folder\.yaml: cannot be read: Is a directory"):
        load_description(str(tmp_path / "folder.yaml"))
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DocumentError, match=r"binary\.yaml: not UTF-8 text"):
        load_description(str(tmp_path / "binary.yaml"))


# --- YAML and JSON ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1e9", 1_000_000_000),
        ("1.5e9", 1_500_000_000),
        ("9e18", 9_000_000_000_000_000_000),
        ("9.007199254740993e15", 9007199254740992.0),
        ("9.0071992547409931e15", 9007199254740994.0),
        ("1E-3", 0.001),
        (".5", 0.5),
        ("4.0", 4),
        ("-7", -7),
        ("010", 10),
        ("0x10", 16),
        ("0o10", 8),
        ("1e400", float("inf")),
        ("0.01e9999999999999999999", float("inf")),
        ("0.01e-9999999999999999999", 0),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("true", True),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2022-07-19", "2022-07-19"),
        ("1_000", "1_000"),
        ("4GB", "4GB"),
        ("'1e9'", "1e9"),
        ("~", None),
        ("", None),
    ],
)
def test_yaml_scalars_have_the_expected_types(written: str, meant: object) -> None:
    loaded = core_yaml.load(f"value: {written}\n")
    assert loaded == {"value": meant}
    assert isinstance(loaded, dict)
    assert type(loaded["value"]) is type(meant)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), _JSON, min_size=1, max_size=4))
def test_written_yaml_is_read_back(data: dict[str, object]) -> None:
    assert core_yaml.load(core_yaml.dump(data)) == data


@given(st.from_regex(r"[0-9]{1,4}e[0-9]{1,3}", fullmatch=True))
def test_an_identity_that_looks_like_a_number_stays_text(serial: str) -> None:
    board = BoardIdentity(model="any", memory_bytes=1, serial=serial)
    assert validate(core_yaml.load(dump_yaml(board)), BoardIdentity, "board").serial == serial


# --- hostile input ----------------------------------------------------------------------------

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join(f'*a{i - 1}' for _ in range(10))}]\n" for i in range(1, 30)
)
TALL = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 200))
HOSTILE_YAML = {
    "aliases that repeat aliases": (BOMB, "more than 1,000,000 values"),
    "aliases of a long text": (
        f"a: &a {'x' * 1_000_000}\nb: [{'*a, ' * 100_000}]\n",
        "aliases repeat more text than a file may have",
    ),
    "aliases inside each other": (TALL, "nested too deeply: more than 64 levels"),
    "flow lists": ("[" * 100_000, "nested too deeply: more than 64 levels"),
    "flow mappings": ("{a: " * 100_000, "nested too deeply: more than 64 levels"),
    "block lists": ("- " * 100_000, "nested too deeply: more than 64 levels"),
    "keys of keys": ("? " * 100_000, "a key must be a word"),
    "digits": (f"a: {'9' * 5000}\n", "found the number 9999999999… of 5000 characters"),
    "hexadecimal digits": (f"a: 0x{'f' * 5000}\n", "of 5002 characters; allowed: 400"),
    "decimals": (f"a: 1.{'9' * 5000}\n", "of 5002 characters; allowed: 400"),
    "a long key twice": (f"{'k' * 900}: 1\n" * 2, "is already given in line 1"),
    "a long tag": (f"a: !{'t' * 5000} 1\n", "has no meaning here"),
}
HOSTILE_JSON = {
    "lists": ("[" * 100_000, "nested too deeply"),
    "closed lists": ("[" * 500 + "]" * 500, "nested too deeply"),
    "objects": ('{"a":' * 100_000, "nested too deeply"),
    "digits": (f'{{"x": {"9" * 5000}}}', "found the number 9999999999… of 5000 characters"),
    "values": (f"[{'0,' * 1_000_000}0]", "more than 1,000,000 values"),
    "wrong values": (f'{{"x": 1, "name": [{"0," * 900_000}0]}}', "name: found a list"),
    "unknown keys": (
        "{" + ",".join(f'"k{i}": 0' for i in range(100_000)) + "}",
        "100001 problems; the file is not of this format",
    ),
    "a key twice among many": (
        "{" + ",".join(f'"k{i}": 0' for i in range(100_000)) + ', "k99999": 0}',
        "the key 'k99999' is given twice",
    ),
    "long key": (f'{{"x": 1, "{"k" * 100_000}": 0}}', "unknown key; allowed: x, name"),
    "key of two lines": ('{"x": 1, "a\\nb": 0}', "p.json: a\\nb: unknown key"),
    "half a character": ('{"x": 1, "name": "\\ud800"}', "half a character"),
}


def refused_quickly(path: Path, read: Callable[[], object]) -> str:
    """The message of a refusal, which is short and costs little time."""
    began_s = time.process_time()
    with pytest.raises(DocumentError) as caught:
        read()
    assert time.process_time() - began_s < 20
    message = str(caught.value).replace(f"{path.parent}/", "")
    assert len(message) < 1200
    assert message.isprintable()
    return message


@pytest.mark.parametrize("name", HOSTILE_YAML)
def test_hostile_yaml_is_refused_with_a_sentence(tmp_path: Path, name: str) -> None:
    text, said = HOSTILE_YAML[name]
    path = tmp_path / "board.yaml"
    path.write_text(text, encoding="utf-8")
    message = refused_quickly(path, lambda: load_description(str(path)))
    assert message.startswith("board.yaml: not valid YAML: line ")
    assert said in message


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_hostile_json_is_refused_with_a_sentence(tmp_path: Path, name: str) -> None:
    text, said = HOSTILE_JSON[name]
    path = tmp_path / "p.json"
    path.write_text(text, encoding="utf-8")
    message = refused_quickly(path, lambda: read_json(path, Point))
    assert message.startswith("p.json: ")
    assert said in message


def test_aliases_within_the_limits_repeat_what_they_name() -> None:
    assert core_yaml.load("a: &a {b: [1, &c 2]}\nd: *a\ne: *c\n") == {
        "a": {"b": [1, 2]},
        "d": {"b": [1, 2]},
        "e": 2,
    }


def test_a_file_that_is_too_large_or_has_no_end_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(DocumentError, match=r"large\.json: larger than 64 MiB"):
        read_json(large, Point)
    with pytest.raises(DocumentError, match="/dev/zero: cannot be read: it is a device file;"):
        read_json(Path("/dev/zero"), Point)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("nominal_power_w: 3", "nominal_power_w: 1e308", "allowed: at most 1e+18 watts"),
        ("nominal_power_w: 3", "nominal_power_w: 1e-300", "allowed: at least 1e-12 watts"),
        ("4294967296", "1e19", "found 10000000000000000000; allowed: at most 9.22337e+18 bytes"),
        ("4294967296", "1" + "0" * 30, "allowed: at most 9.22337e+18 bytes"),
        ("name: bench-pi", f"name: {'b' * 101}", "allowed: at most 100 characters"),
        ("host: pi.lab", f"host: {'x' * 5000}", "allowed: at most 4096 characters"),
    ],
)
def test_implausible_quantities_are_refused(
    tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    assert said in complaint(tmp_path, SSH_BOARD.replace(right, wrong))


def test_a_step_takes_time() -> None:
    document = watched_profile()
    document["additivity"] = {
        "model": "linear",
        "step_s": {"median": 0.0, "low": 0.0, "high": 1.0},
        "sum_warm_s": 1.0,
        "sum_cold_s": 1.0,
    }
    with pytest.raises(DocumentError, match=r"additivity: step_s: .*; a step takes time"):
        validate(document, DeviceProfile, "bench")


def test_a_medium_that_outlives_everything_has_a_life_that_can_be_stated() -> None:
    storage = Storage(
        medium="sd", path="~/pages", capacity_bytes=9 * 10**18, endurance_cycles=9 * 10**18
    )
    assert wear(storage, 1, 0, part_bytes=1, steps_per_day=1e-12).years == 1e18


@pytest.mark.parametrize("value", ["2147483648", "9" * 5000, "-1"])
def test_attributes_of_operations_have_32_bits(value: str) -> None:
    with pytest.raises(InputError):
        OpSpec.parse(f"relu.forward count={value}")


class Point(StrictModel):
    x: int
    name: str = "origin"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "p.json: the file is empty"),
        ('{"x": 1', "p.json: not valid JSON: line 1, column 8: "),
        ('{"x": 1, "x": 2}', "p.json: the key 'x' is given twice"),
        ("[1, 2]", "p.json: found a list; allowed: keys with values (x, name)"),
        ('{"x": "1"}', "p.json: x: found '1'; allowed: a whole number"),
        ('{"x": NaN}', "p.json: x: found NaN; allowed: a whole number"),
        ('{"x": 1, "nmae": "a"}', "p.json: nmae: unknown key; did you mean name? allowed: x, name"),
        ("[" * 100_000, "p.json: not valid JSON: nested too deeply"),
    ],
)
def test_wrong_json_is_reported_like_wrong_yaml(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        read_json(path, Point)
    assert str(caught.value).replace(f"{tmp_path}/", "").startswith(said)


@pytest.mark.parametrize(
    ("model", "version"),
    [
        (DeviceProfile, "device-profile/1"),
        (CostedGraph, "costed-graph/1"),
        (Schedule, "schedule/2"),
        (ReplayReport, "replay/1"),
    ],
)
def test_a_file_states_the_version_of_its_format(model: type[StrictModel], version: str) -> None:
    said = f"file: schema: missing; this key is required; allowed: {version}"
    with pytest.raises(DocumentError, match=f"^{said}$"):
        validate({"name": "any"}, model, "file")


def test_a_whole_number_may_be_written_with_an_exponent_in_json_too(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('{"x": 1e9}', encoding="utf-8")
    assert read_json(path, Point).x == 10**9


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "profile.yaml"
    write_atomically(path, "old")

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["profile.yaml"]


def test_only_a_regular_file_is_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match=f"it is a named pipe; .*: '{pipe}'"):
        write_atomically(pipe, "new")
    with pytest.raises(OSError, match="named pipe"):
        require_writable(pipe)
    with pytest.raises(InputError, match="named pipe"), sole_writer(pipe):
        pass
    assert pipe.is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_file_is_written(tmp_path: Path, exists: bool) -> None:
    link, file = tmp_path / "link", tmp_path / "kept" / "file"
    link.symlink_to("kept/file")
    if exists:
        write_atomically(file, "old")
    require_writable(link)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert file.read_text() == link.read_text() == "new"
    assert [entry.name for entry in file.parent.iterdir()] == ["file"]


def test_a_file_has_the_mode_that_it_had_or_that_the_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "new", "a")
        write_atomically(tmp_path / "old", "a")
        (tmp_path / "old").chmod(0o604)
        write_atomically(tmp_path / "old", "b")
    finally:
        os.umask(before)
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in tmp_path.iterdir()}
    assert modes == {"new": 0o640, "old": 0o604}


# --- published profiles -----------------------------------------------------------------------


def rates(name: str) -> ComputeRates:
    found = load_published(name).rates
    assert found is not None
    return found


def storage(name: str) -> StorageCosts:
    found = load_published(name).storage
    assert found is not None
    return found


def test_published_profiles_state_their_source() -> None:
    assert published_names() == ["a72", "a72nocache", "jetsontx2", "m0", "m4"]
    for name in published_names():
        profile = load_published(name)
        assert (profile.name, profile.energy_source) == (name, "published")
        assert profile.meter is None
        assert "POET" in profile.notes[0]
        assert "6e63098" in profile.notes[0]


@pytest.mark.parametrize(
    ("name", "flop_per_s", "flop_per_j"),
    [
        ("m0", 2000 / 0.012, 2000 / (0.012 * 0.020 * 3.3)),
        ("m4", 16283e5 / 255.6237, 16283e5 / (255.6237 * 0.003328 * 3.3)),
        ("a72", 2e9, 16283e5 / (13.53 * 0.6 * 5)),
        ("a72nocache", 16283e5 / 13.53, 16283e5 / (13.53 * 0.6 * 5)),
        ("jetsontx2", 2.0e9 * 4 * 2, 2.0e9 * 4 * 2 / 0.766),
    ],
)
def test_rates_are_the_published_ones(name: str, flop_per_s: float, flop_per_j: float) -> None:
    found = rates(name)
    assert (found.flop_per_s, found.flop_per_j) == (flop_per_s, flop_per_j)


@pytest.mark.parametrize(
    ("name", "power_w", "read", "write"),
    [
        ("m0", 0.330, (1.09e-4, 4.61651e6), (1.13e-4, 4.440e6)),
        ("m4", 0.330, (1.09e-4, 4.61651e6), (1.13e-4, 4.440e6)),
        ("a72", 0.150, (5.09561e-6, 45.5e6), (1.85314e-5, 24.5e6)),
        ("a72nocache", 0.150, (5.09561e-6, 45.5e6), (4.23532e-3, 17.1e6)),
        ("jetsontx2", 0.309, (5.4e-4, 108.5e6), (2.396e-3, 94.37e6)),
    ],
)
@pytest.mark.parametrize("size_bytes", [1, 4096, 1_000_001])
def test_paging_costs_latency_plus_bytes_over_rate_at_the_published_power(
    name: str,
    power_w: float,
    read: tuple[float, float],
    write: tuple[float, float],
    size_bytes: int,
) -> None:
    costs = storage(name)
    for (latency_s, bytes_per_s), cost in (
        (read, costs.read_cost(size_bytes)),
        (write, costs.write_cost(size_bytes)),
    ):
        time_s = latency_s + size_bytes / bytes_per_s
        assert cost == pytest.approx((time_s, time_s * power_w), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "size_bytes", "page_out", "page_in"),
    [  # from POET's own problem instances
        (
            "m0",
            3136,
            (0.0008193063063063064, 0.00027037108108108113),
            (0.0007883010304320797, 0.0002601393400425863),
        ),
        (
            "m4",
            262144,
            (0.05915444144144144, 0.019520965675675676),
            (0.056893020829587714, 0.018774696873763947),
        ),
        (
            "a72",
            262144,
            (0.010718286502040817, 0.0016077429753061227),
            (0.005766502203406593, 0.0008649753305109889),
        ),
    ],
)
def test_page_costs_are_those_of_the_published_instances(
    name: str,
    size_bytes: int,
    page_out: tuple[float, float],
    page_in: tuple[float, float],
) -> None:
    assert storage(name).write_cost(size_bytes) == pytest.approx(page_out, rel=1e-12)
    assert storage(name).read_cost(size_bytes) == pytest.approx(page_in, rel=1e-12)


def conv(entry: str, channels: int, size: int, out_channels: int, stride: int = 1) -> OpSpec:
    """A 3×3 convolution of a square image with padding of one pixel, as in VGG and ResNet."""
    return OpSpec.of(
        f"conv2d.{entry}",
        batch=1,
        in_channels=channels,
        in_height=size,
        in_width=size,
        out_channels=out_channels,
        kernel_height=3,
        kernel_width=3,
        stride_height=stride,
        stride_width=stride,
        pad_top=1,
        pad_bottom=1,
        pad_left=1,
        pad_right=1,
        groups=1,
        bias=1,
    )


def linear(entry: str, in_features: int, out_features: int) -> OpSpec:
    return OpSpec.of(
        f"linear.{entry}", rows=1, in_features=in_features, out_features=out_features, bias=1
    )


POOL = {
    **{"batch": 1, "channels": 64, "in_height": 32, "in_width": 32},
    **{"kernel_height": 2, "kernel_width": 2, "stride_height": 2, "stride_width": 2},
    **{"pad_top": 0, "pad_bottom": 0, "pad_left": 0, "pad_right": 0},
}


@pytest.mark.parametrize(
    ("name", "spec", "time_s", "energy_j"),
    [  # from POET's own problem instances: linear, vgg16_cifar, resnet18_cifar
        ("m0", linear("forward", 784, 10), 0.09426000000000001, 0.00622116),
        ("m0", linear("forward", 10, 120), 0.016560000000000002, 0.00109296),
        ("m0", linear("forward", 120, 100), 0.1458, 0.0096228),
        ("m0", linear("forward", 100, 200), 0.2436, 0.0160776),
        ("m0", OpSpec.of("relu.forward", elements=120), 0.00072, 4.752e-05),
        ("m0", OpSpec.of("relu.input_gradient", elements=10), 0.00012, 7.92e-06),
        (
            "m0",
            OpSpec.of("softmax_cross_entropy.forward", rows=1, classes=10),
            0.0006000000000000001,
            3.96e-05,
        ),
        ("m4", conv("forward", 3, 32, 64), 0.5658604152650003, 0.006214505424606338),
        ("m4", conv("forward", 64, 32, 64), 11.862491978191734, 0.13027863190129288),
        ("m4", conv("forward", 16, 32, 16), 0.7433348182344778, 0.008163600307778327),
        (
            "m4",
            OpSpec.of("batch_norm.forward", batch=1, channels=16, plane=1024),
            0.005144185593318185,
            5.649550386005762e-05,
        ),
        (
            "m4",
            OpSpec.of("add.forward", elements=16384),
            0.0025720927966590926,
            2.824775193002881e-05,
        ),
        ("a72", conv("forward", 3, 32, 64), 0.00180224, 0.08985189657925442),
        ("a72", conv("forward", 64, 16, 128), 0.018890752, 0.9418112432352759),
        ("a72", OpSpec.of("max_pool2d.forward", **POOL), 6.5536e-05, 0.0032673416937910697),
    ],
)
def test_operation_costs_are_those_of_the_published_instances(
    name: str, spec: OpSpec, time_s: float, energy_j: float
) -> None:
    flop = published_flop(spec)
    assert flop / rates(name).flop_per_s == pytest.approx(time_s, rel=1e-12)
    assert flop / rates(name).flop_per_j == pytest.approx(energy_j, rel=1e-12)


def test_a_strided_convolution_counts_positions_of_its_input() -> None:
    # Layer 23 of POET's resnet18_cifar: 16 channels of 32×32 to 32 channels of 16×16.
    assert published_flop(conv("forward", 16, 32, 32, stride=2)) == 9_445_376


@pytest.mark.parametrize(
    ("forward", "gradients"),
    [
        (
            conv("forward", 16, 32, 16),
            [conv("input_gradient", 16, 32, 16), conv("parameter_gradient", 16, 32, 16)],
        ),
        (
            linear("forward", 784, 10),
            [linear("input_gradient", 784, 10), linear("parameter_gradient", 784, 10)],
        ),
        (
            OpSpec.of("batch_norm.forward", batch=2, channels=3, plane=5),
            [
                OpSpec.of("batch_norm.input_gradient", batch=2, channels=3, plane=5),
                OpSpec.of("batch_norm.parameter_gradient", batch=2, channels=3, plane=5),
            ],
        ),
        (
            OpSpec.of("max_pool2d.forward", **POOL),
            [OpSpec.of("max_pool2d.input_gradient", **POOL)],
        ),
        (
            OpSpec.of("relu.forward", elements=7),
            [OpSpec.of("relu.input_gradient", elements=7)],
        ),
    ],
)
def test_the_backward_pass_counts_twice_the_forward_pass(
    forward: OpSpec, gradients: list[OpSpec]
) -> None:
    assert sum(map(published_flop, gradients)) == 2 * published_flop(forward)


def test_updates_and_accumulations_count_one_for_each_element_written() -> None:
    assert published_flop(OpSpec.of("sgd.update", elements=9)) == 9
    assert published_flop(OpSpec.of("sgd_momentum.update", elements=9)) == 18
    assert published_flop(OpSpec.of("gradient.accumulate", elements=9)) == 9
    statistics = OpSpec.of("batch_norm.statistics_update", batch=4, channels=9, plane=25)
    assert published_flop(statistics) == 18


@pytest.mark.parametrize(("matmul", "keep"), [("in-tree", True), ("cblas", False)])
def test_parts_have_the_bits_of_the_whole_unless_a_blas_sums(matmul: str, keep: bool) -> None:
    build = Build(kernels_sha256="0" * 64, compiler="cc", flags=(), matmul=matmul, threads=1)
    assert build.parts_keep_bits is keep


@pytest.mark.parametrize("entry", ["forward", "parameter_gradient", "columns_gradient"])
def test_parts_count_their_share_of_the_whole(entry: str) -> None:
    whole = OpSpec.of(
        f"conv2d.{entry.replace('columns', 'input')}",
        **{"batch": 2, "in_channels": 3, "in_height": 5, "in_width": 6, "out_channels": 8},
        **{"kernel_height": 3, "kernel_width": 3, "stride_height": 2, "stride_width": 1},
        **{"pad_top": 1, "pad_bottom": 1, "pad_left": 1, "pad_right": 0, "groups": 1, "bias": 1},
    )
    parts = [
        OpSpec.of(
            f"conv2d_part.{entry}",
            **{**whole.attributes, "bias": int(first_input == 0 or entry == "columns_gradient")},
            **{"first": first, "channels": channels},
            **{"first_input": first_input, "inputs": inputs},
        )
        for first, channels in ((0, 2), (2, 6))
        for first_input, inputs in ((0, 1), (1, 2))
    ]
    # A layer with some of the input's channels adds its sums to the output once more.
    outputs = OpSpec.of("conv2d.forward", **whole.attributes).writes[0].elements
    assert sum(map(published_flop, parts)) == published_flop(whole) + outputs
    assert sum(part.work_flop for part in parts) == whole.work_flop


@pytest.mark.parametrize("classes", [13, 1000, 32_000])
def test_a_loss_over_many_classes_costs_in_parts_what_it_costs_whole(classes: int) -> None:
    rows, sizes = 64, {"rows": 64, "classes": classes}
    cuts = [(first, min(500, classes - first)) for first in range(0, classes, 500)]

    def flop(*kinds: str) -> int:
        """FLOP of kinds over all parts of the classes."""
        return sum(
            published_flop(OpSpec.of(kind, **sizes, first=first, channels=channels))
            for kind in kinds
            for first, channels in cuts
        )

    forward = published_flop(OpSpec.of("softmax_cross_entropy.forward", **sizes))
    chains = flop("cross_entropy_block.maximum", "cross_entropy_block.sum")
    assert chains == forward
    assert published_flop(OpSpec.of("cross_entropy_block.loss", rows=rows)) < 60 * rows
    gradient = published_flop(OpSpec.of("softmax_cross_entropy.input_gradient", **sizes))
    assert flop("cross_entropy_block.input_gradient") == gradient


def test_every_kind_has_a_count() -> None:
    for kind, signature in SIGNATURES.items():
        sizes = {
            name: int(not name.startswith(("pad_", "offset", "first")))
            for name in signature.attributes
        }
        if kind.startswith("rotary."):
            sizes["inner"] = 2
        required = required_sizes(kind)
        sizes |= {name: required[name] for name in required.keys() & sizes.keys()}
        spec = OpSpec.of(kind, **sizes)
        assert published_flop(spec) >= 0


def test_known_inconsistency_of_a72_is_noted_in_its_profile() -> None:
    assert any("inconsistency" in note for note in load_published("a72").notes)
    assert any("NOT published" in note for note in load_published("jetsontx2").notes)


def watched_profile() -> dict[str, Any]:
    """The document of a profile with a watched step, of one place and one packed tensor."""
    profile = made_up_profile([OpSpec.of("relu.forward", elements=8)])
    document = profile.model_dump(mode="json", by_alias=True, exclude_none=True)
    second = {"median": 1.0, "low": 1.0, "high": 1.0}
    key = "relu.forward elements=8"
    packed = {"tensor": "x", "bytes": 4, "packed_bytes": second, "runs_bytes": []}
    document["step_costs"] = [
        {
            "network": {"model": "linear", "batch": 1, "optimizer": "sgd"},
            "sittings": [],
            "correlation": 0,
            "places": [{"op": "relu", "key": key, "time_s": second, "sittings_s": []}],
            "packed": [packed],
        }
    ]
    return document


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("operations", "operations: relu.forward elements=8 is listed 2 times; allowed: once"),
        ("step_costs", 'step_costs: {"model":"linear","batch":1,"optimizer":"sgd"} is listed 2'),
        ("step_costs.0.places", "step_costs[0]: places: relu is listed 2 times"),
        ("step_costs.0.packed", "step_costs[0]: packed tensors: x is listed 2 times"),
        ("storage.read.sweep", "storage.read: sweep points: 4096 bytes is listed 2 times"),
    ],
)
def test_no_entry_of_a_profile_may_silently_take_the_place_of_another(path: str, said: str) -> None:
    document = watched_profile()
    entries: Any = document
    for key in path.split("."):
        entries = entries[int(key) if key.isdecimal() else key]
    validate(document, DeviceProfile, "bench")
    again = copy.deepcopy(entries[0])
    if path == "operations":  # the same operation in another spelling
        again = {**again, "op": "relu.forward  elements=08", "workspace_bytes": 512}
    entries.append(again)
    with pytest.raises(DocumentError) as caught:
        validate(document, DeviceProfile, "bench")
    assert str(caught.value).startswith(f"bench: {said}")


@pytest.mark.parametrize(
    ("path", "changes", "said"),
    [
        ("", {"erase": {"fixed_s": 1.0, "per_page_s": 0.0}}, "storage: erase, the cost of"),
        ("", {"erase_block_bytes": 4096}, "storage: erase, the cost of"),
        ("read", {"fixed_j": None}, "storage.read: fixed_j and per_page_j belong together"),
        ("write", {"per_page_j": None}, "storage.write: fixed_j and per_page_j belong together"),
    ],
)
def test_no_cost_of_storage_is_dropped_for_lack_of_what_belongs_to_it(
    path: str, changes: dict[str, object], said: str
) -> None:
    document = watched_profile()
    (document["storage"][path] if path else document["storage"]).update(changes)
    with pytest.raises(DocumentError) as caught:
        validate(document, DeviceProfile, "bench")
    assert str(caught.value).startswith(f"bench: {said}")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "'' names no operation"),
        ("relu.forward elements=1 elements=8", "elements is given twice"),
        ("relu.forward elements=3_2", "'elements=3_2' is not of the form name=integer"),
        ("relu.forward elements=0x8", "'elements=0x8' is not of the form name=integer"),
        ("relu.forward elements=٨", "'elements=٨' is not of the form name=integer"),
    ],
)
def test_a_key_of_an_operation_has_one_meaning(key: str, said: str) -> None:
    document = watched_profile()
    document["operations"][0]["op"] = key
    with pytest.raises(DocumentError) as caught:
        validate(document, DeviceProfile, "bench")
    assert str(caught.value).startswith("bench: operations[0]: ")
    assert said in str(caught.value)


# --- finding a profile ------------------------------------------------------------------------


def measured_profile(name: str) -> DeviceProfile:
    return DeviceProfile(
        name=name,
        energy_source="estimated",
        board=BoardIdentity(model="bench", memory_bytes=1),
        rates=ComputeRates(flop_per_s=1.0, flop_per_j=1.0),
        storage=StorageCosts(
            medium="sd",
            page_bytes=4096,
            method="O_DIRECT",
            read=AffinePageCost(fixed_s=0.0, per_page_s=1e-4),
            write=AffinePageCost(fixed_s=0.0, per_page_s=1e-4),
        ),
    )


def test_a_profile_that_was_written_is_read_back_the_same(tmp_path: Path) -> None:
    for profile in (measured_profile("bench"), load_published("m4")):
        write_atomically(tmp_path / "p.yaml", dump_yaml(profile))
        assert read_yaml(tmp_path / "p.yaml", DeviceProfile) == profile


def test_a_profile_is_found_by_path_by_name_and_among_the_published(tmp_path: Path) -> None:
    write_atomically(tmp_path / "bench.yaml", dump_yaml(measured_profile("bench")))
    for name in (str(tmp_path / "bench.yaml"), "bench.yaml", "bench"):
        assert resolve_profile(name, measured=tmp_path).name == "bench"
    assert resolve_profile("m4", measured=tmp_path).energy_source == "published"


def test_measured_profile_precedes_a_published_one_of_the_same_name(tmp_path: Path) -> None:
    write_atomically(tmp_path / "m4.yaml", dump_yaml(measured_profile("m4")))
    assert resolve_profile("m4", measured=tmp_path).energy_source == "estimated"


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("schema: x\nnotes: {energy_source: measured}\nenergy_source: emulated\n", "emulated"),
        ("energy_source: 'estimated' # what follows is not parsed\noperations: [}\n", "estimated"),
        ("operations: [}\nenergy_source: measured\n", None),
        ("energy_source: guessed\n", None),
        ("name: bench\n", None),
        ("- energy_source: measured\n", None),
        ("", None),
    ],
)
def test_the_energy_source_of_a_profile_is_what_its_file_states(
    tmp_path: Path, text: str, stated: str | None
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    assert stated_energy_source(path) == stated


def test_a_file_that_cannot_be_read_states_no_energy_source(tmp_path: Path) -> None:
    assert stated_energy_source(tmp_path) is None
    assert stated_energy_source(tmp_path / "absent.yaml") is None


def test_an_unknown_profile_lists_what_exists_and_the_near_name(tmp_path: Path) -> None:
    write_atomically(tmp_path / "bench.yaml", dump_yaml(measured_profile("bench")))
    with pytest.raises(DocumentError) as caught:
        resolve_profile("bnech.yaml", measured=tmp_path)
    assert str(caught.value) == (
        "no profile 'bnech.yaml'; did you mean bench?"
        " allowed: bench, a72, a72nocache, jetsontx2, m0, m4"
    )


def test_a_board_that_was_never_measured_says_how_to_measure_it(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"no profile 'pi4\.yaml' yet; .*profile --device pi4"):
        resolve_profile("pi4.yaml", measured=tmp_path)


@pytest.mark.parametrize("words", [("check",), ("tune", "--ram-budget", "50%")])
def test_a_command_for_a_board_that_was_never_measured_names_its_file(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("pi4", "bench"):
        description = load_description("pi4").model_copy(update={"name": name})
        Path("my board.yaml").write_text(dump_yaml(description))
        assert cli.main([*words, "--device", "my board.yaml"]) == 2
        assert capsys.readouterr().err.endswith(
            f"no profile '{name}' yet; measure the board first:"
            f" {COMMAND} profile --device 'my board.yaml'\n"
        )


def test_how_a_description_was_loaded_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    catalogued = load_description("pi4")
    path.write_text(dump_yaml(catalogued))
    own = load_description(str(path))
    assert (own.reference, catalogued.reference) == (str(path), "pi4")
    assert own.model_copy(update={"model": "another"}).reference == str(path)
    assert own == catalogued
    assert own.model_dump_json() == catalogued.model_dump_json()
    assert "mine" not in str(own.model_dump())
    data = own.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert validate(data, DeviceDescription, "data").reference == "pi4"


def test_missing_file_is_reported_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"absent/pi4\.yaml: no such file"):
        resolve_profile("absent/pi4.yaml", measured=tmp_path)


@pytest.mark.slow
def test_a_profile_cut_off_anywhere_is_an_error_that_names_it(tmp_path: Path) -> None:
    text = dump_yaml(load_published("m4"))
    path = tmp_path / "cut.yaml"
    for length in range(len(text) - 1):
        path.write_text(text[:length], encoding="utf-8")
        with pytest.raises(DocumentError, match=r"cut\.yaml: "):
            resolve_profile(str(path))


def test_a_profile_cut_off_between_two_notes_says_that_it_is_cut_off(tmp_path: Path) -> None:
    text = dump_yaml(load_published("m4"))
    path = tmp_path / "cut.yaml"
    path.write_text(text[: text.rindex("- ")], encoding="utf-8")
    with pytest.raises(DocumentError, match=r"cut\.yaml: the file is cut off"):
        resolve_profile(str(path))


@pytest.mark.parametrize("end", ["# kept\n", "\n# kept", "... # kept\n", "...\r"])
def test_a_comment_after_the_end_of_a_profile_is_no_cut(tmp_path: Path, end: str) -> None:
    text = dump_yaml(load_published("m4"))
    path = tmp_path / "m4.yaml"
    whole = text.removesuffix("...\n") + end if end.startswith("...") else text + end
    path.write_text(whole if "\r" not in end else whole.replace("\n", "\r"), encoding="utf-8")
    assert resolve_profile(str(path)) == load_published("m4")


def test_a_byte_order_mark_is_no_part_of_a_document(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('\ufeff{"x": 1}', encoding="utf-8")
    (tmp_path / "p.yaml").write_text("\ufeffx: 1\n", encoding="utf-8")
    assert read_json(tmp_path / "p.json", Point) == read_yaml(tmp_path / "p.yaml", Point)


def test_a_profile_that_is_a_directory_or_a_pipe_exists(tmp_path: Path) -> None:
    (tmp_path / "dir.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DocumentError, match=r"dir\.yaml: cannot be read: Is a directory"):
        resolve_profile(str(tmp_path / "dir.yaml"), measured=tmp_path / "none")
    with pytest.raises(DocumentError, match="pipe: cannot be read: it is a named pipe"):
        resolve_profile(str(tmp_path / "pipe"), measured=tmp_path / "none")


def test_an_operand_without_elements_is_refused_even_if_two_of_its_sizes_are_negative() -> None:
    with pytest.raises(OperationError, match=r"has shape \(1, 1, -1, -1\)"):
        OpSpec.of(
            "max_pool2d.forward",
            **dict.fromkeys(("batch", "channels", "stride_height", "stride_width"), 1),
            **dict.fromkeys(("in_height", "in_width"), 3),
            **dict.fromkeys(("kernel_height", "kernel_width"), 5),
            **dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 0),
        )
