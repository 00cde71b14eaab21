"""Figures: what was measured, what it should be, and whether it is."""

import os
import platform
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured value.

    Attributes:
        name: What was measured.
        value: The value.
        unit: Its unit.
        reach: The bound in words, "at least 0.5" or "at most 15".
        ok: Whether it is kept.
    """

    name: str
    value: float
    unit: str
    reach: str
    ok: bool


def at_least(name, value, bound, unit="ratio"):
    """A value that should not be smaller."""
    return Figure(name, round(value, 3), unit, f"at least {bound:g}", value >= bound)


def for_information(name, value, unit):
    """A value that nothing is asked of."""
    return Figure(name, round(value, 3), unit, "", ok=True)


def at_most(name, value, bound, unit):
    """A value that should not be larger."""
    return Figure(name, round(value, 3), unit, f"at most {bound:g}", value <= bound)


def median(values):
    """The middle one."""
    return statistics.median(values)


def machine():
    """The machine in general words."""
    return {
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def table(figures):
    """The figures as lines of text."""
    head = ("figure", "value", "unit", "reach", "")
    rows = [head] + [
        (one.name, f"{one.value:g}", one.unit, one.reach, "ok" if one.ok else "NOT REACHED")
        for one in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
