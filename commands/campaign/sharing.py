"""Actions ``report``, ``pack`` and ``unpack`` of ``campaign``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from commands.console import Console
from devices.documents.readable import size
from devices.errors import ExitCode
from devices.results import Results


@dataclass(frozen=True)
class ReportOptions:
    """Write the report of a campaign to ``out``, or to its directory."""

    name: str
    out: Path | None
    results: Results


@dataclass(frozen=True)
class PackOptions:
    """Write a campaign to the archive ``out``, or to one beside its directory."""

    name: str
    out: Path | None
    results: Results


@dataclass(frozen=True)
class UnpackOptions:
    """Unpack an archive to the directory ``out``, or among the other campaigns."""

    archive: Path
    out: Path | None
    results: Results


SharingOptions: TypeAlias = ReportOptions | PackOptions | UnpackOptions

_REPORT = "report.html"
_REPEATED = "repeated"


def share(options: SharingOptions, console: Console) -> int:
    """Write a report, pack a campaign or unpack one."""
    match options:
        case ReportOptions():
            return _report(options, console)
        case PackOptions():
            return _pack(options, console)
        case UnpackOptions():
            return _unpack(options, console)


def _report(options: ReportOptions, console: Console) -> int:
    from campaigns.keeping.directory import campaign_directory

    directory = campaign_directory(options.name, options.results)
    path = _written_report(directory, options.out or directory / _REPORT, console)
    console.document({"report": str(path), "bytes": path.stat().st_size})
    console.result(f"report     {path}, {size(path.stat().st_size)}")
    return ExitCode.DONE


def _written_report(directory: Path, path: Path, console: Console) -> Path:
    from campaigns.keeping.results import read_campaign
    from devices.documents.document import require_writable
    from plots.report.page import write_report

    results = read_campaign(directory)
    require_writable(path)
    with console.progress("reading cells") as progress:
        of_all = 1 / len(results.cells)
        write_report(results, path, lambda done: progress.show("reading cells", done * of_all))
    return path


def _pack(options: PackOptions, console: Console) -> int:
    from campaigns.keeping.directory import campaign_directory
    from campaigns.keeping.results import read_campaign
    from campaigns.sharing.packing import pack_campaign
    from devices.documents.document import require_writable

    directory = campaign_directory(options.name, options.results)
    results = read_campaign(directory)
    archive = options.out or directory.parent / f"{results.name}.campaign.zip"
    require_writable(archive)
    _written_report(directory, directory / _REPORT, console)
    manifest = pack_campaign(results, archive)
    for sentence in manifest.left_out:
        console.say(f"left out: {sentence}")
    console.document(
        {
            "archive": str(archive),
            "bytes": archive.stat().st_size,
            "files": len(manifest.files),
            "left_out": manifest.left_out,
        }
    )
    console.result(f"{len(manifest.files)} files, {size(archive.stat().st_size)}  {archive}")
    console.result("it holds descriptions of boards, with names of hosts and users")
    return ExitCode.DONE


def _unpack(options: UnpackOptions, console: Console) -> int:
    from campaigns.sharing.repeating import DIRECTORY
    from campaigns.sharing.unpacking import unpack_campaign
    from devices.program import command_line

    def directory_of(name: str) -> Path:
        return options.out or options.results.campaigns / name

    manifest, directory = unpack_campaign(options.archive, directory_of)
    console.document(
        {
            "directory": str(directory),
            "campaign": manifest.name,
            "program": manifest.environment.program,
            "left_out": manifest.left_out,
        }
    )
    made = f"{manifest.created}, {manifest.environment.program}"
    console.result(f"{manifest.name} ({made}) is in {directory}")
    for sentence in manifest.left_out:
        console.result(f"left out: {sentence}")
    console.result(f"report     {directory / _REPORT}")
    # Among the results of the other lab, its replays would count as done.
    repeated = Results(options.results.root / _REPEATED)
    file = directory / DIRECTORY / "campaign.yaml"
    again = command_line("campaign", "run", file, "--results", repeated.root)
    console.result(f"repeat it  {again}")
    own = repeated.campaigns / manifest.name
    console.result(f"compare    {command_line('campaign', 'compare', directory, own)}")
    return ExitCode.DONE
