"""Parquet and Arrow files, as pyarrow reads them: by batches of records."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Formats of pyarrow by the end of a file's name.
FORMATS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc"}


def names(file: Path) -> list[str]:
    """The names of the columns."""
    return list(_dataset(file).schema.names)


def batches(file: Path, size: int) -> Iterator[dict[str, list[Any]]]:
    """The columns, of `size` records at most at a time."""
    dataset, count = _dataset(file), 0
    for batch in dataset.to_batches(batch_size=size):
        count += 1
        yield batch.to_pydict()
    if not count:
        yield {name: [] for name in dataset.schema.names}


def _dataset(file: Path) -> Any:
    from jaxdp._core import checks  # imports JAX, which help does without

    pyarrow = checks.extra("pyarrow.dataset", "parquet")
    if not file.is_file():
        raise FileNotFoundError(f"No such file: {str(file)!r}")
    try:
        return pyarrow.dataset(file, format=FORMATS[file.suffix.lower()])
    except Exception:
        # Its message may show what the file holds.
        raise ValueError(f"{file} must be a {file.suffix[1:]} file, as its name says") from None
