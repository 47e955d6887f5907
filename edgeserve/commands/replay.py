"""`edgeserve replay`: the answers of a chat once more, and where they differ."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeserve.commands.chat import client_of
from edgeserve.commands.engine_arguments import add_engine_arguments
from edgeserve.config import Config, keep_numpy_to_one_thread
from edgeserve.errors import InvalidRequestError
from edgeserve.typed_paths import is_file, path_of

if TYPE_CHECKING:
    from edgeserve.chats.records import Chat, Conversation

DESCRIPTION = """\
Answer every question of a chat again, as it was answered: by the same model, settings and seed.
Prints "identical, 412 tokens", or which token of which turn differs, and then ends with 1.

  edgeserve replay chat.json           one that was exported
  edgeserve replay "what is a monad"   one of yours, by its title or its id
  edgeserve replay chat.json --model other.gguf    does another model say the same?

Answers of another model file, without a seed, or of no known tokens and text, are named and left
out; with --model the file may be another.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chat", metavar="CHAT", help="an exported file, a title or an id")
    parser.add_argument("--model", metavar="MODEL", help="by this one, and not by each turn's own")
    parser.add_argument("--url", metavar="URL", help="by an OpenAI-compatible server")
    parser.add_argument("--api-key", metavar="KEY", help="the server's key, if it asks for one")
    add_engine_arguments(parser)


def run(args: argparse.Namespace, config: Config) -> int:
    conversations = _conversations(args.chat, config)
    if args.device != "oracle":
        keep_numpy_to_one_thread()
    return asyncio.run(_replayed(args, config, conversations))


async def _replayed(
    args: argparse.Namespace, config: Config, conversations: Sequence[Conversation]
) -> int:
    from edgeserve.commands.replayed_turns import Replayer

    client = client_of(args, config)
    try:
        replayer = Replayer(client, sys.stdout, args.model)
        for conversation in conversations:
            await replayer.replay(conversation)
        print(replayer.summary())
        return replayer.exit_code
    finally:
        await client.aclose()


def _conversations(text: str, config: Config) -> Sequence[Conversation]:
    """Raises ChatImportError, ChatsError, InvalidRequestError."""
    from edgeserve.chats.exchange import read_file
    from edgeserve.chats.store import ChatStore, random_id

    path = path_of(text)
    if path.suffix.lower() in (".md", ".markdown", ".txt"):
        raise InvalidRequestError(
            "CHAT", text, "a .json export (/export chat.json): Markdown keeps no seeds and tokens"
        )
    if is_file(path) or text.lower().endswith(".json"):
        return read_file(path, random_id)
    if not config.chats_file.is_file():
        raise InvalidRequestError("CHAT", text, "a file: there are no chats on this machine")
    with ChatStore(config.chats_file) as store:
        return [store.conversation(_found(text, store.chats()).id)]


def _found(text: str, chats: Sequence[Chat]) -> Chat:
    """By its id, its whole title, or words of it that no other has."""
    wanted = text.casefold()
    for matching in (
        [chat for chat in chats if chat.id == text],
        [chat for chat in chats if chat.title.casefold() == wanted],
        [chat for chat in chats if wanted in chat.title.casefold()],
    ):
        if len(matching) == 1:
            return matching[0]
        if matching:
            those = ", ".join(f"{chat.id} ({chat.title})" for chat in matching[:8])
            raise InvalidRequestError("CHAT", text, f"one chat's: several have it: {those}")
    raise InvalidRequestError("CHAT", text, "a file, or the title or id of a chat")
