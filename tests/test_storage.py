"""Files that two write at once, that another holds, and that are not what they claim to be."""

import io
import os
import signal
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest

from sbl_ppl import storage
from sbl_ppl.storage import Archive, locked, reading, written_beside


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    """The one that ends last stands there in full, whoever began."""
    path = tmp_path / "file"
    with written_beside(path) as first:
        first.write_text("first")
        with written_beside(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_new_file_takes_no_place_that_is_taken(links, tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError("no hard links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "file"
    with written_beside(path, new=True) as part:
        part.write_text("old")
    with pytest.raises(FileExistsError), written_beside(path, new=True) as part:
        part.write_text("new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("system", [True, False], ids=["flock", "file beside"])
def test_a_lock_is_held_by_one_and_given_back(system, tmp_path, monkeypatch):
    if not system:
        monkeypatch.setattr(storage, "fcntl", None)
    path = tmp_path / "run.json"
    path.touch()
    with locked(path):
        with pytest.raises(ValueError, match=rf"{tmp_path} is in use by another process or thread: wait"), locked(path):
            pass
        with pytest.raises(ValueError, match="in use"), locked(path):  # the first refusal has not freed it
            pass
    with pytest.raises(KeyError), locked(path):
        raise KeyError
    with locked(path):
        pass
    assert os.listdir(tmp_path) == ["run.json"]


@pytest.mark.skipif(storage.fcntl is None, reason="the system has no locks that end with a process")
def test_a_killed_process_leaves_no_lock(tmp_path):
    path = tmp_path / "run.json"
    path.touch()
    code = (
        "import sys, time, pathlib; from sbl_ppl.storage import locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match="in use"), locked(path):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with locked(path):
        pass


def archive(**members):
    """An .npz whose members are arrays, or bytes as they are."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        for name, value in members.items():
            if not isinstance(value, bytes):
                content = io.BytesIO()
                np.save(content, value)
                value = content.getvalue()
            target.writestr(f"{name}.npy", value)
    return Archive(file)


def header(shape, descr="<f8"):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"shape": shape, "fortran_order": False, "descr": descr})
    return content.getvalue()


def test_an_array_comes_back_as_it_was():
    values = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(archive(a=values).array("a", float, (2, None)), values)
    np.testing.assert_array_equal(archive(a=values.T).array("a", float, (1,), (3, 2)), values.T)
    assert archive(a=np.arange(3, dtype=np.int32)).array("a", np.int64, (3,)).dtype == np.int64


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(4), r"'a' has shape \(4,\), not \(3,\)"),
        (np.zeros((3, 1)), r"'a' has shape \(3, 1\)"),
        (np.zeros(3, dtype=np.complex128), "'a' holds complex128, not float64"),
        (np.zeros(3, dtype=np.int64), "'a' holds int64, not float64"),
        (np.array([0.0, np.nan, 1.0]), "'a' holds NaN or infinite values"),
        (np.array([0.0, np.inf, 1.0]), "'a' holds NaN or infinite values"),
        (header((3,), "|O") + b"cos\nsystem\n", "'a' holds object"),
        (header((3,)), "'a' is not of the length"),
        (header((3,)) + bytes(32), "'a' is not of the length"),
    ],
)
def test_an_array_that_is_not_what_was_asked_for(value, message):
    with pytest.raises(ValueError, match=message):
        archive(a=value).array("a", float, (3,))


def test_nothing_is_unpacked_that_is_not_asked_for():
    """64 MB of zeros shrink to a thousandth; neither as a stranger nor under a wrong shape do they grow again."""
    stored = archive(a=np.zeros(3), b=np.zeros(8_000_000))
    tracemalloc.start()
    stored.array("a", float, (3,))
    with pytest.raises(ValueError, match="'b' has shape"):
        stored.array("b", float, (3,))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("error", [KeyError("scale"), zipfile.BadZipFile("no zip"), RecursionError("deep")])
def test_whatever_fails_is_one_error_with_the_name_of_the_file(error, tmp_path):
    path = tmp_path / "some.npz"
    path.touch()
    said = r"some\.npz cannot be read as a fit: \w+: .*(scale|no zip|deep)"
    with pytest.raises(ValueError, match=said), reading(path, "a fit"):
        raise error
    with pytest.raises(FileNotFoundError), reading(tmp_path / "none.npz", "a fit"):
        pass
