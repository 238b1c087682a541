"""Why a job died: evidence -> error code, the words that say so, and what to do. Pure; a table, the first row that fits wins."""

from __future__ import annotations

import re

from pydantic import BaseModel, Field

from artifacts.step import EXIT_BAD_DATA, EXIT_BAD_SPEC, EXIT_TRY_AGAIN
from operators.jobs.codes import CODES, Code


class Evidence(BaseModel, frozen=True, extra="forbid"):
    """What is known of an end. ``exit`` is negative for a signal; ``kind`` is the step's own word (``artifacts.step.Failure``)."""

    exit: int | None = None
    reason: str = Field(default="", description="Reason of the container, pod, job or condition.")
    kind: str = ""
    said: str = Field(default="", description="Termination message, the step's own reason.")
    events: tuple[str, ...] = ()
    log: tuple[str, ...] = Field(default=(), description="The last lines.")
    distributed: bool = False


class Diagnosis(BaseModel, frozen=True, extra="forbid"):
    """What it was. ``line`` is the first line of the task's failure."""

    code: str
    line: str
    fix: str
    retry: bool
    billable: bool


CLUSTER: tuple[tuple[str, str, str], ...] = (
    ("C301", r"OOMKilled|out of memory: kill|memory cgroup out of memory", "out of memory; raise memory_mib"),
    ("S401", r"\bEvicted\b|DisruptionTarget|TerminationByKubelet", "evicted from its node"),
    ("S401", r"Preempt(ed|ing|ion)", "preempted by a job with a higher priority"),
    ("S402", r"NodeLost|NodeNotReady|NodeShutdown|node .*(was lost|not ready|deleted)", "its node was lost"),
    (
        "S103",
        r"manifest unknown|not found.*(image|manifest)|(image|manifest).*not found|InvalidImageName",
        "the image is not there",
    ),
    (
        "S104",
        r"(pull|image).*(unauthori[sz]ed|denied|authentication required|forbidden)",
        "the registry refused the pull",
    ),
    ("S102", r"ImagePullBackOff|ErrImagePull|Back-off pulling", "the image could not be pulled"),
    ("S105", r"Insufficient nvidia\.com/gpu", "no node has so many GPUs free"),
    (
        "Q103",
        r"exceeded quota|insufficient (unused )?quota|quota exceeded",
        "the namespace's or the queue's quota is full",
    ),
    ("S101", r"FailedScheduling|Unschedulable|pods? .*not ready in time", "not all pods ran in time"),
    ("C203", r"DeadlineExceeded|active deadline", "longer than its deadline"),
)
"""Code, pattern and words: what the cluster says, in reasons and events."""

PROCESS: tuple[tuple[str, str, str], ...] = (
    (
        "C302",
        r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        "the GPU's memory is full",
    ),
    (
        "S403",
        r"NCCL.*(unhandled system error|no (socket )?interface|ibv_|Call to (connect|bind))|ncclSystemError|ncclInternalError",
        "NCCL could not be set up between these nodes",
    ),
    (
        "S404",
        r"Watchdog caught collective operation timeout|collective operation timeout|heartbeat.*(timeout|stuck)",
        "a collective timed out: one rank did not come",
    ),
    (
        "S203",
        r"RendezvousTimeoutError|RendezvousClosedError|rendezvous.*timed? ?out|[Tt]imed out.*(rendezvous|waiting for clients)",
        "not all agents met in time",
    ),
    ("C303", r"No space left on device|ENOSPC|disk quota exceeded", "the disk is full"),
    (
        "C103",
        r"RequestTimeTooSkewed|SignatureDoesNotMatch|clock.*skew",
        "the store refused the signature; the node's clock or the secret key is wrong",
    ),
    (
        "C102",
        r"AccessDenied|403 Forbidden|InvalidAccessKeyId|[Pp]ermission denied|CredentialsRefused",
        "a data store refused the credentials",
    ),
    (
        "C104",
        r"(folder|prefix|directory).*(is empty|no (files|objects))|mounted.*empty",
        "the mounted folder is empty; look for a missing or doubled slash at the end of its path",
    ),
)
"""The same for what the processes say: termination message and last lines. Asked after the cluster."""


def diagnose(evidence: Evidence) -> Diagnosis:
    """The code of an end, from the strongest evidence: the cluster's word, the step's own, its last lines, its exit code."""
    for table, texts in (
        (CLUSTER, (evidence.reason, *reversed(evidence.events))),
        (PROCESS, (evidence.said, *reversed(evidence.log))),
    ):
        for text in texts:
            for code, pattern, words in table:
                if re.search(pattern, text, re.IGNORECASE):
                    return _told(CODES[code], words, text, evidence)
    code = _by_exit(evidence)
    return _told(CODES[code], CODES[code].means, evidence.said or evidence.reason, evidence)


def _by_exit(evidence: Evidence) -> str:
    if evidence.kind in {"bad_spec", "bad_data"} or evidence.exit in {EXIT_BAD_SPEC, EXIT_BAD_DATA}:
        return "C101"
    if evidence.kind == "try_again" or evidence.exit == EXIT_TRY_AGAIN:
        return "S301"
    if evidence.exit is None:
        return "S201"
    if evidence.exit < 0 or evidence.distributed:
        return "C202"
    return "C201"


def _told(code: Code, words: str, text: str, evidence: Evidence) -> Diagnosis:
    first = text.strip().partition("\n")[0]
    place = f" (exit {evidence.exit})" if evidence.exit is not None else ""
    line = f"{code.code} {words}{place}" + (f": {first}" if first and first != words else "")
    return Diagnosis(code=code.code, line=line, fix=code.fix, retry=code.retry, billable=code.billable)
