# SPDX-License-Identifier: Apache-2.0
"""`treadle compile --check`: what was written, held against its network."""

from __future__ import annotations

import sys
from pathlib import Path

from treadle.build.loaded import Runnable
from treadle.cli.compare import compare_outputs
from treadle.cli.inputs import chosen_shapes, filled_inputs, shapes_text
from treadle.cli.text import console, print_row
from treadle.errors import InputError


def check(compiled: Runnable, model: Path, output: Path) -> int:
    """Compare a model that was written with its network; return 1 where an output departs."""
    code = 0
    for shapes in chosen_shapes(compiled):
        if shapes:
            print_row(console(), "sizes", shapes_text(shapes))
        try:
            inputs = filled_inputs(compiled, "random", shapes)
            code |= compare_outputs(model, compiled, inputs, output)
        except InputError as error:
            raise InputError(
                f"the model is compiled, but not checked: {error.problem}",
                hint=f"give sizes it runs at: treadle compare {model} {output} "
                f'--input-shapes "{shapes_text(shapes)}"',
            ) from None
    if code:
        print(f"  note  {output} is kept, to be looked at", file=sys.stderr)
    return code
