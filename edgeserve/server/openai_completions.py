"""`/v1/completions`: raw prompts, any number at once, in OpenAI's legacy shape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeserve.async_token_stream import AsyncTokenStream
from edgeserve.engine.live_request import Request as EngineRequest
from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.server.arriving import Arriving
from edgeserve.server.completion_body import (
    CompletionBody,
    ReadBody,
    completion_body,
    infill_body,
)
from edgeserve.server.constraint_fields import naming_field
from edgeserve.server.context import ServerContext
from edgeserve.server.errors import cut_is_error, openai_body, problem_of
from edgeserve.server.exchange import answered, header_text, json_response
from edgeserve.server.fields import Fields
from edgeserve.server.legacy_logprobs import LegacyLogprobs, legacy_logprobs
from edgeserve.server.limits import read_body
from edgeserve.server.merged import merged
from edgeserve.server.models import Served
from edgeserve.server.request_log import note, note_output
from edgeserve.server.shapes import timings_shape, usage_shape
from edgeserve.server.sse import (
    DONE,
    EventStream,
    comment_frames,
    data_frame,
    while_connected,
)
from edgeserve.types import LogprobsAt, RequestOutput, TokenChunk


def routes(server: ServerContext) -> Sequence[Route]:
    return [
        Route("/completions", _Completions(server, completion_body).answer, methods=["POST"]),
        Route("/infill", _Completions(server, infill_body).answer, methods=["POST"]),
    ]


class _Completions:
    def __init__(self, server: ServerContext, read: ReadBody) -> None:
        self._server = server
        self._read = read

    async def answer(self, request: Request) -> Response | EventStream:
        return await answered(self._answer(request))

    async def _answer(self, request: Request) -> Response | EventStream:
        fields = await read_body(request, self._server.limits)
        pings = self._server.pings
        async with AsyncExitStack() as stack:
            arriving = Arriving(self._server.registry.use(fields.text("model")))
            stack.push_async_callback(arriving.aclose)
            patience = pings.first_s if fields.flag("stream") else None
            served = await arriving.within(request.receive, patience)
            if served is None:  # it is loading: headers are the first sign of life
                kept = stack.pop_all()
                late = self._late_frames(request, fields, arriving, kept)
                return EventStream(late, {}, kept.aclose, pings)
            job = await self._begin(request, fields, served, stack)
            headers = _notes(fields.unread())
            if job.body.streams:
                return EventStream(job.frames(), headers, stack.pop_all().aclose, pings)
            return json_response(await while_connected(request.receive, job.whole()), headers)

    async def _begin(
        self, request: Request, fields: Fields, served: Served, stack: AsyncExitStack
    ) -> _Job:
        """Reads the body and queues its prompts, which `stack` cancels."""
        body = self._read(fields, vocab_size=served.vocab_size)
        with naming_field(body.constraint_field):
            requests = await asyncio.to_thread(_requests, served, body)
        note(request, model=served.name, stream=body.streams, prompts=len(requests))
        job = _Job(self._head(served), served, body, _open(served, requests, stack))
        stack.callback(lambda: note_output(request, job.prompts[0][1].output))
        return job

    async def _late_frames(
        self, request: Request, fields: Fields, arriving: Arriving, stack: AsyncExitStack
    ) -> AsyncIterator[bytes]:
        """Of a model that is still to come: what headers would say is a comment."""
        try:
            with cut_is_error():
                served = await arriving.served()
                job = await self._begin(request, fields, served, stack)
        except Exception as error:  # the headers are out: all that is left is to say it
            yield _error_frame(error)
            return
        for said in comment_frames(_notes(fields.unread())):
            yield said
        async for frame in job.frames():
            yield frame

    def _head(self, served: Served) -> dict[str, object]:
        return {
            "id": f"cmpl-{self._server.new_id()}",
            "object": "text_completion",
            "created": int(self._server.now()),
            "model": served.name,
            "system_fingerprint": served.fingerprint,
        }


def _error_frame(error: Exception) -> bytes:
    return b"data: " + openai_body(problem_of(error)) + b"\n\n"


def _notes(ignored: Sequence[str]) -> Mapping[str, str]:
    return {"x-edgeserve-ignored": header_text(", ".join(ignored))} if ignored else {}


def _requests(served: Served, body: CompletionBody) -> list[EngineRequest]:
    """Tokenises all prompts: for a thread."""
    builder = served.llm.requests
    found: list[EngineRequest] = []
    for at, prompt in enumerate(body.prompts):
        if body.suffix is not None:
            if not isinstance(prompt, str):
                raise InvalidRequestError(f"prompt[{at}]", "token ids", "text beside a suffix")
            texts = (prompt, body.suffix, body.middle)
            found.append(builder.infill(texts, body.params, body.priority))
            continue
        request = builder.raw(
            {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt},
            body.params,
            body.priority,
            parse_special=body.parse_special,
            add_special=body.add_special_tokens,
        )
        found.append(request)
    return found


def _open(
    served: Served, requests: Sequence[EngineRequest], stack: AsyncExitStack
) -> list[tuple[EngineRequest, AsyncTokenStream]]:
    """Queues as many as one client may have queued, and checks the others, which `merged` starts.
    If one is refused, those before it are cancelled by `stack`."""
    opened: list[tuple[EngineRequest, AsyncTokenStream]] = []
    llm = served.llm
    for at, request in enumerate(requests):
        stream = llm.open(request) if at < llm.num_at_once else llm.later(request)
        stack.push_async_callback(stream.aclose)
        opened.append((request, stream))
    return opened


@frozen
class _Job:
    """Prompts at work, and how their answers look. `head` is the same in all chunks."""

    head: dict[str, object]
    served: Served
    body: CompletionBody
    prompts: list[tuple[EngineRequest, AsyncTokenStream]]

    async def frames(self) -> AsyncIterator[bytes]:
        offsets: dict[int, int] = {}  # of a choice: how long the texts of its tokens are so far
        try:
            if self.body.echoes:
                for at in range(len(self.prompts)):
                    for index in range(self.body.params.n):
                        yield self._chunk(self._index(at, index), self._prompt_text(at))
            with cut_is_error():
                async for at, chunk in self._pieces():
                    frame = self._frame(at, chunk, offsets)
                    if frame is not None:
                        yield frame
            if self.body.includes_usage:
                usage = usage_shape(self._outputs())
                yield data_frame({**self.head, "choices": [], "usage": usage})
            yield DONE
        except Exception as error:  # the headers are out: all that is left is to say it
            yield _error_frame(error)

    async def whole(self) -> object:
        async for _ in self._pieces():
            pass
        outputs = self._outputs()
        choices = [
            self._choice(at, output, index)
            for at, output in enumerate(outputs)
            for index in range(self.body.params.n)
        ]
        shape = {**self.head, "choices": choices, "usage": usage_shape(outputs)}
        return {**shape, "timings": timings_shape(outputs[0])} if len(outputs) == 1 else shape

    def _pieces(self) -> AsyncIterator[tuple[int, TokenChunk]]:
        return merged([stream for _, stream in self.prompts], self.served.llm.num_at_once)

    def _outputs(self) -> list[RequestOutput]:
        outputs = [stream.output for _, stream in self.prompts]
        return [output for output in outputs if output is not None]

    def _index(self, at: int, index: int) -> int:
        return at * self.body.params.n + index

    def _frame(self, at: int, chunk: TokenChunk, offsets: dict[int, int]) -> bytes | None:
        finish = chunk.finish_reason
        text = "" if self.body.only_echoes else chunk.text
        if not text and finish is None and not chunk.logprobs:
            return None
        index = self._index(at, chunk.index)
        if chunk.logprobs is None or self.body.only_echoes:
            return self._chunk(index, text, finish_reason=finish)
        shown = legacy_logprobs(chunk.logprobs, self._num_top, offset=offsets.get(index, 0))
        offsets[index] = offsets.get(index, 0) + sum(map(len, shown["tokens"]))
        return self._chunk(index, text, shown, finish)

    def _chunk(
        self,
        index: int,
        text: str,
        logprobs: LegacyLogprobs | None = None,
        finish_reason: str | None = None,
    ) -> bytes:
        choice = {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        return data_frame({**self.head, "choices": [choice]})

    @property
    def _num_top(self) -> int:
        return self.body.params.logprobs or 0

    def _choice(self, at: int, output: RequestOutput, index: int) -> dict[str, object]:
        choice = output.outputs[index]
        text = "" if self.body.only_echoes else choice.text
        if self.body.echoes:
            text = self._prompt_text(at) + text
        entries: list[LogprobsAt | None] = []
        ids: list[int] = []
        if self.body.echoes:
            entries += output.prompt_logprobs or ()
            ids += output.prompt_token_ids
        if not self.body.only_echoes:
            entries += choice.logprobs or ()
            ids += choice.token_ids
        shown = None
        if self.body.params.logprobs is not None:
            first = self.served.token_text(ids[0]) if ids else ""
            shown = legacy_logprobs(entries, self._num_top, first)
        finish = "length" if self.body.only_echoes else choice.finish_reason
        return {
            "index": self._index(at, index),
            "text": text,
            "logprobs": shown,
            "finish_reason": finish,
        }

    def _prompt_text(self, at: int) -> str:
        prompt = self.body.prompts[at]
        if isinstance(prompt, str):
            return prompt
        return self.served.llm.requests.detokenize(prompt)
