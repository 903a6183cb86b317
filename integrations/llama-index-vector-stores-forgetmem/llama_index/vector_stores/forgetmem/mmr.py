"""Maximal marginal relevance over a few candidates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def most_relevant_and_diverse(
    relevance: Sequence[float], X: NDArray[np.float64], k: int, threshold: float
) -> list[int]:
    """Choose candidates one by one: relevant, and unlike those already chosen.

    Parameters
    ----------
    relevance : sequence of float
        Cosine of each candidate with the query.
    X : ndarray of shape (n, dimension), float64
        The candidates' vectors, of norm 1.
    k : int
        How many to choose at most.
    threshold : float
        1 asks for relevance only, 0 for diversity only.

    Returns
    -------
    list of int
        Rows in the order of choice; ties go to the earlier row.

    Notes
    -----
    A candidate is compared with all that are chosen, where LlamaIndex's own function
    looks at the last one only. Sums run along rows, so a candidate's numbers do not
    depend on the others.
    """
    scores = np.asarray(relevance, dtype=np.float64)
    chosen: list[int] = []
    redundancy = np.full(len(scores), -np.inf)
    while len(chosen) < min(k, len(scores)):
        gain = (
            threshold * scores - (1.0 - threshold) * redundancy
            if chosen
            else scores.copy()
        )
        gain[chosen] = -np.inf
        best = int(np.argmax(gain))
        chosen.append(best)
        redundancy = np.maximum(redundancy, (X * X[best]).sum(axis=1))
    return chosen
