"""Files of a store: written whole or not at all, and records that tell whether they are whole."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# The digest's key in a record.
_DIGEST = "sha256"


def write_file(path: Path, content: bytes) -> None:
    """Beside it and moved: a reader sees all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """JSON, with a digest of itself in it."""
    write_file(path, json.dumps({**content, _DIGEST: _digest_of(content)}).encode())


def read_record(path: Path) -> dict[str, Any]:
    """The record that `write_record` wrote; `ValueError` where the file is not one."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {path}") from error
    if not isinstance(content, dict) or content.pop(_DIGEST, None) != _digest_of(content):
        raise ValueError(f"its digest is another: {path}")
    return content


def digest(content: bytes) -> str:
    """SHA-256. A chunk that ends in its own CRC has the same CRC as any other such chunk."""
    return hashlib.sha256(content).hexdigest()


def _digest_of(content: Mapping[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True).encode())
