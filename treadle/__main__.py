# SPDX-License-Identifier: Apache-2.0
"""`python -m treadle` is the command `treadle`."""

import sys

from treadle.settings import let_blas_sleep

if __name__ == "__main__":
    let_blas_sleep()
    from treadle.cli.main import main

    sys.exit(main())
