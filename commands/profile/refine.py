"""``profile --refine RUN``: measure operations again in the context in which they run.

The operations are those that a replay holds responsible for its difference.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from commands.console import Console
from commands.profile.options import RefineOptions
from commands.wording import short_key
from devices.claims.claim import sole_writer
from devices.description import load_description
from devices.documents.document import dump_yaml, write_atomically
from devices.documents.readable import si, size
from devices.errors import ExitCode, InputError
from devices.library import resolve_profile
from devices.profile import DeviceProfile, Interval
from devices.program import command_line
from replay.costs.measure_again import measure_again, origin_of
from replay.costs.refine import FEWEST_STEPS, MOST_STEPS, Refinement, refinable
from replay.directory import GRAPH, StoredRun
from solver.files.origin import require_profile_of

_TRANSFERS = {"storage.read", "storage.write"}


def refine(options: RefineOptions, console: Console) -> int:
    """Measure the responsible operations again; exit code 0 also if none is responsible."""
    description = load_description(options.device)
    run = StoredRun.read(options.run)
    if run.report.device != description.name:
        raise InputError(
            f"{run.directory}: this run is from {run.report.device!r}, not {description.name!r}",
            remedy=f"refine it with the description of {run.report.device!r}",
        )
    keys = run.report.diagnosis.refine
    if not keys:
        _show_nothing_to_refine(console, run, description.reference)
        return ExitCode.DONE
    measured = options.results.profiles
    profile = resolve_profile(origin_of(run).profile, measured)
    require_profile_of(run.graph, profile)
    chosen, unmeasured = refinable(profile, run.costs_s, keys, str(run.directory / GRAPH))
    _show_other_causes(console, run, unmeasured, description.reference)
    if not chosen:
        console.document(_document(None, (), unmeasured))
        return ExitCode.DONE
    out = options.out or measured / f"{profile.name}.yaml"
    _announce(console, run, chosen)
    if options.dry_run:
        console.document(_plan_document(run, out, chosen, unmeasured))
        return ExitCode.DONE
    with sole_writer(out):
        profile = resolve_profile(origin_of(run).profile, measured)  # perhaps refined meanwhile
        require_profile_of(run.graph, profile)
        refined, refinements = measure_again(description, run, profile, chosen, console.say)
        write_atomically(out, dump_yaml(refined))
    console.document(_document(out, refinements, unmeasured))
    _summarise(console, profile, refinements)
    console.result(
        f"\nprofile  {out}\nnext     solve again with --profile {shlex.quote(str(out))}, and run"
    )
    return ExitCode.DONE


def _show_nothing_to_refine(console: Console, run: StoredRun, device: str) -> None:
    for sentence in run.report.diagnosis.sentences:
        console.result(sentence)
    console.result(f"{run.directory}: no operation is responsible; nothing is measured again")
    _show_other_causes(console, run, (), device)
    console.document(_document(None, (), ()))


def _show_other_causes(
    console: Console, run: StoredRun, unmeasured: Sequence[str], device: str
) -> None:
    """Print the responsible parts that this command cannot measure again, and the commands for the
    board that ``--device`` names by ``device``."""
    if _transfers_are_responsible(run):
        console.say(
            "transfers are responsible too, but --refine measures operations only: measure them"
            f" again with {command_line('profile', '--device', device)}"
        )
    if unmeasured:
        origin = origin_of(run)
        words = ["profile", "--device", device, "--model", origin.model]
        words += ["--batch", str(origin.batch), "--optimizer", origin.optimizer]
        words += [] if origin.loss is None else ["--loss", origin.loss]
        words += [word for what in origin.train or () for word in ("--train", what)]
        words += [] if origin.lora is None else ["--lora", origin.lora]
        words += [] if origin.accumulate is None else ["--accumulate", str(origin.accumulate)]
        words += [] if origin.slices is None else ["--slices", str(origin.slices.stated)]
        console.say(
            f"responsible, but predicted from other operations and never measured:"
            f" {'; '.join(unmeasured)}. Measure with {command_line(*words)}"
        )


def _transfers_are_responsible(run: StoredRun) -> bool:
    return any(part.what in _TRANSFERS for part in run.report.diagnosis.responsible)


def _announce(console: Console, run: StoredRun, chosen: Sequence[str]) -> None:
    console.say(
        f"{run.report.device}: measuring {_operations(len(chosen))} in context, in"
        f" {FEWEST_STEPS} to {MOST_STEPS} steps of {run.schedule.graph}"
    )
    for key in chosen:
        console.say(f"  {key}")
    if run.report.storage is not None:
        written = run.report.storage.written_bytes.predicted
        console.say(
            f"storage: each step writes {size(written)}, all steps"
            f" {size(MOST_STEPS * written)} at most"
        )


def _summarise(console: Console, profile: DeviceProfile, refinements: Sequence[Refinement]) -> None:
    label = profile.energy_source
    rows = [
        ["operation", "used before", "in context", "95 % interval", "ratio", f"energy ({label})"]
    ]
    for refinement in refinements:
        before, now = refinement.before, refinement.now
        rows.append(
            [
                short_key(refinement.op),
                si(before.time_s.median, "s"),
                si(now.time_s.median, "s"),
                _half(now.time_s),
                f"{refinement.ratio:.3g}",
                si(now.energy_j.median, "J") if now.energy_j else "–",
            ]
        )
    steps = refinements[0].now.trials
    console.result(f"{_operations(len(refinements))}, measured again in {steps} steps")
    console.table(rows, right=(1, 2, 3, 4, 5))


def _operations(count: int) -> str:
    return "1 operation" if count == 1 else f"{count} operations"


def _half(interval: Interval) -> str:
    half = (interval.high - interval.low) / 2 / interval.median if interval.median else 0.0
    return f"±{100 * half:.1f} %"


def _plan_document(
    run: StoredRun, out: Path, chosen: Sequence[str], unmeasured: Sequence[str]
) -> dict[str, object]:
    storage = run.report.storage
    return {
        "device": run.report.device,
        "profile": str(out),
        "operations": list(chosen),
        "never_measured": list(unmeasured),
        "steps": [FEWEST_STEPS, MOST_STEPS],
        "written_bytes_per_step": 0 if storage is None else storage.written_bytes.predicted,
    }


def _document(
    out: Path | None, refinements: Sequence[Refinement], unmeasured: Sequence[str]
) -> dict[str, object]:
    """Build the JSON document; ``out`` is None if no profile was written."""
    return {
        "profile": None if out is None else str(out),
        "refined": [
            {
                "op": refinement.op,
                "before": refinement.before.model_dump(mode="json", exclude_none=True),
                "in_context": refinement.now.model_dump(mode="json", exclude_none=True),
                "ratio": refinement.ratio if math.isfinite(refinement.ratio) else None,
            }
            for refinement in refinements
        ],
        "never_measured": list(unmeasured),
    }
