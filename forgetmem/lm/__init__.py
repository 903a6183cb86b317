"""LANGUAGE MODEL in PyTorch: uses the solver; knows nothing of memories and files.

`SVAttention` is attention whose prefix is gated by an exact one-class SVM; `HybridLM`
is a small decoder that is trained with it; `Session` holds a context that can be
forgotten span by span.
"""

from __future__ import annotations

from forgetmem.lm.attention import GateConfig, SVAttention
from forgetmem.lm.decoding import Decoder, DecodeReport
from forgetmem.lm.gate import Gate, GateReport, batched_gate, exact_gate
from forgetmem.lm.model import HybridLM, HybridLMConfig
from forgetmem.lm.session import Session, SpanProof

__all__ = [
    "DecodeReport",
    "Decoder",
    "Gate",
    "GateConfig",
    "GateReport",
    "HybridLM",
    "HybridLMConfig",
    "SVAttention",
    "Session",
    "SpanProof",
    "batched_gate",
    "exact_gate",
]
