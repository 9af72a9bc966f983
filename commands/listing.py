"""``devices`` and ``models``: what there is to choose from."""

from __future__ import annotations

from argparse import Namespace

from commands.console import Console, si, size
from devices.errors import ExitCode


def list_devices(_arguments: Namespace, console: Console) -> int:
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
    console.result(f"\npublished profiles, to solve with: {', '.join(published_names())}")
    return ExitCode.DONE


def list_models(arguments: Namespace, console: Console) -> int:
    from networks.models import build_model, model_names

    steps = [build_model(name, arguments.batch) for name in model_names()]
    facts = [
        {
            "model": name,
            "batch": step.batch,
            "ops": len(step.ops),
            "distinct_ops": len(step.distinct_specs),
            "parameters": step.parameter_count,
            "activation_bytes": step.activation_bytes,
        }
        for name, step in zip(model_names(), steps, strict=True)
    ]
    console.document({"models": facts})
    rows = [["model", "ops", "distinct", "parameters", f"activations, batch {arguments.batch}"]]
    rows += [
        [
            str(fact["model"]),
            str(fact["ops"]),
            str(fact["distinct_ops"]),
            f"{fact['parameters']:,}",
            size(float(str(fact["activation_bytes"]))),
        ]
        for fact in facts
    ]
    console.table(rows, right=range(1, 5))
    return ExitCode.DONE
