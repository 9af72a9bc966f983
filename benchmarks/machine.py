"""What a benchmark ran on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def machine_line() -> str:
    """Processor, cores, system and the versions that matter, in one line."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    packages = ", ".join(f"{name} {version(name)}" for name in ("mip", "highspy", "cbcbox"))
    return (
        f"{processor}, {os.cpu_count()} cores, {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}, {packages}"
    )
