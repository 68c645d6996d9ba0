# SPDX-License-Identifier: Apache-2.0
"""Operators that only passes make: the forms in which methods compute a user's operators.

They work on layouts that a pass has chosen (blocks of channels, panels of columns), on packed
weights, or on parts of an algorithm (the sums of Strassen's, the phases of a transposed
convolution). None of them stands in a user's model.
"""

from treadle.ops.lowered.channel_blocks import (
    pack_nchwc,
    reorder_nchwc,
    splice_nchwc,
    unpack_nchwc,
)
from treadle.ops.lowered.conv_grouped import grouped_conv2d_nchwc
from treadle.ops.lowered.conv_lane_groups import lane_groups_conv2d_nchwc
from treadle.ops.lowered.conv_nchwc import conv2d_nchwc, depthwise_conv2d_nchwc
from treadle.ops.lowered.conv_phased import phased_conv_nchwc
from treadle.ops.lowered.conv_strassen import conv2d_strassen_nchwc, strassen_blocks_nchwc
from treadle.ops.lowered.conv_winograd import conv2d_winograd_nchwc
from treadle.ops.lowered.conv_winograd_dynamic import conv2d_winograd_dynamic_nchwc
from treadle.ops.lowered.dense_packed import dense_packed
from treadle.ops.lowered.dot import conv_dot, dense_dot
from treadle.ops.lowered.gather_packed import gather_packed
from treadle.ops.lowered.interleave_phases import interleave_phases
from treadle.ops.lowered.layer_norm_nchwc import layer_norm_nchwc
from treadle.ops.lowered.matmul_blocks import dense_blocks
from treadle.ops.lowered.matmul_strassen import dense_strassen, strassen_blocks
from treadle.ops.lowered.staged import conv_staged, matmul_staged

LOWERED = frozenset(
    {
        conv2d_nchwc,
        conv2d_strassen_nchwc,
        conv2d_winograd_dynamic_nchwc,
        conv2d_winograd_nchwc,
        conv_dot,
        conv_staged,
        dense_blocks,
        dense_dot,
        dense_packed,
        dense_strassen,
        depthwise_conv2d_nchwc,
        gather_packed,
        grouped_conv2d_nchwc,
        interleave_phases,
        lane_groups_conv2d_nchwc,
        layer_norm_nchwc,
        matmul_staged,
        pack_nchwc,
        phased_conv_nchwc,
        reorder_nchwc,
        splice_nchwc,
        strassen_blocks,
        strassen_blocks_nchwc,
        unpack_nchwc,
    }
)
