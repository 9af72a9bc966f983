"""Commands ``devices`` and ``models``: list the boards and the networks."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass

from commands.arguments import DEFAULT_BATCH, add_json, count
from commands.command import Command
from commands.console import Console
from devices.documents.readable import si, size
from devices.errors import ExitCode


def list_devices(_options: None, console: Console) -> int:
    """Print the boards of the catalogue and the published profiles."""
    from devices.description import catalog_names, load_description
    from devices.published import published_names

    described = [load_description(name) for name in catalog_names()]
    console.document(
        {
            "devices": [
                device.model_dump(mode="json", by_alias=True, exclude_none=True)
                for device in described
            ],
            "published_profiles": list(published_names()),
        }
    )
    rows = [["device", "board", "processor", "RAM", "reached by", "meter"]]
    for device in described:
        processor = device.processor
        rows.append(
            [
                device.name,
                device.model,
                f"{processor.model}, {si(processor.clock_hz, 'Hz')}" if processor else "asked",
                size(device.memory.ram_bytes) if device.memory else "asked",
                device.transport.kind,
                device.meter.kind if device.meter else "none (nominal power)",
            ]
        )
    console.table(rows)
    console.result(f"\npublished profiles, for solve --profile: {', '.join(published_names())}")
    return ExitCode.DONE


@dataclass(frozen=True)
class ModelsOptions:
    """Options of ``models``; ``batch`` is the samples in a step."""

    batch: int

    @classmethod
    def of(cls, namespace: Namespace) -> ModelsOptions:
        """Options as read from the command line."""
        return cls(namespace.batch)


def _add_models_options(parser: ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument(
        "--batch", type=count, default=DEFAULT_BATCH, help=f"samples in a step ({DEFAULT_BATCH})"
    )


def list_models(options: ModelsOptions, console: Console) -> int:
    """Print the networks and the sizes of their training steps."""
    from networks.models import ModelTooLarge, build_model, model_names

    facts: list[dict[str, object]] = []
    rows = [["model", "ops", "distinct", "parameters", f"activations, batch {options.batch}"]]
    for name in model_names():
        try:
            step = build_model(name, options.batch)
        except ModelTooLarge as error:
            facts.append({"model": name, "batch": options.batch, "too_large": str(error)})
            rows.append([name, *["–"] * 3, "too large"])
            continue
        facts.append(
            {
                "model": name,
                "batch": step.batch,
                "ops": len(step.ops),
                "distinct_ops": len(step.distinct_specs),
                "parameters": step.parameter_count,
                "activation_bytes": step.activation_bytes,
            }
        )
        rows.append(
            [
                name,
                str(len(step.ops)),
                str(len(step.distinct_specs)),
                f"{step.parameter_count:,}",
                size(step.activation_bytes),
            ]
        )
    console.document({"models": facts})
    console.table(rows, right=range(1, 5))
    return ExitCode.DONE


DEVICES = Command(add_json, lambda _namespace: None, list_devices)
MODELS = Command(_add_models_options, ModelsOptions.of, list_models)
