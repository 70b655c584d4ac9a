"""Keyed hashes: what stands in the dataset instead of ids, sessions, tenants and rejected lines.

BLAKE2b-64 keyed with the run's salt. The domain ("request", "session", …) is part of the hash, so
that equal texts of different meaning do not match. Without the salt a hash cannot be tried out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import xxhash

Domain = Literal["request", "session", "tenant", "user", "record", "tokens"]

UIntArray = npt.NDArray[np.uint64]
_DIGEST_BYTES: Final = 8
_MAX_KEY_BYTES: Final = 64


class KeyedHasher:
    """Hashes texts of one run; repeated texts of a domain are remembered."""

    def __init__(self, salt: bytes) -> None:
        if not salt:
            raise ValueError("a salt must not be empty")
        self._salt = salt if len(salt) <= _MAX_KEY_BYTES else hashlib.blake2b(salt).digest()
        self._copy_seed = int.from_bytes(self.key_of("record")[:8], "little")
        self._known: dict[tuple[Domain, str], int] = {}

    def new(self, domain: Domain) -> hashlib.blake2b:
        """A hash that can be fed in pieces."""
        return hashlib.blake2b(
            digest_size=_DIGEST_BYTES, key=self._salt, person=domain.encode("ascii")
        )

    def key_of(self, domain: Domain) -> bytes:
        """A key for hashing elsewhere, from which the salt cannot be found."""
        return hashlib.blake2b(key=self._salt, person=domain.encode("ascii")).digest()

    def data_key(self, domain: Domain, data: bytes) -> int:
        """The 64-bit hash of bytes."""
        hashed = self.new(domain)
        hashed.update(data)
        return finished(hashed)

    def text_key(self, domain: Domain, text: str) -> int:
        """The 64-bit hash of a text that is seldom repeated."""
        return self.data_key(domain, text.encode("utf-8", "surrogatepass"))

    def text_keys(self, domain: Domain, texts: Sequence[str]) -> UIntArray:
        """(texts,) 64-bit hashes, as `text_key` gives each of them."""
        fresh = self.new(domain).copy
        digests = []
        for text in texts:
            hashed = fresh()
            hashed.update(text.encode("utf-8", "surrogatepass"))
            digests.append(hashed.digest())
        return np.frombuffer(b"".join(digests), dtype="<u8")

    def copy_digest(self, data: bytes) -> int:
        """A 64-bit hash of a record that tells exact copies apart inside one run.

        It is never stored, and who can make two records collide can as well write one twice: so it
        need not be a keyed hash, which takes longer than all else that is done with a record.
        """
        return xxhash.xxh3_64_intdigest(data, self._copy_seed)

    def remembered_key(self, domain: Domain, text: str) -> int:
        """The 64-bit hash of a text that many rows share."""
        known = self._known.get((domain, text))
        if known is None:
            known = self._known[(domain, text)] = self.text_key(domain, text)
        return known


def finished(hashed: hashlib.blake2b) -> int:
    """The 64-bit value of a finished hash."""
    return int.from_bytes(hashed.digest(), "little")
