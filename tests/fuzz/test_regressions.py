# SPDX-License-Identifier: Apache-2.0
"""What random graphs once found, as small as it became."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.fuzz.check import check_graph, departure
from tests.fuzz.graph import Graph
from treadle.build.compile import compile_model
from treadle.errors import InputError
from treadle.frontend.onnx.importer import import_onnx

_NUMBERS = np.random.default_rng(0)


def _floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (_NUMBERS.random(shape) - 0.5).astype(dtype)


def _node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, output.split(), name=op.lower(), **attributes)


def _check(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, np.ndarray],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 17,
) -> None:
    graph = Graph(opset, nodes, inputs, constants or {}, [nodes[-1].output[0]])
    finding = check_graph(graph)
    assert finding is None, str(finding)


_IMAGE, _KERNEL = {"x": _floats(1, 16, 9, 9)}, {"w": _floats(16, 16, 1, 1)}


@pytest.mark.parametrize(
    ("head", "inputs", "constants"),
    [
        (_node("Conv", "x w", "c"), _IMAGE, _KERNEL),
        (_node("Conv", "x w", "c", group=16), _IMAGE, {"w": _floats(16, 1, 3, 3)}),
        (
            _node("Conv", "x w", "c", group=3),
            {"x": _floats(1, 9, 9, 9)},
            {"w": _floats(9, 3, 3, 3)},
        ),
        (_node("MatMul", "x w", "c"), {"x": _floats(5, 20)}, {"w": _floats(20, 33)}),
        (_node("MatMul", "x w", "c"), {"x": _floats(2, 5, 20), "w": _floats(2, 20, 9)}, {}),
        (_node("AveragePool", "x", "c", kernel_shape=[2, 2]), _IMAGE, {}),
        (_node("MaxPool", "x", "c", kernel_shape=[2, 2]), _IMAGE, {}),
    ],
    ids=lambda v: v.op_type if isinstance(v, onnx.NodeProto) else None,
)
def test_a_costly_element_of_the_tail_is_read_twice(
    head: onnx.NodeProto, inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray]
) -> None:
    tail = [
        _node("Erf", "c", "e"),
        _node("Tanh", "e", "t"),
        _node("Mul", "t e", "m"),
        _node("Add", "m t", "y"),
    ]
    _check([head, *tail], inputs, constants)


def test_an_operand_that_must_stay_broadcast() -> None:
    nodes = [_node("Expand", "x shape", "e"), _node("PRelu", "e slope", "y")]
    inputs = {"x": _floats(1, 3, 5), "slope": _floats(2, 3, 1)}
    _check(nodes, inputs, {"shape": np.array([2, 3, 5])})


def test_a_constant_that_must_stay_as_large_as_it_is() -> None:
    zeros = {"zeros": np.zeros((2, 3, 4), np.float32)}
    _check([_node("PRelu", "zeros slope", "y")], {"slope": _floats(4)}, zeros)


@pytest.mark.parametrize("shape", [(4, 5, 1, 1), (2, 6, 5), (1, 2, 40, 24)])
def test_attention_whose_queries_are_its_values(shape: tuple[int, ...]) -> None:
    nodes = [
        _node("Tan", "x", "q"),
        _node("MatMul", "q k", "products"),
        _node("Mul", "products scale", "scores"),
        _node("Softmax", "scores", "shares"),
        _node("MatMul", "shares q", "y"),
    ]
    keys = (*shape[:-2], shape[-1], shape[-2])
    _check(
        nodes, {"x": _floats(*shape), "k": _floats(*keys)}, {"scale": np.array(0.25, np.float32)}
    )


def test_a_condition_that_is_longer_than_the_open_axis_it_selects_from() -> None:
    nodes = [_node("Compress", "x keep", "y", axis=0)]
    first = {"x": _floats(4, 3), "keep": np.array([True, False, True])}
    longer = {"x": _floats(2, 3), "keep": np.array([True, True, True, False, True])}
    graph = Graph(17, nodes, first, {}, ["y"], {"y"}, [longer])
    finding = check_graph(graph)
    assert finding is None, str(finding)


def test_a_load_that_first_stands_under_a_mask_is_read_without_it_later() -> None:
    x = {"x": np.arange(23, dtype=np.float32).reshape(1, 1, 23)}
    node = _node("MaxPool", "x", "largest place", kernel_shape=[3], pads=[1, 1])
    finding = check_graph(Graph(17, [node], x, {}, ["place"], {"largest"}))
    assert finding is None, str(finding)


def test_loops_over_nothing_at_all() -> None:
    x = {"x": np.zeros((2, 0, 3), np.float32)}
    _check([_node("Atan", "x", "a"), _node("Concat", "a a x", "y", axis=0)], x)


@pytest.mark.parametrize("rest", [(4,), (6, 7)])
def test_rows_behind_an_axis_of_one_and_an_open_one(rest: tuple[int, ...]) -> None:
    first, second = {"x": _floats(1, 2, 5, *rest)}, {"x": _floats(1, 2, 3, *rest)}
    nodes = [_node("Softmax", "x", "y", axis=-1)]
    finding = check_graph(Graph(17, nodes, first, {}, ["y"], set(), [second]))
    assert finding is None, str(finding)


def test_open_sizes_of_a_narrow_type_keep_it() -> None:
    nodes = [
        _node("Shape", "x", "s"),
        _node("Cast", "s", "narrow", to=onnx.TensorProto.INT32),
        _node("Add", "narrow narrow", "y"),
    ]
    first, second = {"x": _floats(5, 4)}, {"x": _floats(3, 4)}
    finding = check_graph(Graph(17, nodes, first, {}, ["y"], set(), [second]))
    assert finding is None, str(finding)


@pytest.mark.parametrize("count", [1, 2])
def test_points_of_a_grid_for_few_images(count: int) -> None:
    nodes = [_node("AffineGrid", "theta size", "y")]
    size = {"size": np.array([count, 1, 3, 4])}
    finding = check_graph(Graph(20, nodes, {"theta": _floats(count, 2, 3)}, size, ["y"], set()))
    assert finding is None, str(finding)


def test_a_coordinate_that_rounding_moved_from_a_half_is_halfway() -> None:
    sizes = {"sizes": np.array([6, 4])}
    node = _node(
        "Resize",
        "x - - sizes",
        "y",
        axes=[2, 3],
        keep_aspect_ratio_policy="not_smaller",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="round_prefer_ceil",
    )
    _check([node], {"x": _floats(1, 4, 5, 12)}, sizes, opset=19)


def test_the_largest_of_a_single_row_among_open_ones() -> None:
    """A comparison of values reads buffers that do not exist around the loop it stands in."""
    node = _node("TopK", "x k", "y places", axis=0)
    first, second = ({"x": np.arange(16 * n).reshape(1, 16, n)} for n in (9, 2))
    k = {"k": np.array([1])}
    finding = check_graph(Graph(13, [node], first, k, ["y", "places"], {"y"}, [second]))
    assert finding is None, str(finding)


def test_what_terms_leave_that_cancel_out() -> None:
    nodes = [_node("DFT", "x", "f"), _node("Relu", "f", "y")]
    _check(nodes, {"x": np.array([[[-1.3053632], [-0.3705143]]], np.float32)})


def test_a_window_that_is_padded_on_one_side() -> None:
    node = _node("MaxPool", "x", "y", kernel_shape=[3, 3], strides=[1, 1], pads=[0, 0, 0, 2])
    _check([node], {"x": _floats(1, 2, 6, 5)})


def test_a_product_of_nothing() -> None:
    _check(
        [_node("Einsum", "x w", "y", equation="ij,jk->ik")],
        {"x": _floats(3, 0)},
        {"w": _floats(0, 2)},
    )


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_windows_that_hang_over_too_little_data_to_start_in(op: str) -> None:
    node = _node(op, "x", "y", kernel_shape=[5], strides=[2], ceil_mode=1)
    first, second = {"x": _floats(1, 2, 6)}, {"x": _floats(1, 2, 3)}
    finding = check_graph(Graph(17, [node], first, {}, ["y"], set(), [second]))
    assert finding is None, str(finding)
    _check([node], second)


def _running_sum(**ways: object) -> list[onnx.NodeProto]:
    """Return a Scan that adds up rows from their first axis on and gives every half sum."""
    row = [onnx.ValueInfoProto(name=n) for n in ("state", "element")]
    made = [onnx.ValueInfoProto(name=n) for n in ("total", "half")]
    nodes = [
        helper.make_node("Add", ["state", "element"], ["total"]),
        helper.make_node("Mul", ["total", "factor"], ["half"]),
    ]
    body = helper.make_graph(nodes, "body", row, made)
    return [_node("Scan", "start x", "last y", body=body, num_scan_inputs=1, **ways)]


@pytest.mark.parametrize(
    "ways",
    [
        {},
        {"scan_input_directions": [1], "scan_output_directions": [1]},
        {"scan_input_axes": [1], "scan_output_axes": [-1]},
    ],
)
def test_a_scan_over_a_length_that_each_run_decides(ways: dict[str, object]) -> None:
    axis = ways.get("scan_input_axes", [0])[0]
    runs = [
        {"x": np.moveaxis(_floats(n, 3, 2), 0, axis), "start": _floats(3, 2)} for n in (4, 1, 7)
    ]
    factor = {"factor": np.array(0.5, np.float32)}
    graph = Graph(17, _running_sum(**ways), runs[0], factor, ["last", "y"], set(), runs[1:])
    finding = check_graph(graph)
    assert finding is None, str(finding)


def test_an_unrolled_loop_collects_rows_of_an_open_size() -> None:
    info = helper.make_tensor_value_info
    inputs = [info("step", 7, ()), info("going", 9, ()), onnx.ValueInfoProto(name="state")]
    outputs = [info("on", 9, ()), *(onnx.ValueInfoProto(name=n) for n in ("more", "row"))]
    nodes = [
        helper.make_node("Identity", ["going"], ["on"]),
        helper.make_node("Tanh", ["state"], ["more"]),
        helper.make_node("Abs", ["more"], ["row"]),
    ]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    node = _node("Loop", "count - x", "last rows", body=body)
    first, second = {"x": _floats(4, 3)}, {"x": _floats(2, 3)}
    count = {"count": np.array(2)}
    finding = check_graph(Graph(17, [node], first, count, ["last", "rows"], set(), [second]))
    assert finding is None, str(finding)


_PLACES = np.array([[2, 0, 1], [1, 2, 0]])


@pytest.mark.parametrize(
    ("node", "inputs"),
    [
        (_node("ScatterElements", "x at w", "y", axis=1), {"at": _PLACES % 2, "w": _floats(2, 3)}),
        (_node("ScatterElements", "data at x", "y"), {"data": _floats(3, 3), "at": _PLACES}),
        (_node("GatherND", "x at", "y", batch_dims=1), {"at": _PLACES[:, :, None]}),
        (_node("ScatterND", "data at x", "y"), {"data": _floats(4, 3), "at": _PLACES[:, :1]}),
    ],
    ids=lambda v: v.op_type if isinstance(v, onnx.NodeProto) else None,
)
def test_open_sizes_that_must_be_what_they_meet(
    node: onnx.NodeProto, inputs: dict[str, np.ndarray]
) -> None:
    graph = Graph(17, [node], {"x": _floats(2, 3), **inputs}, {}, ["y"])
    module = import_onnx(_opened(graph.model()), dynamic=True).module
    compiled = compile_model(module, opt_level=0)
    (found,) = compiled.run(graph.inputs)
    assert not departure(np.asarray(found), graph.values()["y"])
    with pytest.raises(InputError):
        compiled.run({**graph.inputs, "x": _floats(1, 3)})


@pytest.mark.parametrize(
    ("node", "inputs"),
    [
        (_node("PRelu", "x slope", "y"), {"slope": _floats(2, 3)}),
        (_node("Einsum", "x w", "y", equation="ij,ij->i"), {"w": _floats(2, 3)}),
    ],
    ids=lambda v: v.op_type if isinstance(v, onnx.NodeProto) else None,
)
def test_open_sizes_that_may_be_1(node: onnx.NodeProto, inputs: dict[str, np.ndarray]) -> None:
    graph = Graph(17, [node], {"x": _floats(2, 3), **inputs}, {}, ["y"])
    compiled = compile_model(import_onnx(_opened(graph.model()), dynamic=True).module)
    for rows in (2, 1):
        given = {**graph.inputs, "x": _floats(rows, 3)}
        (found,) = compiled.run(given)
        assert not departure(np.asarray(found), graph.values(given)["y"])
    with pytest.raises(InputError, match="different sizes"):
        compiled.run({**graph.inputs, "x": _floats(5, 3)})


def _opened(model: onnx.ModelProto) -> onnx.ModelProto:
    """Leave the first size of the input x open."""
    (x,) = [i for i in model.graph.input if i.name == "x"]
    x.type.tensor_type.shape.dim[0].dim_param = "n"
    return model


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pads_up_to_a_multiple_of_an_open_size(mode: str) -> None:
    four, zeros = {"four": np.array([4])}, {"zeros": np.zeros(3, np.int64)}
    nodes = [
        _node("Shape", "x", "size", start=1),
        _node("Mod", "size four", "rest"),
        _node("Sub", "four rest", "more"),
        _node("Concat", "zeros more", "pads", axis=0),
        _node("Pad", "x pads", "y", mode=mode),
    ]
    runs = [{"x": _floats(2, n)} for n in (6, 5, 9)]
    graph = Graph(19, nodes, runs[0], {**four, **zeros}, ["y"], {"y"}, runs[1:])
    finding = check_graph(graph)
    assert finding is None, str(finding)


def test_values_put_back_where_an_open_pool_took_them() -> None:
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        _node("MaxPool", "x", "most place", **window),
        _node("MaxUnpool", "most place", "y", **window),
    ]
    runs = [{"x": _floats(n, 3, 4, 2 * n)} for n in (2, 3)]
    graph = Graph(17, nodes, runs[0], {}, ["y"], {"most", "y"}, runs[1:])
    finding = check_graph(graph)
    assert finding is None, str(finding)


def test_attention_whose_keys_are_as_many_as_a_multiple_of_an_open_size() -> None:
    nodes = [
        _node("Concat", "x x x", "values", axis=-2),
        _node("Transpose", "values", "keys"),
        _node("MatMul", "values keys", "products"),
        _node("Mul", "products scale", "scores"),
        _node("Softmax", "scores", "shares", axis=-1),
        _node("MatMul", "shares values", "y"),
    ]
    runs = [{"x": _floats(n, 1)} for n in (8, 2)]
    scale = {"scale": np.array(0.25, np.float32)}
    finding = check_graph(Graph(13, nodes, runs[0], scale, ["y"], set(), runs[1:]))
    assert finding is None, str(finding)


def test_a_reduction_of_nothing() -> None:
    x = np.zeros((2, 3, 0, 1), helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16))
    _check([_node("ReduceSum", "x axes", "y", keepdims=1)], {"x": x}, {"axes": np.array([1, 2])})


def test_products_of_an_open_number_of_matrices_without_rows() -> None:
    nodes = [_node("MatMul", "x w", "y")]
    runs = [{"x": np.zeros((n, 8, 0, 9), np.float32)} for n in (2, 6)]
    graph = Graph(13, nodes, runs[0], {"w": _floats(9, 4)}, ["y"], set(), runs[1:])
    finding = check_graph(graph)
    assert finding is None, str(finding)


def test_the_sizes_of_a_loop_whose_results_are_not_used() -> None:
    body = helper.make_graph(
        [_node("Max", "state x", "next"), _node("Less", "step limit", "going")],
        "body",
        [
            helper.make_tensor_value_info("step", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("before", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", onnx.TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("going", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", onnx.TensorProto.FLOAT, None),
        ],
    )
    nodes = [_node("Loop", "limit - y", "last", body=body), _node("Shape", "last", "shape")]
    first = {"x": _floats(2, 9), "y": _floats(2, 9), "limit": np.array(2)}
    second = {**first, "y": _floats(2, 4), "limit": np.array(0)}
    finding = check_graph(Graph(19, nodes, first, {}, ["shape"], set(), [second]))
    assert finding is None, str(finding)


def test_the_bound_knows_of_terms_that_cancel_out_in_a_body() -> None:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            _node("Tanh", "state", "t"),
            _node("Sub", "state t", "d"),
            _node("Identity", "going", "on"),
        ],
        "body",
        [
            info("step", onnx.TensorProto.INT64, []),
            info("going", onnx.TensorProto.BOOL, []),
            info("state", onnx.TensorProto.FLOAT, []),
        ],
        [info("on", onnx.TensorProto.BOOL, []), info("d", onnx.TensorProto.FLOAT, [])],
    )
    nodes = [_node("Loop", "times going x", "last", body=body)]
    inputs = {"x": np.float32(0.05), "times": np.array(1), "going": np.array(True)}
    graph = Graph(17, nodes, {n: np.asarray(a) for n, a in inputs.items()}, {}, ["last"])
    value = graph.values()["last"]
    exact = 0.05 - np.tanh(np.float64(np.float32(0.05)))
    assert not departure(np.asarray(np.float32(exact + 2 * np.spacing(np.float32(0.05)))), value)
    assert departure(np.asarray(np.float32(exact * 1.01)), value)


def test_sums_of_an_image_of_two_equal_open_sizes() -> None:
    """That the sizes are positive changes the terms in which the end of a row is known."""
    nodes = [
        _node("MaxPool", "x", "largest", kernel_shape=[3, 3, 3], ceil_mode=1),
        _node("GlobalAveragePool", "largest", "y"),
    ]
    runs = [{"x": _floats(2, 8, 5, n, n)} for n in (3, 6, 23)]
    finding = check_graph(Graph(20, nodes, runs[0], {}, ["y"], set(), runs[1:]))
    assert finding is None, str(finding)
