"""The append-only history of every decision and every step attempt, and the migration of its database."""

from operators.ledger.book import (
    DECISION,
    DECISION_CLOSED,
    FAILED,
    RETRAIN,
    STEP_BEGUN,
    STEP_FINISHED,
    Attempt,
    Entry,
    Ledger,
    ledger,
)
from operators.ledger.tables import migrate

__all__ = [
    "DECISION",
    "DECISION_CLOSED",
    "FAILED",
    "RETRAIN",
    "STEP_BEGUN",
    "STEP_FINISHED",
    "Attempt",
    "Entry",
    "Ledger",
    "ledger",
    "migrate",
]
