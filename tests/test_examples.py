"""The examples run, at a small size, and leave the pictures that they promise."""

import importlib.util
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(script, *arguments, folder, options=("-W", "error")):
    """Run an example as a user would, but with warnings as errors, and return what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, *options, str(EXAMPLES / script), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_picture(path):
    """A PNG of a size that can be read, and not blank: a white one of 500 x 300 takes some 2 kB."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert width >= 500
    assert height >= 300
    assert 10_000 < len(content) < 300_000


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo as it is, with progress, warnings as errors: its chains must mix."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, run("demo.py", folder=folder)


@pytest.mark.slow
def test_demo(demo):
    folder, printed = demo
    assert_picture(folder / "demo.png")
    assert_picture(folder / "demo_posterior.png")
    assert printed.count("MapFit: ") == 1
    error = float(printed.split("Mean squared error against the noise-free signal: ")[1].split()[0])
    assert error < 0.0131  # that of the best fit without splines
    assert printed.rstrip().endswith("demo_posterior.png")


@pytest.mark.slow
def test_demo_shows_what_the_point_estimate_hid(demo):
    """The truth lies in the posterior's band more often; how often is in the README, this is its order only."""
    line = next(line for line in demo[1].splitlines() if line.startswith("truth in 95 % band"))
    delta, posterior = (float(share.strip("%")) for share in line.split()[-2:])
    assert delta < posterior < 100
    assert "Observations that were held out favour" in demo[1]


def test_demo_saves_where_it_is_told(tmp_path):
    printed = run("demo.py", "--output", "other.png", "--draws", 20, folder=tmp_path, options=())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.png", "other_posterior.png"]
    assert "other_posterior.png" in printed


def test_figures(tmp_path):
    printed = run("figures.py", "--quick", "--output", "pictures", folder=tmp_path)
    names = [f"fig{number}.png" for number in (1, 3, 5, 6, 7, 8)]
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == names
    for name in names:
        assert_picture(tmp_path / "pictures" / name)
        assert name in printed


@pytest.mark.slow
def test_atlas(tmp_path):
    printed = run("atlas.py", "--quick", "--output", tmp_path, folder=tmp_path)
    names = [f"atlas_{name}.png" for name in ("curves", "heights", "map", "supports")]
    assert sorted(path.name for path in tmp_path.glob("*.png")) == names
    for name in names:
        assert_picture(tmp_path / name)
    assert "maxima" in printed


@pytest.mark.slow
def test_choose_kernel(tmp_path):
    printed = run("choose_kernel.py", "--quick", "--output", "choice.png", folder=tmp_path)
    assert_picture(tmp_path / "choice.png")
    assert "±" in printed


def test_only_the_figures_asked_for(tmp_path):
    run("figures.py", "--quick", "--only", "6", "--output", tmp_path, folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["fig6.png"]


BENCHMARKS = dict.fromkeys(("table1", "blocks_sinc", "tipping", "gradient", "mixing"))
BENCHMARKS |= {"speed": "fastrvm", "denoising": "skimage"}


@pytest.mark.slow
@pytest.mark.parametrize(("part", "peer"), BENCHMARKS.items(), ids=BENCHMARKS)
def test_benchmarks(part, peer, tmp_path):
    """The packages compared with are allowed to warn."""
    if peer and importlib.util.find_spec(peer) is None:
        pytest.skip(f"{peer} comes with the bench extra, as make bench installs it")
    page = tmp_path / "benchmarks.md"
    run("benchmarks/run.py", "--quick", "--only", part, "--output", page, folder=tmp_path, options=())
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Benchmarks")
    assert "|---" in text.replace(" ", "")
