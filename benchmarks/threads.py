# SPDX-License-Identifier: Apache-2.0
"""Measures what a parallel loop of the native runtime costs (medians on this machine).

python -m benchmarks.threads [--json PATH]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from treadle.runtime import native, native_build

_ROOT = Path(__file__).resolve().parent.parent


def build(folder: Path) -> Path:
    """Compile the measuring program against the native runtime."""
    compilers = native_build.find_compilers()
    if not compilers:
        raise SystemExit("no C compiler is found")
    library = native.find_library()
    program = folder / "threads"
    source = _ROOT / "benchmarks" / "threads.c"
    include = f"-I{_ROOT / 'native' / 'include'}"
    link = [str(library), f"-Wl,-rpath,{library.parent}"]
    command = [*compilers[0], "-std=c11", "-O2", include, str(source), "-o", str(program), *link]
    subprocess.run(command, check=True, timeout=300)
    return program


def measure() -> dict[str, int]:
    """Return the median of every case in nanoseconds, and the number of threads."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(build(Path(folder)))], capture_output=True, text=True, timeout=300, check=True
        )
    rows = (line.split() for line in done.stdout.splitlines())
    return {name: int(value) for name, value in rows}


def main() -> int:
    """Print the table, write JSON if asked to; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    results = measure()
    print(f"{results.pop('threads')} threads, median")
    results.pop("warm_up")
    for name, nanoseconds in results.items():
        print(f"  {name.replace('_', ' '):28} {nanoseconds / 1e3:10.2f} us")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
