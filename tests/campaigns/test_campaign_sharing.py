"""``campaign pack`` and ``campaign unpack``: what arrives, and what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import cli
from campaigns.design.opening import open_campaign
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.results import read_campaign
from campaigns.sharing.manifest import MANIFEST
from devices.results import Results
from tests.support.campaigns import campaign_with_replays, files_of
from tests.support.networks.onnx_files import classifier_apart
from tests.support.paths import REFERENCES


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> CampaignDirectory:
    return campaign_with_replays(
        Results(tmp_path_factory.mktemp("results")), ram_budgets=["100%"], methods=["dtr"]
    )


@pytest.fixture(scope="module")
def packed(campaign: CampaignDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = tmp_path_factory.mktemp("packed") / "tried.zip"
    assert cli.main(["campaign", "pack", str(campaign.path), "--out", str(archive)]) == 0
    return archive


def test_an_archive_may_be_the_first_file_of_its_directory(
    campaign: CampaignDirectory, tmp_path: Path
) -> None:
    archive = tmp_path / "new" / "directory" / "tried.zip"
    assert cli.main(["campaign", "pack", str(campaign.path), "--out", str(archive)]) == 0
    assert zipfile.is_zipfile(archive)


def unpack(archive: Path, results: Path) -> int:
    return cli.main(["campaign", "unpack", str(archive), "--results", str(results)])


def test_everything_arrives_with_what_repeats_it(
    campaign: CampaignDirectory, packed: Path, tmp_path: Path
) -> None:
    assert unpack(packed, tmp_path) == 0
    arrived = tmp_path / "campaigns" / "tried"
    files = files_of(arrived)
    assert files.items() >= files_of(campaign.path).items()
    assert {"report.html", MANIFEST, "repeat/campaign.yaml"} <= files.keys()
    environment = json.loads(files[MANIFEST])["environment"]
    assert environment["python"]
    assert environment["packages"]["numpy"]
    states = [result.state for result in read_campaign(arrived).cells]
    assert states == [result.state for result in read_campaign(campaign.path).cells]


def test_its_file_names_the_same_cells(
    campaign: CampaignDirectory, packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(packed, tmp_path)
    capsys.readouterr()
    again = tmp_path / "campaigns" / "tried" / "repeat" / "campaign.yaml"
    words = ["campaign", "run", str(again), "--dry-run", "--json", "--results", str(tmp_path)]
    assert cli.main(words) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [cell["hash"] for cell in cells] == [cell.hash for cell in campaign.design().cells]


def test_the_commands_that_it_prints_repeat_the_whole_campaign_and_compare_it_with_the_unpacked_one(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(packed, tmp_path)
    printed = {
        words[0]: words[words.index("campaign") :]
        for words in map(shlex.split, capsys.readouterr().out.splitlines())
        if words[:1] in (["repeat"], ["compare"])
    }
    assert cli.main([*printed["repeat"], "--dry-run", "--json"]) == 0
    (board,) = json.loads(capsys.readouterr().out)["boards"]
    assert (board["replays"], board["controls"]) == (4, 2)
    repeated = Results(Path(printed["repeat"][-1])).campaigns / "tried"
    unpacked = tmp_path / "campaigns" / "tried"
    assert repeated != unpacked
    assert printed["compare"] == ["campaign", "compare", str(unpacked), str(repeated)]


def test_an_existing_campaign_is_not_replaced(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert unpack(packed, tmp_path) == 0
    assert unpack(packed, tmp_path) == 2
    assert "exists, and unpacking replaces nothing" in capsys.readouterr().err


Change = Callable[[zipfile.ZipFile, Path], None]


def entry(name: str, mode: int = 0) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def named(name: str) -> Change:
    return lambda archive, _: archive.writestr(entry(name), "text")


def of_kind(mode: int) -> Change:
    return lambda archive, _: archive.writestr(entry("cells/a", mode), "/etc/passwd")


def bomb(archive: zipfile.ZipFile, _: Path) -> None:
    for number in range(5):
        archive.writestr(entry(f"cells/{number}"), "small")
        archive.filelist[-1].file_size = 1 << 30


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (named("../out"), "the name '../out' is not allowed"),
        (named("/tmp/out"), "the name '/tmp/out' is not allowed"),
        (named("cells/../../out"), "is not allowed"),
        (named("cells\\..\\out"), "is not allowed"),
        (named("cells/$(touch out)"), "is not allowed"),
        (named("cells/a;b"), "is not allowed"),
        (named("cells/a\nb"), "is not allowed"),
        (named(".ssh/authorized_keys"), "is not allowed"),
        (named("a/b/c/d/e"), "is not allowed"),
        (named("cells/" + "a" * 300), "is not allowed"),
        (named("cells/"), "is not allowed"),
        (named("CAMPAIGN.yaml"), "holds campaign.yaml twice"),
        (named("extra.txt"), "'extra.txt' is not in pack.json"),
        (of_kind(stat.S_IFLNK | 0o777), "cells/a is a link"),
        (of_kind(stat.S_IFBLK), "cells/a is a device file"),
        (of_kind(stat.S_IFCHR), "cells/a is a device file"),
        (of_kind(stat.S_IFIFO), "cells/a is a named pipe"),
        (bomb, "allowed are 4 GiB"),
    ],
)
def test_a_hostile_archive_is_refused_in_one_sentence_and_leaves_nothing(
    packed: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Change,
    said: str,
) -> None:
    hostile, results = tmp_path / "hostile.zip", tmp_path / "results"
    with zipfile.ZipFile(hostile, "w") as archive:
        change(archive, packed)
        with zipfile.ZipFile(packed) as good:
            for name in good.namelist():
                archive.writestr(name, good.read(name))
    assert unpack(hostile, results) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert error.count("\n") == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["hostile.zip"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("campaign.yaml", b"other", "campaign.yaml is not the file that pack.json states"),
        (MANIFEST, b"{}", "pack.json"),
        (MANIFEST, b"\xff", "not UTF-8 text"),
        (MANIFEST, None, "pack.json is missing"),
        ("cells.json", None, "'cells.json' is not in the archive"),
    ],
)
def test_changed_and_missing_files_are_noticed(
    packed: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes | None,
    said: str,
) -> None:
    changed = tmp_path / "changed.zip"
    with zipfile.ZipFile(packed) as good, zipfile.ZipFile(changed, "w") as archive:
        for each in good.namelist():
            found = content if each == name else good.read(each)
            if found is not None:
                archive.writestr(each, found)
    assert unpack(changed, tmp_path / "results") == 2
    assert said in capsys.readouterr().err
    assert not [path for path in (tmp_path / "results").rglob("*") if path.is_file()]


def test_damaged_archives_are_refused(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = packed.read_bytes()
    middle = len(content) // 3
    for number, damaged in enumerate(
        (b"", b"no archive", content[:-30], content[:middle] + b"\0" * 64 + content[middle + 64 :])
    ):
        archive = tmp_path / f"{number}.zip"
        archive.write_bytes(damaged)
        assert unpack(archive, tmp_path / "results") == 2, number
        assert "error" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [
        {"boards": ["local", "emulated-m4f"]},
        {"networks": ["digits"]},
        {"methods": ["griewank"]},
        {"ram_budgets": ["90%"]},
        {"deadlines": ["1.5x"]},
        {"conditions": [{"name": "o2", "flags": ["-O2"]}]},
    ],
)
def test_the_file_of_another_campaign_is_not_packed_with_the_cells(
    campaign: CampaignDirectory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
) -> None:
    """As after a campaign that was killed after it had written one of the two."""
    changed = tmp_path / "tried"
    shutil.copytree(campaign.path, changed)
    document = yaml.safe_load((changed / "campaign.yaml").read_text())
    (changed / "campaign.yaml").write_text(yaml.safe_dump({**document, **changes}))
    assert cli.main(["campaign", "pack", str(changed)]) == 2
    assert capsys.readouterr().err.strip() == (
        f"error: {changed}: campaign.yaml and cells.json are of different calls of campaign run;"
        " run the campaign again"
    )


def with_network(directory: Path) -> tuple[CampaignDirectory, bytes]:
    """A campaign of a network in a file, designed in this directory, and the file's content."""
    content = (REFERENCES / "exported" / "classifier.pt2").read_bytes()
    (directory / "results" / "nets").mkdir(parents=True)
    (directory / "results" / "nets" / "net.pt2").write_bytes(content)
    changes = {"networks": ["nets/net.pt2"], "ram_budgets": ["100%"], "methods": ["dtr"]}
    with contextlib.chdir(directory):
        made = campaign_with_replays(Results(Path("results")), **changes)
    return CampaignDirectory(directory / made.path), content


@pytest.mark.slow
def test_a_network_is_packed_from_any_directory_and_names_the_same_cells_when_it_arrives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign, content = with_network(tmp_path / "ours")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["campaign", "pack", str(campaign.path), "--out", "net.zip", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == []
    assert unpack(Path("net.zip"), Path("theirs")) == 0
    repeat = Path("theirs/campaigns/tried/repeat")
    assert (repeat / "networks" / "net.pt2.pt2").read_bytes() == content
    again = open_campaign(str(repeat / "campaign.yaml"), Results(Path("theirs"))).design
    assert again.cells == campaign.design().cells


@pytest.mark.slow
def test_a_network_that_keeps_data_in_other_files_is_packed_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = classifier_apart(tmp_path / "net.onnx")
    named = {"model": "net.onnx", "loss": "cross-entropy"}
    words = {"networks": [named], "ram_budgets": ["100%"], "methods": ["dtr"]}
    campaign = campaign_with_replays(Results(tmp_path), **words)
    archive = tmp_path / "tried.zip"
    assert cli.main(["campaign", "pack", str(campaign.path), "--out", str(archive), "--json"]) == 0
    (sentence,) = json.loads(capsys.readouterr().out)["left_out"]
    assert sentence == (
        f"network net.onnx: data that {network} keeps in other files are not packed; copy them"
        " beside repeat/networks/net.onnx.onnx"
    )
    with zipfile.ZipFile(archive) as packed:
        (name,) = (each for each in packed.namelist() if each.endswith("networks/net.onnx.onnx"))
        assert packed.read(name) == network.read_bytes()


@pytest.mark.slow
def test_links_pipes_and_what_they_lead_to_are_not_packed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign, _ = with_network(tmp_path)
    (tmp_path / "secret").write_text("root:x:0:0")
    (campaign.path / "link.txt").symlink_to(tmp_path / "secret")
    os.mkfifo(campaign.path / "pipe.txt")
    network = tmp_path / "results" / "nets" / "net.pt2"
    network.unlink()
    network.symlink_to(tmp_path / "secret")
    archive = tmp_path / "tried.zip"
    words = ["campaign", "pack", str(campaign.path), "--out", str(archive), "--json"]
    assert cli.main(words) == 0
    (sentence,) = json.loads(capsys.readouterr().out)["left_out"]
    assert sentence.endswith("net.pt2 has changed since the campaign ran")
    network.unlink()
    os.mkfifo(network)
    assert cli.main(words) == 0
    (sentence,) = json.loads(capsys.readouterr().out)["left_out"]
    assert "net.pt2 cannot be read (it is a named pipe" in sentence
    with zipfile.ZipFile(archive) as packed:
        assert not {"link.txt", "pipe.txt"} & set(packed.namelist())
        assert all(b"root:x" not in packed.read(name) for name in packed.namelist())
