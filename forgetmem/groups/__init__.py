"""LINKED GROUPS: which vectors are solved together, and their weights.

Knows rows of vectors and their keys. Must not know ids, texts, metadata or files.
The grouping and the weights are functions of the set of vectors, never of the order
in which they came or went.
"""

from __future__ import annotations

from forgetmem.groups.components import Components
from forgetmem.groups.grouping import Grouping
from forgetmem.groups.horizon import Horizons, PruneHorizon, horizon_of
from forgetmem.groups.keys import KeyTable, Words, as_keys, as_words, order_of
from forgetmem.groups.prune import removable
from forgetmem.groups.weights import GroupWeights, Roles
from forgetmem.svm import Role

__all__ = [
    "Components",
    "GroupWeights",
    "Grouping",
    "Horizons",
    "KeyTable",
    "PruneHorizon",
    "Role",
    "Roles",
    "Words",
    "as_keys",
    "as_words",
    "horizon_of",
    "order_of",
    "removable",
]
