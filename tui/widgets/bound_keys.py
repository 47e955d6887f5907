"""Keys that edit, in the order typed.

Textual looks at a widget's bindings once the key has come up to the app through the queues of all
that is around it; a letter typed after it is in the text by then. So a backspace that came in one
read with what follows it took the wrong letter.
"""

from __future__ import annotations

from textual import events
from textual.binding import BindingsMap
from textual.widget import Widget
from textual.widgets import Input


async def do_bound(widget: Widget, bindings: BindingsMap, event: events.Key) -> None:
    """Does at once what the widget's own bindings say of the key, and ends its way."""
    for binding in bindings.key_to_bindings.get(event.key, ()):
        if not binding.priority and await widget.app.run_action(binding.action, widget):  # pyright: ignore[reportUnknownMemberType]
            event.stop()
            event.prevent_default()
            return


def passed_on(widget: Widget, event: events.Key) -> bool:
    """Gives a key that was on its way here when the focus moved to whoever has that now."""
    focused = widget.screen.focused
    if focused is None or focused is widget:
        return False
    event.stop()
    event.prevent_default()
    focused._forward_event(events.Key(event.key, event.character))  # pyright: ignore[reportPrivateUsage]  as App does
    return True


class Field(Input):
    """A line to write in."""

    async def _on_key(self, event: events.Key) -> None:
        await super()._on_key(event)
        if not event.is_printable:
            await do_bound(self, self._bindings, event)
