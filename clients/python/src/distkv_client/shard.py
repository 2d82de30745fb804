"""Which virtual shard a path is in, by its first element: xxHash64 with seed 0, then jump hash. Pure.

All clients compute the same shards, so nothing here may change. Vectors: `clients/conformance/vectors/hashes.json`.

>>> shard_of_key(b"hello")
309
"""

from __future__ import annotations

from xxhash import xxh64_intdigest

SHARD_COUNT = 1024
"""Virtual shards of every network."""

_MASK = (1 << 64) - 1


def hash_key(key: bytes) -> int:
    """xxHash64 with seed 0."""
    return xxh64_intdigest(key)


def jump_hash(key: int, buckets: int) -> int:
    """Jump consistent hash (Lamping and Veach, 2014) in the form `(b + 1) * (2^31 / d)`."""
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        key = (key * 2862933555777941757 + 1) & _MASK
        following = int((bucket + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return max(bucket, 0)


def shard_of_key(key: bytes) -> int:
    """The shard of a first element: a string's UTF-8, else its canonical MessagePack."""
    return jump_hash(xxh64_intdigest(key), SHARD_COUNT)
