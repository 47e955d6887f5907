"""Which model answers: one is loaded at a time, and questions wait until there is one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from edgeserve.errors import EdgeServeError
from edgeserve.tui.client import ChatClient, LoadProgress
from edgeserve.tui.fetch_pace import FetchPace
from edgeserve.tui.happenings import Happening, ModelChanged

_BETWEEN_S = 0.1


class ModelSwitch:
    """`loading` is the name of what is on its way, `progress` how far it is and `pace` how fast it
    comes, `error` why the last one did not come; the model before it stays in use then.
    `is_choosing` while the program looks for the one to begin with. `clock` gives seconds."""

    def __init__(
        self,
        client: ChatClient,
        tell: Callable[[Happening], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.loading = ""
        self.progress: LoadProgress | None = None
        self.pace = FetchPace(clock)
        self.error: EdgeServeError | None = None
        self.is_choosing = False
        self._client = client
        self._tell = tell
        self._clock = clock
        self._tell_again_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()

    def use(self, name: str) -> None:
        """Begins to load a model, and gives up the one under way."""
        before = self._task
        self.loading, self.progress, self.error = name, None, None
        self.pace.saw(None)
        self.is_choosing = False
        self._task = asyncio.create_task(self._load(name, before))
        self._tell(ModelChanged())

    async def cancel(self) -> None:
        """Gives up the one under way; a download is resumed the next time."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def ready(self) -> None:
        """Returns once a model answers and none is loading, however long that takes."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._client.model is not None and not self.loading
            )

    async def _load(self, name: str, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            before.cancel()
            with suppress(asyncio.CancelledError):
                await before
        try:
            await self._client.use(name, self._came)
        except EdgeServeError as error:
            self.error = error
        finally:
            if self._task is None or self._task is asyncio.current_task():
                self.loading, self.progress = "", None
                self._tell(ModelChanged())
        async with self._changed:
            self._changed.notify_all()

    def _came(self, progress: LoadProgress) -> None:
        """Reports come by the thousand: what is drawn is told a few times a second."""
        before, self.progress = self.progress, progress
        self.pace.saw(progress)
        is_other = before is None or (before.stage, before.label) != (
            progress.stage,
            progress.label,
        )
        if is_other or self._clock() >= self._tell_again_at:
            self._tell_again_at = self._clock() + _BETWEEN_S
            self._tell(ModelChanged())
