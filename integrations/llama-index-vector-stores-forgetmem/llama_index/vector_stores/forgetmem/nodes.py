"""Nodes as records of a memory, and back.

A record's metadata is the node's own, so that a memory can be asked for it, and under
one more key what else LlamaIndex knows of the node. Its text stands in the record only.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MetadataMode,
    Node,
    NodeRelationship,
    TextNode,
)

from forgetmem import InvalidInputError

#: The key of a record's metadata under which the node is kept.
NODE_KEY = "_node"

_KINDS: dict[str, type[BaseNode]] = {
    kind.class_name(): kind
    for kind in (TextNode, IndexNode, ImageNode, Node, Document, ImageDocument)
}
#: LlamaIndex shows metadata to models in the order of its keys; records sort them.
_ORDER = "metadata_order"
_KEPT_ELSEWHERE = {"id_", "embedding", "metadata", "text"}
_RESOURCES = ("text_resource", "image_resource", "audio_resource", "video_resource")
_SOURCE = str(NodeRelationship.SOURCE.value)


def text_of(node: BaseNode) -> str:
    """Return the text of a node, without its metadata.

    Parameters
    ----------
    node : BaseNode

    Returns
    -------
    str
    """
    return node.get_content(metadata_mode=MetadataMode.NONE)


def metadata_of(node: BaseNode) -> dict[str, Any]:
    """Return what is stored as the metadata of a node's record.

    Parameters
    ----------
    node : BaseNode

    Returns
    -------
    dict

    Raises
    ------
    InvalidInputError
        If the node holds a value that is not JSON, or the reserved key.
    """
    if NODE_KEY in node.metadata:
        raise InvalidInputError(f"the metadata key {NODE_KEY!r} is reserved")
    try:
        content = node.model_dump(mode="json", exclude=_KEPT_ELSEWHERE)
    except ValueError as error:
        raise InvalidInputError(_not_json(node)) from error
    content["class_name"] = _kind_of(node).class_name()
    for name in _RESOURCES:
        # LlamaIndex leaves the bytes of an image out when it serialises a node.
        if (data := getattr(getattr(node, name, None), "data", None)) is not None:
            content[name]["data"] = data.decode("ascii")
    if (resource := content.get("text_resource")) and resource["text"] is not None:
        resource["text"] = ""
    if (keys := list(node.metadata)) != sorted(keys, key=str):
        content[_ORDER] = keys
    return {**node.metadata, NODE_KEY: content}


def to_node(id: str, text: str, metadata: Mapping[str, Any]) -> BaseNode:
    """Return the node that a record was made from.

    Parameters
    ----------
    id, text, metadata
        Of the record.

    Returns
    -------
    BaseNode
        Of the class it had, or of the class of LlamaIndex that this derives from;
        without its embedding.
    """
    content = dict(metadata.get(NODE_KEY) or {})
    keys = content.pop(_ORDER, [key for key in metadata if key != NODE_KEY])
    own = {key: metadata[key] for key in keys}
    kind = _KINDS[content.get("class_name", TextNode.class_name())]
    if "text_resource" not in content:
        content["text"] = text
    elif (resource := content["text_resource"]) and resource["text"] is not None:
        content["text_resource"] = {**resource, "text": text}
    return kind.from_dict({**content, "id_": id, "metadata": own})


def kind_name(metadata: Mapping[str, Any]) -> str | None:
    """Return the name of a node's class.

    Parameters
    ----------
    metadata : mapping
        Of the record.

    Returns
    -------
    str or None
    """
    name: str | None = (metadata.get(NODE_KEY) or {}).get("class_name")
    return name


def source_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the document that a node came from.

    Parameters
    ----------
    metadata : mapping
        Of the record.

    Returns
    -------
    str or None
    """
    for kind, id in _related(metadata):
        if kind == _SOURCE:
            return id
    return None


def neighbours_of(metadata: Mapping[str, Any]) -> set[str]:
    """Return the nodes that a node is related to, its source left out.

    Parameters
    ----------
    metadata : mapping
        Of the record.

    Returns
    -------
    set of str
    """
    return {id for kind, id in _related(metadata) if kind != _SOURCE}


def without_relations_to(
    metadata: Mapping[str, Any], ids: Collection[str]
) -> dict[str, Any]:
    """Return a node's metadata without its relations to some other nodes.

    Parameters
    ----------
    metadata : mapping
        Of the record.
    ids : collection of str
        Relations to these are dropped, with the copy of metadata and the hash of the
        text that LlamaIndex keeps in them; the relation to the source stays.

    Returns
    -------
    dict
    """
    content = dict(metadata[NODE_KEY])
    content["relationships"] = {
        kind: left
        for kind, info in content["relationships"].items()
        if (left := info if kind == _SOURCE else _without(info, ids))
    }
    return {**metadata, NODE_KEY: content}


def _without(info: Any, ids: Collection[str]) -> Any:
    if isinstance(info, list):
        return [one for one in info if one["node_id"] not in ids]
    return None if info["node_id"] in ids else info


def _related(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    relations = (metadata.get(NODE_KEY) or {}).get("relationships", {})
    for kind, info in relations.items():
        for one in info if isinstance(info, list) else [info]:
            yield kind, one["node_id"]


def _kind_of(node: BaseNode) -> type[BaseNode]:
    known = set(_KINDS.values())
    return next((kind for kind in type(node).__mro__ if kind in known), TextNode)


def _not_json(node: BaseNode) -> str:
    for key, value in node.metadata.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            return (
                f"metadata[{key!r}] of a node is or holds a {type(value).__name__} "
                "that is not JSON; use None, bool, int, float, str, list or dict"
            )
    return "a node holds a value that is not JSON"
