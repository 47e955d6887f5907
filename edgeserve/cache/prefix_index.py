"""Which full block holds the keys and values of which tokens, by a hash of all that came before.

An entry is found by (cache group, hash) and served only if its own tokens and the hash before are
those asked for. Ids and hashes only: whose block it is and when it goes is the pool's business.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from edgeserve.frozen import frozen

_DIGEST_BYTES = 32


@frozen
class _Entry:
    block_id: int
    before: bytes
    token_ids: tuple[int, ...]


class PrefixIndex:
    """Blocks of `block_size` tokens. `fingerprint` tells apart what makes other keys and values of
    the same tokens: the model, numerics class, KV type, rope choice."""

    def __init__(self, fingerprint: bytes, block_size: int) -> None:
        self._fingerprint = blake2b(fingerprint, digest_size=_DIGEST_BYTES).digest()
        self._block_size = block_size
        self._entries: dict[tuple[int, bytes], _Entry] = {}
        self._hash_of: dict[tuple[int, int], bytes] = {}

    @property
    def num_entries(self) -> int:
        return len(self._entries)

    def root(self, *, adapter: str = "", salt: bytes = b"") -> bytes:
        """What stands for the hash before the first block."""
        lengths = array("q", [len(adapter.encode()), len(salt)]).tobytes()
        text = self._fingerprint + lengths + adapter.encode() + salt
        return blake2b(text, digest_size=_DIGEST_BYTES).digest()

    def extend(self, hashes: list[bytes], token_ids: Sequence[int]) -> None:
        """Appends the hashes of full blocks that have none yet. hashes[0] is the root;
        hashes[i + 1] stands for the tokens up to the end of block i."""
        size = self._block_size
        while len(hashes) * size <= len(token_ids):
            end = len(hashes) * size
            block = array("i", token_ids[end - size : end]).tobytes()
            hashes.append(blake2b(hashes[-1] + block, digest_size=_DIGEST_BYTES).digest())

    def find(
        self, group: int, hashes: Sequence[bytes], token_ids: Sequence[int], block: int
    ) -> int | None:
        """The id of a block with the keys and values of block number `block` of these tokens."""
        entry = self._entries.get((group, hashes[block + 1]))
        if entry is None or entry.before != hashes[block]:
            return None
        return entry.block_id if entry.token_ids == self._tokens(token_ids, block) else None

    def has(self, group: int, block_hash: bytes) -> bool:
        return (group, block_hash) in self._entries

    def block_of(self, group: int, block_hash: bytes) -> int | None:
        """The block that is found by the hash, if any."""
        entry = self._entries.get((group, block_hash))
        return None if entry is None else entry.block_id

    def add(
        self,
        group: int,
        hashes: Sequence[bytes],
        token_ids: Sequence[int],
        block: int,
        block_id: int,
    ) -> None:
        """Makes block number `block` of these tokens findable, where `has` says it is not."""
        key = (group, hashes[block + 1])
        self._hash_of[group, block_id] = key[1]
        self._entries[key] = _Entry(block_id, hashes[block], self._tokens(token_ids, block))

    def forget(self, group: int, block_id: int) -> None:
        """The block's contents go. One that was never added is no error."""
        block_hash = self._hash_of.get((group, block_id))
        if block_hash is not None:
            self._entries.pop((group, block_hash), None)
            del self._hash_of[group, block_id]

    def blocks_of(self, group: int) -> set[int]:
        """All blocks of a group that can be found."""
        return {block_id for at, block_id in self._hash_of if at == group}

    def check(self) -> None:
        """Raises AssertionError unless each entry and its block name each other."""
        hash_of = {(at[0], entry.block_id): at[1] for at, entry in self._entries.items()}
        assert hash_of == self._hash_of, "an entry is stale, or a block has a hash and no entry"

    def _tokens(self, token_ids: Sequence[int], block: int) -> tuple[int, ...]:
        return tuple(token_ids[block * self._block_size : (block + 1) * self._block_size])
