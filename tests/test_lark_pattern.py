"""Lark grammars as regular expressions: the same texts, or a word on why not."""

from __future__ import annotations

import re

import pytest

from edgeserve.errors import ConstraintError
from edgeserve.text.lark_pattern import pattern_of_lark

PATCH = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk
add_hunk: "*** Add File: " filename LF add_line+  // a comment
delete_hunk: "*** Delete File: " filename LF

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

%import common.LF
"""
ADDED = "*** Begin Patch\n*** Add File: a.py\n+x\n+\n*** Delete File: b\n*** End Patch"

# (grammar, texts of it, texts that are none)
GRAMMARS = [
    (PATCH, [ADDED, ADDED + "\n"], [ADDED.replace("+x", "x"), "", ADDED.lower(), f"{ADDED}\n\n"]),
    ('start: "a" | "b" "c"', ["a", "bc"], ["ac", "b", ""]),
    ('start: ("a" | "b") "c"?', ["a", "bc"], ["c", "ab"]),
    ('start: ["a"] B ~ 2..3\nB: "b"', ["bb", "abbb"], ["b", "abbbb"]),
    ('start: x~2\nx: "0".."7" | "-"', ["07", "-1"], ["8", "0", "000"]),
    ('start: "ab"i /[c\\/]+/ /d/i', ["ABc/D", "ab/d"], ["ab", "abCd"]),
    ('?start: _x\n!_x.2: "1."', ["1."], ["1a"]),
    ('start: NUMBER (_S NUMBER)*\n%import common (NUMBER)\n_S: ";"', ["1", "2;3.5e4"], ["1;", ";"]),
    ("%import common.WS_INLINE -> _WS\nstart: _WS", [" \t"], ["\n"]),
    ('start: a\n  | "y"\na: "x"\n\n', ["x", "y"], ["xy"]),
    (r'start: "\"\n\\" "\t"', ['"\n\\\t'], ["\\n"]),
    ('start: "." "(" "-" "]"', [".(-]"], ["a(-]"]),
]


@pytest.mark.parametrize(("grammar", "texts", "others"), GRAMMARS)
def test_a_pattern_matches_what_its_grammar_derives(
    grammar: str, texts: list[str], others: list[str]
) -> None:
    pattern = pattern_of_lark(grammar)
    assert [text for text in texts if not re.fullmatch(pattern, text)] == []
    assert [text for text in others if re.fullmatch(pattern, text)] == []


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ('start: "(" start? ")"', "start stands within itself"),
        ('start: a\na: b\nb: "x" a', "a stands within itself"),
        ("start: missing", "missing is not defined"),
        ('other: "x"', "no rule named start"),
        ('start: "x"\n%ignore " "', "%ignore"),
        ('start: "x"\n%import python.NAME', "%import"),
        ('start: pair{"x"}', "is not read at '{"),
        ('start: ("x"', r"\( is not closed"),
        ('start: "x")', r"\) cannot"),
        ("start: /a b/x", "flags"),
        ('start: "\\x41"', "escape"),
        ('start: "ab".."c"', "no range"),
        ("", "no rule named start"),
        ("start: " + "(" * 100, "nested deeper"),
        ('start: "x" ' + "a " * 3000 + '\na: "' + "y" * 50 + '"', "longer than"),
        (
            "\n".join(f"r{n}: r{n + 1} r{n + 1}" for n in range(50)) + "\nstart: r0",
            "not defined|itself",
        ),
        ("x" * 30_000, "30,000 characters"),
    ],
)
def test_what_no_pattern_can_hold_is_refused_by_name(grammar: str, reason: str) -> None:
    with pytest.raises(ConstraintError, match=reason):
        pattern_of_lark(grammar)
