"""`edgeserve chat`: the chat in the terminal, by a model of this machine or of a server."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.commands.engine_arguments import add_engine_arguments, engine_fields
from edgeserve.commands.sampling_arguments import add_sampling_arguments, given_settings
from edgeserve.config import Config, keep_numpy_to_one_thread, process_environment
from edgeserve.errors import ChatsError, InvalidRequestError, ModelNotFoundError, UnfitOptionError
from edgeserve.terminal import Terminal, is_at_a_terminal

if TYPE_CHECKING:
    from edgeserve.tui.client import ChatClient
    from edgeserve.tui.desk import NewChat
    from edgeserve.tui.keeper import ChatKeeper
    from edgeserve.tui.plain_chat import PlainChat
    from edgeserve.tui.plain_lines import LineReader

DESCRIPTION = """\
Chat with a model. Conversations are kept on this machine, and found again the next time.

  edgeserve chat                       the chat and the model used last; so is `edgeserve` alone
  edgeserve chat smollm2               the last chat goes on with this model
  edgeserve chat --new                 a new chat begins, as with --system or --temperature
  edgeserve chat --url localhost:8080  a server's model: edgeserve's, llama-server's, any other's
  edgeserve chat --plain               lines of text: for screen readers and dumb terminals

Where input or output is no terminal, or TERM is dumb, it is --plain by itself. What is piped in
begins a new chat, unless -c says that the last one goes on.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", nargs="?", help="as for `edgeserve run`")
    parser.add_argument("--url", metavar="URL", help="an OpenAI-compatible server answers")
    parser.add_argument("--api-key", metavar="KEY", help="the server's key, if it asks for one")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-n", "--new", action="store_true", help="begin a new chat")
    which.add_argument(
        "-c",
        "--continue",
        dest="continues",
        action="store_true",
        help="go on with the last chat, as is done anyway but for what is piped in",
    )
    parser.add_argument("--plain", action="store_true", help="plain lines of text")
    parser.add_argument("--system", metavar="TEXT", help="a new chat with this system message")
    add_sampling_arguments(parser)
    add_engine_arguments(parser)


def run(args: argparse.Namespace, config: Config) -> int:
    if args.device != "oracle":
        keep_numpy_to_one_thread()
    new = _new_chat(args)
    terminal = Terminal.from_environment(process_environment())
    if not args.plain and not terminal.is_dumb and is_at_a_terminal():
        return _chat_on_screen(args, config, terminal, new)
    try:
        asyncio.run(_chat_plainly(args, config, terminal, new))
    except asyncio.CancelledError:  # by Ctrl-C, before there was anything to stop
        raise KeyboardInterrupt from None
    return 0


def _new_chat(args: argparse.Namespace) -> NewChat | None:
    """None where the last chat goes on. Raises InvalidRequestError."""
    from edgeserve.tui.chat_settings import as_setting
    from edgeserve.tui.desk import NewChat

    given = given_settings(args)
    settings = {name: as_setting(name, str(value)) for name, value in given.items()}
    if args.continues and (settings or args.system is not None):
        option = "--system" if args.system is not None else f"--{next(iter(settings))}"
        raise UnfitOptionError(option.replace("_", "-"), "with -c: the chat has its own")
    is_piped = sys.stdin is None or not sys.stdin.isatty()
    if settings or args.system is not None or args.new or (is_piped and not args.continues):
        return NewChat(args.system or "", settings)
    return None


def _chat_on_screen(
    args: argparse.Namespace, config: Config, terminal: Terminal, new: NewChat | None
) -> int:
    from edgeserve.commands.chat_on_screen import open_screen
    from edgeserve.tui.client import HERE
    from edgeserve.tui.late_client import LateClient

    if args.url is not None:
        client = client_of(args, config)
    else:
        client = LateClient(lambda: client_of(args, config), HERE)
    return open_screen(client, config, terminal, model=args.model or "", new=new)


def client_of(args: argparse.Namespace, config: Config) -> ChatClient:
    """Who answers. Raises InvalidRequestError."""
    if args.url is not None:
        from edgeserve.tui.http_client import HttpClient

        return HttpClient(args.url, args.api_key)
    from edgeserve.loader.catalog import load_catalog
    from edgeserve.local_shelf import LocalShelf
    from edgeserve.tui.local_client import LocalClient

    shelf = LocalShelf(config, load_catalog(), engine_fields(args))
    client = LocalClient(shelf)
    if args.accept_license and args.model:
        client.accept_license(args.model)
    return client


async def first_model(
    client: ChatClient, args: argparse.Namespace, config: Config, last_used: str
) -> str:
    """The model to begin with: as asked for, the one used last, or one that is there.

    Raises ModelNotFoundError where there is none.
    """
    if args.model is not None:
        return args.model
    if args.url is not None:
        names = [model.name for model in await client.models()]
        if not names:
            raise ModelNotFoundError(f"the server at {client.place} lists no model")
        return last_used if last_used in names else names[0]
    from edgeserve.commands.chosen_model import chosen_model
    from edgeserve.loader.catalog import load_catalog
    from edgeserve.loader.store import ModelStore

    store = ModelStore(config, load_catalog())
    return await asyncio.to_thread(chosen_model, store, last_used)


async def _chat_plainly(
    args: argparse.Namespace, config: Config, terminal: Terminal, new: NewChat | None
) -> None:
    from edgeserve.tui.plain_chat import PlainChat
    from edgeserve.tui.plain_lines import terminal_as_it_was

    client, keeper = client_of(args, config), await _opened_keeper(config)
    try:
        chat = PlainChat(
            client,
            keeper,
            _lines(terminal),
            sys.stdout,
            notes=None if sys.stdout.isatty() else sys.stderr,
            echoes=not sys.stdin.isatty(),
        )
        last_used = await keeper.run(lambda store: store.last_model())
        if new is not None:
            await chat.talk.change(system_prompt=new.system_prompt, settings=new.settings)
        elif (latest := await keeper.run(lambda store: store.latest_spoken())) is not None:
            await chat.go_on_with(latest.id)
            last_used = latest.model or last_used
        with terminal_as_it_was(), _stops(chat):
            name = await first_model(client, args, config, last_used)
            await chat.use(name)
            await keeper.run(lambda store: store.remember_model(name))
            await chat.run()
    finally:
        await client.aclose()
        await keeper.close()


async def _opened_keeper(config: Config) -> ChatKeeper:
    """Where the file of chats cannot be used, this session's go into another."""
    from edgeserve.chats.store import ChatStore
    from edgeserve.tui.keeper import ChatKeeper
    from edgeserve.tui.wording import kept_meanwhile

    keeper = ChatKeeper(lambda: ChatStore(config.chats_file))
    try:
        await keeper.open()
    except ChatsError as error:
        try:
            path = Path(tempfile.mkdtemp(prefix="edgeserve-chats-")) / "chats.db"
        except OSError:
            raise error from None
        print(f"edgeserve: {error}\n{kept_meanwhile(path)}", file=sys.stderr)
        keeper = ChatKeeper(lambda: ChatStore(path))
        await keeper.open()
    await keeper.run(lambda store: store.recover())
    return keeper


@contextlib.contextmanager
def _stops(chat: PlainChat) -> Generator[None]:
    """Ctrl-C stops the answer; where there is none, the chat ends. While a model loads, it ends
    the program."""
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    tasks: set[asyncio.Task[None]] = set()

    def interrupted() -> None:
        if chat.is_loading and main is not None:
            main.cancel()
            return
        task = asyncio.ensure_future(chat.interrupt())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    try:
        loop.add_signal_handler(signal.SIGINT, interrupted)
    except (NotImplementedError, RuntimeError):  # Windows: Ctrl-C ends the program
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _lines(terminal: Terminal) -> LineReader:
    """What is typed can be edited where the terminal knows how."""
    from edgeserve.tui.plain_lines import EditedLines, LineReader

    if is_at_a_terminal() and not terminal.is_dumb:
        with contextlib.suppress(ImportError):  # Windows has no readline
            return LineReader(EditedLines())
    return LineReader(_input_lines())


def _input_lines() -> Iterator[str]:
    """Standard input, as UTF-8 whatever the locale says."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise InvalidRequestError(
                f"line {number} of standard input", line[:20], "UTF-8 text"
            ) from None
