"""How model families write tool calls, and which of these ways a chat template teaches.

Values and a table. Readers are in *_calls.py, constraints in tool_grammar.py.
"""

from __future__ import annotations

from edgeserve.frozen import frozen


@frozen
class Frame:
    """What stands around calls: `opens` and `closes` once around all, the others at every call."""

    call_open: str = ""
    call_close: str = ""
    separator: str = ""
    opens: str = ""
    closes: str = ""

    @property
    def triggers(self) -> tuple[str, ...]:
        """The texts that announce calls, without what belongs to the first call itself."""
        stripped = (text.strip().rstrip(" \n[{") for text in (self.opens, self.call_open))
        return tuple(text for text in stripped if text)

    @property
    def endings(self) -> tuple[str, ...]:
        """The tags that may follow a call, innermost first."""
        stripped = (text.strip().lstrip(" \n]}") for text in (self.call_close, self.closes))
        return tuple(text for text in stripped if text)


@frozen
class ObjectFormat:
    """Calls that are JSON objects: {`name_key`: name, `argument_keys`[0]: arguments}, one, several
    or a list of them. Keys come in any order when read. A `name_key` "" means that the name itself
    is the key. Where `bare`, nothing announces a call but that the answer begins with the object
    of a known tool."""

    name: str
    frame: Frame
    before_name: str = '{"name": '
    before_arguments: str = ', "arguments": '
    after_arguments: str = "}"
    name_key: str = "name"
    argument_keys: tuple[str, ...] = ("arguments", "parameters")
    bare: bool = False
    optional_trigger: str = ""


@frozen
class NamedFormat:
    """A name, `before_arguments`, and the arguments as JSON. `number_mark` separates a name from
    the call's number, `id_mark` from its id."""

    name: str
    frame: Frame
    before_arguments: str
    number_mark: str = ""
    id_mark: str = ""


@frozen
class TaggedFormat:
    """An element per call and one per argument, whose text is the value.

    `after_key` says with which text an argument's name ends and, where it tells, whether the value
    is "text" or "json"; otherwise the tool's schema does. Where `padded`, a line break on both
    sides of a value does not belong to it. `line_break` is between elements, `value_open` opens
    the value where it is an element of its own.
    """

    name: str
    frame: Frame
    before_name: str
    after_name: str
    before_key: str
    after_key: tuple[tuple[str, str | None], ...]
    after_value: str
    after_arguments: str
    value_open: str = ""
    padded: bool = False
    line_break: str = "\n"


@frozen
class LiteralFormat:
    """Name and arguments as a language writes them: name(key='text', other=1) in Python, or
    name{key:<|"|>text<|"|>,other:1} with Gemma's quotes."""

    name: str
    frame: Frame
    brackets: tuple[str, str]
    assign: str
    separator: str
    quote: str


@frozen
class HarmonyFormat:
    """gpt-oss: every message names its channel, and a call its recipient."""

    name: str = "harmony"


HARMONY_MARKS = (
    "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>",
)  # fmt: skip

ToolFormat = ObjectFormat | NamedFormat | TaggedFormat | LiteralFormat | HarmonyFormat


def _list(name: str, trigger: str, ending: str = "") -> ObjectFormat:
    """A list of objects within tags."""
    return ObjectFormat(name, Frame(separator=", ", opens=trigger + "[", closes="]" + ending))


_TOOL_CALL = Frame("<tool_call>\n", "\n</tool_call>", "\n")

GENERIC = ObjectFormat("generic", _TOOL_CALL)
"""For templates that know no tools: Hermes' form, described to the model in a preamble."""

_LLAMA = ObjectFormat(
    "llama",
    Frame(separator="; "),
    before_arguments=', "parameters": ',
    argument_keys=("parameters", "arguments"),
    bare=True,
    optional_trigger="<|python_tag|>",
)
_COHERE = ObjectFormat(
    "cohere",
    Frame(opens="<|START_ACTION|>[\n    ", closes="\n]<|END_ACTION|>", separator=",\n    "),
    before_name='{"tool_call_id": "0", "tool_name": ',
    before_arguments=', "parameters": ',
    name_key="tool_name",
    argument_keys=("parameters",),
)
_COMMAND_R = ObjectFormat(
    "command-r",
    Frame(opens="Action:\n```json\n[\n", closes="\n]\n```", separator=",\n"),
    before_name='    {\n        "tool_name": ',
    before_arguments=',\n        "parameters": ',
    after_arguments="\n    }",
    name_key="tool_name",
    argument_keys=("parameters",),
)
_APERTUS = ObjectFormat(
    "apertus",
    Frame(opens="<|tools_prefix|>[", closes="]<|tools_suffix|>", separator=", "),
    before_name="{",
    before_arguments=": ",
    name_key="",
)
_MISTRAL = NamedFormat("mistral", Frame("[TOOL_CALLS]"), "[ARGS]", id_mark="[CALL_ID]")
_FUNCTIONARY = NamedFormat("functionary", Frame("<function=", "</function>"), ">")
_KIMI = NamedFormat(
    "kimi",
    Frame(
        "<|tool_call_begin|>functions.",
        "<|tool_call_end|>",
        opens="<|tool_calls_section_begin|>",
        closes="<|tool_calls_section_end|>",
    ),
    "<|tool_call_argument_begin|>",
    number_mark=":",
)
_DEEPSEEK_R1 = NamedFormat(
    "deepseek-r1",
    Frame(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        "\n```<｜tool▁call▁end｜>",
        "\n",
        opens="<｜tool▁calls▁begin｜>",
        closes="<｜tool▁calls▁end｜>",
    ),
    "\n```json\n",
)
_DEEPSEEK_V3 = NamedFormat(
    "deepseek-v3",
    Frame(
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        opens="<｜tool▁calls▁begin｜>",
        closes="<｜tool▁calls▁end｜>",
    ),
    "<｜tool▁sep｜>",
)


def _functions(name: str, frame: Frame, *, padded: bool) -> TaggedFormat:
    """<function=NAME>, <parameter=KEY>."""
    return TaggedFormat(
        name, frame, "<function=", ">\n", "<parameter=", ((">", None),), "</parameter>",
        "</function>", padded=padded,
    )  # fmt: skip


def _glm(line_break: str) -> TaggedFormat:
    return TaggedFormat(
        "glm", Frame("<tool_call>", "</tool_call>", line_break), "", line_break, "<arg_key>",
        (("</arg_key>", None),), "</arg_value>", "", "<arg_value>", line_break=line_break,
    )  # fmt: skip


def _invoke(
    name: str, section: str, prefix: str, after_key: tuple[tuple[str, str | None], ...]
) -> TaggedFormat:
    """<invoke name="NAME">, <parameter name="KEY">, within one section for all calls."""
    frame = Frame(opens=f"<{section}>\n", closes=f"\n</{section}>", separator="\n")
    return TaggedFormat(
        name, frame, f'<{prefix}invoke name="', '">\n', f'<{prefix}parameter name="', after_key,
        f"</{prefix}parameter>", f"</{prefix}invoke>",
    )  # fmt: skip


_DSML_KEYS = (('" string="true">', "text"), ('" string="false">', "json"))
_MINICPM = TaggedFormat(
    "minicpm5", Frame('<function name="', "", "\n"), "", '">', '<param name="',
    (('">', None),), "</param>", "</function>", line_break="",
)  # fmt: skip
_GEMMA = LiteralFormat(
    "gemma4", Frame("<|tool_call>call:", "<tool_call|>"), ("{", "}"), ":", ",", '<|"|>'
)
_FUNCTION_GEMMA = LiteralFormat(
    "functiongemma",
    Frame("<start_function_call>call:", "<end_function_call>"),
    ("{", "}"),
    ":",
    ",",
    "<escape>",
)
_LFM2 = LiteralFormat(
    "lfm2",
    Frame(separator=", ", opens="<|tool_call_start|>[", closes="]<|tool_call_end|>"),
    ("(", ")"),
    "=",
    ", ",
    "'",
)

_TABLE: tuple[tuple[tuple[str, ...], ToolFormat], ...] = (
    # Texts that stand together in a template, the telling ones first. GENERIC: forms that are not
    # read here, so that the model is asked for one that is.
    (("<|channel|>", "<|call|>"), HarmonyFormat()),
    (("<atem:function_calls>",), GENERIC),
    ((">>>all",), GENERIC),
    (("<|open|>", "<|end_of_msg|>"), GENERIC),
    (("]<]minimax[>[",), GENERIC),
    (("<tool_call{}>",), GENERIC),
    (("functools[",), GENERIC),
    (("<|tool_call:begin|>",), GENERIC),
    (("DSML", "'tool_calls>"), _invoke(
        "deepseek-v4", "｜DSML｜tool_calls", "｜DSML｜", _DSML_KEYS)),
    (("DSML",), _invoke(
        "deepseek-v3.2", "｜DSML｜function_calls", "｜DSML｜", _DSML_KEYS)),
    (("<|tool_call>call:",), _GEMMA),
    (("<start_function_call>",), _FUNCTION_GEMMA),
    (("<|tool_call_begin|>", "<|tool_call_argument_begin|>"), _KIMI),
    (("<｜tool▁call▁begin｜>", "```json"), _DEEPSEEK_R1),
    (("<｜tool▁call▁begin｜>",), _DEEPSEEK_V3),
    (("[TOOL_CALLS]", "[ARGS]"), _MISTRAL),
    (("[TOOL_CALLS]",), _list("mistral-list", "[TOOL_CALLS]")),
    (("<seed:tool_call>",), _functions(
        "seed", Frame("<seed:tool_call>\n", "\n</seed:tool_call>", "\n"), padded=False)),
    (("<minimax:tool_call>",), _invoke(
        "minimax-m2", "minimax:tool_call", "", (('">', None),))),
    (("<tool_call>", "<function=", "<parameter="), _functions(
        "qwen3-coder", _TOOL_CALL, padded=True)),
    (("<tool_call>", "</arg_key>\n<arg_value>"), _glm("\n")),
    (("<tool_call>", "</arg_key>\\n<arg_value>"), _glm("\n")),
    (("<tool_call>", "<arg_key>"), _glm("")),
    (('<function name="', '<param name="'), _MINICPM),
    (("<function=", "</function>"), _FUNCTIONARY),
    (("<tool_calls>[",), _list("apriel", "<tool_calls>", "</tool_calls>")),
    (("<tool_calls>",), ObjectFormat(
        "minimax-m1", Frame(opens="<tool_calls>\n", closes="\n</tool_calls>", separator="\n"))),
    (("<|START_ACTION|>",), _COHERE),
    (("Action:", "```json"), _COMMAND_R),
    (("<|tools_prefix|>",), _APERTUS),
    (("<TOOLCALL>",), _list("nemotron", "<TOOLCALL>", "</TOOLCALL>")),
    (("<|tool_call_start|>",), _LFM2),
    (("<|tool_list_start|>",), _LFM2),
    (("List of tools: [",), _LFM2),
    (("<|function_call|>",), ObjectFormat("gigachat", Frame("<|function_call|>"))),
    (("<|tool|>", "<|/tool|>"), _list("phi4", "<|tool_call|>", "<|/tool_call|>")),
    (("<|tool_call|>",), _list("granite", "<|tool_call|>")),
    (("<tool_call>",), ObjectFormat("hermes", _TOOL_CALL)),
    (("<|python_tag|>",), _LLAMA),
    (('"name": function name, "parameters"',), _LLAMA),
)  # fmt: skip


def format_of_template(source: str) -> ToolFormat:
    """The form in which a template shows tool calls; GENERIC where it shows none that is read."""
    for texts, found in _TABLE:
        if all(text in source for text in texts):
            return found
    return GENERIC


def marks_of(form: ToolFormat) -> tuple[str, ...]:
    """The texts that a form is read by."""
    match form:
        case HarmonyFormat():
            return HARMONY_MARKS
        case ObjectFormat():
            own = (form.optional_trigger,)
        case NamedFormat():
            own = (form.before_arguments, form.id_mark)
        case TaggedFormat():
            own = (
                form.before_name, form.before_key, form.after_value, form.after_arguments,
                form.value_open, *(text for text, _ in form.after_key),
            )  # fmt: skip
        case LiteralFormat():
            own = (form.quote,)
    frame = form.frame
    texts = (frame.opens, frame.call_open, frame.call_close, frame.closes, *own)
    return tuple(text for text in texts if text)
