# SPDX-License-Identifier: Apache-2.0
"""The inputs of a model: types from the file and from the user, unknown sizes settled or named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from treadle.errors import InputError, ModelError
from treadle.expr.nodes import Var as SizeVar
from treadle.frontend.importer import did_you_mean
from treadle.frontend.inputs import given_sizes
from treadle.frontend.onnx.tensors import dtype_of
from treadle.graph.nodes import Constant, Node, Var
from treadle.graph.types import Dim, TensorType

_DIM_LIMIT = 1 << 40


class InputTypes:
    """Turns the declared inputs of a graph into typed parameters.

    A size the file leaves open comes from `shapes`, else from another input that names the same
    symbol; an unknown first dimension becomes 1 with a note. What stays unknown is one error that
    lists every such input, or a symbolic size when `dynamic` is set.
    """

    def __init__(
        self,
        declared: Sequence[onnx.ValueInfoProto],
        shapes: Mapping[str, Sequence[int]] | None,
        dynamic: bool,
    ) -> None:
        self.notes: list[str] = []
        self._declared = {d.name: d for d in declared}
        self._dynamic = dynamic
        self._symbols: dict[str, Dim] = {}
        self._shapes = self._checked(shapes or {})

    def params(self) -> dict[str, Var]:
        """Return the parameter of every input, by name.

        Raises:
            ModelError: an input is no tensor, or sizes stay unknown.
        """
        self._settle_batches()
        settled = {n: self._settle(n, d) for n, d in self._declared.items()}
        open_inputs = [n for n, dims in settled.items() if dims is None or None in dims]
        if open_inputs:
            raise self._open_error(open_inputs)
        return {
            n: Var(n, TensorType(tuple(d for d in dims or () if d is not None), self._dtype(n)), n)
            for n, dims in settled.items()
        }

    def _settle_batches(self) -> None:
        """Settle named first dimensions, so that the order of the inputs does not matter."""
        for name, declared in self._declared.items():
            is_tensor = declared.type.WhichOneof("value") == "tensor_type"
            dims = self._dims(name) if is_tensor and name not in self._shapes else None
            if dims and isinstance(dims[0], str) and dims[0]:
                self._settle_dim(name, 0, dims[0])

    def _checked(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
        if not isinstance(shapes, Mapping):
            raise InputError(
                f"the shapes are a {type(shapes).__name__}, not a mapping from names",
                hint=f"such as shapes={{{next(iter(self._declared), 'x')!r}: (1, 3, 224, 224)}}",
            )
        for name in shapes:
            if name not in self._declared:
                raise InputError(
                    f"the model has no input {name!r}", hint=did_you_mean(name, self._declared)
                )
        checked = {n: given_sizes(n, s, (1, 3, 224, 224)) for n, s in shapes.items()}
        for name, shape in checked.items():
            self._check_shape(name, shape)
        return checked

    def _check_shape(self, name: str, shape: tuple[int, ...]) -> None:
        if any(d < 0 for d in shape):
            raise InputError(f"the shape {list(shape)} of input {name!r} has a negative size")
        dims = self._dims(name)
        if dims is None:
            return
        if len(dims) != len(shape):
            raise InputError(
                f"input {name!r} has {len(dims)} dimensions, the shape {list(shape)} has "
                f"{len(shape)}",
                hint=f"the model declares {name}{_text(dims)}",
            )
        for k, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            self._bind(name, k, dim, size)

    def _bind(self, name: str, axis: int, dim: int | str, size: int) -> None:
        known = self._symbols.setdefault(dim, size) if isinstance(dim, str) and dim else dim
        if isinstance(known, int) and known != size:
            what = f"{dim} = {known}" if isinstance(dim, str) else f"{known}"
            raise InputError(
                f"dimension {axis} of input {name!r} is {what} in the model, not {size}",
                hint=f"the model declares {name}{_text(self._dims(name) or ())}",
            )

    def _settle(self, name: str, declared: onnx.ValueInfoProto) -> list[Dim | None] | None:
        if declared.type.WhichOneof("value") != "tensor_type":
            kind = (declared.type.WhichOneof("value") or "no type").replace("_type", "")
            raise ModelError(
                f"input {name!r} is not a tensor ({kind}); what it consists of must be known when "
                f"the model is compiled",
                hint="import the model with `structures`, or run it through the ONNX backend",
            )
        if name in self._shapes:
            return list(self._shapes[name])
        dims = self._dims(name)
        if dims is None:
            return None
        return [self._settle_dim(name, k, d) for k, d in enumerate(dims)]

    def _settle_dim(self, name: str, axis: int, dim: int | str) -> Dim | None:
        if isinstance(dim, int):
            return dim
        if dim in self._symbols:
            return self._symbols[dim]
        if self._dynamic:
            size: Dim = SizeVar(dim or f"{name}_{axis}", "int64")
        elif axis == 0:
            size = 1
            shown = f" ({dim})" if dim else ""
            self.notes.append(
                f"input {name!r}: the unknown dimension 0{shown} is compiled as 1; "
                f"give --input-shapes for another size"
            )
        else:
            return None
        if dim:
            self._symbols[dim] = size
        return size

    def _dims(self, name: str) -> tuple[int | str, ...] | None:
        return _declared_dims(self._declared[name])

    def _dtype(self, name: str) -> str:
        try:
            return dtype_of(self._declared[name].type.tensor_type.elem_type)
        except ModelError as e:
            raise ModelError(f"input {name!r}: {e.problem}", hint=e.hint) from None

    def _open_error(self, names: Sequence[str]) -> ModelError:
        rows = [f"  {n}{_text(self._dims(n))}" for n in names]
        example = " ".join(f"{n}:{self._example(n)}" for n in names)
        return ModelError(
            "the model leaves sizes of its inputs open:\n" + "\n".join(rows),
            hint=f'give them, for example --input-shapes "{example}"',
        )

    def _example(self, name: str) -> str:
        dims = self._dims(name)
        if dims is None:
            return "[1,3,224,224]"
        sizes = [d if isinstance(d, int) else (1 if k == 0 else 128) for k, d in enumerate(dims)]
        return "[" + ",".join(map(str, sizes)) + "]"


def _declared_dims(declared: onnx.ValueInfoProto) -> tuple[int | str, ...] | None:
    """Return the declared dims (names for unknown ones); None without a declared shape."""
    tensor = declared.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(_declared_dim(declared.name, d) for d in tensor.shape.dim)


def _declared_dim(name: str, dim: onnx.TensorShapeProto.Dimension) -> int | str:
    if dim.WhichOneof("value") != "dim_value":
        return "" if _means_unknown(dim.dim_param) else dim.dim_param
    if dim.dim_value == -1:  # how some exporters write an unknown size
        return ""
    if not 0 <= dim.dim_value < _DIM_LIMIT:
        raise ModelError(f"input {name!r} has a dimension of {dim.dim_value}")
    return int(dim.dim_value)


def _means_unknown(name: str) -> bool:
    """True for what exporters write where they know no name: two such sizes need not be equal.

    These are marks without a letter or digit ("?", "*"), negative numbers and "None". A number
    that an exporter made up for one size ("unk__12", "387") is a name.
    """
    is_negative = name.startswith("-") and name[1:].isdigit()
    return is_negative or name in ("None", "unknown") or not any(c.isalnum() for c in name)


def _fits(shape: Sequence[int], dims: Sequence[int | str]) -> bool:
    sizes = zip(shape, dims, strict=False)
    return len(shape) == len(dims) and all(isinstance(d, str) or s == d for s, d in sizes)


def fixed_inputs(
    declared: Sequence[onnx.ValueInfoProto], values: Mapping[str, np.ndarray]
) -> dict[str, Node]:
    """Return inputs that are fixed to values as constants.

    Raises:
        InputError: the model has no such input, or it has another element type.
    """
    known = {d.name: d for d in declared}
    for name, value in values.items():
        if name not in known:
            raise InputError(f"the model has no input {name!r}", hint=did_you_mean(name, known))
        wanted = dtype_of(known[name].type.tensor_type.elem_type)
        if value.dtype.name != wanted:
            raise InputError(f"input {name!r} has elements of {wanted}, not {value.dtype}")
        dims = _declared_dims(known[name])
        if dims is not None and not _fits(value.shape, dims):
            raise InputError(
                f"the value of input {name!r} has the shape {list(value.shape)}",
                hint=f"the model declares {name}{_text(dims)}",
            )
    return {n: Constant.of(np.array(v), origin=n) for n, v in values.items()}


def _text(dims: Sequence[int | str] | None) -> str:
    if dims is None:
        return " (no shape)"
    return "[" + ", ".join(str(d) if d != "" else "?" for d in dims) + "]"
