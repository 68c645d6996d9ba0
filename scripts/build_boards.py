# SPDX-License-Identifier: Apache-2.0
"""Builds runtime and RPC server for boards into treadle/_native/boards/, where a wheel takes them.

python scripts/build_boards.py x86_64-linux-gnu.2.17 aarch64-linux-gnu.2.17
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(machines: list[str]) -> int:
    """Build for each machine, a triple with or without a version of glibc; return the exit code."""
    sys.path.insert(0, str(ROOT))  # the package is not installed while it is built
    from treadle.errors import TreadleError
    from treadle.runtime.native_package import build_for_board

    try:
        for machine in machines:
            print(f"built  {build_for_board(ROOT / 'treadle' / '_native' / 'boards', machine)}")
    except TreadleError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
