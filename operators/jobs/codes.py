"""Error codes of jobs: whose fault it was, who pays, and whether the same again may end well. Values only.

S: the platform (1 schedule and image, 2 control plane, 3 stores, 4 nodes), C: the customer (1 spec, data, credentials,
2 the user's process, 3 memory, 4 a gate), Q: quota. After decisions.md 6.
"""

from __future__ import annotations

from pydantic import BaseModel


class Code(BaseModel, frozen=True, extra="forbid"):
    """One kind of end. ``billable`` says whether the tenant pays for what it has used."""

    code: str
    means: str
    retry: bool
    billable: bool
    fix: str


def _platform(code: str, means: str, fix: str) -> Code:
    return Code(code=code, means=means, retry=True, billable=False, fix=fix)


CODES: dict[str, Code] = {
    one.code: one
    for one in (
        _platform("S101", "not all pods ran in time", "look at the events of the pods; the next attempt queues again"),
        _platform("S102", "the image could not be pulled", "check image digest and pull secret"),
        Code(
            code="S103",
            means="the image is not there",
            retry=False,
            billable=False,
            fix="build and push the image, and set its digest",
        ),
        Code(
            code="S104", means="the registry refused the pull", retry=False, billable=False, fix="renew the pull secret"
        ),
        _platform("S105", "no node has so many GPUs free", "use fewer GPUs per node, or a queue that waits for them"),
        _platform("S201", "the control plane lost the job", "nothing; the next attempt goes on from the checkpoint"),
        _platform("S202", "no progress for too long", "look at the rank that the log names last"),
        _platform(
            "S203", "not all agents met in time", "look at the pod that the others wait for; check the headless Service"
        ),
        _platform("S301", "a store did not answer", "nothing; the next attempt goes on from the checkpoint"),
        _platform("S401", "preempted or evicted", "nothing; the next attempt goes on from the checkpoint"),
        _platform("S402", "a node was lost", "nothing; the next attempt goes on from the checkpoint"),
        _platform(
            "S403",
            "NCCL could not be set up",
            "check hardware, interface and gpu_topology of the job against the nodes",
        ),
        _platform("S404", "a collective timed out", "look at the rank that did not come; its node may be slow or gone"),
        Code(code="C101", means="spec or data refused", retry=False, billable=True, fix="mend what the reason names"),
        Code(
            code="C102",
            means="a store refused the credentials",
            retry=False,
            billable=True,
            fix="check the store's access and secret key",
        ),
        Code(
            code="C103",
            means="a store refused the signature",
            retry=True,
            billable=True,
            fix="set the node's clock, and check the secret key",
        ),
        Code(
            code="C104",
            means="a mounted folder is empty",
            retry=False,
            billable=True,
            fix="check the path of the mount, and its last slash",
        ),
        Code(code="C201", means="the training itself failed", retry=False, billable=True, fix="read the traceback"),
        Code(
            code="C202", means="a rank died", retry=True, billable=True, fix="read the log of the rank that ended first"
        ),
        Code(
            code="C203",
            means="longer than its deadline",
            retry=False,
            billable=True,
            fix="raise deadline, or use more GPUs",
        ),
        Code(
            code="C301",
            means="out of memory",
            retry=True,
            billable=True,
            fix="raise memory_mib, or use a smaller batch",
        ),
        Code(
            code="C302",
            means="the GPU's memory is full",
            retry=False,
            billable=True,
            fix="smaller batch, accumulation, checkpointing or fsdp",
        ),
        Code(
            code="C303",
            means="the disk is full",
            retry=True,
            billable=True,
            fix="keep fewer checkpoints, or give the cache a larger volume",
        ),
        Code(
            code="Q101",
            means="the tenant's budget is used up",
            retry=False,
            billable=True,
            fix="wait, or raise the budget",
        ),
        Code(code="Q102", means="hardly used what it held", retry=False, billable=True, fix="use fewer processes"),
        Code(code="Q103", means="a quota is full", retry=True, billable=True, fix="wait, or ask for a larger quota"),
        Code(code="H101", means="stopped by a person", retry=False, billable=True, fix="clear the task to go on"),
    )
}
"""Code -> what it says."""


def billable(code: str) -> bool:
    """Whether an end with this code is paid for; no code means that it ended well."""
    return not code or CODES[code].billable
