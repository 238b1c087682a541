"""Where a package comes from: data, fits, evidence, model, engine, and every line of the ledger that names it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape

from pydantic import AwareDatetime, BaseModel, JsonValue

from artifacts.content import Artifact
from artifacts.refs import Digest, short
from artifacts.store import read_ref
from operators.ledger import Entry, Ledger
from operators.versions import VERSION, Version
from serving.contract import PackageContent, PackageRef
from serving.engine_contract import EngineTable

SHORTEST = 8  # hex digits by which a digest may be named
TOLD = ("trigger", "reason", "reasons", "note", "author", "approver", "outcome", "passed", "from", "to", "partition")
"""What a card repeats of a ledger line: who wanted what, why, and what came of it."""


class Link(BaseModel, frozen=True, extra="forbid"):
    """One artifact of the chain."""

    what: str
    digest: Digest
    uri: str
    facts: dict[str, JsonValue] = {}


class Line(BaseModel, frozen=True, extra="forbid"):
    """One ledger entry that names the package, its fits or its decision."""

    id: int
    at: AwareDatetime
    kind: str
    actor: str
    digest: Digest
    said: dict[str, JsonValue]


class Card(BaseModel, frozen=True, extra="forbid"):
    """The lineage of one package."""

    model: str
    version: int
    training_key: Digest
    trigger: str
    chain: tuple[Link, ...]
    verdicts: dict[str, str]
    history: tuple[Line, ...]


def find(ledger: Ledger, wanted: str) -> Version:
    """The version that a package digest or training key (or its beginning), URI or Triton name is of; LookupError for none or several."""
    digest = wanted.removeprefix("sha256:")
    found = []
    for version in (Version.model_validate(entry.body) for entry in ledger.entries(VERSION)):
        registered = version.registered
        digests = [each.removeprefix("sha256:") for each in (registered.package.digest, registered.training_key)]
        named = wanted in {registered.package.uri, f"{registered.model}_v{registered.version}"}
        if named or (len(digest) >= SHORTEST and any(each.startswith(digest) for each in digests)):
            found.append(version)
    if len(found) != 1:
        names = ", ".join(f"{each.registered.model}_v{each.registered.version}" for each in found) or "no version"
        raise LookupError(
            f"'{wanted}' is {names} of the ledger; give the digest, the URI, the training key or a name such as <model>_v7"
        )
    return found[0]


def explain(ledger: Ledger, wanted: str) -> Card:
    """The card of a package; ArtifactMissing or ArtifactCorrupt when it is no longer what the ledger says."""
    version = find(ledger, wanted)
    package = version.package_ref()
    artifact = read_ref(package)
    content = PackageContent.model_validate_json(artifact.file("package.json").read_bytes())
    digests = {package.digest, package.training_key, package.onnx_digest, content.final.digest}
    return Card(
        model=package.model,
        version=version.registered.version,
        training_key=package.training_key,
        trigger=version.trigger,
        chain=chain(package, content, engines(artifact)),
        verdicts={found.gate: f"{found.status}: {found.reason}" for found in content.verdicts},
        history=history(ledger.entries(), digests, version.decision),
    )


def engines(artifact: Artifact) -> EngineTable:
    """A package's table of engines; a package without one is served as it was exported."""
    if "engines.json" not in {entry.path for entry in artifact.manifest.files}:
        return EngineTable()
    return EngineTable.model_validate_json(artifact.file("engines.json").read_bytes())


def chain(package: PackageRef, content: PackageContent, table: EngineTable) -> tuple[Link, ...]:
    """Data -> fit -> evaluation -> model -> package. Pure."""
    final, evaluation, onnx = content.final, content.evaluation, content.onnx
    snapshots = final.dataset.model_dump(mode="json", exclude={"uri", "digest", "columns"})
    learnt = {"seed": final.seed, "epochs": final.epochs, "rows": final.rows, "train_last": str(final.train_last)}
    window = {"first": str(evaluation.test_first), "last": str(evaluation.test_last), "rows": evaluation.rows}
    graph = {"onnx_digest": onnx.onnx_digest, "exporter": onnx.exporter, "refused": list(onnx.refused)}
    chosen = {"engine": table.chosen, "why": table.reason, "scrambled_seed": content.scrambled_seed}
    return (
        Link(what="dataset", digest=final.dataset.digest, uri=final.dataset.uri, facts=snapshots),
        Link(what="final fit", digest=final.digest, uri=final.uri, facts=learnt),
        Link(what="evaluation", digest=evaluation.digest, uri=evaluation.uri, facts=window),
        Link(what="model", digest=onnx.digest, uri=onnx.uri, facts=graph),
        Link(what="package", digest=package.digest, uri=package.uri, facts=chosen),
    )


def history(entries: Iterable[Entry], digests: set[Digest], decision: int | None) -> tuple[Line, ...]:
    """Every entry that names one of the digests (steps and daily checks aside), and the decision that asked for the version. Pure."""
    return tuple(
        Line(
            id=entry.id,
            at=entry.at,
            kind=entry.kind,
            actor=entry.actor,
            digest=entry.digest,
            said={name: entry.body[name] for name in TOLD if entry.body.get(name) is not None},
        )
        for entry in entries
        if not entry.kind.startswith("step-")
        and entry.kind != "drift"  # each closed day names the live package; what it led to is a decision
        and (entry.id == decision or any(digest in json.dumps(entry.body) for digest in digests))
    )


def text(card: Card) -> list[str]:
    """The card as lines for a terminal."""
    lines = [f"{card.model}_v{card.version}  {card.training_key}  ({card.trigger})"]
    lines += [f"  {link.what:<12}{short(link.digest)}  {link.uri}" for link in card.chain]
    lines += [f"  {gate:<20}{said}" for gate, said in card.verdicts.items()]
    lines += [
        f"  {line.at:%Y-%m-%dT%H:%M:%SZ}  {line.kind:<16}  {line.actor}  {_plain(line.said)}" for line in card.history
    ]
    return lines


def page(card: Card) -> str:
    """The card as one HTML page that loads nothing from elsewhere."""
    chained = "".join(
        f"<tr><th>{escape(link.what)}</th><td><code>{link.digest}</code><br>{escape(link.uri)}</td>"
        f"<td>{escape(_plain(link.facts))}</td></tr>"
        for link in card.chain
    )
    gates = "".join(f"<tr><th>{escape(gate)}</th><td>{escape(said)}</td></tr>" for gate, said in card.verdicts.items())
    lines = "".join(
        f"<tr><td>{line.id}</td><td>{line.at:%Y-%m-%d %H:%M:%SZ}</td><td>{escape(line.kind)}</td><td>{escape(line.actor)}</td>"
        f"<td>{escape(_plain(line.said))}</td></tr>"
        for line in card.history
    )
    title = f"{card.model}_v{card.version}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1><p>training key <code>{card.training_key}</code>, asked for by {escape(card.trigger)}"
        f"</p><h2>From data to package</h2><table>{chained}</table><h2>Gates</h2><table>{gates}</table>"
        f"<h2>What the ledger says</h2><table>{lines}</table></body></html>\n"
    )


STYLE = (
    "body{font:15px system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;color:#111}"
    "table{border-collapse:collapse}td,th{border-bottom:1px solid #ddd;padding:.3rem .8rem;text-align:left;vertical-align:top}"
)


def _plain(said: dict[str, JsonValue]) -> str:
    return ", ".join(f"{name} {value}" for name, value in said.items() if value is not None)
