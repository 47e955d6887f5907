"""The tools that coding agents bring: names and arguments as theirs, words our own.

`("path!", "string")` is an argument that a call must have.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
_Argument = tuple[str, str]


def _schema(*arguments: _Argument) -> Schema:
    names = [name.rstrip("!") for name, _ in arguments]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {name: _type(kind) for name, (_, kind) in zip(names, arguments, strict=True)},
        "required": [name.rstrip("!") for name, _ in arguments if name.endswith("!")],
        "additionalProperties": False,
    }


def _type(kind: str) -> Schema:
    """ "a|b" is one of these words, "[x]" a list of x."""
    if kind.startswith("["):
        return {"type": "array", "items": _type(kind[1:-1]), "maxItems": 32}
    if "|" in kind:
        return {"type": "string", "enum": kind.split("|")}
    if kind == "map":
        values: Schema = {"propertyNames": {"type": "string"}, "additionalProperties": {}}
        return {"type": "object", "description": "Anything else to keep", **values}
    if kind == "integer":
        limits = {"minimum": 0, "maximum": 9007199254740991}
        return {"type": "integer", "description": "A number, counted from 0", **limits}
    if kind == "url":
        return {"type": "string", "description": "The address", "format": "uri"}
    return {"type": kind, "description": f"What the tool is to use, as a {kind}"}


_TEXT, _FLAG, _COUNT = "string", "boolean", "integer"

CLAUDE_TOOLS: tuple[tuple[str, Schema], ...] = (
    ("Read", _schema(("file_path!", _TEXT), ("offset", _COUNT), ("limit", _COUNT))),
    (
        "Bash",
        _schema(
            ("command!", _TEXT),
            ("timeout", "number"),
            ("description", _TEXT),
            ("run_in_background", _FLAG),
        ),
    ),
    (
        "Edit",
        _schema(
            ("file_path!", _TEXT),
            ("old_string!", _TEXT),
            ("new_string!", _TEXT),
            ("replace_all", _FLAG),
        ),
    ),
    ("Write", _schema(("file_path!", _TEXT), ("content!", _TEXT))),
    (
        "Agent",
        _schema(
            ("description!", _TEXT),
            ("prompt!", _TEXT),
            ("subagent_type", _TEXT),
            ("model", "large|medium|small"),
            ("isolation", "worktree|none"),
        ),
    ),
    (
        "CronCreate",
        _schema(("cron!", _TEXT), ("prompt!", _TEXT), ("recurring", _FLAG), ("durable", _FLAG)),
    ),
    ("CronDelete", _schema(("id!", _TEXT))),
    ("CronList", _schema()),
    ("EnterWorktree", _schema(("name", _TEXT), ("path", _TEXT))),
    ("ExitWorktree", _schema(("action!", "keep|remove"), ("discard_changes", _FLAG))),
    (
        "NotebookEdit",
        _schema(
            ("notebook_path!", _TEXT),
            ("cell_id", _TEXT),
            ("new_source!", _TEXT),
            ("cell_type", "code|markdown"),
            ("edit_mode", "replace|insert|delete"),
        ),
    ),
    ("ReportFindings", _schema(("level", "low|medium|high|max"), ("findings!", "[string]"))),
    (
        "ScheduleWakeup",
        _schema(("delaySeconds!", "number"), ("reason!", _TEXT), ("prompt!", _TEXT)),
    ),
    ("SendMessage", _schema(("to!", _TEXT), ("summary", _TEXT), ("message!", _TEXT))),
    ("Skill", _schema(("skill!", _TEXT), ("args", _TEXT))),
    (
        "TaskCreate",
        _schema(
            ("subject!", _TEXT), ("description!", _TEXT), ("activeForm", _TEXT), ("metadata", "map")
        ),
    ),
    ("TaskGet", _schema(("taskId!", _TEXT))),
    ("TaskList", _schema()),
    ("TaskOutput", _schema(("task_id!", _TEXT), ("block!", _FLAG), ("timeout!", "number"))),
    ("TaskStop", _schema(("task_id", _TEXT), ("shell_id", _TEXT))),
    (
        "TaskUpdate",
        _schema(
            ("taskId!", _TEXT),
            ("subject", _TEXT),
            ("status", "pending|in_progress|completed|deleted"),
            ("addBlocks", "[string]"),
            ("metadata", "map"),
        ),
    ),
    ("WebFetch", _schema(("url!", "url"), ("prompt!", _TEXT))),
    (
        "WebSearch",
        _schema(
            ("query!", _TEXT), ("allowed_domains", "[string]"), ("blocked_domains", "[string]")
        ),
    ),
    (
        "Workflow",
        _schema(
            ("script", _TEXT), ("name", _TEXT), ("scriptPath", _TEXT), ("resumeFromRunId", _TEXT)
        ),
    ),
)

CODEX_TOOLS: tuple[tuple[str, Schema], ...] = (
    (
        "exec_command",
        _schema(
            ("cmd!", _TEXT),
            ("justification", _TEXT),
            ("login", _FLAG),
            ("max_output_tokens", "number"),
            ("prefix_rule", "[string]"),
            ("sandbox_permissions", "use_default|require_escalated"),
            ("shell", _TEXT),
            ("tty", _FLAG),
            ("workdir", _TEXT),
            ("yield_time_ms", "number"),
        ),
    ),
    (
        "write_stdin",
        _schema(("session_id!", "number"), ("chars", _TEXT), ("yield_time_ms", "number")),
    ),
    ("view_image", _schema(("path!", _TEXT))),
    ("get_goal", _schema()),
    ("create_goal", _schema(("objective!", _TEXT), ("token_budget", _COUNT))),
    ("update_goal", _schema(("status!", "complete|blocked|paused"))),
    ("request_user_input", _schema(("questions!", "[string]"))),
)
