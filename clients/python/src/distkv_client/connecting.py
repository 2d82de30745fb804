"""What `Client.connect` returns: it can be awaited, or be a block of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import Client


class Connecting:
    """What :meth:`Client.connect` returns: `await` it, or `async with` it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        client: Generator[Any, None, Client] = self._make().__await__()
        return client

    async def __aenter__(self) -> Client:
        self._client = await self
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()
