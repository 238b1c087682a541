"""Airflow's pools. What runs in none of these has the rest of the executor's slots to itself.

A backfill never holds more than ``BACKFILL_SLOTS`` slots, so of four at least three stay for the daily runs, and its
tasks have the least weight: at most one task stands before a daily one.
"""

from __future__ import annotations

from typing import Any

BACKFILL = "backfill"
BACKFILL_SLOTS = 1  # decisions.md 4.5: 1 or 2, and a slot reserved for the daily run
IN_BACKFILL: dict[str, Any] = {"pool": BACKFILL, "priority_weight": 1, "weight_rule": "absolute"}
"""``default_args`` of a DAG that must never be in the way of a daily one."""


def make() -> None:
    """Makes or updates the pools in Airflow's database; safe to repeat."""
    from airflow.models.pool import Pool  # noqa: PLC0415  only set-up touches Airflow's database

    Pool.create_or_update_pool(
        name=BACKFILL,
        slots=BACKFILL_SLOTS,
        description="Backfills: partitions of the past, never released.",
        include_deferred=False,
    )
