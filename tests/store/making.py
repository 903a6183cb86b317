"""Records with their vectors, and ways to put and erase them and to look at files."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from forgetmem.store import (
    DigestTree,
    SQLiteStore,
    StoredAtom,
    StoredRecord,
    atom_key,
    leaf,
    record_content,
    settings_digest,
)

SETTINGS: dict[str, object] = {"gamma": 8.0, "link": 0.9}

_WORDS = ["pump", "valve", "shift", "north", "leak", "report", "noon", "anna", "bolt"]


class Item:
    """A record and its atom."""

    def __init__(
        self,
        id: str,
        text: str,
        metadata: str = "{}",
        source_id: str | None = None,
        vector: bytes = bytes(64),
        role: int = 1,
    ) -> None:
        key = atom_key(vector)
        content = record_content(id, text, metadata, source_id, vector)
        self.record = StoredRecord(id, text, metadata, source_id, key, content)
        self.atom = StoredAtom(key, vector, key, key, 0.5, role)

    def secrets(self) -> list[bytes]:
        """Return what must not be found once the item is erased."""
        return [
            self.record.id.encode(),
            self.record.text.encode(),
            self.record.text.encode("utf-16-le"),
            self.record.text.lower().encode(),
            self.record.metadata.encode(),
            self.atom.vector,
            self.atom.vector[:16],
            self.atom.vector[-16:],
        ]


def make_items(
    count: int, *, seed: int = 0, dimension: int = 48, longest: int = 60
) -> list[Item]:
    """Make records that share nothing, of up to `longest` words."""
    chance = random.Random(seed)
    items = []
    for number in range(count):
        words = " ".join(chance.choices(_WORDS, k=chance.randint(1, longest)))
        name = f"{chance.getrandbits(64):016x}"
        items.append(
            Item(
                f"id-{name}",
                f"Text {name} says: {words}",
                f'{{"user":"person {name}"}}',
                chance.choice([None, f"doc-{number % 5}"]),
                chance.randbytes(4 * dimension),
                chance.choice([0, 1, 2]),
            )
        )
    return items


def put(store: SQLiteStore, items: Iterable[Item], namespace: str = "default") -> None:
    """Store items in one transaction, with the root that follows."""
    items = list(items)
    with store.writing() as tx:
        tx.put_settings(SETTINGS)
        tx.put_atoms(namespace, [item.atom for item in items])
        tx.put_records(namespace, [item.record for item in items])
        tx.put_root(namespace, root(tx, namespace))


def erase(
    store: SQLiteStore, items: Iterable[Item], namespace: str = "default"
) -> None:
    """Erase items in one transaction, with the root that follows."""
    items = list(items)
    with store.writing() as tx:
        tx.erase_records(namespace, [item.record.id for item in items])
        tx.erase_atoms(namespace, [item.atom.key for item in items])
        tx.put_root(namespace, root(tx, namespace))


def root(tx, namespace: str) -> bytes | None:
    """Compute a namespace's digest root in the plainest way."""
    roles = {key: role for key, _, _, _, role in tx.atoms(namespace)}
    tree = DigestTree()
    for id, _, _, atom, _, content in tx.records(namespace):
        tree.put(id, leaf(content, roles[atom]))
    return tree.root(settings_digest(tx.settings() or {})) if len(tree) else None


def dump(store: SQLiteStore) -> dict[str, object]:
    """Return everything that a store holds."""
    with store.reading() as tx:
        names = tx.namespaces()
        return {
            "settings": tx.settings(),
            **{
                name: (
                    tx.get(name, [id for id, *_ in tx.records(name)]),
                    list(tx.atoms(name)),
                    list(tx.vectors(name)),
                    tx.root(name),
                )
                for name in names
            },
        }


def files_of(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of every file of the folder that a memory is in."""
    for file in sorted(path.parent.iterdir()):
        if file.is_file():
            yield file.name, file.read_bytes()


def found_in_files(path: Path, items: Iterable[Item]) -> list[str]:
    """Look for what items held, from outside, in every file of the folder."""
    contents = list(files_of(path))
    return [
        f"{name}: {secret[:12]!r}"
        for item in items
        for secret in item.secrets()
        for name, data in contents
        if len(secret) >= 8 and secret in data
    ]
