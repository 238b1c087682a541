from __future__ import annotations

from typing import Any

import pytest

from operators.jobs.codes import CODES
from operators.jobs.diagnosis import CLUSTER, PROCESS, Evidence, diagnose


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        ({"exit": -9, "reason": "OOMKilled (exit 137 on gpu-3)"}, "C301"),
        ({"exit": 0, "reason": "OOMKilled"}, "C301"),
        ({"exit": -9, "reason": "Evicted: The node was low on resource: memory"}, "S401"),
        ({"exit": -15, "reason": "Preempted"}, "S401"),
        ({"reason": "NodeLost"}, "S402"),
        ({"events": ("Failed to pull image: manifest unknown",)}, "S103"),
        ({"events": ("Failed to pull image: unauthorized: authentication required",)}, "S104"),
        ({"reason": "ImagePullBackOff"}, "S102"),
        ({"events": ("0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",)}, "S105"),
        ({"events": ('pods "x" is forbidden: exceeded quota: gpus',)}, "Q103"),
        ({"reason": "FailedScheduling"}, "S101"),
        (
            {"exit": 1, "log": ("NCCL WARN Call to connect returned Connection refused", "RuntimeError: NCCL error")},
            "S403",
        ),
        ({"exit": 1, "log": ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",)}, "S404"),
        ({"exit": 1, "log": ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",)}, "C302"),
        ({"exit": 1, "said": "s3://lake/x: 403 Forbidden: AccessDenied"}, "C102"),
        ({"exit": 1, "said": "RequestTimeTooSkewed: the difference is too large"}, "C103"),
        ({"exit": 65, "kind": "bad_data", "said": "/data/day=1: the folder is empty"}, "C104"),
        ({"exit": 1, "log": ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",)}, "S203"),
        ({"reason": "DeadlineExceeded"}, "C203"),
        ({"exit": 1, "kind": "error", "said": "ZeroDivisionError: division by zero"}, "C201"),
        ({"exit": 1, "kind": "error", "said": "ZeroDivisionError", "distributed": True}, "C202"),
        ({"exit": 1, "log": ("OSError: [Errno 28] No space left on device",)}, "C303"),
        ({"exit": 65, "kind": "bad_data", "said": "rows.parquet: digest differs"}, "C101"),
        ({"exit": 75, "kind": "try_again", "said": "the server does not answer"}, "S301"),
        ({"exit": -9}, "C202"),
        ({}, "S201"),
    ],
)
def test_the_evidence_names_the_fault(evidence: dict[str, Any], code: str) -> None:
    found = diagnose(Evidence(**evidence))
    assert found.code == code
    assert found.line.startswith(code)
    assert "\n" not in found.line
    assert (found.retry, found.billable, found.fix) == (CODES[code].retry, CODES[code].billable, CODES[code].fix)


def test_the_clusters_word_is_stronger_than_a_log_line() -> None:
    found = diagnose(Evidence(exit=-9, reason="Evicted: memory", log=("CUDA out of memory",)))
    assert found.code == "S401"


def test_the_newest_line_wins_over_an_older_one() -> None:
    lines = ("OSError: No space left on device", "cleaned up, going on", "torch.OutOfMemoryError: CUDA out of memory")
    assert diagnose(Evidence(exit=1, log=lines)).code == "C302"


def test_every_row_has_a_known_code_and_the_platform_never_bills_its_own_faults() -> None:
    assert {code for code, *_ in (*CLUSTER, *PROCESS)} <= set(CODES)
    assert not any(code.billable for code in CODES.values() if code.code.startswith("S"))
    assert all(code.billable for code in CODES.values() if not code.code.startswith("S"))
