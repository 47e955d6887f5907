"""Full-text search over turns and titles, with SQLite's FTS5.

Words are found whole, the last one also by its beginning; case and accents do not count. Scripts
that put no space between words are indexed a character a token, so that any part is found.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence

from edgeserve.frozen import frozen

# Thai, Lao, Burmese, Khmer, kana, Han, Hangul and its old planes: a word may begin anywhere.
_UNSPACED = (
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff])"
)
# Control characters, which end words for FTS5: between tokens, and around what matched.
_BETWEEN, _BEGIN, _END = "\x1f", "\x02", "\x03"
_SPACED = f"{_BETWEEN}\\1{_BETWEEN}"
_BLANKED = str.maketrans({_BETWEEN: " ", _BEGIN: " ", _END: " ", "\x00": " "})
_SNIPPET_TOKENS = 24
_SNIPPET_CHARACTERS = 60  # on each side of signs
_MAX_SNIPPET = 400  # characters: a word may be of any length


@frozen
class Found:
    """A row that matched: of a turn, or of a chat's title."""

    seq: int
    snippet: str
    marks: tuple[tuple[int, int], ...]


def index_turn(connection: sqlite3.Connection, seq: int, text: str) -> None:
    """Makes a turn findable by its text, and no longer by the one it had."""
    connection.execute("DELETE FROM turn_words WHERE rowid = ?", (seq,))
    connection.execute("INSERT INTO turn_words (rowid, text) VALUES (?, ?)", (seq, _spaced(text)))


def index_title(connection: sqlite3.Connection, seq: int, title: str) -> None:
    connection.execute("DELETE FROM title_words WHERE rowid = ?", (seq,))
    connection.execute("INSERT INTO title_words (rowid, text) VALUES (?, ?)", (seq, _spaced(title)))


def forget_missing(connection: sqlite3.Connection) -> None:
    """Takes turns and chats that are gone out of the index, words and all."""
    connection.execute("DELETE FROM turn_words WHERE rowid NOT IN (SELECT seq FROM turns)")
    connection.execute("DELETE FROM title_words WHERE rowid NOT IN (SELECT seq FROM chats)")
    connection.execute("INSERT INTO turn_words (turn_words) VALUES ('optimize')")
    connection.execute("INSERT INTO title_words (title_words) VALUES ('optimize')")


def find_titles(connection: sqlite3.Connection, words: str, limit: int) -> Sequence[Found]:
    """Chats that are not deleted whose titles have all the words, the last used first."""
    question = _question(words)
    if question is None:
        sql = """SELECT seq, title FROM chats
            WHERE deleted_at IS NULL AND instr(title, ?) ORDER BY updated_at DESC LIMIT ?"""
        return _literally(connection, sql, words.strip(), limit)
    sql = """SELECT chats.seq, snippet(title_words, 0, ?, ?, '…', ?) FROM title_words
        JOIN chats ON chats.seq = title_words.rowid
        WHERE title_words MATCH ? AND deleted_at IS NULL ORDER BY updated_at DESC LIMIT ?"""
    values = (_BEGIN, _END, _SNIPPET_TOKENS, question, limit)
    return [_marked(*row) for row in connection.execute(sql, values)]


def find_turns(connection: sqlite3.Connection, words: str, limit: int) -> Sequence[Found]:
    """Turns of chats that are not deleted whose texts have all the words, newest first."""
    question = _question(words)
    if question is None:
        sql = """SELECT turns.seq, text FROM turns JOIN chats ON chats.id = chat_id
            WHERE deleted_at IS NULL AND instr(text, ?) ORDER BY turns.seq DESC LIMIT ?"""
        return _literally(connection, sql, words.strip(), limit)
    sql = """SELECT turns.seq, snippet(turn_words, 0, ?, ?, '…', ?) FROM turn_words
        JOIN turns ON turns.seq = turn_words.rowid JOIN chats ON chats.id = chat_id
        WHERE turn_words MATCH ? AND deleted_at IS NULL ORDER BY turn_words.rowid DESC LIMIT ?"""
    values = (_BEGIN, _END, _SNIPPET_TOKENS, question, limit)
    return [_marked(*row) for row in connection.execute(sql, values)]


def _spaced(text: str) -> str:
    """As it is indexed: of the same characters, with marks around those that are a token each."""
    blanked = text.translate(_BLANKED)
    # Compiled when it is first needed, and kept by `re`: 10 ms, which few languages need.
    return blanked if blanked.isascii() else re.sub(_UNSPACED, _SPACED, blanked)


def _question(words: str) -> str | None:
    """The words for FTS5, each a phrase, so that none is read as syntax; None if FTS5 sees no word
    in any of them."""
    phrases = [
        f'"{_spaced(word).replace(chr(34), " ")}"'
        for word in words.split()
        if any(character.isalnum() for character in word)
    ]
    if not phrases:
        return None
    if not words[-1].isspace():
        phrases[-1] += " *"  # still being typed, perhaps
    return " AND ".join(phrases)


def _literally(connection: sqlite3.Connection, sql: str, signs: str, limit: int) -> Sequence[Found]:
    """Signs that are no words, such as "=>", are looked for as they are."""
    if not signs:
        return []
    found: list[Found] = []
    for seq, text in connection.execute(sql, (signs, limit)):
        at = text.index(signs)
        begin = max(0, at - _SNIPPET_CHARACTERS)
        end = at + len(signs) + _SNIPPET_CHARACTERS
        before, after = ("…" if begin else ""), ("…" if end < len(text) else "")
        mark = len(before) + at - begin
        snippet = before + _on_one_line(text[begin:end]) + after
        found.append(Found(seq, snippet, ((mark, mark + len(signs)),)))
    return found


def _marked(seq: int, snippet: str) -> Found:
    """Takes the signs of the index out of a snippet of it, and says where the matches are."""
    text: list[str] = []
    marks: list[tuple[int, int]] = []
    begin = 0
    for character in _merged(snippet):
        if character == _BEGIN:
            begin = len(text)
        elif character == _END:
            marks.append((begin, len(text)))
        else:
            text.append(character)
    return _cut(Found(seq, _on_one_line("".join(text)), tuple(marks)))


def _cut(found: Found) -> Found:
    """A snippet of at most 400 characters, from shortly before the first match."""
    if len(found.snippet) <= _MAX_SNIPPET:
        return found
    begin = max(0, found.marks[0][0] - _SNIPPET_CHARACTERS) if found.marks else 0
    end = begin + _MAX_SNIPPET
    marks = [(first - begin, min(last, end) - begin) for first, last in found.marks if first < end]
    return Found(found.seq, found.snippet[begin:end], tuple(marks))


def _merged(snippet: str) -> Iterator[str]:
    """Matches with nothing between them are one: a phrase of characters that are tokens."""
    plain = snippet.replace(_BETWEEN, "")
    yield from plain.replace(_END + _BEGIN, "")


def _on_one_line(text: str) -> str:
    """The same number of characters, so that marks stay right."""
    return "".join(" " if character.isspace() else character for character in text)
