"""Records and hits of a memory as LangChain documents."""

from __future__ import annotations

from langchain_core.documents import Document
from pydantic import Field

from forgetmem import Hit, Record


class HitDocument(Document):
    """A document that was found, with what the memory says about it.

    `metadata` is exactly what was stored. The hit is neither compared by content nor
    serialised: dumped and loaded, this is a plain `Document`.

    Attributes
    ----------
    hit : forgetmem.Hit
        ``score`` (cosine), ``mass``, ``weight``, ``role``, and the ids of records with
        the ``same`` vector and of ``similar`` ones.
    """

    hit: Hit = Field(exclude=True, repr=False)

    @classmethod
    def lc_id(cls) -> list[str]:
        """Return the identifier of `Document`, which is what is serialised."""
        return Document.lc_id()


def to_document(found: Record | Hit) -> Document:
    """Return a record or a hit as a plain document.

    Parameters
    ----------
    found : Record or Hit

    Returns
    -------
    Document
        With its id and exactly the stored metadata.
    """
    return Document(id=found.id, page_content=found.text, metadata=found.metadata)


def to_hit_document(hit: Hit) -> HitDocument:
    """Return a hit as a document that carries it.

    Parameters
    ----------
    hit : Hit

    Returns
    -------
    HitDocument
    """
    return HitDocument(
        id=hit.id, page_content=hit.text, metadata=dict(hit.metadata), hit=hit
    )
