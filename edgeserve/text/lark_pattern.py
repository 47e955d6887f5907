"""A Lark grammar as one regular expression, where its language is regular.

What a model writes into a JSON string is escaped, and no grammar of the plain text can be laid over
that; a pattern can. Reads Lark as lark-parser has it. Recursion, %ignore and templates are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from edgeserve.errors import ConstraintError

_MAX_CHARS = 20_000
_MAX_DEPTH = 60
_TOKEN = re.compile(
    r"""\s+|(?P<comment>//[^\n]*|\#[^\n]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"i?)
    |(?P<regex>/(?![/*])(?:[^/\\\n]|\\.)+/[a-z]*)
    |(?P<count>~\s*\d+(?:\s*\.\.\s*\d+)?)
    |(?P<range>\.\.)
    |(?P<alias>->\s*\w+)
    |(?P<command>%\w+)
    |(?P<name>(?:^[?!]{1,2})?[A-Za-z_]\w*)
    |(?P<priority>\.-?\d+)
    |(?P<mark>[:|()\[\]?*+,.])""",
    re.VERBOSE | re.MULTILINE,
)
_SPECIAL = re.compile(r"[][\\.^$*+?(){}|/-]")
_COMMON: Mapping[str, str] = {
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": r"(?:[0-9]+\.[0-9]*|\.[0-9]+)",
    "FLOAT": r"(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)",
    "NUMBER": r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "SIGNED_NUMBER": r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "LETTER": "[A-Za-z]",
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
}


def pattern_of_lark(grammar: str) -> str:
    """A regular expression of the texts that `start` derives. Raises ConstraintError."""
    if len(grammar) > _MAX_CHARS:
        raise ConstraintError("lark", f"has {len(grammar):,} characters, more than {_MAX_CHARS:,}")
    definitions = _Definitions(grammar).read()
    if "start" not in definitions:
        raise ConstraintError("lark", "has no rule named start")
    return _Writer(definitions).of("start")


Token = tuple[str, str]
"""(kind, text)"""


def _tokens(grammar: str) -> Iterator[Token]:
    at = 0
    while at < len(grammar):
        found = _TOKEN.match(grammar, at)
        if found is None:
            raise ConstraintError("lark", f"is not read at {grammar[at : at + 20]!r}")
        at = found.end()
        if found.lastgroup not in (None, "comment"):
            yield str(found.lastgroup), found.group()


class _Definitions:
    """A grammar's rules by name, each as the tokens behind its colon."""

    def __init__(self, grammar: str) -> None:
        self._tokens = list(_tokens(grammar))
        self._at = 0
        self._found: dict[str, list[Token] | str] = {}

    def read(self) -> Mapping[str, list[Token] | str]:
        """Terminals that come from elsewhere are regular expressions already."""
        while self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            if text == "%import":
                self._import()
            elif kind == "name" and self._begins_rule(self._at):
                self._rule(text.lstrip("?!"))
            else:
                raise ConstraintError("lark", f"{text} cannot be enforced here")
        return self._found

    def _begins_rule(self, at: int) -> bool:
        """A name, its priority if any, and a colon."""
        at += 1
        if at < len(self._tokens) and self._tokens[at][0] == "priority":
            at += 1
        return at < len(self._tokens) and self._tokens[at][1] == ":"

    def _rule(self, name: str) -> None:
        self._at += 2 if self._tokens[self._at + 1][1] == ":" else 3
        body: list[Token] = []
        while self._at < len(self._tokens):
            kind, _ = self._tokens[self._at]
            if kind == "command" or (kind == "name" and self._begins_rule(self._at)):
                break
            body.append(self._tokens[self._at])
            self._at += 1
        self._found[name] = body

    def _import(self) -> None:
        """%import common.NAME [-> OTHER], %import common (NAME, ...)."""
        self._at += 1
        texts: list[str] = []
        while self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            if kind == "command" or (kind == "name" and self._begins_rule(self._at)):
                break
            texts.append(text)
            self._at += 1
        alias = texts[-1] if texts and texts[-1].startswith("->") else None
        names = [text for text in texts if text.isidentifier()]
        if names[:1] != ["common"] or not all(name in _COMMON for name in names[1:]):
            raise ConstraintError("lark", f"%import {''.join(texts)} is not known")
        for name in names[1:]:
            self._found[name if alias is None else alias.removeprefix("->").strip()] = _COMMON[name]


class _Writer:
    """Rules as regular expressions, each within a group of its own."""

    def __init__(self, definitions: Mapping[str, list[Token] | str]) -> None:
        self._definitions = definitions
        self._written: dict[str, str] = {}
        self._open: list[str] = []

    def of(self, name: str) -> str:
        if name in self._written:
            return self._written[name]
        if len(self._open) > _MAX_DEPTH:
            raise ConstraintError("lark", f"has rules nested deeper than {_MAX_DEPTH}")
        if name in self._open:
            raise ConstraintError("lark", f"{name} stands within itself, which no pattern can hold")
        body = self._definitions.get(name)
        if body is None:
            raise ConstraintError("lark", f"{name} is not defined")
        self._open.append(name)
        found = body if isinstance(body, str) else _Body(body, self).written()
        self._open.pop()
        self._written[name] = f"(?:{found})"
        return self._written[name]


class _Body:
    """One definition."""

    def __init__(self, tokens: list[Token], rules: _Writer) -> None:
        self._tokens = tokens
        self._rules = rules
        self._at = 0

    def written(self) -> str:
        found = self._alternatives()
        if self._at < len(self._tokens):
            raise ConstraintError("lark", f"{self._tokens[self._at][1]} cannot be enforced here")
        return found

    def _alternatives(self, depth: int = 0) -> str:
        if depth > _MAX_DEPTH:
            raise ConstraintError("lark", f"has groups nested deeper than {_MAX_DEPTH}")
        options = [self._sequence(depth)]
        while self._next() == "|":
            self._at += 1
            options.append(self._sequence(depth))
        return "|".join(options)

    def _sequence(self, depth: int) -> str:
        pieces: list[str] = []
        size = 0
        while self._next() not in ("", "|", ")", "]"):
            kind, text = self._tokens[self._at]
            self._at += 1
            pieces.append("" if kind == "alias" else self._counted(self._atom(kind, text, depth)))
            size += len(pieces[-1])
            if size > _MAX_CHARS:
                raise ConstraintError("lark", f"is, as a pattern, longer than {_MAX_CHARS:,}")
        return "".join(pieces)

    def _atom(self, kind: str, text: str, depth: int) -> str:
        match kind:
            case "text" if self._next() == "..":
                end = self._tokens[self._at + 1 : self._at + 2]
                self._at += 2
                return _range(text, end[0][1] if end else "")
            case "text":
                return _literal(text)
            case "regex":
                return _regex(text)
            case "name":
                return self._rules.of(text.lstrip("?!"))
            case _ if text in ("(", "["):
                inside = self._alternatives(depth + 1)
                if self._next() != (")" if text == "(" else "]"):
                    raise ConstraintError("lark", f"{text} is not closed")
                self._at += 1
                return f"(?:{inside})" if text == "(" else f"(?:{inside})?"
            case _:
                raise ConstraintError("lark", f"{text} cannot be enforced here")

    def _counted(self, atom: str) -> str:
        """With what says how often it comes."""
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        if text in ("?", "*", "+"):
            self._at += 1
            return f"(?:{atom}){text}"
        if kind == "count":
            self._at += 1
            least, _, most = text[1:].replace(" ", "").partition("..")
            return f"(?:{atom}){{{least},{most or least}}}"
        return atom

    def _next(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""


def _literal(text: str) -> str:
    folds = text.endswith("i")
    found = _escaped(_unquoted(text.removesuffix("i")))
    return f"(?i:{found})" if folds else f"(?:{found})"


def _range(first: str, last: str) -> str:
    ends = [_unquoted(text) if text.startswith('"') else "" for text in (first, last)]
    if any(len(end) != 1 for end in ends):
        raise ConstraintError("lark", f"{first}..{last} is no range of characters")
    return f"[{_escaped(ends[0])}-{_escaped(ends[1])}]"


def _escaped(text: str) -> str:
    """A text as a regular expression; Python's own escapes more than others read."""
    plain = _SPECIAL.sub(r"\\\g<0>", text)
    return plain.replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t")


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        raise ConstraintError("lark", f"{text} has an escape that is not read") from None


def _regex(text: str) -> str:
    inside, _, flags = text[1:].rpartition("/")
    if set(flags) - set("imslu"):
        raise ConstraintError("lark", f"{text} has flags that are not read")
    kept = "".join(sorted(set(flags) & set("ims")))
    plain = re.sub(r"\\/", "/", inside)
    return f"(?{kept}:{plain})" if kept else f"(?:{plain})"
