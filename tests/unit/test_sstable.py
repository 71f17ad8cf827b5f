"""The table of a checkpoint's index: what is written is read, and damage is told."""

from __future__ import annotations

import random

import pytest

from trainerd.checkpoints.format.sstable import TableError, read, write


def some_entries(count: int, seed: int = 1) -> dict[bytes, bytes]:
    rng = random.Random(seed)
    keys = {f"layer_{rng.randrange(50)}/{'x' * rng.randrange(40)}/{n}".encode() for n in range(count)}
    return {key: rng.randbytes(rng.randrange(200)) for key in keys} | {b"": b"header"}


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 100, 5000])
def test_what_is_written_is_read(count: int) -> None:
    entries = some_entries(count)
    assert read(write(entries)) == entries


def test_an_empty_table() -> None:
    assert read(write({})) == {}


def test_a_large_value_and_a_long_key() -> None:
    entries = {b"a" * 10_000: b"b" * 1_000_000, b"a" * 10_001: b""}
    assert read(write(entries)) == entries


@pytest.mark.parametrize("seed", range(200))
def test_damage_is_reported_or_harmless(seed: int) -> None:
    rng = random.Random(seed)
    entries = some_entries(60)
    table = bytearray(write(entries))
    if seed % 2:
        table[rng.randrange(len(table))] ^= 1 << rng.randrange(8)
    else:
        del table[rng.randrange(len(table)) :]
    try:
        found = read(bytes(table))
    except TableError:
        return
    assert found == entries
