"""The benchmark of other stores: what it looks for, and that it finds it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

_RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_traces_are_found_in_every_form(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    """Raw float32 at any offset, pickled doubles, decimals in JSON; texts and ids."""
    traces = load("traces")
    rng = np.random.default_rng(0)
    items = [
        traces.Item(f"record-{n:06d}", f"the text of number {n:06d}", x)
        for n, x in enumerate(rng.normal(size=(7, 32)).astype(np.float32))
    ]
    (tmp_path / "deep").mkdir()
    (tmp_path / "raw").write_bytes(b"odd" + items[0].vector[:4].tobytes() + b"end")
    (tmp_path / "deep" / "pickled").write_bytes(pickle.dumps(items[1].vector.tolist()))
    (tmp_path / "some.json").write_text(
        json.dumps({"vector": items[2].vector.tolist()}, indent=2)
    )
    (tmp_path / "text").write_text("x" + items[3].text + items[4].id)
    assert traces.count(tmp_path, items) == {"texts": 1, "ids": 1, "vectors": 3}
    assert traces.count(tmp_path, items[5:]) == {"texts": 0, "ids": 0, "vectors": 0}


def test_a_text_of_the_same_start_is_no_trace(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    """The first 8 bytes only select; all 48 are compared."""
    traces = load("traces")
    item = traces.Item("record-000001", "a text that was deleted", np.ones(32))
    (tmp_path / "text").write_text("a text that was kept record-000002")
    assert traces.count(tmp_path, [item])["texts"] == 0


def test_every_record_is_told_apart(load: Callable[[str], ModuleType]) -> None:
    """No text or id occurs twice, and half of the queries are near deleted ones."""
    data = load("examination").Data(500)
    assert len(set(data.texts)) == len(set(data.ids)) == 500
    nearest = (data.queries @ data.X.T).argmax(axis=1)
    assert np.isin(nearest, data.gone).mean() >= 0.5


def test_ours_leaves_nothing(load: Callable[[str], ModuleType]) -> None:
    """Neither bytes nor influence, and the files of a memory that never held it."""
    examination, stores = load("examination"), load("stores")
    found = examination.examine(stores.Forgetmem, 600)
    assert found["before"] == {"texts": 10, "ids": 10, "vectors": 10}
    for when in ("after delete", "after cleaning"):
        assert found[when]["influence"]["answers or scores"] == 0
        assert [found[when][kind] for kind in ("texts", "ids", "vectors")] == [0, 0, 0]
    assert found["state as if never held"]
    assert found["files as if never held"]


def test_the_committed_result_makes_a_section(
    load: Callable[[str], ModuleType],
) -> None:
    """The README's part is made from the JSON alone."""
    result = json.loads((_RESULTS / "peers.json").read_text("utf-8"))
    text = load("peers").section(result)
    assert "| **forgetmem** | `forget(ids)` | 0 / 0 / 0 of " in text


@pytest.mark.slow
def test_stores_that_are_not_installed_are_named(
    load: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    """A run with what a test environment has gives its rows and names the rest."""
    result = load("peers").benchmark(1000, "forgetmem")
    names = [one["store"] for one in result["stores"]]
    assert names[0] == "**forgetmem**"
    assert load("peers").section(json.loads(json.dumps(result)))
