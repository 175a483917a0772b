"""Run the benchmarks and write docs/benchmarks.md: `make bench`, or `python examples/benchmarks/run.py --only table1`.

Each part is a module beside this one with `run(quick) -> str`, a Markdown section. Sections stand between comment
markers, so that one part can be run again without touching the others. BLAS gets one thread: the matrices are small,
and results do not depend on the machine's number of cores.
"""

import argparse
import importlib
import os
import re
from pathlib import Path

PARTS = ("table1", "blocks_sinc", "tipping", "speed", "denoising", "gradient", "mixing", "coverage")

OUTPUT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"

HEADER = """# Benchmarks

What the papers print, and what this package gives on the same problems. Everything on this page is written by
`make bench`; `make bench ARGS="--only table1"` renews one section. Seeds are 0, 1, 2, ..., none left out.

SE07 is Schmolck & Everson (2007), *Smooth relevance vector machine*; T01 is Tipping (2001), *Sparse Bayesian learning
and the relevance vector machine*. S is the number of columns kept, MSE the mean squared error against the noise-free
signal.
"""


def sections_of(text: str) -> dict[str, str]:
    """The sections of an earlier run, by the name of their part."""
    return dict(re.findall(r"<!-- begin (\w+) -->\n(.*?)\n<!-- end \1 -->", text, re.DOTALL))


def assemble(sections: dict[str, str]) -> str:
    parts = [f"<!-- begin {name} -->\n{sections[name]}\n<!-- end {name} -->\n" for name in PARTS if name in sections]
    return "\n".join([HEADER, *parts])


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare with the papers and with other packages.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs; writes no file")
    parser.add_argument("--output", type=Path, help=f"default {OUTPUT.name} in docs; none with --quick")
    choice = parser.parse_args()
    output = choice.output or (None if choice.quick else OUTPUT)

    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    from threadpoolctl import threadpool_limits

    sections = sections_of(output.read_text()) if output and output.exists() else {}
    for name in choice.only:
        print(f"{name} ...", flush=True)
        with threadpool_limits(1):
            sections[name] = importlib.import_module(name).run(choice.quick).strip()
        if output:  # after every part, so that an interrupted run keeps what it has
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(assemble(sections))
            print(f"{name} written to {output}", flush=True)
        else:
            print(sections[name], flush=True)


if __name__ == "__main__":
    main()
