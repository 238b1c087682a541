"""How much of a model's importance has drifted, and which features moved most. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from monitoring.contract import DRIFTED, Finding

NAMED = 3  # features; a reason is one line


def extent(finding: Finding) -> float:
    """How far a feature has drifted, in [0, 1]: beyond its threshold wholly, beyond its warning level by its way to there.

    A shift that lasts hovers around any threshold from day to day. Counted whole or not at all it needs a threshold so low
    that seasons pass it too; counted in part it is seen at a higher one (docs/adr/0011).
    """
    if finding.kind in DRIFTED:
        return 1.0
    if finding.kind != "warn" or finding.score is None or not finding.threshold:
        return 0.0
    return min(finding.score / finding.threshold, 1.0)


def drifted_share(findings: Sequence[Finding]) -> float:
    """The sum of the features' weights, each times its extent, in [0, 1]."""
    return min(sum(finding.weight * extent(finding) for finding in findings), 1.0)


def moved_most(findings: Sequence[Finding]) -> str | None:
    """The features that make up most of the share, in words; None when none has moved."""
    moved = [finding for finding in findings if finding.weight * extent(finding) > 0]
    heaviest = sorted(moved, key=lambda finding: (-finding.weight * extent(finding), finding.feature))[:NAMED]
    return "moved most: " + "; ".join(finding.words for finding in heaviest) if heaviest else None
