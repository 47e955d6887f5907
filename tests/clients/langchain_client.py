"""What LangChain makes of a server: python langchain_client.py URL, JSON on stdout."""

import json
import sys
from typing import Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

SERVER = {"model": "tiny", "base_url": sys.argv[1], "api_key": "any", "max_retries": 0}


class Weather(BaseModel):
    city: Literal["Oslo", "Rome"]


@tool(args_schema=Weather)
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


def reply(message):
    return {
        "content": message.content,
        "tokens": message.usage_metadata["output_tokens"],
        "finish_reason": message.response_metadata["finish_reason"],
        "calls": [[call["name"], call["args"]] for call in message.tool_calls],
    }


def both_ways(model, messages):
    streamed = None
    for chunk in model.stream(messages):
        streamed = chunk if streamed is None else streamed + chunk
    return {"whole": reply(model.invoke(messages)), "streamed": reply(streamed)}


chat = ChatOpenAI(temperature=0, max_tokens=300, stream_usage=True, **SERVER)
short = ChatOpenAI(temperature=0, max_tokens=8, stream_usage=True, **SERVER)
agent = chat.bind_tools([weather], tool_choice="required", parallel_tool_calls=False)
asked = [HumanMessage("the inn")]
call = agent.invoke(asked)
result = weather.invoke(call.tool_calls[0])
history = [*asked, call, result]
assert isinstance(result, ToolMessage)
responses = ChatOpenAI(temperature=0, max_tokens=16, use_responses_api=True, **SERVER)
embeddings = OpenAIEmbeddings(check_embedding_ctx_length=False, **SERVER)
print(
    json.dumps(
        {
            "plain": both_ways(short, asked),
            "called": both_ways(agent, asked),
            "answered": both_ways(short, history),
            "responses": responses.invoke(asked).text,
            "schema": chat.with_structured_output(Weather, method="json_schema")
            .invoke(asked)
            .model_dump(),
            "function": chat.with_structured_output(Weather, method="function_calling")
            .invoke(asked)
            .model_dump(),
            "embedded": embeddings.embed_documents(["the inn", "a cat"]),
        }
    )
)
