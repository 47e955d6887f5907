"""Sessions of coding agents, replayed on `edgeserve serve` and, beside it, on llama.cpp's server.

    python benches/agent_sessions.py MODEL.gguf [--server PATH] [--turns 21] [--cold-turns all]
        [--sessions claude,codex] [--claude-tokens N] [--codex-tokens N] [--chat-template FILE]
        [--no-second-chat]

Claude Code's and Codex's requests as they come over the wire (agent_transcripts.py), streamed, each
turn with the model's own answers of the turns before. In the middle the server is killed (SIGKILL)
and started again; edgeserve keeps its store on disk, in a folder of its own. At chosen turns (the
first after the restart, and the last; or all) a server that has nothing in its cache answers the
same request; beside the first session's last of these a second chat runs, whose gaps are shown.

Ends with an error where edgeserve refused a turn, found less than 95 % of what was asked after the
first turn in its cache, needed over a tenth of the first turn's time to a first token (the prompts
after it are longer, so cold they would take longer too), or answered unlike cold. Of llama.cpp's
server figures are shown, and errors, but nothing is demanded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from agent_servers import Contestant, Reply, RunningServer, SecondChat, ask
from agent_transcripts import ClaudeCode, Codex, Request, Session, Size

WANTED_CACHED = 0.95
WANTED_RATIO = 0.1
_CHARS_PER_TOKEN = 3.4  # Gemma's, of these texts
_PAUSE_S = 2.0  # between an answer and the kill: an agent's tools take as long
_BESIDE_TOKENS = 4096
_TEMPLATE = Path(__file__).with_name("data") / "gemma-agents.jinja"


@dataclass
class Outcome:
    """One session with one server. `ready_s` is how long it took to be there again; `cold` are
    answers without a cache, by turn; `gaps_s` those of the second chat beside the last of them."""

    server: str
    session: str
    replies: list[Reply] = field(default_factory=list[Reply])
    restarted_at: int = 0
    ready_s: float = 0.0
    cold: dict[int, Reply] = field(default_factory=dict[int, Reply])
    gaps_s: list[float] = field(default_factory=list[float])
    alone_gap_s: float = 0.0

    @property
    def failed(self) -> list[str]:
        return [
            f"turn {turn}: {reply.status} {reply.error}"
            for turn, reply in enumerate(self.replies)
            if reply.status != 200 or reply.error
        ]

    @property
    def cached_share(self) -> float:
        later = self.replies[1:]
        return sum(r.cached_tokens for r in later) / max(1, sum(r.prompt_tokens for r in later))

    @property
    def warm_s(self) -> list[float]:
        """Times to the first token of all turns but the first and the restarted one."""
        replies = enumerate(self.replies)
        return [r.first_s for turn, r in replies if turn not in (0, self.restarted_at)]

    @property
    def ratio(self) -> float:
        """Of the slowest turn, restarted or not, to the first."""
        return max(r.first_s for r in self.replies[1:]) / self.replies[0].first_s

    @property
    def unlike_cold(self) -> list[int]:
        return [t for t, cold in self.cold.items() if cold.same_as != self.replies[t].same_as]


@dataclass
class Replay:
    """A session, what was asked in it so far, and what came of it."""

    session: Session
    outcome: Outcome
    requests: list[Request] = field(default_factory=list[Request])

    def go_on(self, url: str, until: int) -> None:
        """Up to that turn, or the first that fails."""
        while self.session.turn < until and not self.outcome.failed:
            self.requests.append(self.session.request())
            reply = ask(url, self.requests[-1])
            self.outcome.replies.append(reply)
            _say(self.outcome, self.session.turn, reply)
            self.session.take(reply.content)


def replay(
    contestant: Contestant, sessions: Sequence[Session], folder: Path, num_turns: int
) -> list[Replay]:
    """All turns of them, with a kill and a restart before the middle one."""
    middle = num_turns // 2
    replays = [Replay(s, Outcome(contestant.name, s.name, restarted_at=middle)) for s in sessions]
    with RunningServer(contestant, folder) as server:
        for each in replays:
            each.go_on(server.url, middle)
        time.sleep(_PAUSE_S)
        server.kill()
    with RunningServer(contestant, folder) as server:
        for each in replays:
            each.outcome.ready_s = server.ready_s
            each.go_on(server.url, num_turns)
    return replays


def _say(outcome: Outcome, turn: int, reply: Reply, how: str = "") -> None:
    kinds = ", ".join(str(item["type"]) for item in reply.content)
    print(
        f"  {outcome.server}, {outcome.session}, turn {turn}{how}: {reply.status} {reply.error}"
        f"{reply.prompt_tokens} tokens, {reply.cached_tokens} cached, first {reply.first_s:.2f} s, "
        f"{reply.output_tokens} tokens to {reply.whole_s:.2f} s ({kinds})",
        flush=True,
    )


def answer_cold(
    contestant: Contestant, replayed: Replay, turns: Sequence[int], beside: int | None
) -> None:
    """Those turns again, each by a server of its own that knows nothing; at `beside` a second
    chat runs."""
    outcome = replayed.outcome
    for turn in turns:
        with (
            tempfile.TemporaryDirectory(prefix="agent-sessions-") as folder,
            RunningServer(contestant, Path(folder), keeps=False) as server,
        ):
            request = replayed.requests[turn]
            if turn == beside:
                outcome.cold[turn] = _beside_chat(outcome, server.url, request)
            else:
                outcome.cold[turn] = ask(server.url, request)
        _say(outcome, turn, outcome.cold[turn], ", cold")


def _beside_chat(outcome: Outcome, url: str, request: Request) -> Reply:
    """The answer while a second chat runs. Its gaps are of the time until the first token."""
    chat = SecondChat(url, _BESIDE_TOKENS)
    chatting = threading.Thread(target=chat.run)
    chatting.start()
    began = time.perf_counter()
    time.sleep(_PAUSE_S)
    started = time.perf_counter()
    reply = ask(url, request)
    chat.is_wanted = False
    chatting.join()
    outcome.gaps_s = list(chat.gaps(started, started + reply.first_s))
    alone = chat.gaps(began, started)
    outcome.alone_gap_s = statistics.median(alone) if alone else 0.0
    return reply


# --- what it came to -----------------------------------------------------------------------------


def report(outcomes: Sequence[Outcome]) -> None:
    print(
        "\n| session | server | prompt tokens | cached | cold TTFT | warm TTFT median, max | ratio "
        "| after kill -9: ready, TTFT | second chat: alone, p50, max |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    for outcome in outcomes:
        print(_row(outcome))


def _row(outcome: Outcome) -> str:
    replies = outcome.replies
    head = f"| {outcome.session} | {outcome.server} | "
    if outcome.failed:
        return f"{head}{'; '.join(outcome.failed)} |"
    warm, again = outcome.warm_s, replies[outcome.restarted_at]
    gaps = outcome.gaps_s
    beside = "not run"
    if gaps:
        times = (outcome.alone_gap_s, statistics.median(gaps), gaps[-1])
        beside = ", ".join(f"{1e3 * seconds:.0f} ms" for seconds in times)
    cells = (
        f"{replies[0].prompt_tokens} to {replies[-1].prompt_tokens}",
        f"{100 * outcome.cached_share:.1f} %",
        f"{replies[0].first_s:.1f} s",
        f"{statistics.median(warm):.2f}, {max(warm):.2f} s",
        f"{outcome.ratio:.3f}",
        f"{outcome.ready_s:.1f} s, {again.first_s:.2f} s ({again.cached_tokens} cached)",
        beside,
    )
    return head + " | ".join(cells) + " |"


def shortcomings(outcome: Outcome) -> list[str]:
    """What edgeserve owes and did not give."""
    found = list(outcome.failed)
    if found:
        return found
    if outcome.cached_share < WANTED_CACHED:
        found.append(f"{outcome.cached_share:.3f} of the prompts cached, {WANTED_CACHED} wanted")
    if outcome.ratio > WANTED_RATIO:
        found.append(f"a turn took {outcome.ratio:.3f} of cold, {WANTED_RATIO} wanted")
    if outcome.unlike_cold:
        found.append(f"answers unlike cold at turns {outcome.unlike_cold}")
    return found


def sessions(given: argparse.Namespace, *, seals: bool) -> list[Session]:
    made: list[Session] = []
    for name in given.sessions.split(","):
        tokens = given.claude_tokens if name == "claude" else given.codex_tokens
        chars = int(tokens * _CHARS_PER_TOKEN)
        size = Size(chars, given.result_chars, given.max_tokens)
        made.append(ClaudeCode(size) if name == "claude" else Codex(size, seals))
    return made


def measure(given: argparse.Namespace) -> list[Outcome]:
    template, threads = given.chat_template, given.threads
    ours = Contestant("edgeserve", given.model, template, threads)
    outcomes: list[Outcome] = []
    for session in sessions(given, seals=True):
        replayed = _replayed(ours, session, given.turns)
        outcomes.append(replayed.outcome)
        if not replayed.outcome.failed:
            turns = _cold_turns(given, replayed.outcome.restarted_at)
            beside = turns[-1] if given.second_chat and len(outcomes) == 1 else None
            answer_cold(ours, replayed, turns, beside)
    if given.server is not None:
        theirs = Contestant("llama-server", given.model, template, threads, given.server)
        for session in sessions(given, seals=False):
            outcomes.append(_replayed(theirs, session, given.turns).outcome)
    return outcomes


def _replayed(contestant: Contestant, session: Session, num_turns: int) -> Replay:
    with tempfile.TemporaryDirectory(prefix="agent-sessions-") as folder:
        return replay(contestant, [session], Path(folder), num_turns)[0]


def _cold_turns(given: argparse.Namespace, restarted_at: int) -> list[int]:
    if given.cold_turns == "all":
        return list(range(given.turns))
    if given.cold_turns == "some":
        return [restarted_at, given.turns - 1]
    return sorted(int(turn) for turn in given.cold_turns.split(",") if turn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--server", type=Path, metavar="PATH", help="llama.cpp's llama-server")
    parser.add_argument("--sessions", default="claude,codex")
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--claude-tokens", type=int, default=24_000, help="of the first prompt")
    parser.add_argument("--codex-tokens", type=int, default=9_000)
    parser.add_argument("--result-chars", type=int, default=700, help="in a tool's result")
    parser.add_argument("--max-tokens", type=int, default=32, help="of an answer")
    parser.add_argument("--cold-turns", default="some", help="some, all, or their numbers: 0,10")
    parser.add_argument("--chat-template", type=Path, default=_TEMPLATE)
    parser.add_argument("--no-second-chat", dest="second_chat", action="store_false")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="all figures, to a file")
    given = parser.parse_args()
    outcomes = measure(given)
    report(outcomes)
    if given.json is not None:
        found = [asdict(outcome) for outcome in outcomes]
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    wrong = [
        f"{outcome.session}: {what}"
        for outcome in outcomes
        if outcome.server == "edgeserve"
        for what in shortcomings(outcome)
    ]
    for what in wrong:
        print(f"WRONG: {what}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
