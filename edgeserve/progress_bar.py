"""A bar over many prompts, on a terminal's standard error and nowhere else."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from edgeserve.types import EmbeddingOutput, RequestOutput

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class PromptProgress:
    """Counts finished prompts. `wanted` None shows it for more than one prompt on a terminal."""

    def __init__(self, num_prompts: int, wanted: bool | None) -> None:
        self._num_prompts = num_prompts
        self._shown = wanted if wanted is not None else num_prompts > 1 and sys.stderr.isatty()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._num_tokens = 0

    def __enter__(self) -> PromptProgress:
        if self._shown:
            from rich.console import Console
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("prompts", total=self._num_prompts)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, output: RequestOutput | EmbeddingOutput) -> None:
        """One prompt is done."""
        self._num_tokens += output.usage.completion_tokens
        if self._bar is not None and self._task is not None:
            label = f"prompts, {self._num_tokens} tokens out"
            self._bar.update(self._task, advance=1, description=label)
