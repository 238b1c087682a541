"""A month's usage as a picture: a bar per tenant and unit, billed and not billed. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from operators.jobs.metering import Usage

BAR, LEFT, WIDE = 26, 190, 560


def picture(usages: Iterable[Usage], title: str) -> str:
    """An SVG; hours of the unit at the end of each bar."""
    hours: dict[tuple[str, str], list[float]] = {}
    for one in usages:
        found = hours.setdefault((one.tenant, one.unit), [0.0, 0.0])
        found[0 if one.billable else 1] += one.unit_seconds / 3600
    longest = max((sum(both) for both in hours.values()), default=0.0) or 1.0
    bars = []
    for row, ((tenant, unit), (billed, free)) in enumerate(sorted(hours.items())):
        top, paid, whole = 40 + row * BAR, WIDE * billed / longest, WIDE * (billed + free) / longest
        bars.append(
            f'<text x="{LEFT - 8}" y="{top + 14}" text-anchor="end">{escape(tenant)}, {unit}</text>'
            f'<rect x="{LEFT}" y="{top}" width="{whole:.1f}" height="18" fill="#c9c9c9"/>'
            f'<rect x="{LEFT}" y="{top}" width="{paid:.1f}" height="18" fill="#2f6fab"/>'
            f'<text x="{LEFT + whole + 6:.1f}" y="{top + 14}">{billed:.2f} h billed, {free:.2f} h not</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDE + 200}" height="{50 + len(hours) * BAR}" '
        f'font-family="system-ui,sans-serif" font-size="13"><text x="8" y="22" font-size="15">{escape(title)}</text>'
        f"{''.join(bars)}</svg>\n"
    )
