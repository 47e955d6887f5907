"""Which model a command takes where none is named: the one used last, else one that is here."""

from __future__ import annotations

from typing import NoReturn

from edgeserve.errors import EdgeServeError, ModelNotFoundError
from edgeserve.loader.catalog import Catalog
from edgeserve.loader.machine import available_memory
from edgeserve.loader.sources import PREFIXES, looks_like_path
from edgeserve.loader.store import ModelStore
from edgeserve.typed_paths import is_file, path_of


def chosen_model(store: ModelStore, last_used: str = "") -> str:
    """Raises ModelNotFoundError where this machine has none."""
    if last_used and _is_here(store, last_used):
        return last_used
    memory = available_memory()
    for row in reversed(store.catalog.recommendations):  # the largest last
        if row.memory_bytes <= memory and _is_here(store, row.entry.name):
            return row.entry.name
    here = [model.name for model in store.models() if not model.note]
    if not here:
        raise ModelNotFoundError(
            "there is no model on this machine yet; `edgeserve pull smollm2` fetches a small one, "
            "`edgeserve list` prints the others"
        )
    chats = [name for name in here if _chats(store.catalog, name)]
    return (chats or here)[0]


def names_model(word: str, catalog: Catalog) -> bool:
    """Whether a word can only be meant as a model's name, be it here or not."""
    prefix, colon, _ = word.partition(":")
    if colon and prefix.lower() in PREFIXES:
        return True
    if word.lower().endswith(".gguf") or catalog.find(prefix) is not None:
        return True
    return (looks_like_path(word) or " " not in word) and is_file(path_of(word))


def require_no_misspelling(word: str, catalog: Catalog) -> None:
    """Raises ModelNotFoundError for what is nearly a known name, where one may stand."""
    near = catalog.closest(word.partition(":")[0])
    if near:
        raise _unknown(word, f"did you mean {' or '.join(near)}?")


def refuse_unknown_model(word: str) -> NoReturn:
    """Raises ModelNotFoundError for a word that can only be meant as a model's name."""
    raise _unknown(word, "`edgeserve list` prints those there are.")


def _unknown(word: str, hint: str) -> ModelNotFoundError:
    return ModelNotFoundError(
        f"{word}: no known model; {hint} To ask that, name the model with -m, or put a question of "
        "several words in quotes"
    )


def _is_here(store: ModelStore, name: str) -> bool:
    try:
        return store.find(name) is not None
    except EdgeServeError:
        return False


def _chats(catalog: Catalog, name: str) -> bool:
    entry = catalog.find(name.partition(":")[0])
    return entry is None or entry.chat
