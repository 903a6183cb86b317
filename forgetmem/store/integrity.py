"""Whether the rows of a memory are whole: seals, digests and the stored roots."""

from __future__ import annotations

from forgetmem.errors import CorruptStoreError
from forgetmem.store.digest import DigestTree, leaf, settings_digest
from forgetmem.store.transaction import ReadTransaction


def root_of(tx: ReadTransaction, namespace: str) -> bytes | None:
    """Return the digest root that follows from the rows of a namespace.

    Parameters
    ----------
    tx : ReadTransaction
        Where they are read.
    namespace : str
        Its name.

    Returns
    -------
    bytes of length 32, or None
        None if it holds no records.

    Raises
    ------
    CorruptStoreError
        If a row does not match its seal, or a record has no atom.
    """
    roles = {key: role for key, _, _, _, role in tx.atoms(namespace)}
    tree = DigestTree()
    for id, _, _, atom, _, content in tx.records(namespace):
        if atom not in roles:
            raise CorruptStoreError("a record's vector is missing", table="atom")
        tree.put(id, leaf(content, roles[atom]))
    return tree.root(settings_digest(tx.settings() or {})) if len(tree) else None


def check_rows(tx: ReadTransaction) -> None:
    """Read every row of the memory, and compare it with every digest.

    Parameters
    ----------
    tx : ReadTransaction
        Where they are read.

    Raises
    ------
    CorruptStoreError
        If a row is damaged, missing or too many.

    Notes
    -----
    About a second for 100,000 records.
    """
    namespaces = tx.namespaces()
    if not set(tx.all_namespaces()) <= set(namespaces):
        raise CorruptStoreError("a namespace holds rows, but no records")
    for namespace in namespaces:
        _check_tables(tx, namespace)
        if root_of(tx, namespace) != tx.root(namespace):
            raise CorruptStoreError(
                "the digest of the records is not the stored one: records were "
                "changed or lost",
                table="root",
            )


def _check_tables(tx: ReadTransaction, namespace: str) -> None:
    """Check that records, atoms and vectors are those that belong together."""
    ids = [id for id, _ in tx.texts(namespace)]
    keys = [key for key, _ in tx.vectors(namespace)]
    atoms = [key for key, *_ in tx.atoms(namespace)]
    used = {atom for _, _, _, atom, *_ in tx.records(namespace)}
    if len(ids) != tx.count(namespace) or keys != atoms or used != set(atoms):
        raise CorruptStoreError("records, atoms and vectors do not belong together")
