"""The table of tools/mutate_native.py: every mutation still finds what it changes.

What the tests make of them takes minutes each and is run by hand.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "mutate_native", ROOT / "tools" / "mutate_native.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the annotations' names
    spec.loader.exec_module(module)
    return module


def test_every_mutation_stands_once_in_its_file() -> None:
    lost: list[str] = []
    for mutation in _tool().MUTATIONS:
        text = (ROOT / mutation.file).read_text(encoding="utf-8")
        counts = [text.count(old) for old in (mutation.old, mutation.also) if old]
        if any(count != 1 for count in counts):
            lost.append(mutation.name)
    assert lost == []
