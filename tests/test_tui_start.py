"""What the chat does before its first screen: nothing that can wait, and nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_START = """
import gc
import json
import sys

import textual.css.stylesheet as styles

import edgeserve.cli
import edgeserve.commands.chat
from edgeserve.commands.chat_on_screen import open_screen
from edgeserve.config import Config
from edgeserve.terminal import Terminal
from edgeserve.tui import app as program
from edgeserve.tui.client import HERE
from edgeserve.tui.late_client import LateClient
from edgeserve.tui.screens import chat_screen

found = {"collections": 0, "parsed": [], "restyled": []}


async def first_screen(screen, _):
    found.update(modules=sorted(sys.modules), classes=sorted(screen.classes))
    found["focused"] = screen.focused.id
    found["there"] = [node.id for node in screen.walk_children()]
    screen.app.exit()


chat_screen.open_chats = first_screen
parse, update_nodes = styles.parse, styles.Stylesheet.update_nodes


def noted_parse(scope, css, read_from, *args, **kwargs):
    found["parsed"].append(str(read_from))
    return parse(scope, css, read_from, *args, **kwargs)


def noted_update_nodes(sheet, nodes, animate=False):
    nodes = list(nodes)
    found["restyled"] += [type(node).__name__ for node in nodes]
    return update_nodes(sheet, nodes, animate)


def collected(phase, _):
    found["collections"] += phase == "start"


def collecting_begins():
    gc.callbacks.clear()
    found["laid_out"] = shown[0].composer.size.width > 0

shown = []
default_screen = program.EdgeServeApp.get_default_screen


def noted_screen(app):
    shown.append(default_screen(app))
    return shown[0]


program.EdgeServeApp.get_default_screen = noted_screen
program.collect_seldom = collecting_begins


styles.parse, styles.Stylesheet.update_nodes = noted_parse, noted_update_nodes
client, config, terminal = LateClient(lambda: None, HERE), Config.from_environment(), Terminal()
gc.collect()
gc.set_threshold(200)
gc.callbacks.append(collected)
open_screen(client, config, terminal, model="a model")
print(json.dumps(found))
"""


def _started(folder: Path, columns: int = 100, lines: int = 30) -> Any:
    """What was done up to the first screen, in a process of its own."""
    environment = {
        **os.environ,
        "TEXTUAL_DRIVER": "textual.drivers.headless_driver:HeadlessDriver",
        "XDG_DATA_HOME": str(folder),
        "EDGESERVE_DATA": str(folder),
        "COLUMNS": str(columns),
        "LINES": str(lines),
    }
    program = [sys.executable, "-c", _START]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return _started(tmp_path_factory.mktemp("start"))


def test_what_the_first_screen_does_not_need_is_imported_behind_it(started: Any) -> None:
    late = {
        "edgeserve.chats.exchange",
        "edgeserve.chats.store",
        "edgeserve.llm",
        "edgeserve.tui.http_client",
        "edgeserve.tui.local_client",
        "edgeserve.tui.screens.dialogs",
        "edgeserve.types",
        "httpx",
        "markdown_it",
        "msgspec",
        "numpy",
        "pygments",
        "sqlite3",
    }
    assert not late & set(started["modules"])


def test_no_garbage_is_looked_for_before_the_first_screen(started: Any) -> None:
    assert started["laid_out"]
    assert started["collections"] == 0


def test_the_stylesheet_is_parsed_once(started: Any) -> None:
    assert sum("edgeserve.tcss" in place for place in started["parsed"]) == 1
    assert sum("App.DEFAULT_CSS" in place for place in started["parsed"]) == 1


@pytest.mark.parametrize(
    ("columns", "lines", "classes"),
    [
        (60, 16, ["-low", "-tiny"]),
        (100, 30, ["-high", "-narrow"]),
        (160, 48, ["-high", "-wide"]),
    ],
)
def test_what_is_on_the_screen_is_styled_once_whatever_its_size(
    tmp_path: Path, columns: int, lines: int, classes: list[str]
) -> None:
    found = _started(tmp_path, columns, lines)
    assert set(classes) <= set(found["classes"])
    assert not {"ChatScreen", "Writing", "ChatList", "Transcript"} & set(found["restyled"])
    assert found["focused"] == "composer"
    assert "last-answer" not in found["there"]
