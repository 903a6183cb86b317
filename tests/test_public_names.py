"""The public names are there, and nothing else is promised."""

from __future__ import annotations

import inspect

import forgetmem
from forgetmem import ForgettableMemory
from forgetmem.svm import OneClassSVM


def test_every_exported_name_exists() -> None:
    """Each name of __all__ can be had, and is what its home says."""
    for name in forgetmem.__all__:
        assert getattr(forgetmem, name) is not None
    assert set(forgetmem.__all__) <= set(dir(forgetmem))


def test_memory_has_the_promised_methods() -> None:
    """The verbs of the design, with docstrings."""
    promised = {
        "add", "search", "read", "forget", "verify", "prune", "audit", "compact",
        "digest", "stats", "get", "reembed", "close", "ids", "namespaces",
    }  # fmt: skip
    public = {
        name
        for name, value in vars(ForgettableMemory).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    assert public == promised
    assert all(inspect.getdoc(getattr(ForgettableMemory, name)) for name in promised)


def test_solver_has_the_promised_names() -> None:
    """As in scikit-learn, with learn, unlearn and certificate."""
    svm = OneClassSVM(gamma=0.04, C=1.0).fit([[-1.0, 0.0], [1.0, 0.0], [0.0, 0.9]])
    for name in (
        "dual_coef_",
        "offset_",
        "support_",
        "margin_",
        "bounded_",
        "reserve_",
    ):
        assert getattr(svm, name) is not None
    for name in (
        "learn",
        "unlearn",
        "certificate",
        "decision_function",
        "score_samples",
    ):
        assert callable(getattr(svm, name))


def test_unknown_name_is_an_attribute_error() -> None:
    """The lazy module does not invent names."""
    assert not hasattr(forgetmem, "ForgettableMemorie")
