"""The chat on the whole screen: what `edgeserve chat` opens on a terminal, wired."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.config import Config, paint_promptly
from edgeserve.terminal import Terminal

if TYPE_CHECKING:
    from edgeserve.chats.store import ChatStore
    from edgeserve.tui.client import ChatClient
    from edgeserve.tui.desk import NewChat


def open_screen(
    client: ChatClient,
    config: Config,
    terminal: Terminal,
    *,
    model: str = "",
    new: NewChat | None = None,
) -> int:
    """Returns an exit code once the user has left. `model` is what answers, "" the one used last;
    without a `new` chat the last one goes on.
    """
    from edgeserve.tui.collecting import collect_later

    collect_later()
    paint_promptly()
    from edgeserve.chats.prompt_library import PromptLibrary
    from edgeserve.commands.ending_signals import ended_by_signals
    from edgeserve.tui.app import EdgeServeApp
    from edgeserve.tui.desk import Desk
    from edgeserve.tui.kept_theme import kept_theme
    from edgeserve.tui.themes import DEFAULT

    path, prompts = config.chats_file, PromptLibrary(config.prompt_files_dir)
    desk = Desk(
        client=client,
        open_chats=lambda: _opened(path),
        prompts=prompts,
        folder=Path.cwd(),
        data_dir=path.parent,
        model=model,
        new=new,
        theme=kept_theme(path.parent) or DEFAULT,
        terminal=terminal,
    )

    async def run() -> int:
        app = EdgeServeApp(desk)
        with ended_by_signals(app.end) as ending:
            try:
                await app.run_async()
            finally:
                await client.aclose()
        return ending.code or app.return_code or 0

    return asyncio.run(run())


def _opened(path: Path) -> ChatStore:
    """On the chats' own thread; SQLite is imported there, behind the first screen."""
    from edgeserve.chats.store import ChatStore

    return ChatStore(path)
