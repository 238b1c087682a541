"""The task that waits for a person, without a worker or the triggerer: Airflow parks it as ``awaiting_input``."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Context, Param

APPROVE, REJECT = "Approve", "Reject"


def comment() -> dict[str, Param]:
    """The form of a question; given to the task where it is made, since Airflow tells a task's own params by that."""
    return {"comment": Param("", type="string", description="Kept in the ledger, beside your name.")}


class AskPerson(HITLOperator):
    """Asks for a yes or a no with a comment; returns answer, answered_at, approver and comment. Silence is an answer too."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(options=[APPROVE, REJECT], multiple=False, **arguments)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Turns Airflow's answer into ours; a timeout is no error but the answer None."""
        if event.get("error_type") == "timeout":
            return {"answer": None, "answered_at": None, "approver": None, "comment": ""}
        given = super().execute_complete(context, event)
        user = given["responded_by_user"]
        return {
            "answer": "approved" if given["chosen_options"] == [APPROVE] else "rejected",
            "answered_at": given["responded_at"].isoformat(),
            "approver": (user["name"] or user["id"]) if user else None,
            "comment": str(given["params_input"].get("comment", "")),
        }
