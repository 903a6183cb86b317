"""To prune is to remove reserve records that have no influence, with certificates."""

from __future__ import annotations

import numpy as np

from forgetmem.auditing import prune_certificate
from forgetmem.collection import Collection, fetch
from forgetmem.groups import horizon_of, removable
from forgetmem.store import needles_of
from forgetmem.verdicts import PruneCertificate


def prune(collection: Collection) -> list[PruneCertificate]:
    """Remove reserve records; see `ForgettableMemory.prune`.

    Parameters
    ----------
    collection : Collection

    Returns
    -------
    list of PruneCertificate

    Raises
    ------
    ErasureError
        If bytes of pruned records are left in a file.
    """
    with collection.lock:
        with collection.changing() as (tx, state):
            chosen = removable(state.table, state.keys, state.grouping, state.weights)
            if not chosen:
                return []
            horizons = []
            for rows in chosen:
                group = state.grouping.group(int(rows[0]))
                horizons.append(
                    horizon_of(
                        state.table,
                        state.keys,
                        state.weights,
                        state.settings.gamma,
                        np.setdiff1d(group, rows),
                        rows,
                        state.grouping.is_whole_component(group),
                    )
                )
            rows = np.concatenate(chosen)
            ids = [id for row in rows.tolist() for id in state.ids(row)]
            records = list(fetch(tx, collection.namespace, ids).values())
            vectors = [state.table.X[row].tobytes() for row in rows]
            state.remove_rows(rows, records)
            for horizon in horizons:
                state.horizons.add(horizon)
        collection.store.clean(needles_of(records, vectors))
    return [prune_certificate(*numbered) for numbered in enumerate(horizons)]
