"""``profile``: measure what a training step costs on a board."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from commands.console import Console, si, size, time_words
from devices.errors import ExitCode

if TYPE_CHECKING:
    from devices.profile import DeviceProfile, MatmulComparison, StorageCosts
    from profiler.run.preview import ProfilePlan, StoragePlan


def profile(arguments: Namespace, console: Console) -> int:
    if arguments.refine is not None:
        from commands.refine import refine

        return refine(arguments, console)
    from devices.description import load_description
    from devices.documents.document import dump_yaml, write_atomically
    from networks.models import build_model
    from profiler.run.frame import trials_frame
    from profiler.run.options import ProfileOptions
    from profiler.run.preview import plan_profile
    from profiler.run.run import choose_run_directory, profile_device
    from replay.lowering.lowering import unscheduled

    description = load_description(arguments.device)
    steps = [build_model(name, arguments.batch, arguments.optimizer) for name in arguments.model]
    specs = [spec for step in steps for spec in step.distinct_specs]
    plan = None if arguments.no_additivity else unscheduled(steps[0])
    options = ProfileOptions(
        blocks=arguments.blocks,
        seed=arguments.seed,
        storage=not arguments.no_storage,
        storage_budget_bytes=arguments.storage_budget_mib << 20,
        overwrite_raw_flash=arguments.overwrite_raw_flash,
    )
    preview = plan_profile(description, specs, plan, options)
    _announce(console, description.name, preview)
    if arguments.dry_run:
        console.document({"device": description.name, "plan": asdict(preview)})
        return ExitCode.DONE
    out = arguments.out or arguments.results.profiles / f"{description.name}.yaml"
    trials = choose_run_directory(arguments.results.campaigns, description, specs, plan, options)
    with _ProgressBar(console) as bar:
        result = profile_device(description, specs, plan, options, trials, bar)
    write_atomically(out, dump_yaml(result))
    write_atomically(trials / "trials.csv", trials_frame(trials).to_csv(index=False))
    console.document(result.model_dump(mode="json", by_alias=True, exclude_none=True))
    _summarise(console, result)
    console.result(f"\nprofile  {out}\ntrials   {trials / 'trials.csv'}")
    return ExitCode.DONE


def _announce(console: Console, device: str, plan: ProfilePlan) -> None:
    console.say(
        f"{device}: {plan.operations} distinct operations, {plan.blocks} blocks of"
        f" {plan.windows_per_block} windows, about {plan.estimated_s / 60:.1f} min"
    )
    if plan.storage is not None:
        _announce_storage(console, plan.storage)


def _announce_storage(console: Console, plan: StoragePlan) -> None:
    console.say(
        f"storage: {plan.place}, at most {size(plan.budget_bytes)} written"
        f" (about {size(plan.written_bytes)})"
    )
    if plan.erased_blocks:
        endurance = "unknown" if plan.endurance_cycles is None else str(plan.endurance_cycles)
        console.say(
            f"storage: up to {plan.erased_blocks} erase blocks are erased, none more than"
            f" {plan.cycles} times (endurance: {endurance} cycles)"
        )


def _summarise(console: Console, result: DeviceProfile) -> None:
    label = result.energy_source
    rows = [["operation", time_words(label), "95 % interval", f"energy ({label})"]]
    costs = [(operation.op, operation.cost(result.cost_basis)) for operation in result.operations]
    slowest = sorted(costs, key=lambda item: -item[1].time_s.median)[:8]
    for key, cost in slowest:
        time_s = cost.time_s
        half = (time_s.high - time_s.low) / 2 / time_s.median if time_s.median else 0.0
        energy = si(cost.energy_j.median, "J") if cost.energy_j else "–"
        rows.append([short_key(key), si(time_s.median, "s"), f"±{100 * half:.1f} %", energy])
    console.result(f"the {len(slowest)} slowest of {len(costs)} operations ({result.cost_words})")
    console.table(rows, right=(1, 2, 3))
    if result.additivity is not None:
        warm, cold = (100 * result.additivity.ratio(state) for state in ("warm", "cold"))
        console.result(
            f"additivity: the operations of {result.additivity.model} sum up to {warm:.0f} % (warm)"
            f" and {cold:.0f} % (cold) of a whole step, {si(result.additivity.step_s.median, 's')};"
            f" used: {result.cost_words}"
        )
    if result.matmul_comparison is not None:
        console.result(matmul_sentence(result.matmul_comparison))
    if result.storage is not None:
        _summarise_storage(console, result.storage)
    for note in result.notes:
        console.result(f"note: {note}")


def matmul_sentence(comparison: MatmulComparison) -> str:
    """Which of the two computes matrix products, and why."""
    library = " ".join(comparison.library.split()[:2]) or "the BLAS"
    taken, other = ("in-tree", comparison.in_tree_s), (library, comparison.cblas_s)
    if comparison.faster == "cblas":
        taken, other = other, taken
    faster = "faster" if comparison.is_certain else "not measurably slower"
    return (
        f"matrix products: {taken[0]}, which is {faster} here than {other[0]}:"
        f" {si(taken[1].median, 's')} against {si(other[1].median, 's')} for the same products"
    )


def _summarise_storage(console: Console, storage: StorageCosts) -> None:
    page, block = (f"{storage.page_bytes}-byte page", f"{storage.erase_block_bytes}-byte block")
    for name, cost, unit in (
        ("read", storage.read, page),
        ("write", storage.write, page),
        ("erase", storage.erase, block),
    ):
        if cost is not None:
            console.result(
                f"storage {name}: {si(cost.fixed_s, 's')} + {si(cost.per_page_s, 's')} per {unit},"
                f" fit error {100 * cost.fit_error:.0f} %"
            )


def short_key(key: str) -> str:
    """The kind and the values of the attributes, in the signature's order."""
    kind, *attributes = key.split()
    return f"{kind} {'·'.join(attribute.partition('=')[2] for attribute in attributes)}"


class _ProgressBar:
    """What is measured now, and what is left."""

    def __init__(self, console: Console) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=RichConsole(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("connecting", total=1.0, left="")
        self._console = console
        self._said = ""

    def __enter__(self) -> _ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, event: object) -> None:
        from profiler.run.run import ProgressEvent

        assert isinstance(event, ProgressEvent)
        left = "" if event.left_s is None else f"{event.left_s:.0f} s left"
        self._progress.update(
            self._task, description=event.activity, completed=event.fraction, left=left
        )
        if not self._progress.console.is_terminal and event.activity != self._said:
            self._said = event.activity
            self._console.say(f"{100 * event.fraction:3.0f} %  {event.activity}  {left}".rstrip())
