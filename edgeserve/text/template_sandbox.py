"""Chat templates run by Jinja's immutable sandbox, in bounded time and memory.

How the bounds hold: nothing preempts a render. Alarms work on the main thread only, a thread
cannot be killed, a child process costs more than the render itself, and tracing every line slows
it tenfold. Instead no value may grow past a size (so each operation is short) and the parsed
template is rewritten so that the clock is read between operations: at every loop iteration,
call, attribute, operator, comparison, literal, filter, test and piece of output.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from datetime import datetime
from types import BuiltinMethodType, CodeType, GeneratorType, MethodType
from typing import Any, cast

import jinja2
from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as loop_controls
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace
from markupsafe import Markup

from edgeserve.errors import (
    TemplateError,
    TemplateLimitError,
    TemplateRefusedError,
    TemplateSyntaxError,
)
from edgeserve.frozen import frozen
from edgeserve.text.control_guard import Disguise
from edgeserve.text.template_filters import Function, TemplateFilters, find_key
from edgeserve.text.template_meter import Meter
from edgeserve.text.template_rewrite import rewrite
from edgeserve.text.template_strings import STRING_METHODS, TemplateStrings

_ALLOWED: tuple[tuple[type | tuple[type, ...], frozenset[str]], ...] = (
    (str, STRING_METHODS),
    ((int, float, bytes, GeneratorType), frozenset()),
    ((list, tuple, range), frozenset(("copy", "count", "index"))),
    (dict, frozenset(("copy", "get", "items", "keys", "values"))),
)
_DICT_NAMES = frozenset(dir(dict))
_MAX_TIME_FORMAT = 1000


@frozen
class CompiledTemplate:
    """A template's byte code, and the texts that it holds literally."""

    code: CodeType
    literals: frozenset[str]


def compile_template(source: str, meter: Meter) -> CompiledTemplate:
    """Raises TemplateSyntaxError with the line, TemplateLimitError for a template too large."""
    if len(source) > meter.limits.source_chars:
        raise TemplateLimitError("its length in characters", meter.limits.source_chars)
    sandbox = Sandbox(meter)
    try:
        tree = sandbox.parse(source)
        literals = {data.data for data in tree.find_all(nodes.TemplateData)}
        literals |= {c.value for c in tree.find_all(nodes.Const) if isinstance(c.value, str)}
        code = sandbox.compile(rewrite(tree, meter))
    except TemplateError:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise TemplateSyntaxError(error.message or "invalid syntax", error.lineno) from None
    except RecursionError:
        raise TemplateSyntaxError("it is nested too deeply", None) from None
    except Exception as error:  # the parser and Python's compiler, fed with anything
        raise TemplateSyntaxError(f"{type(error).__name__}: {error}", None) from None
    return CompiledTemplate(code, frozenset(literals))


def run_template(
    compiled: CompiledTemplate,
    variables: Mapping[str, object],
    meter: Meter,
    now: Callable[[], datetime],
    disguise: Disguise | None = None,
) -> str:
    """One render. Whatever goes wrong inside the template is a TemplateError."""
    sandbox = Sandbox(meter, disguise)
    names = cast("dict[str, object]", sandbox.globals)
    names["strftime_now"] = _clock_text(now)
    template = jinja2.Template.from_code(sandbox, compiled.code, names)
    pieces: list[str] = []
    num_chars = 0
    try:
        for piece in template.root_render_func(template.new_context(dict(variables))):
            pieces.append(piece)
            num_chars += len(piece)
            if num_chars > meter.limits.output_chars:
                raise TemplateLimitError("its output in characters", meter.limits.output_chars)
    except TemplateError:
        raise
    except Exception as error:  # a template is somebody else's program: any error is its own
        where = _line_of(error, template)
        reason = "it calls itself too deeply" if isinstance(error, RecursionError) else str(error)
        raise TemplateError(f"the chat template failed{where}: {reason}") from None
    return "".join(pieces)


def _line_of(error: BaseException, template: jinja2.Template) -> str:
    line: int | None = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return "" if line is None else f" at line {line}"


def _clock_text(now: Callable[[], datetime]) -> Function:
    def strftime_now(format: str) -> str:
        if len(format) > _MAX_TIME_FORMAT:
            raise TemplateLimitError("a time format's length", _MAX_TIME_FORMAT)
        return now().strftime(format)

    return strftime_now


def _raise_exception(message: object = "") -> None:
    raise TemplateRefusedError(str(message))


class _TemplateDict:
    """`dict` in templates: makes dicts, without a class's attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[object], value: object = None) -> dict[object, object]:
        return dict.fromkeys(keys, value)


class _TemplateNamespace(Namespace):
    """`namespace` in templates. No underscores, and a short repr: namespaces are mutable, so one
    can be reached from another along exponentially many paths."""

    def __init__(*args: Any, **kwargs: object) -> None:
        Namespace.__init__(args[0])
        for name, value in dict(*args[1:], **kwargs).items():
            args[0][name] = value

    def __setitem__(self, name: str, value: object) -> None:
        if str(name).startswith("_"):
            raise jinja2.exceptions.SecurityError(f"namespace attribute {name!r} is not allowed")
        Namespace.__setitem__(self, name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


class _GenerationTag(Extension):
    """`{% generation %}`, by which transformers marks what an assistant wrote: a scope, no more.
    Also where each token of the source passes, so that parsing is metered too."""

    tags = {"generation"}  # noqa: RUF012  Jinja's attribute

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("generated", lineno=line)
        return nodes.CallBlock(call, [], [], body, lineno=line)

    def generated(self, caller: Callable[[], str]) -> str:
        return caller()

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        meter = cast(Sandbox, self.environment).meter
        for token in stream:
            meter.tick()
            yield token


class _Each:
    """What a for loop runs over, its length when it has one."""

    def __init__(self, values: Iterable[object], meter: Meter) -> None:
        self._values = values
        self._meter = meter

    def __iter__(self) -> Iterator[object]:
        for value in self._values:
            self._meter.tick()
            yield value


class _SizedEach(_Each):
    def __len__(self) -> int:
        return len(cast(Sized, self._values))


class _Formatter(SandboxedFormatter):
    """str.format, adding up what it is asked to write."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(sandbox)
        self._sandbox = sandbox
        self._num_chars = 0

    def format_field(self, value: object, format_spec: str) -> str:
        sandbox = self._sandbox
        sandbox.strings.check_format_spec(format_spec)
        if not format_spec:
            text = sandbox.library.text(value)
        else:
            text = cast(str, string.Formatter.format_field(self, value, format_spec))
        self._num_chars += len(text)
        sandbox.meter.bound(self._num_chars)
        return text


class _MeteredGenerator(CodeGenerator):
    """Jinja's compiler, reading the clock at every node."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        cast(Sandbox, self.environment).meter.tick()
        return super().visit(node, *args, **kwargs)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one render (or one compilation): its state is that render's alone."""

    code_generator_class = _MeteredGenerator
    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))

    def __init__(self, meter: Meter, disguise: Disguise | None = None) -> None:
        # Constant folding would run filters at compile time, out of reach of the rewriting.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=(_GenerationTag, loop_controls),
            optimized=False,
            finalize=self._finalize,
            cache_size=0,
        )
        self.meter = meter
        self.disguise = disguise
        self.strings = TemplateStrings(meter, disguise)
        self.library = TemplateFilters(meter, self.strings, disguise)
        self.filters = cast("dict[str, Callable[..., Any]]", self.library.filters())
        self.tests = cast("dict[str, Callable[..., Any]]", self.library.tests())
        # Names that no template can spell: what rewrite() writes into the tree.
        self.filters |= {
            "#each": self._each,
            "#made": meter.admit,
            "#seen": self._seen,
            "#concat": self._concat,
            "#emit": self._emit,
            "#data": self._data,
        }
        names = cast("dict[str, object]", self.globals)
        del names["lipsum"]  # random
        names["raise_exception"] = _raise_exception
        names["dict"] = _TemplateDict()
        names["namespace"] = _TemplateNamespace

    def _each(self, values: Iterable[object]) -> _Each:
        return (_SizedEach if hasattr(values, "__len__") else _Each)(values, self.meter)

    def _seen(self, value: object) -> object:
        self.meter.tick()
        return value if self.disguise is None else self.disguise.reveal_in(value)

    def _concat(self, values: Iterable[object]) -> str:
        return self.meter.admit(self.library.join_texts(values))

    def _emit(self, value: object) -> str:
        self.meter.tick()
        text = self.library.text(value)
        self.meter.wrote(len(text))
        return text

    @pass_context
    def _finalize(self, _: Context, value: object) -> str:
        return self._emit(value)

    def _data(self, num_chars: int) -> str:
        self.meter.tick()
        self.meter.wrote(num_chars)
        return ""

    # --- what Jinja calls ----------------------------------------------------------------------

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        return next((attr in names for kind, names in _ALLOWED if isinstance(obj, kind)), True)

    def unsafe_undefined(self, obj: Any, attribute: str) -> jinja2.Undefined:
        if attribute.startswith("_"):  # nothing but an attempt to get out asks for these
            raise jinja2.exceptions.SecurityError(
                f"access to attribute {attribute!r} of {type(obj).__name__!r} object is unsafe"
            )
        return super().unsafe_undefined(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.meter.tick()
        if self.disguise is not None and isinstance(obj, dict) and isinstance(argument, str):
            argument = find_key(cast("dict[object, object]", obj), argument, self.disguise)
        return super().getitem(obj, argument)

    def getattr(self, obj: Any, attribute: str) -> Any:
        self.meter.tick()
        if isinstance(obj, dict) and attribute not in _DICT_NAMES:  # what there is most of
            fields = cast("dict[object, object]", obj)
            key = attribute
            if self.disguise is not None:
                key = find_key(fields, attribute, self.disguise)
            return fields[key] if key in fields else self.undefined(obj=fields, name=attribute)
        return super().getattr(obj, attribute)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if not isinstance(value, (MethodType, BuiltinMethodType)):
            return None
        text, name = value.__self__, value.__name__
        if not isinstance(text, str) or name not in ("format", "format_map"):
            return None

        def format_(*args: Any, **kwargs: Any) -> str:
            if name == "format_map":
                args, kwargs = (), cast("dict[str, Any]", args[0])
            return type(text)(_Formatter(self).vformat(text, args, kwargs))

        return format_

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        __self.meter.tick()
        if isinstance(__obj, (MethodType, BuiltinMethodType)):
            __obj = __self._bounded_method(__obj)
        result = super().call(__context, __obj, *args, **kwargs)
        if "caller" in kwargs and isinstance(result, str):
            __self.meter.wrote(len(result))  # a call block's result goes out unseen by _emit
        return __self.meter.admit(result)

    def _bounded_method(self, method: MethodType | BuiltinMethodType) -> Function:
        owner, name, disguise = method.__self__, method.__name__, self.disguise
        if isinstance(owner, str):
            if name not in STRING_METHODS:
                raise jinja2.exceptions.SecurityError(f"str.{name} is not for templates")
            return self.strings.method(owner, name)
        if disguise is not None and isinstance(owner, dict) and name == "get":
            mapping = cast("dict[object, object]", owner)

            def get(key: object, default: object = None) -> object:
                return mapping.get(find_key(mapping, key, disguise), default)

            return get
        return method

    def call_binop(
        self,
        context: Context,  # noqa: ARG002  Jinja's signature
        operator: str,
        left: Any,
        right: Any,
    ) -> Any:
        self.meter.tick()
        if operator == "%" and isinstance(left, str):
            return self.meter.admit(self.strings.percent(left, right))
        if operator == "**":
            self.meter.check_power(left, right)
        elif operator == "+" and isinstance(left, Markup) != isinstance(right, Markup):
            left, right = self.library.escapable(left), self.library.escapable(right)
        elif operator == "*":
            self._check_product(left, right)
            self._check_product(right, left)
        return self.meter.admit(self.binop_table[operator](left, right))

    def _check_product(self, value: object, times: object) -> None:
        if isinstance(value, (str, list, tuple)) and isinstance(times, int):
            times = max(0, times)
            size = (
                len(value) if isinstance(value, str) else self.meter.weigh(cast(object, value))[0]
            )
            self.meter.bound(times * size)
