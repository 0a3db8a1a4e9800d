"""What the processor is. Standard library only: it is asked before Paddle is imported."""

from __future__ import annotations

from pathlib import Path


def processor() -> tuple[str, frozenset[str]]:
    """Vendor and instruction-set flags of the first processor, empty where not known."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "", frozenset()
    rows = dict(
        (part.strip() for part in line.split(":", 1)) for line in text.splitlines() if ":" in line
    )
    return rows.get("vendor_id", ""), frozenset(rows.get("flags", "").split())
