"""What the screens work with, handed in from outside: who answers, what is kept, the terminal."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.frozen import frozen
from edgeserve.terminal import Terminal
from edgeserve.tui import signs
from edgeserve.tui.client import ChatClient
from edgeserve.tui.signs import Signs
from edgeserve.tui.themes import DEFAULT

if TYPE_CHECKING:
    from edgeserve.chats.prompt_library import PromptLibrary
    from edgeserve.chats.store import ChatStore


@frozen
class NewChat:
    """How a chat is answered that the program begins with, instead of going on with the last."""

    system_prompt: str = ""
    settings: Mapping[str, object] = field(default_factory=dict[str, object])


@frozen(kw_only=True)
class Desk:
    """`model` is loaded at the start; "" takes the one used last, or the first that is here.

    `chat_id` is opened instead of the last used chat, or a `new` one is. `folder` is what paths
    are relative to, `data_dir` where copies go.
    """

    client: ChatClient
    open_chats: Callable[[], ChatStore]
    prompts: PromptLibrary
    folder: Path
    data_dir: Path
    model: str = ""
    chat_id: str = ""
    new: NewChat | None = None
    theme: str = DEFAULT
    terminal: Terminal = field(default_factory=Terminal)
    clock: Callable[[], float] = time.time
    find_program: Callable[[str], str | None] = shutil.which

    @property
    def signs(self) -> Signs:
        return signs.ASCII if self.terminal.is_ascii else signs.UNICODE
