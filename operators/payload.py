"""The one seam for "where a step runs": ``payload(...)`` makes a process operator or a pod operator, by ``Platform.runner``.

A payload task reuses what is done, waits for a twin that is doing the same, and else runs the step; it returns
``{"result": <URI>, "key": <digest>}``. Read the result in a later spec function with ``load(xcom, Type)``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseOperator, Context, ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from pydantic import ValidationError

from artifacts.step import explain
from operators import live
from operators.jobs.accounts import Accounts
from operators.ledger import ledger
from operators.links import links_for, page_of
from operators.process import ProcessRunner, StepRefused
from operators.settings import platform
from operators.steps import PENDING, PlannedStep, Skip, StepCall, load, plan
from training.contract import TorchJob

__all__ = [
    "DEFAULTS",
    "PENDING",
    "PayloadProcessOperator",
    "Skip",
    "StepCall",
    "load",
    "mapped_payload",
    "payload",
    "payload_type",
]

DEFAULTS: dict[str, Any] = {
    "retries": 3,
    "retry_delay": dt.timedelta(minutes=1),
    "retry_exponential_backoff": 4.0,  # 1, 4, 16 minutes (decisions.md 4.7)
    "max_retry_delay": dt.timedelta(minutes=16),
    "retry_policy": ExceptionRetryPolicy(
        rules=[
            RetryRule(
                exception=[TypeError, ValueError, LookupError, AttributeError, AssertionError],
                action=RetryAction.FAIL,
                reason="an error of the code or of its data; a retry cannot help",
            )
        ]
    ),
}
"""``default_args`` for DAGs with payload tasks; a refused spec or refused data is never retried all the same."""


def payload_type(call: StepCall) -> type[BaseOperator]:
    """The operator class of this platform for a step: a pod is the default of clusters, several nodes are a job."""
    if platform().runner == "pod" and isinstance(call.job, TorchJob) and call.job.nodes > 1:
        from operators.payload_job import PayloadJobOperator  # noqa: PLC0415  as below

        return PayloadJobOperator
    if platform().runner == "pod":
        from operators.payload_pod import PayloadPodOperator  # noqa: PLC0415  costs 3 s, and only pods need it

        return PayloadPodOperator
    return PayloadProcessOperator


def mapped_payload(*, task_id: str, call: StepCall, inputs: Any) -> Any:
    """One step per element of ``inputs``, an XComArg with a list of arguments for ``call.spec``; one at a time."""
    base, links = payload_type(call), {"operator_extra_links": links_for(call.result)}
    mapped: Any = type(
        base.__name__, (base,), {"__module__": base.__module__, **links}
    )  # Airflow reads them off the class
    operator = mapped.partial(task_id=task_id, call=call, max_active_tis_per_dagrun=1)
    return operator.expand(inputs=inputs)


def payload(*, task_id: str, call: StepCall, inputs: Mapping[str, Any] | None = None, **arguments: Any) -> BaseOperator:
    """A task that runs one step. ``inputs`` (templated) become the arguments of ``call.spec``; XComArgs are resolved."""
    return payload_type(call)(task_id=task_id, call=call, inputs=dict(inputs or {}), **arguments)


def planned(call: StepCall, inputs: Mapping[str, Any]) -> PlannedStep:
    """The plan of a task that is being executed; skips it when there is nothing to do, fails it when the spec is bad."""
    try:
        step = plan(call, inputs, platform().store)
    except ValidationError as error:
        raise AirflowFailException("\n".join(explain(error, call.module))) from error
    if isinstance(step, Skip):
        raise AirflowSkipException(step.reason)
    return step


def accounts() -> Accounts | None:
    """The budgets of this deployment; None where there are none, and nobody is held up."""
    if not platform().budgets:
        return None
    return Accounts(ledger(), live.records(), platform().budgets, live.now)


def task_words(context: Context) -> dict[str, str]:
    """Who asks for a step, for the ledger, the labels and the log."""
    task = context["ti"]
    return {
        "dag": task.dag_id,
        "task": task.task_id,
        "run": task.run_id,
        "map_index": str(task.map_index),
        "try": str(task.try_number),
    }


class PayloadProcessOperator(BaseOperator):
    """Runs a step as a local process.

    :param call: the step; its functions run in the worker.
    :param inputs: arguments of ``call.spec`` (templated).
    """

    template_fields = ("inputs",)
    ui_color = "#d7e9f7"

    def __init__(self, *, call: StepCall, inputs: dict[str, Any] | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.call = call
        self.inputs = inputs if inputs is not None else {}
        self.operator_extra_links = links_for(call.result)
        self.page = ""
        self._runner: ProcessRunner | None = None

    def execute(self, context: Context) -> dict[str, str]:
        """Plans the step and runs it, or reuses its result."""
        step = planned(self.call, self.inputs)
        self._runner = ProcessRunner(
            step, ledger(), platform().state / "locks", task_words(context), self.log, accounts=accounts()
        )
        try:
            self.page = page_of(self._runner.run())
        except StepRefused as error:
            raise AirflowFailException(str(error)) from error
        return step.xcom()

    def on_kill(self) -> None:
        """Ends the step's process and everything below it."""
        if self._runner is not None:
            self._runner.stop()
