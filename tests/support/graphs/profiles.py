"""Made-up profiles for pictures, with sizes and shapes of real ones and plausible figures."""

from __future__ import annotations

import random

from devices.operation import OpSpec
from devices.profile import (
    AffinePageCost,
    BoardIdentity,
    ContextCost,
    Cost,
    DeviceProfile,
    EnergySource,
    Interval,
    MeterRecord,
    OperationCost,
    StorageCosts,
    SweepPoint,
)


def in_context(profile: DeviceProfile, key: str, factor: float) -> DeviceProfile:
    """The profile with one operation measured in context, at ``factor`` times its cold cost."""

    def refined(operation: OperationCost) -> OperationCost:
        if operation.op != key:
            return operation
        cold = operation.cold
        cost = ContextCost(
            time_s=cold.time_s.scaled(factor),
            energy_j=None if cold.energy_j is None else cold.energy_j.scaled(factor),
            trials=20,
            executions=3,
            schedule="chain, on bench",
            run="results/replays/chain",
            measured="2026-01-31T12:00:00+00:00",
        )
        return operation.model_copy(update={"in_context": cost})

    # Not model_copy, which would also copy the profile's cached properties.
    fields = {name: getattr(profile, name) for name in type(profile).model_fields}
    return DeviceProfile(**{**fields, "operations": tuple(map(refined, profile.operations))})


def on_flash(profile: DeviceProfile) -> DeviceProfile:
    """The profile on storage whose blocks are erased, with transfers watched within steps."""
    storage = profile.storage
    assert storage is not None
    erase = AffinePageCost(fixed_s=1e-3, per_page_s=2e-2, fixed_j=3e-3, per_page_j=6e-2)
    watched = {"in_steps": Interval(median=1.2, low=1.1, high=1.4)}
    return profile.changed(
        storage=storage.model_copy(
            update={
                "read": storage.read.model_copy(update=watched),
                "write": storage.write.model_copy(update=watched),
                "erase": erase,
                "erase_block_bytes": 1 << 17,
            }
        )
    )


def made_up_profile(
    specs: list[OpSpec], energy_source: EnergySource = "estimated", power_w: float | None = 3.0
) -> DeviceProfile:
    """A profile with estimated joules (``power_w`` × seconds) or measured ones, which scatter."""
    chance = random.Random(7)

    def interval(value: float, spread: float) -> Interval:
        return Interval(
            median=value,
            low=value * (1 - spread * chance.random()),
            high=value * (1 + 2 * spread * chance.random()),
        )

    def cost(time_s: float) -> Cost:
        spread = 0.02 + 2e-7 / time_s
        taken = interval(time_s, min(spread, 0.4))
        if power_w is None:
            return Cost(time_s=taken, trials=5)
        if energy_source == "estimated":
            return Cost(time_s=taken, energy_j=taken.scaled(power_w), trials=5)
        joules = interval(time_s * power_w * chance.uniform(0.7, 1.3), 0.1)
        return Cost(time_s=taken, energy_j=joules, trials=5, void_trials=1)

    operations = []
    for spec in specs:
        warm_s = 2e-6 + spec.work_flop / 6e9 + spec.moved_bytes / 8e9
        cold_s = warm_s * chance.uniform(1.0, 1.6)
        operations.append(
            OperationCost(op=spec.key, workspace_bytes=0, warm=cost(warm_s), cold=cost(cold_s))
        )

    def paging(fixed_s: float, per_page_s: float) -> AffinePageCost:
        sweep = []
        for exponent in range(12, 23):
            time_s = (fixed_s + per_page_s * 2 ** (exponent - 12)) * chance.uniform(0.93, 1.08)
            taken = interval(time_s, 0.08)
            joules = None if power_w is None else taken.scaled(power_w)
            sweep.append(SweepPoint(bytes=2**exponent, time_s=taken, energy_j=joules))
        return AffinePageCost(
            fixed_s=fixed_s,
            per_page_s=per_page_s,
            fixed_j=None if power_w is None else fixed_s * power_w,
            per_page_j=None if power_w is None else per_page_s * power_w,
            fit_error=0.043,
            sweep=tuple(sweep),
        )

    return DeviceProfile(
        name="bench",
        energy_source=energy_source,
        meter=MeterRecord(kind="hwmon", detail="ina226, channel 1", rate_hz=500, sync="sampled"),
        board=BoardIdentity(model="Raspberry Pi 4 Model B Rev 1.4", memory_bytes=4 * 1024**3),
        operations=tuple(operations),
        storage=StorageCosts(
            medium="sd",
            path="~/.cache/joulewright",
            page_bytes=4096,
            method="O_DIRECT",
            read=paging(2.1e-4, 9.1e-5),
            write=paging(1.3e-3, 1.9e-4),
        ),
    )
