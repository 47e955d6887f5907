"""Rewrites a parsed template so that its sandbox learns what Jinja would not ask it about.

The filters named here begin with #, which no template can spell; the sandbox provides them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from edgeserve.errors import TemplateSyntaxError
from edgeserve.text.template_meter import Meter


def rewrite(tree: nodes.Template, meter: Meter) -> nodes.Template:
    """The same template, with loops, literals, comparisons, slices, joins and output metered."""
    return cast(nodes.Template, _Rewriter(meter).visit(tree))


class _Rewriter(NodeTransformer):
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def visit(self, node: nodes.Node, *_args: Any, **_kwargs: Any) -> Any:
        self._meter.tick()
        rewrite = cast(
            "Callable[[nodes.Node], nodes.Node] | None",
            getattr(self, f"_{type(node).__name__}", None),
        )
        node = self.generic_visit(node)
        return node if rewrite is None else rewrite(node)

    def _made(self, node: nodes.Expr) -> nodes.Expr:
        return _filtered(node, "#made")

    _List = _Dict = _made

    def _Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        return node if node.ctx == "store" else self._made(node)

    def _Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        return self._made(node) if isinstance(node.arg, nodes.Slice) else node

    def _Concat(self, node: nodes.Concat) -> nodes.Expr:
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "#concat")

    def _Compare(self, node: nodes.Compare) -> nodes.Expr:
        node.expr = _filtered(node.expr, "#seen")
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, "#seen")
        return node

    def _For(self, node: nodes.For) -> nodes.For:
        node.iter = _filtered(cast(nodes.Expr, node.iter), "#each")
        return node

    def _Output(self, node: nodes.Output) -> nodes.Output:
        size = sum(len(n.data) for n in node.nodes if isinstance(n, nodes.TemplateData))
        if size:
            node.nodes.append(_filtered(nodes.Const(size, lineno=node.lineno), "#data"))
        return node

    def _AssignBlock(self, node: nodes.AssignBlock) -> nodes.AssignBlock:
        node.filter = _filtered(node.filter, "#made", node.lineno)
        return node

    def _FilterBlock(self, node: nodes.FilterBlock) -> nodes.FilterBlock:
        node.filter = _filtered(node.filter, "#emit")
        return node

    def _ScopedEvalContextModifier(self, node: nodes.Node) -> nodes.Node:
        raise TemplateSyntaxError("autoescape is not for prompts", node.lineno)


def _filtered(node: nodes.Expr | None, name: str, line: int | None = None) -> nodes.Filter:
    line = node.lineno if node is not None else line
    return nodes.Filter(node, name, [], [], None, None, lineno=line)
