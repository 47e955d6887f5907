"""From a conversation to what the screen shows of it: turns, what goes on, the keys that matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from edgeserve.chats.records import Turn, TurnState
from edgeserve.tui.client import HERE, ChatClient, ModelInUse
from edgeserve.tui.conversation import Conversation
from edgeserve.tui.model_switch import ModelSwitch
from edgeserve.tui.pace import Pace
from edgeserve.tui.signs import Signs
from edgeserve.tui.widgets.turn_view import TurnView
from edgeserve.tui.wording import called, footer, lasting, loading, meter, reading, size

if TYPE_CHECKING:
    from edgeserve.chats.salvage import Salvage

Keys = Sequence[tuple[str, str]]

INTERRUPTED = "An answer was interrupted: its window is gone. /continue goes on with it."

_NEARLY_FULL = 0.85
_ADVICE = {
    TurnState.STOPPED: "/continue goes on",
    TurnState.INTERRUPTED: "broken off when the program ended: /continue goes on",
}


def turn_views(talk: Conversation, signs: Signs) -> list[TurnView]:
    """The branch that is shown."""
    dropped = set(talk.dropped)
    return [_view(talk, turn, signs, turn.id in dropped) for turn in talk.turns]


def turn_view(talk: Conversation, turn_id: str, signs: Signs) -> TurnView | None:
    """One of them."""
    return next((view for view in turn_views(talk, signs) if view.id == turn_id), None)


def _view(talk: Conversation, turn: Turn, signs: Signs, is_greyed: bool) -> TurnView:
    made = turn.generation
    names = {"user": "you", "system": "summary"}
    model = made.model if made else talk.model_name if turn.state is TurnState.STREAMING else ""
    name = names.get(turn.role) or called(model or talk.chat.model) or "assistant"
    foot = "" if made is None else footer(made, signs)
    if turn.state in _ADVICE and turn.role == "assistant":
        foot = signs.joined(foot, _ADVICE[turn.state])
    if turn.role == "user" and turn.id == talk.chat.leaf_id and not talk.is_answering:
        foot = "no answer yet: ctrl+r asks for one"
    thought = ""
    if made is not None and made.reasoning_tokens:
        thought = f"{made.reasoning_tokens:,} tokens"
    return TurnView(
        id=turn.id,
        role=turn.role,
        name=name,
        text=turn.text,
        reasoning=turn.reasoning,
        reasoning_note=thought,
        state=turn.state,
        branch=talk.tree.place(turn.id),
        footer=foot,
        is_greyed=is_greyed,
        attachments=tuple(
            signs.joined(each.path, size(len(each.text.encode("utf-8", "replace"))))
            for each in turn.attachments
        ),
        error=turn.error,
        tokens=talk.answering.tokens(turn.id),
    )


def header_texts(
    talk: Conversation, client: ChatClient, switch: ModelSwitch, signs: Signs
) -> tuple[str, str, bool]:
    """The chat's title, the model with its meter, and whether little room is left."""
    title = talk.chat.title or ("New chat" if talk.is_empty else "Untitled")
    model = client.model
    if switch.loading and model is None:
        return title, f"{called(switch.loading)}{signs.ellipsis}", False
    if model is None:
        return title, "" if switch.is_choosing else "no model", False
    used = talk.used_tokens
    full = bool(model.context_tokens and used and used / model.context_tokens > _NEARLY_FULL)
    return title, signs.joined(called(model.name), meter(model, used, signs)), full


def on_its_way(switch: ModelSwitch, signs: Signs) -> str:
    """How far the model is that is being loaded."""
    pace = switch.pace
    left, silent = pace.seconds_left, pace.silent_s
    return loading(switch.loading, switch.progress, signs, left_s=left, silent_s=silent)


def doing(
    talk: Conversation, client: ChatClient, switch: ModelSwitch, signs: Signs, pace: Pace
) -> tuple[str, bool]:
    """What goes on, and whether something does."""
    stage = talk.answering.stage(talk.chat.id)
    if stage is None or stage == "model":
        if switch.loading:
            waits = "then your answer" if stage == "model" else ""
            return signs.joined(on_its_way(switch, signs), waits), True
        if switch.is_choosing and pace.silent_s:
            return _waiting(client, signs, pace), True
        if stage == "model":
            return "your question waits for a model: f4", True
        return "", False
    if stage == "room":
        return "the context is full", True
    verb = "summarising" if stage == "summary" else "answering"
    run = talk.answering.run(talk.chat.id)
    silent = f"nothing for {lasting(pace.silent_s)}" if pace.silent_s else ""
    if run is None or not run.num_events:
        if silent and stage == "answer":
            return _waiting(client, signs, pace), True
        return signs.joined(f"{verb}{signs.ellipsis}", silent), True
    if run.reading is None and not run.tokens:
        return signs.joined(f"{verb}{signs.ellipsis}", silent), True
    if not run.has_text and run.reading is not None and run.reading.done < run.reading.total:
        return reading(run.reading, signs, silent), True
    if run.reasoning and not run.text:
        verb = "thinking"
    count = f"{len(run.tokens):,} tokens" if run.tokens else ""
    speed = "" if pace.rate is None else f"{pace.rate:.0f} a second"
    return signs.joined(verb, count, silent or speed), True


def _waiting(client: ChatClient, signs: Signs, pace: Pace) -> str:
    """Nothing has come at all: whoever waits is to know that, and for how long."""
    who = "engine" if client.place == HERE else "server"
    return signs.joined(f"waiting for the {who}", lasting(pace.silent_s))


Focus = Literal["composer", "transcript", "search", "list"]


def keys_now(focus: Focus, *, is_busy: bool, is_editing: bool, is_wide: bool) -> Keys:
    """Three or so, for what has the focus; the first ones matter most."""
    if is_busy:
        return [("esc", "stop"), ("f1", "help")]
    match focus:
        case "transcript":
            keys = [("esc", "write"), ("y", "copy"), ("e", "edit"), ("[ ]", "branch")]
            more = [("enter", "thinking"), ("c", "code"), ("r", "another answer")]
            return [*keys, *more] if is_wide else keys
        case "search":
            return [("enter", "open"), ("esc", "back"), ("tab", "pin, rename, tag, delete")]
        case "list":
            does = [("p", "pin"), ("r", "rename"), ("t", "tag"), ("d", "delete"), ("u", "undo")]
            return [("enter", "open"), ("esc", "back"), *does]
        case _:
            pass
    if is_editing:
        return [("enter", "ask it so"), ("esc", "leave it")]
    keys = [("enter", "send"), ("/", "commands"), ("f2", "chats"), ("f1", "help")]
    return [*keys, ("ctrl+p", "palette")] if is_wide else keys


def failure_note(turn: Turn) -> str:
    """What to do about an answer that failed."""
    if turn.state is not TurnState.FAILED:
        return ""
    advice = "/continue goes on from here" if turn.text else "ctrl+r asks again"
    return f"The answer broke off. Nothing is lost: {advice}."


def base_model_note(model: ModelInUse) -> str:
    """What to do with a model that was not taught to answer."""
    return (
        f"{called(model.name)} is a base model, without a chat template: it goes on with a text "
        "and does not answer questions. Give it the beginning of a text, or choose another: f4."
    )


def repair_note(salvage: Salvage) -> str:
    """What became of a damaged file of chats."""
    return (
        f"The file of chats was damaged: {salvage.num_chats} chats with {salvage.num_turns} "
        f"messages were read from it, {salvage.num_lost_rows} entries were lost. It lies "
        f"untouched at {salvage.kept_as}."
    )
