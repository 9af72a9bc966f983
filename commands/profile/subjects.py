"""Training steps that ``profile`` measures: of each network, in whole layers and in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from devices.documents.readable import size
from networks.exported import exported
from networks.models import build_model

if TYPE_CHECKING:
    from commands.console import Console
    from commands.profile.options import MeasureOptions
    from devices.description import DeviceDescription
    from devices.quantities import Slices
    from networks.kinds import Place
    from networks.training.step import TrainingStep

    _Build: TypeAlias = Callable[..., TrainingStep]


def steps_to_measure(
    options: MeasureOptions, description: DeviceDescription, console: Console
) -> Iterator[tuple[str, TrainingStep]]:
    """Build the steps whose operations are measured, each with the name of its network.

    Without ``--slices``, the layers of a microcontroller are cut as ``solve`` will cut them in the
    board's RAM, which is said. Of steps with the same operations, the first one is measured.

    Raises:
        InputError: A network cannot be built.
    """
    for word in options.models:
        name = exported(word, options.results.networks)
        build = partial(
            build_model,
            name,
            options.batch,
            options.optimizer,
            loss=options.loss,
            train=options.train,
            accumulate=options.accumulate,
            lora=options.lora,
        )
        asked = options.slices or _foreseen(name, build, description, console)
        before: list[TrainingStep] = []
        for slices in asked:
            step = build(slices=slices)
            if all(step.ops != other.ops for other in before):
                before.append(step)
                yield name, step


def _foreseen(
    name: str, build: _Build, description: DeviceDescription, console: Console
) -> tuple[Slices | None, ...]:
    """Slices that ``solve`` will offer by itself; whole layers only, if none are foreseen."""
    from solver.requests.foreseen import foreseen_slices

    if description.firmware is None or description.memory is None:
        return (None,)
    homes: tuple[Place, ...] = ("ram",) if description.storage is None else ("ram", "storage")
    ram_bytes = description.memory.usable_bytes
    found = foreseen_slices((build(parameters_in=home) for home in homes), ram_bytes) or (None,)
    cut = " and of ".join(str(slices) for slices in found if slices is not None)
    if cut:
        also = "also" if None in found else "only"
        console.say(
            f"{name} is {also} measured in slices of {cut}, which solve offers in the board's"
            f" {size(ram_bytes)} (--slices none: whole layers)"
        )
    return found
