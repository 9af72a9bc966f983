"""Paths of the checkout, of C that only tests compile, and of recorded references."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "tests" / "support" / "native"
REFERENCES = ROOT / "tests" / "references"
