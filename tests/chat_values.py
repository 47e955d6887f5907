"""Hypothesis strategies and comparisons for conversations."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from edgeserve.chats.records import (
    Attachment,
    Chat,
    Conversation,
    Generation,
    Role,
    Turn,
    TurnState,
)

# Also what could be taken for markup of our own, for FTS5's syntax, or for the end of something.
_HOSTILE = st.sampled_from(
    [
        "<!-- edgeserve text -->",
        "\\<!-- edgeserve turn {} -->",
        "\\\\<!-- edgeserve chat -->",
        "## You",
        "</details>",
        "````\ncode\n````",
        "```",
        "",
        "\n",
        "\n\n",
        "\r\n",
        "-->",
        '"NEAR(a b)" OR *',
    ]
)
_PLAIN = st.text('ab <>{}"\\`\r\n\t\x00é日\U0001f600', max_size=8)
TEXTS = st.lists(_HOSTILE | _PLAIN, max_size=4).map("\n".join) | _PLAIN
_TIMES = st.floats(0, 4e9)
_COUNTS = st.none() | st.integers(0, 2**40)
_SETTINGS = st.dictionaries(
    st.sampled_from(["temperature", "top_k", "seed", "thinking"]),
    st.integers(-(2**62), 2**62) | st.floats(0, 2) | st.booleans(),
)
GENERATIONS = st.builds(
    Generation,
    model=_PLAIN,
    fingerprint=_PLAIN,
    settings=_SETTINGS,
    system_prompt=TEXTS,
    seed=st.none() | st.integers(0, 2**64 - 1),
    token_ids=st.lists(st.integers(0, 2**31)).map(tuple),
    finish_reason=st.sampled_from(["stop", "length", "stopped"]),
    prompt_tokens=_COUNTS,
    cached_tokens=_COUNTS,
    answer_tokens=_COUNTS,
    reasoning_tokens=st.integers(0, 100),
    first_token_ms=st.none() | st.floats(0, 1e9),
    tokens_per_s=st.none() | st.floats(0, 1e9),
    miss=_PLAIN,
    dropped=st.just(()),
)
_ATTACHMENTS = st.lists(st.builds(Attachment, _PLAIN, TEXTS), max_size=2).map(tuple)
ENDED = tuple(state for state in TurnState if state is not TurnState.STREAMING)


@st.composite
def conversations(draw: st.DrawFn, *, is_line: bool = False) -> Conversation:
    """A chat with a tree of turns; with `is_line`, one whose turns follow each other."""
    turns: list[Turn] = []
    for at in range(draw(st.integers(0, 4))):
        parents = [turn.id for turn in turns]
        parent = None if not parents else parents[-1]
        if not is_line and parents:
            parent = draw(st.sampled_from([None, *parents]))
        roles: list[Role] = ["user", "assistant", "system"]
        turns.append(
            Turn(
                id=f"turn-{at}",
                chat_id="chat",
                parent_id=parent,
                role=draw(st.sampled_from(roles)),
                text=draw(TEXTS),
                reasoning=draw(TEXTS),
                state=draw(st.sampled_from(ENDED)),
                error=draw(_PLAIN),
                attachments=draw(_ATTACHMENTS),
                generation=draw(st.none() | GENERATIONS),
                created_at=draw(_TIMES),
            )
        )
    chat = Chat(
        id="chat",
        title=draw(_PLAIN.filter(bool)),
        titled_by_hand=draw(st.booleans()),
        created_at=draw(_TIMES),
        updated_at=draw(_TIMES),
        pinned=draw(st.booleans()),
        tags=tuple(sorted(draw(st.sets(st.sampled_from(["a", "b", "日記"]))))),
        model=draw(_PLAIN),
        system_prompt=draw(TEXTS),
        settings=draw(_SETTINGS),
        leaf_id=turns[-1].id if turns else None,
        draft=draw(TEXTS),
    )
    return Conversation(chat, tuple(turns))


def without_ids(conversation: Conversation) -> Conversation:
    """Ids by position, so that two copies of a conversation are equal."""
    names = {turn.id: str(at) for at, turn in enumerate(conversation.turns)}
    turns = tuple(
        replace(
            turn,
            id=names[turn.id],
            chat_id="",
            parent_id=None if turn.parent_id is None else names[turn.parent_id],
        )
        for turn in conversation.turns
    )
    leaf = conversation.chat.leaf_id
    return Conversation(
        replace(conversation.chat, id="", leaf_id=None if leaf is None else names[leaf]), turns
    )
