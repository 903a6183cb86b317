"""The file of a memory: records, vectors and digests on disk, and their erasure.

Knows ids, bytes and files. Knows nothing of the solver, of groups or of what a role
or a label means.
"""

from forgetmem.store.codec import (
    StoredAtom,
    StoredRecord,
    atom_key,
    record_content,
    text_digest,
)
from forgetmem.store.digest import DigestTree, leaf, many_leaves, settings_digest
from forgetmem.store.needles import needles_of
from forgetmem.store.sqlite import SQLiteStore
from forgetmem.store.structure import StructureReport
from forgetmem.store.transaction import ReadTransaction
from forgetmem.store.write_transaction import WriteTransaction

__all__ = [
    "DigestTree",
    "ReadTransaction",
    "SQLiteStore",
    "StoredAtom",
    "StoredRecord",
    "StructureReport",
    "WriteTransaction",
    "atom_key",
    "leaf",
    "many_leaves",
    "needles_of",
    "record_content",
    "settings_digest",
    "text_digest",
]
