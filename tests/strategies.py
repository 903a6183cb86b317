"""Hypothesis strategies: records that are often copies and look-alikes."""

from __future__ import annotations

from hypothesis import strategies as st

_SUBJECTS = ["the pump", "the valve", "unit seven", "anna", "the night shift"]
_VERBS = ["was replaced", "was checked", "reported a leak", "stopped", "is fine"]
_DETAILS = ["", " today", " at noon", " again", " by the contractor from the north"]

texts = st.builds(
    lambda subject, verb, detail: subject + " " + verb + detail,
    st.sampled_from(_SUBJECTS),
    st.sampled_from(_VERBS),
    st.sampled_from(_DETAILS),
)
ids = st.sampled_from([f"r{number}" for number in range(14)])
sources = st.sampled_from([None, "log-1", "log-2"])
metadatas = st.fixed_dictionaries(
    {}, optional={"user": st.sampled_from(["u1", "u2"]), "n": st.integers(0, 3)}
)
records = st.tuples(ids, texts, metadatas, sources)
batches = st.lists(records, min_size=1, max_size=6, unique_by=lambda record: record[0])
