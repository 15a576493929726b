"""A value as a map: YAML first, which most JSON is as well, then JSON."""

from __future__ import annotations

from typing import Any, Final

import yaml

from eso_sdk.errors import backend_error
from eso_sdk.extract import NotAnObjectError, json_map

_NULL: Final = "tag:yaml.org,2002:null"
_BINARY: Final = "tag:yaml.org,2002:binary"
_MAX_BYTES: Final = 1024 * 1024


def members_in(raw: bytes, key: str) -> dict[str, bytes]:
    """Return the members of a mapping.

    A text, a number or a truth value is what is written, null is empty, a mapping or a list is YAML.
    """
    try:
        return _yaml_members(raw)
    except (yaml.YAMLError, NotAnObjectError, UnicodeDecodeError, ValueError, RecursionError):
        # Errors of the parser quote the value.
        pass
    try:
        return json_map(raw)
    except NotAnObjectError:
        raise backend_error(
            f'the value of "{key}" is neither a YAML mapping nor a JSON object; read it as a single value instead'
        ) from None


def _yaml_members(raw: bytes) -> dict[str, bytes]:
    if len(raw) > _MAX_BYTES:
        raise NotAnObjectError("the value is too large for YAML")
    root = yaml.compose(raw.decode(), Loader=yaml.CSafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise NotAnObjectError("the value is not a mapping")
    if any(not isinstance(name, yaml.ScalarNode) for name, _ in root.value):
        raise NotAnObjectError("a name is not a text")
    return {name.value: _member(node) for name, node in root.value}


def _member(node: Any) -> bytes:
    if isinstance(node, yaml.ScalarNode):
        if node.tag == _BINARY:
            decoded: bytes = _constructed(node)
            return decoded
        return b"" if node.tag == _NULL else str(node.value).encode()
    text: str = yaml.dump(_constructed(node), Dumper=yaml.CSafeDumper, default_flow_style=False, allow_unicode=True)
    return text.strip().encode()


def _constructed(node: Any) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()
