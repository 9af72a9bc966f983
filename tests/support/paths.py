"""Where tests find the checkout, C that only tests compile, and recorded references."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "tests" / "support" / "native"
REFERENCES = ROOT / "tests" / "references"
