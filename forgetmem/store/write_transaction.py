"""What can be changed inside one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from forgetmem.errors import InvalidInputError, StoreError
from forgetmem.store.codec import (
    SEAL_SIZE,
    StoredAtom,
    StoredRecord,
    atom_key,
    content_of,
    pack_state,
    text_digest,
)
from forgetmem.store.transaction import ReadTransaction


class WriteTransaction(ReadTransaction):
    """A transaction that may also change the file; committed by the store."""

    def put_settings(self, settings: Mapping[str, object]) -> None:
        """Replace the settings of the memory.

        Parameters
        ----------
        settings : mapping of str to JSON value
            All of them.
        """
        rows = [
            (name, json.dumps(value, sort_keys=True, allow_nan=False))
            for name, value in sorted(settings.items())
        ]
        self._file.execute("DELETE FROM setting")
        self._file.many("INSERT INTO setting (name, value) VALUES (?, ?)", rows)

    def put_records(self, namespace: str, records: Iterable[StoredRecord]) -> None:
        """Store records; those of the same id are replaced.

        Parameters
        ----------
        namespace : str
            Where they belong.
        records : iterable of StoredRecord
            Each with its true content digest.
        """
        rows = []
        for record in sorted(records, key=lambda record: record.id.encode()):
            sha = text_digest(record.text)
            args = (record.id, record.source_id, record.metadata, record.atom)
            if content_of(*args, sha) != record.content:
                raise InvalidInputError(
                    "a record's content digest is not that of its fields"
                )
            rows.append(
                (namespace, *args, sha, record.content[:SEAL_SIZE], record.text)
            )
        self._file.many(
            "INSERT OR REPLACE INTO record (namespace, id, source_id, metadata, atom,"
            " text_digest, seal, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )

    def erase_records(self, namespace: str, ids: Iterable[str]) -> int:
        """Erase records.

        Parameters
        ----------
        namespace : str
            Where they are.
        ids : iterable of str
            Their names; unknown ones are passed over.

        Returns
        -------
        int
            How many there were.
        """
        sql = "DELETE FROM record WHERE namespace = ? AND id = ?"
        return self._file.many(sql, [(namespace, id) for id in ids])

    def put_atoms(self, namespace: str, atoms: Iterable[StoredAtom]) -> None:
        """Store atoms and their vectors; those of the same key are replaced.

        Parameters
        ----------
        namespace : str
            Where they belong.
        atoms : iterable of StoredAtom
            Each with the key of its vector.
        """
        found = sorted(atoms, key=lambda atom: atom.key)
        for atom in found:
            if atom_key(atom.vector) != atom.key:
                raise InvalidInputError("an atom's key is not that of its vector")
        self._file.many(
            "INSERT OR REPLACE INTO vector (namespace, key, vector) VALUES (?, ?, ?)",
            [(namespace, atom.key, atom.vector) for atom in found],
        )
        self._file.many(
            "INSERT OR REPLACE INTO atom (namespace, key, state) VALUES (?, ?, ?)",
            [
                (
                    namespace,
                    atom.key,
                    pack_state(
                        atom.key, atom.component, atom.part, atom.weight, atom.role
                    ),
                )
                for atom in found
            ],
        )

    def update_atoms(
        self,
        namespace: str,
        atoms: Iterable[tuple[bytes, bytes, bytes, float, int]],
    ) -> None:
        """Replace what the solver made of atoms that are there.

        Parameters
        ----------
        namespace : str
            Where they are.
        atoms : iterable of (bytes, bytes, bytes, float, int)
            Key, component, part, weight and role.
        """
        rows = [
            (pack_state(*atom), namespace, atom[0])
            for atom in sorted(atoms, key=lambda atom: atom[0])
        ]
        changed = self._file.many(
            "UPDATE atom SET state = ? WHERE namespace = ? AND key = ?", rows
        )
        if changed != len(rows):
            raise StoreError(
                f"{len(rows) - changed} of {len(rows)} atoms to update are not there"
            )

    def erase_atoms(self, namespace: str, keys: Iterable[bytes]) -> int:
        """Erase atoms and their vectors.

        Parameters
        ----------
        namespace : str
            Where they are.
        keys : iterable of bytes
            Their keys; unknown ones are passed over.

        Returns
        -------
        int
            How many there were.
        """
        rows = [(namespace, key) for key in keys]
        self._file.many("DELETE FROM vector WHERE namespace = ? AND key = ?", rows)
        return self._file.many("DELETE FROM atom WHERE namespace = ? AND key = ?", rows)

    def put_root(self, namespace: str, root: bytes | None) -> None:
        """Store the digest root of a namespace.

        Parameters
        ----------
        namespace : str
            Its name.
        root : bytes of length 32, or None
            None erases it, for a namespace that has become empty.
        """
        if root is None:
            self._file.execute("DELETE FROM root WHERE namespace = ?", (namespace,))
        else:
            self._file.execute(
                "INSERT OR REPLACE INTO root (namespace, digest) VALUES (?, ?)",
                (namespace, root),
            )

    def put_certificate(self, namespace: str, group_key: bytes, payload: str) -> None:
        """Store a live prune certificate.

        Parameters
        ----------
        namespace : str
            Where it holds.
        group_key : bytes
            The group it speaks of.
        payload : str
            JSON.
        """
        self._file.execute(
            "INSERT OR REPLACE INTO certificate (namespace, group_key, payload)"
            " VALUES (?, ?, ?)",
            (namespace, group_key, payload),
        )

    def erase_certificate(self, namespace: str, group_key: bytes) -> None:
        """Erase a prune certificate, if it is there.

        Parameters
        ----------
        namespace : str
            Where it holds.
        group_key : bytes
            The group it speaks of.
        """
        self._file.execute(
            "DELETE FROM certificate WHERE namespace = ? AND group_key = ?",
            (namespace, group_key),
        )

    def erase_certificates(self) -> None:
        """Erase all prune certificates of all namespaces."""
        self._file.execute("DELETE FROM certificate")
