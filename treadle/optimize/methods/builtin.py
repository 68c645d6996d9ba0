# SPDX-License-Identifier: Apache-2.0
"""The methods of this package. They are asked in this order: of equal estimates the first wins."""

from __future__ import annotations

from typing import Any

from treadle.optimize.methods.conv_depthwise import conv_depthwise
from treadle.optimize.methods.conv_direct import conv_direct
from treadle.optimize.methods.conv_grouped import conv_grouped
from treadle.optimize.methods.conv_lane_groups import conv_lane_groups
from treadle.optimize.methods.conv_plain import conv_plain
from treadle.optimize.methods.conv_scaled import conv_scaled
from treadle.optimize.methods.conv_small import conv_bytes, conv_pairs
from treadle.optimize.methods.conv_strassen import conv_strassen
from treadle.optimize.methods.conv_winograd import conv_winograd
from treadle.optimize.methods.method import METHODS, Method
from treadle.optimize.methods.product_panels import product_panels
from treadle.optimize.methods.product_plain import product_plain
from treadle.optimize.methods.product_small import product_bytes, product_pairs
from treadle.optimize.methods.product_strassen import product_strassen
from treadle.optimize.methods.product_widened import product_widened
from treadle.optimize.methods.staged import conv_in_tiles, product_in_tiles
from treadle.optimize.methods.transposed_by_phase import transposed_by_phase
from treadle.optimize.methods.transposed_phases import transposed_phases
from treadle.optimize.methods.transposed_plain import transposed_plain

BUILT_IN: tuple[Method[Any], ...] = (
    *(conv_bytes, conv_pairs, conv_depthwise, conv_scaled, conv_direct),
    *(conv_lane_groups, conv_grouped),
    *(*conv_winograd, conv_strassen, conv_in_tiles, conv_plain),
    *(transposed_phases, transposed_by_phase, transposed_plain),
    *(
        product_bytes,
        product_pairs,
        product_panels,
        product_widened,
        *product_strassen,
        product_in_tiles,
        product_plain,
    ),
)

for method in BUILT_IN:
    METHODS.register(method)
