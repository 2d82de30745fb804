"""What `Client.connect` returns: it can be awaited, or be a block of its own; and how connecting fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .errors import DeniedError, NoAccessError, NoSocketError, OtherNetworkError, UnavailableError
from .topology import Topology

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


async def first_view(topology: Topology, patience: float) -> None:
    """Waits for so many seconds until a seed has told which nodes there are.

    Raises what :meth:`Client.connect` does; the node is the seed of which its text tells.
    """
    try:
        async with asyncio.timeout(patience):
            await topology.first_view()
    except (NoAccessError, OtherNetworkError) as error:
        code = error.code if isinstance(error, NoAccessError) else "no_access"
        raise DeniedError(str(error), code=code, node=str(topology.failed_at), attempts=1, cause=error) from None
    except NoSocketError as error:
        raise UnavailableError(str(error), attempts=1, cause=error) from None
    except TimeoutError:
        failure, seed = topology.failure, topology.failed_at
        text = f"no node could be reached: {failure or f'no answer within {patience} s'}"
        node = None if seed is None else str(seed)
        raise UnavailableError(text, node=node, attempts=1, cause=failure) from None
