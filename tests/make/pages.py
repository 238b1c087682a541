"""Asking a page of ours without a server."""

from __future__ import annotations

import asyncio

import httpx
from fastapi import FastAPI


def get(app: FastAPI, path: str) -> httpx.Response:
    """The answer to one GET."""

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get(path)

    return asyncio.run(ask())
