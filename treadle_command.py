# SPDX-License-Identifier: Apache-2.0
"""The entry of the command `treadle`: says "interrupted" while the compiler is being imported.

It stands beside the package, whose import it watches over, and imports nothing else.
"""

import gc
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End the process at once: nothing has begun that would have to be cleaned up."""
    os.write(2, b"\ninterrupted\n")
    os._exit(_INTERRUPTED)


def main() -> int:
    """Import the command line and run it; return the exit code."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    gc.disable()  # what modules are made of is never let go of: nobody need look through it
    from treadle.settings import let_blas_sleep

    let_blas_sleep()
    from treadle.cli.main import load
    from treadle.cli.main import main as run

    load(sys.argv[1:])
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGINT, before)
    return run()


if __name__ == "__main__":
    sys.exit(main())
