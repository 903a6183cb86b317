"""Whether the rows of a memory are whole: seals, digests and the stored roots."""

from __future__ import annotations

from forgetmem.errors import CorruptStoreError
from forgetmem.store.digest import DigestTree, many_leaves, settings_digest
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
    return _root(tx, _read(tx, namespace, _roles(tx, namespace)))


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
        roles, used = _roles(tx, namespace), set[bytes]()
        keys = [key for key, _ in tx.vectors(namespace)]
        tree = _read(tx, namespace, roles, used)
        fits = keys == list(roles) and used == roles.keys()
        if not fits or len(tree) != tx.count(namespace):
            raise CorruptStoreError("records, atoms and vectors do not belong together")
        if _root(tx, tree) != tx.root(namespace):
            raise CorruptStoreError(
                "the digest of the records is not the stored one: records were "
                "changed or lost",
                table="root",
            )


def _roles(tx: ReadTransaction, namespace: str) -> dict[bytes, int]:
    """Return the role of each atom, in the order of the keys."""
    return {key: role for key, _, _, _, role in tx.atoms(namespace)}


def _read(
    tx: ReadTransaction,
    namespace: str,
    roles: dict[bytes, int],
    used: set[bytes] | None = None,
) -> DigestTree:
    """Read all records; with `used`, their texts too, and the atoms that they have."""
    tree = DigestTree()
    for rows, contents in tx.many_records(namespace, whole=used is not None):
        atoms = [row[3] for row in rows]
        if not roles.keys() >= set(atoms):
            raise CorruptStoreError("a record's vector is missing", table="atom")
        leaves = many_leaves(contents, [roles[atom] for atom in atoms])
        tree.fill([row[0] for row in rows], leaves)
        if used is not None:
            used.update(atoms)
    return tree


def _root(tx: ReadTransaction, tree: DigestTree) -> bytes | None:
    return tree.root(settings_digest(tx.settings() or {})) if len(tree) else None
