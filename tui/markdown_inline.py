"""What stands inside a paragraph: emphasis, code, links whose target is never hidden.

An entity such as `&#x202e;` is a character only now, so that text is neutralised here again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.style import Style

from edgeserve.tui.lines import Span
from edgeserve.tui.look import Look
from edgeserve.tui.markdown_blocks import parser

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode

LINK = "link"
"""The key of a link's address in a style's meta."""

_ADDRESS = re.compile(r"https?://[^\s<>\"'`]+[^\s<>\"'`.,;:!?)\]}]")


def inline_spans(node: SyntaxTreeNode, look: Look, style: Style | None = None) -> list[Span]:
    """The text of a block's inline content."""
    spans: list[Span] = []
    for child in node.children:
        _collect(child, look, look.text if style is None else style, spans)
    return spans


def links_in(text: str) -> list[str]:
    """Where a text leads, each place once and in its order."""
    found: dict[str, None] = {}
    for token in parser().parse(text):
        for child in token.children or ():
            if child.type == "link_open":
                found[str(child.attrs.get("href", ""))] = None
            elif child.type == "text":
                found.update(dict.fromkeys(_ADDRESS.findall(child.content)))
    return list(found)


def _collect(node: SyntaxTreeNode, look: Look, style: Style, spans: list[Span]) -> None:
    match node.type:
        case "text":
            spans += _text_with_addresses(look.shown_line(node.content), look, style)
        case "code_inline":
            spans.append((node.content, style + look.inline_code))
        case "softbreak":
            spans.append((" ", style))
        case "hardbreak":
            spans.append(("\n", style))
        case "link":
            spans += _link(node, look, style)
        case "image":
            target = str(node.attrs.get("src", ""))
            spans += [
                (f"{look.shown_line(node.content) or 'image'} ", style),
                _target(target, look),
            ]
        case "em" | "strong" | "s":
            added = {"em": look.emphasis, "strong": look.strong, "s": look.struck}[node.type]
            for child in node.children:
                _collect(child, look, style + added, spans)
        case "inline":
            for child in node.children:
                _collect(child, look, style, spans)
        case _:
            spans.append((look.shown_line(node.content), style))


def _link(node: SyntaxTreeNode, look: Look, style: Style) -> list[Span]:
    """The link's text, and behind it where it leads unless the text says exactly that."""
    target = str(node.attrs.get("href", ""))
    inside: list[Span] = []
    for child in node.children:
        _collect(child, look, style, inside)
    address = Style(meta={LINK: target})
    spans = [(text, part + look.link + address) for text, part in inside]
    text = "".join(text for text, _ in inside)
    return (
        spans
        if text in (target, target.removeprefix("mailto:"))
        else [
            *spans,
            (" ", style),
            _target(target, look),
        ]
    )


def _target(target: str, look: Look) -> Span:
    return f"({look.shown_line(target)})", look.dim + Style(meta={LINK: target})


def _text_with_addresses(text: str, look: Look, style: Style) -> list[Span]:
    if "://" not in text:
        return [(text, style)]
    spans: list[Span] = []
    at = 0
    for match in _ADDRESS.finditer(text):
        spans.append((text[at : match.start()], style))
        spans.append((match[0], style + look.link + Style(meta={LINK: match[0]})))
        at = match.end()
    spans.append((text[at:], style))
    return [span for span in spans if span[0]]
