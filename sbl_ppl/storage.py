"""Files that are there in full, or not at all, and that are looked at before they are believed.

A file is written beside its place, pushed to the disk, and moved (`written_beside`). What is read may be damaged, or
something else: `reading` turns whatever goes wrong into one error that names the file, and `Archive` judges an array by
its header before it unpacks it. `locked` keeps two processes from writing to one place.
"""

from __future__ import annotations

import json
import math
import os
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Array = np.ndarray


@contextmanager
def written_beside(path: Path, new: bool = False) -> Iterator[Path]:
    """Where to write what is to be `path`; it takes that place when the block ends, and leaves no trace if it fails.

    With `new` a file that is there already is not replaced: FileExistsError.
    """
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.part")  # one for each thread that writes
    try:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        if new:
            _move_to_free_place(part, path)
        else:
            os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _move_to_free_place(part: Path, path: Path) -> None:
    try:
        os.link(part, path)  # unlike a rename it fails if there is a file
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(f"{path} exists already") from None
        os.replace(part, path)
    else:
        part.unlink()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file, and with it its folder, against other processes and threads; ValueError if one of them holds it.

    The system forgets the lock of a process, however that ends. Where it has no such locks a file beside stands for
    one, which a killed process leaves behind.
    """
    with open(path, "rb") as file:
        sign = path.with_name(f"{path.name}.lock")
        try:
            held = _flock(file)
            if not held:
                os.close(os.open(sign, os.O_CREAT | os.O_EXCL))
        except (BlockingIOError, FileExistsError) as error:
            left = f"; if it was killed, delete {sign}" if isinstance(error, FileExistsError) else ""
            raise ValueError(
                f"{path.parent} is in use by another process or thread: wait for its end{left}, or use another folder"
            ) from None
        try:
            yield
        finally:
            if held:
                fcntl.flock(file, fcntl.LOCK_UN)  # also for a process that was forked meanwhile
            else:
                sign.unlink(missing_ok=True)


def _flock(file: IO[bytes]) -> bool:
    """Whether the system has locked the file; BlockingIOError if it did so for another."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a network file system without locks
        return False
    return True


@contextmanager
def reading(path: Path, what: str) -> Iterator[IO[bytes]]:
    """An open file; what fails inside the block becomes one ValueError that names it. A missing one is an OSError."""
    with open(path, "rb") as file:
        try:
            yield file
        except MemoryError:
            raise
        except Exception as error:
            said = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
            raise ValueError(f"{path} cannot be read as {what}: {said}") from error


class Archive:
    """Arrays of an .npz file; each is judged by its header before it is unpacked, and none is a pickle."""

    def __init__(self, file: IO[bytes]):
        self._zip = zipfile.ZipFile(file)

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self._zip.NameToInfo

    def array(self, name: str, dtype: Any, *shapes: tuple[int | None, ...], finite: bool = True) -> Array:
        """A member of the given dtype, or one that fits into it, and of one of the shapes, with None for any length."""
        if name not in self:
            raise ValueError(f"it has no {name!r}")
        with self._zip.open(f"{name}.npy") as file:
            shape, found = _header(file)
            size = file.tell() + math.prod(shape) * found.itemsize
        wanted = np.dtype(dtype)
        if found.kind != wanted.kind or not np.can_cast(found, wanted):
            raise ValueError(f"{name!r} holds {found}, not {wanted}")
        if not any(_agree(shape, each) for each in shapes):
            raise ValueError(f"{name!r} has shape {shape}, not {' or '.join(map(str, shapes))}")
        if size != self._zip.getinfo(f"{name}.npy").file_size:
            raise ValueError(f"{name!r} is not of the length that its shape {shape} needs")
        with self._zip.open(f"{name}.npy") as file:
            values = np.lib.format.read_array(file, allow_pickle=False).astype(wanted, copy=False)
        if finite and wanted.kind == "f" and not np.isfinite(values).all():
            raise ValueError(f"{name!r} holds NaN or infinite values")
        return values

    def record(self, kind: str, version: int) -> dict[str, Any]:
        """The JSON of the member "meta", which says of what kind and format the file is."""
        record = json.loads(str(self.array("meta", np.str_, ())))
        found = record.get("kind", "MapFit")
        if found != kind:
            raise ValueError(f"it holds a {found}")
        if record["format"] != version:
            raise ValueError(
                f"it has format {record['format']}, this version reads {version}: use the version that wrote it"
            )
        return record


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _agree(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(w in (None, n) for n, w in zip(shape, wanted, strict=True))
