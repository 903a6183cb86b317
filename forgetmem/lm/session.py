"""`Session`: a context in named spans, each of which can be forgotten.

There are two ways to forget, and a proof says which was taken:

- ``"gate"``: the keys of the span leave every layer and head; the gates end in the
  exact optimum of the keys that are left. Those were computed when the span could be
  read, and stay as they are.
- ``"rebuild"``: the text that is left is read again from the start. The session is then
  equal, bit for bit, to one that never read the span.
"""

from __future__ import annotations

import enum
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from forgetmem.errors import (
    DuplicateIdError,
    InvalidInputError,
    ProofError,
    RecordNotFoundError,
)
from forgetmem.lm.decoding import Decoder, DecodeReport
from forgetmem.lm.model import HybridLM, sample


class Way(enum.Enum):
    """How a span is forgotten."""

    GATE = "gate"
    REBUILD = "rebuild"


_REFERENCE = {
    Way.GATE: "gates refitted on the frozen keys that are left",
    Way.REBUILD: "a session that read the same spans but this one",
}
_NOT_COVERED = {
    Way.GATE: "keys and values of later spans, which were computed when it was there; "
    "the weights of the model; copies of the text elsewhere",
    Way.REBUILD: "the weights of the model; copies of the text elsewhere",
}


@dataclass(frozen=True)
class SpanProof:
    """What is claimed about one forgotten span.

    Parameters
    ----------
    way : {"gate", "rebuild"}
    tokens_forgotten, tokens_left : int
    keys_forgotten : int
        Over all layers and heads.
    gates : int
        Gates that the bounds below are the worst of.
    kkt_residual, duality_gap, bound, sharp_bound, coef_bound : float
        As in `forgetmem.svm.Certificate`, relative to `reference`; computed from the
        keys and coefficients that are left, after the fact.
    tied : bool
        Whether a gate's partition was decided by the rule for ties.
    digest_after : str
        `Session.digest` after it.
    reference : str
        What the session is compared with.
    not_covered : str
    """

    way: str
    tokens_forgotten: int
    tokens_left: int
    keys_forgotten: int
    gates: int
    kkt_residual: float
    duality_gap: float
    bound: float
    sharp_bound: float
    coef_bound: float
    tied: bool
    digest_after: str
    reference: str
    not_covered: str

    def save(self, path: str | Path) -> None:
        """Write the proof as JSON.

        Parameters
        ----------
        path : str or Path
        """
        Path(path).write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, path: str | Path) -> SpanProof:
        """Read a proof.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        SpanProof

        Raises
        ------
        ProofError
            If it is none.
        """
        try:
            return cls(**json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ProofError(f"this is no proof about a span: {error}") from error


class Session:
    """A context that is fed in spans.

    Parameters
    ----------
    model : HybridLM
        With the attention ``"sv"``.

    Notes
    -----
    The tokens of a span read the spans before it through the gates, and their own chunk
    plainly; when the span ends its keys are frozen. A context has at most `block_size`
    tokens. With the way ``"gate"`` the positions of a forgotten span stay empty.
    """

    def __init__(self, model: HybridLM) -> None:
        self.model = model
        self._spans: dict[str, bytes] = {}
        self._numbers: dict[str, int] = {}
        self._decoder = Decoder(model)

    @property
    def spans(self) -> tuple[str, ...]:
        """Names of the spans, in the order in which they were read."""
        return tuple(self._spans)

    @property
    def decoder(self) -> Decoder:
        """What holds the keys of the context."""
        return self._decoder

    def feed(self, name: str, text: str | bytes) -> None:
        """Read a span.

        Parameters
        ----------
        name : str
        text : str or bytes
            A str is read as UTF-8.

        Raises
        ------
        DuplicateIdError
            If there is a span of this name.
        InvalidInputError
            If the text is empty or too long for what is left of the context.
        """
        if name in self._spans:
            raise DuplicateIdError(name)
        content = text.encode() if isinstance(text, str) else bytes(text)
        if not content:
            raise InvalidInputError("expected a text, got an empty one")
        number = max(self._numbers.values(), default=-1) + 1
        self._decoder.extend(_tokens(content), number)
        self._decoder.close(number)
        self._spans[name], self._numbers[name] = content, number

    def forget(self, name: str, *, way: str = "gate") -> SpanProof:
        """Forget a span.

        Parameters
        ----------
        name : str
        way : {"gate", "rebuild"}

        Returns
        -------
        SpanProof

        Raises
        ------
        RecordNotFoundError
            If there is no span of this name; nothing is changed.
        InvalidInputError
            If there is no such way.
        """
        try:
            chosen = Way(way)
        except ValueError:
            raise InvalidInputError(
                f"expected way to be 'gate' or 'rebuild', got {way!r}"
            ) from None
        if name not in self._spans:
            raise RecordNotFoundError(name)
        content, number = self._spans.pop(name), self._numbers.pop(name)
        heads = [head for heads in self._decoder.heads for head in heads]
        gone = sum(int((head.owners == number).sum()) for head in heads)
        if chosen is Way.GATE:
            for head in heads:
                head.unlearn(number)
            self._decoder.tail = self._tail()
        else:
            self._rebuild()
        return self._proof(chosen, len(content), gone)

    def _tail(self) -> list[int]:
        mix = self.model.config.mix
        return list(b"".join(self._spans.values())[-mix:]) if mix else []

    def _rebuild(self) -> None:
        spans = self._spans
        self._spans, self._numbers = {}, {}
        self._decoder = Decoder(self.model)
        for name, content in spans.items():
            self.feed(name, content)

    def _proof(self, way: Way, n_tokens: int, n_keys: int) -> SpanProof:
        heads = [head for heads in self._decoder.heads for head in heads]
        found = [head.certificate() for head in heads if head.gated]

        def worst(name: str) -> float:
            return max((float(getattr(each, name)) for each in found), default=0.0)

        return SpanProof(
            way=way.value,
            tokens_forgotten=n_tokens,
            tokens_left=sum(map(len, self._spans.values())),
            keys_forgotten=n_keys,
            gates=len(found),
            kkt_residual=worst("kkt_residual"),
            duality_gap=worst("duality_gap"),
            bound=worst("bound"),
            sharp_bound=worst("sharp_bound"),
            coef_bound=worst("coef_bound"),
            tied=any(each.tied for each in found),
            digest_after=self.digest(),
            reference=_REFERENCE[way],
            not_covered=_NOT_COVERED[way],
        )

    def verify(self, proof: SpanProof) -> bool:
        """Tell whether the session is still as the proof says.

        Parameters
        ----------
        proof : SpanProof

        Returns
        -------
        bool
            Whether digest and bounds, computed again, are those of the proof. With the
            way ``"rebuild"`` the spans are read again for it.
        """
        if Way(proof.way) is Way.REBUILD:
            again = Session(self.model)
            for name, content in self._spans.items():
                again.feed(name, content)
            if again.digest() != self.digest():
                return False
        now = self._proof(Way(proof.way), proof.tokens_forgotten, proof.keys_forgotten)
        return now == proof

    def edit(self, name: str, text: str | bytes, *, way: str = "gate") -> SpanProof:
        """Forget a span and read another text under its name, after the others.

        Parameters
        ----------
        name : str
        text : str or bytes
        way : {"gate", "rebuild"}

        Returns
        -------
        SpanProof
            About the old text, before the new one was read.

        Raises
        ------
        RecordNotFoundError
            If there is no span of this name.
        """
        proof = self.forget(name, way=way)
        self.feed(name, text)
        return proof

    def predict(self, text: str | bytes) -> Tensor:
        """Scores of what follows each byte of a text after the context.

        Parameters
        ----------
        text : str or bytes

        Returns
        -------
        Tensor of shape (T, vocab_size)

        Raises
        ------
        InvalidInputError
            If it is empty or too long for what is left of the context.
        """
        content = text.encode() if isinstance(text, str) else bytes(text)
        if not content:
            raise InvalidInputError("expected a text, got an empty one")
        return self._decoder.copy().extend(_tokens(content), -1)

    def generate(
        self,
        prompt: str | bytes,
        n_new: int,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> bytes:
        """Continue a prompt after the context; the session stays as it is.

        Parameters
        ----------
        prompt : str or bytes
        n_new : int
            Bytes to generate.
        temperature, top_k, generator
            As for `HybridLM.generate`.

        Returns
        -------
        bytes
        """
        content = prompt.encode() if isinstance(prompt, str) else bytes(prompt)
        if not content:
            raise InvalidInputError("expected a prompt, got an empty one")
        decoder = self._decoder.copy()
        scores = decoder.extend(_tokens(content), -1)[-1:]
        out: list[int] = []
        while True:
            token = sample(scores, temperature, top_k, generator)
            out.append(int(token))
            if len(out) == n_new:
                return bytes(out)
            scores = decoder.extend(token, -1)

    def report(self) -> DecodeReport:
        """Tell what is held.

        Returns
        -------
        DecodeReport
        """
        return self._decoder.report()

    def digest(self) -> str:
        """Hash everything that answers depend on, but the weights.

        Returns
        -------
        str
            SHA-256, as hex. Names of spans are no part of it.
        """
        return self._decoder.digest()


def _tokens(content: bytes) -> Tensor:
    return torch.tensor(list(content), dtype=torch.int64)
