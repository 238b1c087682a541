"""Serves the pages inside published artifacts to people who are logged in to Airflow; read-only."""

from __future__ import annotations

import mimetypes

from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException, Response

from artifacts.faults import StoreAway, StoreRefused
from artifacts.refs import join, sha256
from artifacts.store import ArtifactCorrupt, manifest, read_bytes
from operators.settings import platform

FORBIDDEN = set("%?#\\")  # a URI would read these as something else than a name
PAGES = {".html", ".css", ".js", ".json", ".svg", ".png", ".txt", ".ico", ".woff", ".woff2", ".ttf"}
# Reports are our own, but they show values from data: no page may load or send anything elsewhere.
POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self'; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts"

app = FastAPI(title="Perennial artifacts", docs_url=None, redoc_url=None, openapi_url=None)


@app.get("/{where:path}", dependencies=[Depends(get_user)])
def page(where: str) -> Response:
    """One file of a published artifact: ``<artifact below the store>/<file>``; only what a manifest lists."""
    parts = [part for part in where.split("/") if part]
    if not parts or any(part in (".", "..") or set(part) & FORBIDDEN for part in parts):
        raise HTTPException(404, "no such page")
    for cut in range(len(parts) - 1, 0, -1):
        artifact, name = join(platform().store, *parts[:cut]), "/".join(parts[cut:])
        try:
            found = manifest(artifact)
        except ArtifactCorrupt as error:
            raise HTTPException(409, str(error)) from error
        except (StoreRefused, StoreAway) as error:
            raise HTTPException(502, str(error)) from error
        if found is not None:
            return _file(join(artifact, found.attempt, name), name, {entry.path: entry.digest for entry in found.files})
    raise HTTPException(404, "nothing has been published here")


def _file(uri: str, name: str, digests: dict[str, str]) -> Response:
    suffix = "." + name.rpartition(".")[2]
    if name not in digests or suffix not in PAGES:
        raise HTTPException(404, f"the artifact has no page '{name}'")
    content = read_bytes(uri)
    if sha256(content) != digests[name]:
        raise HTTPException(409, f"'{name}' differs from its manifest; the artifact has to be made again")
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(
        content,
        media_type=kind,
        headers={"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"},
    )
