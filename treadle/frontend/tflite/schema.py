# SPDX-License-Identifier: Apache-2.0
"""What the schema of TFLite numbers: operators, element types, and the fields of their options.

Source: tensorflow/lite/schema/schema.fbs, version 3. Fields are listed in the order that numbers
them; `tests/frontend/tflite/test_schema.py` compares all of it with the package `tflite`.
"""

from __future__ import annotations

from typing import NamedTuple

_OPERATOR_NAMES = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1
RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM
CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM
CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE
SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW
ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK
REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR
LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS
WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG
REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL
BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD
UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR
RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY
STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL
STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL
STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER
STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL
STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE
DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT
STABLEHLO_CBRT
"""

OPERATORS = tuple(_OPERATOR_NAMES.split())
"""The names of the operators by number."""

PLACEHOLDER = OPERATORS.index("PLACEHOLDER_FOR_GREATER_OP_CODES")
"""What the one byte that old files number operators with holds where it has no room."""

CUSTOM = OPERATORS.index("CUSTOM")

ELEMENT_TYPES: tuple[str, ...] = (
    *("float32", "float16", "int32", "uint8", "int64", "STRING", "bool", "int16", "COMPLEX64"),
    *("int8", "float64", "COMPLEX128", "uint64", "RESOURCE", "VARIANT", "uint32", "uint16"),
    *("INT4", "bfloat16"),
)
"""Element types by number; capitals name those that Treadle's graphs do not have."""

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
"""Functions that some operators apply to their result, by number."""

PADDINGS = ("SAME", "VALID")


class OptionField(NamedTuple):
    """A field of a table: its place, its type (a vector's in brackets) and what absence means."""

    place: int
    kind: str
    default: int | float


def _fields(text: str) -> dict[str, OptionField]:
    made = {}
    for index, entry in enumerate(text.split()):
        name, _, rest = entry.partition(":")
        kind, _, default = rest.partition("=")
        made[name] = OptionField(index, kind, int(default or 0))
    return made


_ACTIVATED = "fused_activation_function:int8"
_DYNAMIC = "asymmetric_quantize_inputs:bool"
_CLIPPED = f"{_ACTIVATED} cell_clip:float32 proj_clip:float32"

OPTIONS: dict[str, tuple[int, dict[str, OptionField]]] = {
    name: (number, _fields(text))
    for name, number, text in (
        (
            "Conv2DOptions",
            1,
            f"padding:int8 stride_w:int32 stride_h:int32 {_ACTIVATED} dilation_w_factor:int32=1 "
            "dilation_h_factor:int32=1",
        ),
        (
            "DepthwiseConv2DOptions",
            2,
            f"padding:int8 stride_w:int32 stride_h:int32 depth_multiplier:int32 {_ACTIVATED} "
            "dilation_w_factor:int32=1 dilation_h_factor:int32=1",
        ),
        (
            "Pool2DOptions",
            5,
            "padding:int8 stride_w:int32 stride_h:int32 filter_width:int32 filter_height:int32 "
            f"{_ACTIVATED}",
        ),
        ("SVDFOptions", 6, f"rank:int32 {_ACTIVATED} {_DYNAMIC}"),
        ("RNNOptions", 7, f"{_ACTIVATED} {_DYNAMIC}"),
        (
            "FullyConnectedOptions",
            8,
            f"{_ACTIVATED} weights_format:int8 keep_num_dims:bool {_DYNAMIC}",
        ),
        ("SoftmaxOptions", 9, "beta:float32"),
        ("ConcatenationOptions", 10, f"axis:int32 {_ACTIVATED}"),
        ("AddOptions", 11, f"{_ACTIVATED} pot_scale_int16:bool=1"),
        ("L2NormOptions", 12, _ACTIVATED),
        (
            "LocalResponseNormalizationOptions",
            13,
            "radius:int32 bias:float32 alpha:float32 beta:float32",
        ),
        ("LSTMOptions", 14, f"{_CLIPPED} kernel_type:int8 {_DYNAMIC}"),
        (
            "ResizeBilinearOptions",
            15,
            "new_height:int32 new_width:int32 align_corners:bool half_pixel_centers:bool",
        ),
        ("CallOptions", 16, "subgraph:uint32"),
        ("ReshapeOptions", 17, "new_shape:[int32]"),
        ("SpaceToDepthOptions", 19, "block_size:int32"),
        ("MulOptions", 21, _ACTIVATED),
        ("GatherOptions", 23, "axis:int32 batch_dims:int32"),
        ("ReducerOptions", 27, "keep_dims:bool"),
        ("SubOptions", 28, f"{_ACTIVATED} pot_scale_int16:bool=1"),
        ("DivOptions", 29, _ACTIVATED),
        ("SqueezeOptions", 30, "squeeze_dims:[int32]"),
        ("SequenceRNNOptions", 31, f"time_major:bool {_ACTIVATED} {_DYNAMIC}"),
        (
            "StridedSliceOptions",
            32,
            "begin_mask:int32 end_mask:int32 ellipsis_mask:int32 new_axis_mask:int32 "
            "shrink_axis_mask:int32 offset:bool",
        ),
        ("SplitOptions", 35, "num_splits:int32"),
        ("CastOptions", 37, "in_data_type:int8 out_data_type:int8"),
        ("ArgMaxOptions", 40, "output_type:int8"),
        ("TransposeConvOptions", 49, f"padding:int8 stride_w:int32 stride_h:int32 {_ACTIVATED}"),
        ("SparseToDenseOptions", 50, "validate_indices:bool"),
        ("ShapeOptions", 55, "out_type:int8"),
        ("ArgMinOptions", 57, "output_type:int8"),
        (
            "FakeQuantOptions",
            58,
            "min:float32 max:float32 num_bits:int32 narrow_range:bool",
        ),
        ("PackOptions", 59, "values_count:int32 axis:int32"),
        ("OneHotOptions", 61, "axis:int32"),
        ("UnpackOptions", 64, "num:int32 axis:int32"),
        (
            "BidirectionalSequenceLSTMOptions",
            69,
            f"{_CLIPPED} merge_outputs:bool time_major:bool=1 {_DYNAMIC}",
        ),
        (
            "BidirectionalSequenceRNNOptions",
            70,
            f"time_major:bool {_ACTIVATED} merge_outputs:bool {_DYNAMIC}",
        ),
        (
            "UnidirectionalSequenceLSTMOptions",
            71,
            f"{_CLIPPED} time_major:bool {_DYNAMIC} diagonal_recurrent_tensors:bool",
        ),
        ("ResizeNearestNeighborOptions", 74, "align_corners:bool half_pixel_centers:bool"),
        ("LeakyReluOptions", 75, "alpha:float32"),
        ("MirrorPadOptions", 77, "mode:int8"),
        ("SplitVOptions", 79, "num_splits:int32"),
        ("UniqueOptions", 80, "idx_out_type:int8=2"),
        ("ReverseSequenceOptions", 87, "seq_dim:int32 batch_dim:int32"),
        ("IfOptions", 92, "then_subgraph_index:int32 else_subgraph_index:int32"),
        ("WhileOptions", 93, "cond_subgraph_index:int32 body_subgraph_index:int32"),
        ("DepthToSpaceOptions", 94, "block_size:int32"),
        ("BatchMatMulOptions", 101, f"adj_x:bool adj_y:bool {_DYNAMIC}"),
        ("CumsumOptions", 102, "exclusive:bool reverse:bool"),
        ("CallOnceOptions", 103, "init_subgraph_index:int32"),
        (
            "Conv3DOptions",
            106,
            f"padding:int8 stride_d:int32 stride_w:int32 stride_h:int32 {_ACTIVATED} "
            "dilation_d_factor:int32=1 dilation_w_factor:int32=1 dilation_h_factor:int32=1",
        ),
        ("GeluOptions", 116, "approximate:bool"),
    )
}
"""Tables of options that converters read: their number in the union, and their fields."""


_OWNERS = {
    "Conv2DOptions": "CONV_2D",
    "DepthwiseConv2DOptions": "DEPTHWISE_CONV_2D",
    "Pool2DOptions": "AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D",
    "SVDFOptions": "SVDF",
    "RNNOptions": "RNN",
    "FullyConnectedOptions": "FULLY_CONNECTED",
    "SoftmaxOptions": "SOFTMAX",
    "ConcatenationOptions": "CONCATENATION",
    "AddOptions": "ADD",
    "L2NormOptions": "L2_NORMALIZATION",
    "LocalResponseNormalizationOptions": "LOCAL_RESPONSE_NORMALIZATION",
    "LSTMOptions": "LSTM",
    "ResizeBilinearOptions": "RESIZE_BILINEAR",
    "CallOptions": "CALL",
    "ReshapeOptions": "RESHAPE",
    "SpaceToDepthOptions": "SPACE_TO_DEPTH",
    "MulOptions": "MUL",
    "GatherOptions": "GATHER",
    "ReducerOptions": "MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL",
    "SubOptions": "SUB",
    "DivOptions": "DIV",
    "SqueezeOptions": "SQUEEZE",
    "SequenceRNNOptions": "UNIDIRECTIONAL_SEQUENCE_RNN",
    "StridedSliceOptions": "STRIDED_SLICE",
    "SplitOptions": "SPLIT",
    "CastOptions": "CAST",
    "ArgMaxOptions": "ARG_MAX",
    "TransposeConvOptions": "TRANSPOSE_CONV",
    "SparseToDenseOptions": "SPARSE_TO_DENSE",
    "ShapeOptions": "SHAPE",
    "ArgMinOptions": "ARG_MIN",
    "FakeQuantOptions": "FAKE_QUANT",
    "PackOptions": "PACK",
    "OneHotOptions": "ONE_HOT",
    "UnpackOptions": "UNPACK",
    "BidirectionalSequenceLSTMOptions": "BIDIRECTIONAL_SEQUENCE_LSTM",
    "BidirectionalSequenceRNNOptions": "BIDIRECTIONAL_SEQUENCE_RNN",
    "UnidirectionalSequenceLSTMOptions": "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "ResizeNearestNeighborOptions": "RESIZE_NEAREST_NEIGHBOR",
    "LeakyReluOptions": "LEAKY_RELU",
    "MirrorPadOptions": "MIRROR_PAD",
    "SplitVOptions": "SPLIT_V",
    "UniqueOptions": "UNIQUE",
    "ReverseSequenceOptions": "REVERSE_SEQUENCE",
    "IfOptions": "IF",
    "WhileOptions": "WHILE",
    "DepthToSpaceOptions": "DEPTH_TO_SPACE",
    "BatchMatMulOptions": "BATCH_MATMUL",
    "CumsumOptions": "CUMSUM",
    "CallOnceOptions": "CALL_ONCE",
    "Conv3DOptions": "CONV_3D CONV_3D_TRANSPOSE",
    "GeluOptions": "GELU",
}
"""The operators that have a table of options."""

_OPTIONS_OF = {op: OPTIONS[name] for name, ops in _OWNERS.items() for op in ops.split()}


def options_of(op: str) -> tuple[int, dict[str, OptionField]]:
    """Return the number and the fields of an operator's options; 0 where it has none to read."""
    return _OPTIONS_OF.get(op, (0, {}))
