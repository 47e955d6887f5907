"""Markdown as lines: what it looks like, and that streaming it ends in the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from edgeserve.chats.records import TurnState
from edgeserve.tui import markdown_blocks
from edgeserve.tui.lines import Line, wrap_words
from edgeserve.tui.look import ASCII, Look
from edgeserve.tui.markdown_blocks import LONG_LINE, MarkdownSource, parser, tree_of
from edgeserve.tui.markdown_inline import LINK
from edgeserve.tui.markdown_lines import MarkdownLines
from edgeserve.tui.markdown_rows import GrowingTable
from edgeserve.tui.markdown_tables import table_lines
from edgeserve.tui.terminal_text import shown
from edgeserve.tui.widgets.turn_parts import TurnParts
from edgeserve.tui.widgets.turn_view import TurnView

PIECES = (
    *(
        "\n",
        "\n",
        "\n\n",
        " ",
        "  ",
        "    ",
        "- ",
        "* ",
        "1. ",
        "3) ",
        "> ",
        "# ",
        "## ",
        "---",
        "===",
    ),
    *(
        "```",
        "````",
        "~~~",
        "`",
        "**",
        "_",
        "~~",
        "[a](",
        "http://b.c",
        ")",
        "[ ] ",
        "<b>",
        "|",
        "|-|-|",
    ),
    *("a", "b c", "word", "py", "[x]: http://y", "é", "中文", "\x1b[1m", "\t", "\r", "\\", "&amp;"),
)
markdown = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


def drawn(text: str, width: int = 40) -> list[Line]:
    return MarkdownLines(Look()).document(text, width)


def seen(text: str, width: int = 40) -> list[str]:
    return [line.text.rstrip() for line in drawn(text, width)]


# --- laws ----------------------------------------------------------------------------------------


@given(markdown, st.lists(st.integers(1, 9), max_size=30))
@settings(max_examples=100, deadline=None)
def test_streamed_in_any_pieces_is_the_whole(text: str, sizes: list[int]) -> None:
    whole, streamed = MarkdownSource(), MarkdownSource()
    whole.feed(text)
    at = 0
    for size in [*sizes, len(text)]:
        before = list(streamed.settled)
        streamed.feed(text[at : at + size])
        streamed.unsettled()
        assert streamed.settled[: len(before)] == before
        at += size
    assert streamed.settled == whole.settled
    assert streamed.unsettled() == whole.unsettled()


@given(markdown)
@example("```\n ")
@settings(max_examples=100, deadline=None)
def test_blocks_are_those_of_the_whole_text(text: str) -> None:
    """Cutting and parsing each block alone reads the text as parsing it at once."""
    source = MarkdownSource()
    source.feed(text)
    *lines, last = text.split("\n")
    safe = "\n".join([*(shown(line.removesuffix("\r")) for line in lines), shown(last)])
    expected = [(t.type, t.content) for t in parser().parse(safe) if t.type != "inline"]
    found: list[tuple[str, str]] = []
    for block in [*source.settled, *source.unsettled()]:
        if block.kind == "code":
            content = block.text + "\n" if block.text else ""
            found.append(("fence", content))
        else:
            found += [(t.type, t.content) for t in parser().parse(block.text) if t.type != "inline"]
    assert [f for f in found if f[0] != "fence"] == [e for e in expected if e[0] != "fence"]
    # Of a last line that has only spaces yet, the parser says nothing.
    assert [f[1].strip("\n").rstrip() for f in found if f[0] == "fence"] == [
        e[1].strip("\n").rstrip() for e in expected if e[0] == "fence"
    ]


@given(markdown, st.integers(12, 60))
@settings(max_examples=100, deadline=None)
def test_no_line_is_wider_than_asked(text: str, width: int) -> None:
    for line in drawn(text, width):
        deep = line.text.lstrip("│• ◦▪0123456789.")
        assert line.cells <= width or cell_len(deep) <= 8 + 2, line.text


@given(st.text(st.sampled_from("ab  \n中é"), max_size=80), st.integers(2, 12))
@settings(deadline=None)
def test_wrapping_loses_nothing(text: str, width: int) -> None:
    lines = wrap_words([(text, Look().text)], width)
    joined = "".join((line.joint if i else "") + line.text for i, line in enumerate(lines))
    assert [part.rstrip() for part in joined.split("\n")] == [
        part.rstrip() for part in text.split("\n")
    ]
    assert all(line.cells <= width for line in lines)


# --- looks ---------------------------------------------------------------------------------------


def test_lists_nest_and_wrap_behind_their_bullet() -> None:
    text = (
        "- one\n- two words that wrap\n  1. nested\n  2. too\n\n     apart\n- [x] done\n- [ ] open"
    )
    assert seen(text, 18) == [
        "• one",
        "• two words that",
        "  wrap",
        "  1. nested",
        "",
        "  2. too",
        "",
        "     apart",
        "• [✓] done",
        "• [ ] open",
    ]


def test_a_table_fits_and_wraps_in_its_cells() -> None:
    text = "| a | what | n |\n|---|:-:|--:|\n| one | a long cell that wraps | 3 |"
    assert seen(text, 24) == [
        "a   │     what     │   n",
        "────┼──────────────┼────",
        "one │ a long cell  │   3",
        "    │  that wraps  │",
    ]


def test_a_table_too_wide_for_columns_names_each_cell() -> None:
    head = "|" + "|".join("abcdef") + "|"
    text = f"{head}\n{'|-' * 6}|\n|1|2|3|4|5|6|"
    assert seen(text, 16) == [f"{name}: {i}" for i, name in enumerate("abcdef", 1)]


def test_code_is_named_and_wraps_where_it_is_wide() -> None:
    lines = drawn("```python\nx = 'aaaaaaaaaaaaaaaaaaaaaaa'\n```", 20)
    assert [line.text.rstrip() for line in lines] == [
        " python",
        " x = 'aaaaaaaaaaaaa",
        " aaaaaaaaaa'",
    ]
    assert all(line.cells == 20 for line in lines)
    assert [line.joint for line in lines[1:]] == ["\n", ""]


def test_an_open_fence_is_code_already() -> None:
    assert seen("so:\n\n```\n# not a heading\n- nor", 24)[2:] == [
        " # not a heading",
        " - nor",
    ]


def test_html_is_text() -> None:
    assert seen("<b onclick=x>hi</b>\n\n<script>\nalert()\n</script>", 60) == [
        "<b onclick=x>hi</b>",
        "",
        "<script> alert() </script>",
    ]


def test_a_links_target_is_never_hidden() -> None:
    assert seen("[bank.com](https://evil.example)", 60) == ["bank.com (https://evil.example)"]
    assert seen("[https://a.b](https://evil.example)", 60) == ["https://a.b (https://evil.example)"]
    assert seen("<https://a.b>", 60) == ["https://a.b"]
    assert seen("![cat](http://x/y.png)", 60) == ["cat (http://x/y.png)"]


def test_links_can_be_asked_for() -> None:
    (line,) = drawn("[a](http://b/c) and http://d/e.", 60)
    targets = [(text, style.meta[LINK]) for text, style in line.spans if LINK in style.meta]
    assert targets == [
        ("a", "http://b/c"),
        ("(http://b/c)", "http://b/c"),
        ("http://d/e", "http://d/e"),
    ]


def test_a_link_defined_elsewhere_stays_text() -> None:
    assert seen("[x][y]\n\n[y]: http://z", 60) == ["[x][y]", "", "[y]: http://z"]


def test_entities_cannot_smuggle_controls() -> None:
    assert seen("a&#27;[2J&#x202e;b [t](http://x/&#27;)", 60) == [
        "a\ufffd[2J\\u202eb t (http://x/&#27;)"
    ]


def test_ascii_marks() -> None:
    lines = MarkdownLines(Look(marks=ASCII)).document(
        "- a\n\n> b\n\n---\n\n|c|d|\n|-|-|\n|1|2|", 30
    )
    assert "".join(line.text for line in lines).isascii()


def test_a_very_long_line_is_plain_pieces() -> None:
    source = MarkdownSource()
    for _ in range(1000):
        source.feed("**many** words, on and on and on, " * 3)
    assert all(block.kind == "plain" for block in source.settled)
    assert all(len(block.text) <= LONG_LINE for block in source.settled)
    text = "".join(block.text for block in [*source.settled, *source.unsettled()])
    assert text == "**many** words, on and on and on, " * 3000


def test_emphasis_in_emphasis_without_an_end_is_text_as_it_came() -> None:
    for mark in ("**", "_"):
        text = f"{mark * 600}word{mark[::-1] * 600}"
        assert "".join(seen(text)) == text
        assert seen(f"{mark}word{mark[::-1]}") == ["word"]


def test_a_language_that_nobody_knows_is_not_looked_for_among_all_that_is_installed(
    monkeypatch: pytest.MonkeyPatch,
):
    """It takes a tenth of a second, and half a name is one while it is being written."""
    searches: list[object] = []

    def searched() -> Iterator[object]:
        searches.append(None)
        return iter(())

    monkeypatch.setattr("pygments.lexers.find_plugin_lexers", searched)
    for name in ("", "pytho", "nosuchlanguage"):
        (line,) = drawn(f"```{name}\nreturn 1\n```")[-1:]
        assert {text.strip() for text, _ in line.spans if text.strip()} == {"return 1"}
    assert not searches
    (line,) = drawn("```Python\nreturn 1\n```")[-1:]
    assert [text for text, _ in line.spans if text.strip()] == ["return", "1"]


def _table(num_rows: int) -> str:
    rows = [f"| {i} | {'word ' * (i % 7)}| [x](http://{i}) |\n" for i in range(num_rows)]
    return "| n | what | where |\n|--:|---|:-:|\n" + "".join(rows)


ENDS = ("\n", "\n", "|a|b|c|", "|-|-|-|", "x|y", "# h", "- i", "    ", "```", "--", "> q", "w")


@given(st.lists(st.sampled_from(ENDS), max_size=30), st.integers(0, 40), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_a_table_that_streams_is_the_whole(after: list[str], num_rows: int, size: int) -> None:
    """However it is cut, the text is all there, and ends as if it had come at once."""
    text = "So:\n\n" + _table(num_rows) + "".join(after)
    whole, streamed = MarkdownSource(), MarkdownSource()
    whole.feed(text)
    for at in range(0, len(text), size):
        streamed.feed(text[at : at + size])
        growing, unsettled = streamed.growing(), streamed.unsettled()
        assert [block.text for block in growing] == [block.text for block in unsettled]
    assert streamed.settled == whole.settled
    assert streamed.unsettled() == whole.unsettled()


@pytest.mark.parametrize("width", [9, 30, 60])
@pytest.mark.parametrize("num_rows", [3, 16, 17, 50])
def test_a_long_table_in_pieces_looks_as_one(num_rows: int, width: int) -> None:
    text = _table(num_rows)
    tree = tree_of(text)
    assert tree is not None
    assert drawn(text, width) == table_lines(tree.children[0], width, Look())


def test_a_row_that_streams_costs_the_same_however_long_the_table_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[int] = []
    tops = markdown_blocks._tops

    def counted(source: str) -> list[tuple[str, int, int]]:
        parsed.append(len(source))
        return tops(source)

    monkeypatch.setattr(markdown_blocks, "_tops", counted)

    def work(num_rows: int) -> tuple[int, int]:
        """Characters that are parsed, and lines that are drawn, for two rows in pieces."""
        view = TurnView(id="t", role="assistant", state=TurnState.STREAMING)
        turn = TurnParts(view, MarkdownLines(Look()), 60)
        turn.append(_table(num_rows), (), is_reasoning=False)
        turn.refresh()
        turn.ensure(turn.height - 20, turn.height)
        parsed.clear()
        seen = _drawn(turn)
        num_lines = 0
        for piece in ("| 7 ", "| **y** ", "| z |\n", "| 8 |", " b | c |\n"):
            turn.append(piece, (), is_reasoning=False)
            turn.refresh()
            turn.ensure(turn.height - 20, turn.height)
            now = _drawn(turn)
            num_lines += sum(len(lines) for key, lines in now.items() if key not in seen)
            seen |= now
        return sum(parsed), num_lines

    short, long = work(192), work(1_920)
    assert min(short) > 0
    assert long[0] <= 1.2 * short[0]
    assert long[1] <= 1.2 * short[1]


def _drawn(turn: TurnParts) -> dict[int, list[Line]]:
    """What its parts have drawn; kept, so that no other list gets the same id."""
    drawn = [part._lines for part in turn._parts if part._lines is not None]
    return {id(lines): lines for lines in drawn}


def test_a_table_whose_answer_ends_is_laid_out_by_all_its_rows() -> None:
    text = _table(40) + "| a much longer cell than there was before | b | c |\n"
    view = TurnView(id="t", role="assistant", state=TurnState.STREAMING)
    turn = TurnParts(view, MarkdownLines(Look()), 60)
    for line in text.splitlines(keepends=True):
        turn.append(line, (), is_reasoning=False)
        turn.refresh()
        turn.ensure(0, turn.height)
    turn.change(replace(turn.view, state=TurnState.COMPLETE))
    at_once = TurnParts(turn.view, MarkdownLines(Look()), 60)
    for each in (turn, at_once):
        while each.ensure(0, 1000):
            pass
    assert turn.height == at_once.height
    assert [turn.line(y) for y in range(turn.height)] == [
        at_once.line(y) for y in range(turn.height)
    ]


@pytest.mark.parametrize(
    ("row", "is_sure"), [("|a|b|c|\n", True), ("a|b|c\n", False), ("|a|\n", False)]
)
def test_rows_that_lack_cells_end_a_table_for_the_parser(row: str, is_sure: bool) -> None:
    """Which of 40,000 rows is the last cannot be told from one of them, where cells may lack."""
    table = GrowingTable("|a|b|c|\n|-|-|-|\n" + row * 40_000, lambda _: True)
    assert table.is_sure is is_sure
