"""What a run of ``backfill__<model>`` is for; the rest of its tasks are those of ``retrain``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from artifacts.clock import NotClosed
from operators import live
from operators.gaps import gaps
from operators.ledger import ledger
from operators.partitions import resolve
from operators.pipelines import Pipeline
from operators.plans.retrain import Ask
from operators.tasks.retrain import close, echo, log
from operators.versions import BACKFILL, versions


def resolve_backfill(
    row: Pipeline, params: Mapping[str, Any], run_type: str, run_id: str, actor: str
) -> dict[str, Any]:
    """What a backfill is asked for: the partition that was typed, else the newest gap; skips when there is none.

    It opens no decision, so it holds no drift retrain off, and its versions are never released.
    """
    typed, reason, now = params["partition"], str(params["reason"]).strip(), live.now()
    if typed and not reason:
        raise AirflowFailException("reason: is empty; a backfill by hand says why (trigger it again with a reason)")
    found = gaps(row, ledger(), now)
    if not typed and not found:
        raise AirflowSkipException(f"no partition of '{row.model}' is missing; the event came twice, or late")
    try:
        partition = resolve(typed, None if typed else found[0].isoformat(), row.calendar, now)
    except (ValueError, NotClosed) as error:
        raise AirflowFailException(str(error)) from error
    words = reason or f"partition {partition} is missing among those that the schedule should have trained"
    body = {
        "partition": partition.isoformat(),
        "reason": words,
        "force": bool(params["force"]),
        "run_id": run_id,
        "woken_by": str(getattr(run_type, "value", run_type)),
    }
    claim = ledger().append(BACKFILL, row.model, body, unique=f"{BACKFILL}:{row.model}:{run_id}", actor=actor)
    ask = Ask(
        model=row.model,
        partition=partition,
        trigger=BACKFILL,
        reason=words,
        salt=str(claim.id) if params["force"] else "",
        run_id=run_id,
    )
    log.info("%s", echo(row, ask))
    there = [one.registered.version for one in versions(ledger(), row.model) if one.registered.partition == partition]
    if there and not params["force"]:
        text = f"version {there[-1]} has been trained through {partition} already; nothing to do"
        close(ask, "ALREADY_FRESH", {"reason": text, "version": there[-1]})
        raise AirflowSkipException(text)
    return ask.model_dump(mode="json")
