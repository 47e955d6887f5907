"""What LiteLLM makes of a server: python litellm_client.py URL, JSON on stdout."""

import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the network for prices

import litellm

URL = sys.argv[1]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
USER = [{"role": "user", "content": "the inn"}]
OPENAI = {"model": "openai/tiny", "api_base": URL, "api_key": "any", "num_retries": 0}
ANTHROPIC = {**OPENAI, "model": "anthropic/tiny", "api_base": URL.removesuffix("/v1")}


def reply(response):
    message = response.choices[0].message
    calls = [[call.function.name, call.function.arguments] for call in message.tool_calls or ()]
    return {
        "content": message.content or None,
        "finish_reason": response.choices[0].finish_reason,
        "tokens": response.usage.completion_tokens,
        "calls": calls,
    }


def both_ways(**fields):
    whole = litellm.completion(temperature=0, **fields)
    chunks = list(
        litellm.completion(
            temperature=0, stream=True, stream_options={"include_usage": True}, **fields
        )
    )
    streamed = litellm.stream_chunk_builder(chunks, messages=fields["messages"])
    return {"whole": reply(whole), "streamed": reply(streamed)}


def refused(**fields):
    try:
        litellm.completion(**fields)
    except Exception as error:
        return type(error).__name__
    return None


found = {}
for name, server in (("openai", OPENAI), ("anthropic", ANTHROPIC)):
    found[name] = {
        "plain": both_ways(max_tokens=8, messages=USER, **server),
        "called": both_ways(
            max_tokens=300,
            messages=USER,
            tools=[TOOL],
            tool_choice="required",
            parallel_tool_calls=False,
            **server,
        ),
        "overlong": refused(messages=[{"role": "user", "content": "long " * 5000}], **server),
    }
embedded = litellm.embedding(input=["the inn", "a cat"], **OPENAI)
found["embedded"] = [entry["embedding"] for entry in embedded.data]
found["unknown"] = refused(messages=USER, **{**OPENAI, "model": "openai/nobody"})
print(json.dumps(found))
