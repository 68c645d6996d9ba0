# SPDX-License-Identifier: Apache-2.0
"""Arrays: aligned, shared with NumPy and DLPack without copies, alive as long as needed."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from treadle import dtype as dtypes
from treadle.errors import InputError, TreadleError, TypeMismatch, UsageError
from treadle.runtime import array as arrays
from treadle.runtime.array import NDArray


def random_array(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return random.integers(0, 2, shape).astype(dtypes.to_numpy(dtype))


@pytest.mark.parametrize("dtype", dtypes.NAMES)
def test_every_element_type_round_trips(random: np.random.Generator, dtype: str) -> None:
    source = random_array(random, dtype, (3, 5))
    made = arrays.from_numpy(source)
    assert (made.dtype, made.shape, made.ndim, made.size) == (dtype, (3, 5), 2, 15)
    assert made.nbytes == source.nbytes
    assert made.is_aligned
    np.testing.assert_array_equal(made.numpy(), source)
    assert not np.shares_memory(made.numpy(), source)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 3, 4, 5)])
def test_every_rank_and_the_empty_shapes(shape: tuple[int, ...]) -> None:
    made = arrays.empty(shape, "int32")
    assert made.shape == shape
    made.numpy()[...] = 7
    assert (made.numpy() == 7).all()


def test_memory_is_aligned_and_large_memory_is_aligned_to_huge_pages() -> None:
    for nbytes in (1, 63, 4096, 100_000):
        assert arrays.empty((nbytes,), "uint8").pointer % 64 == 0
    assert arrays.empty((3 << 20,), "uint8").pointer % (2 << 20) == 0


def test_numpy_is_a_view_that_keeps_the_memory() -> None:
    made = arrays.empty(4, "float32")
    view = made.numpy()
    view[:] = [1, 2, 3, 4]
    assert np.asarray(made) is view
    del made
    gc.collect()
    arrays.empty(4, "float32").numpy()[:] = 9
    np.testing.assert_array_equal(view, [1, 2, 3, 4])


def test_memory_is_freed_with_its_last_view() -> None:
    made = arrays.empty((1000,), "uint8")
    block = made.numpy()
    while isinstance(block.base, np.ndarray):
        block = block.base
    ended = weakref.ref(block)
    del block
    view = made.numpy()[3:7]
    del made
    gc.collect()
    assert ended() is not None
    del view
    gc.collect()
    assert ended() is None


def test_sources_of_every_kind() -> None:
    assert arrays.array([1.0, 2.0]).dtype == "float32"
    assert arrays.array([1, 2]).dtype == "int64"
    assert arrays.array(3.5).shape == ()
    assert arrays.array(np.float64(2)).dtype == "float64"
    assert arrays.array([1, 2], "bfloat16").numpy().dtype == ml_dtypes.bfloat16
    swapped = np.arange(3, dtype=">i4")
    np.testing.assert_array_equal(arrays.array(swapped).numpy(), [0, 1, 2])
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(arrays.from_numpy(turned).numpy(), turned)
    assert arrays.from_numpy(turned).is_aligned


def test_copies_between_arrays() -> None:
    source, target = arrays.array([1, 2, 3], "int32"), arrays.empty((3,), "int32")
    assert source.copyto(target) is target
    np.testing.assert_array_equal(target.numpy(), [1, 2, 3])
    target.copyfrom(np.array([4, 5, 6], np.int32))
    np.testing.assert_array_equal(target.numpy(), [4, 5, 6])
    with pytest.raises(InputError, match=r"float64\[3\] cannot be copied to int32\[3\]"):
        target.copyfrom(np.zeros(3))


def test_what_cannot_be_an_array() -> None:
    with pytest.raises(InputError, match="holds Python objects"):
        arrays.from_numpy(np.array([object()]))
    with pytest.raises(InputError, match="elements of type complex128"):
        NDArray(np.zeros(3, np.complex128))
    with pytest.raises(InputError, match="holds elements of type <U3"):
        NDArray(np.array(["abc"]))
    with pytest.raises(TypeMismatch, match="'float31' is not an element type"):
        arrays.empty((3,), "float31")
    with pytest.raises(UsageError, match="no negative sizes"):
        arrays.empty((-1,))
    with pytest.raises(UsageError, match=r"arrays on tpu\(0\)"):
        arrays.empty((1,), "float32", arrays.Device("tpu"))
    with pytest.raises(TreadleError, match="bytes of memory are not available"):
        arrays.empty((1 << 60,), "uint8")


def test_ready_copies_only_what_a_kernel_cannot_use() -> None:
    good = arrays.array(np.arange(16).reshape(4, 4)).numpy()
    assert arrays.ready(good) is good
    for view in (good.T, good[1:, 1:], np.zeros(100, np.uint8)[1:]):
        made = arrays.ready(view)
        assert arrays.is_ready(made)
        np.testing.assert_array_equal(made, view)


def test_the_text_of_an_array() -> None:
    assert repr(arrays.array([1, 2], "int32")) == "NDArray([1, 2], shape=(2,), dtype=int32)"
    assert repr(arrays.array([1.5], "bfloat16")) == "NDArray([1.5], shape=(1,), dtype=bfloat16)"


# ---- DLPack --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [name for name in dtypes.NAMES if name != "bfloat16"])
def test_numpy_reads_and_writes_through_dlpack(random: np.random.Generator, dtype: str) -> None:
    made = arrays.from_numpy(random_array(random, dtype, (2, 3)))
    view = np.from_dlpack(made)
    assert view.ctypes.data == made.pointer
    np.testing.assert_array_equal(view, made.numpy())
    back = arrays.from_dlpack(view)
    assert (back.pointer, back.dtype, back.shape) == (made.pointer, dtype, (2, 3))


def test_dlpack_keeps_memory_alive_both_ways() -> None:
    view = np.from_dlpack(arrays.array(np.arange(1000)))
    gc.collect()
    np.testing.assert_array_equal(view, np.arange(1000))
    made = arrays.from_dlpack(np.arange(1000))
    gc.collect()
    np.testing.assert_array_equal(made.numpy(), np.arange(1000))


def test_read_only_memory_stays_read_only() -> None:
    source = np.arange(3)
    source.flags.writeable = False
    assert not arrays.from_dlpack(source).numpy().flags.writeable
    assert not NDArray(source).numpy().flags.writeable


class OnAnotherDevice:
    def __dlpack__(self, **options: object) -> object:
        raise AssertionError("must not be asked")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_memory_of_other_devices_is_refused() -> None:
    with pytest.raises(InputError, match="on a device of DLPack type 2, not in CPU memory"):
        arrays.from_dlpack(OnAnotherDevice())
    with pytest.raises(InputError, match="list does not speak DLPack"):
        arrays.from_dlpack([1, 2])  # type: ignore[arg-type]


@pytest.mark.torch
def test_torch_shares_memory_both_ways() -> None:
    import torch

    for dtype in ("float32", "bfloat16", "int64", "bool", "float16", "uint8"):
        tensor = torch.tensor([[1, 0], [1, 1]]).to(getattr(torch, dtype))
        made = arrays.from_dlpack(tensor)
        assert (made.pointer, made.dtype, made.shape) == (tensor.data_ptr(), dtype, (2, 2))
        back = torch.from_dlpack(made)
        assert back.dtype == tensor.dtype
        assert back.data_ptr() == tensor.data_ptr()
        assert torch.equal(back, tensor)


@pytest.mark.torch
def test_torch_memory_lives_as_long_as_the_array() -> None:
    import torch

    made = arrays.from_dlpack(torch.arange(100_000, dtype=torch.bfloat16))
    gc.collect()
    assert made.numpy()[5] == 5
    shared = torch.from_dlpack(arrays.array(np.arange(100_000)))
    gc.collect()
    assert shared[-1] == 99_999


@pytest.mark.torch
def test_torch_tensors_that_cannot_be_shared() -> None:
    import torch

    with pytest.raises(InputError, match="cannot be shared through DLPack"):
        arrays.from_dlpack(torch.ones(2, requires_grad=True))
    with pytest.raises(InputError):
        arrays.from_dlpack(torch.ones(2, dtype=torch.complex64))


# ---- as NumPy's arrays are used ------------------------------------------------------------------


@pytest.fixture
def both() -> tuple[NDArray, np.ndarray]:
    plain = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    return arrays.array(plain), plain


@pytest.mark.parametrize(
    "index",
    [0, -1, (1, 2), slice(1, None), (slice(None), 1), (..., slice(None, None, -2)), None],
    ids=str,
)
def test_integers_and_slices_give_views(both: tuple[NDArray, np.ndarray], index: Any) -> None:
    made, plain = both
    found = made[index]
    assert isinstance(found, NDArray)
    np.testing.assert_array_equal(found, plain[index])
    assert np.shares_memory(found.numpy(), made.numpy())


@pytest.mark.parametrize("index", [[1, 0], np.array([0, 0]), arrays.array([1]), ([0], [1])])
def test_lists_and_masks_give_copies(both: tuple[NDArray, np.ndarray], index: Any) -> None:
    made, plain = both
    index_of_plain = index.numpy() if isinstance(index, NDArray) else index
    np.testing.assert_array_equal(made[index], plain[index_of_plain])
    assert not np.shares_memory(made[index].numpy(), made.numpy())
    np.testing.assert_array_equal(made[made > 7], plain[plain > 7])


def test_elements_are_numbers(both: tuple[NDArray, np.ndarray]) -> None:
    made, plain = both
    assert made[1][2][3] == made[1, 2, 3] == 23
    assert isinstance(made[1, 2, 3], np.float32)
    assert (float(made[1, 2, 3:]), int(arrays.array([[7]])), bool(arrays.array(0))) == (23, 7, 0)
    assert made.tolist() == plain.tolist()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(made)
    with pytest.raises(ValueError, match="size 1"):
        float(made)
    with pytest.raises(IndexError, match="out of bounds"):
        made[2]


def test_iteration_is_over_the_first_dimension(both: tuple[NDArray, np.ndarray]) -> None:
    made, plain = both
    for mine, theirs in zip(made, plain, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    first, second = made
    assert first.shape == second.shape == (3, 4)
    assert 5 in made
    assert 99 not in made
    with pytest.raises(TypeError):
        list(arrays.array(1))


def test_elements_can_be_written(both: tuple[NDArray, np.ndarray]) -> None:
    made, plain = both
    made[0, 1] = made[1, 1]
    made[1][2][3] = -1
    plain[0, 1] = plain[1, 1]
    plain[1, 2, 3] = -1
    np.testing.assert_array_equal(made, plain)


@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min", "sum", "mean"])
def test_reductions_are_those_of_numpy(both: tuple[NDArray, np.ndarray], name: str) -> None:
    made, plain = both
    assert getattr(made, name)() == getattr(plain, name)()
    np.testing.assert_array_equal(getattr(made, name)(1), getattr(plain, name)(1))


def test_operators_take_numpy_arrays_on_either_side(both: tuple[NDArray, np.ndarray]) -> None:
    made, plain = both
    for equal in (made == plain, plain == made, made == made, made[:1] == plain[:1]):
        assert isinstance(equal, np.ndarray)
        assert equal.dtype == bool
        assert equal.all()
    assert not (made != plain).any()
    assert not np.abs(plain - made).max()
    np.testing.assert_array_equal(made * 2 + 1 - plain, plain + 1)
    np.testing.assert_array_equal(2 - made, 2 - plain)
    assert np.allclose(made, plain)


def test_operators_in_place_keep_the_array(both: tuple[NDArray, np.ndarray]) -> None:
    made, plain = both
    same = made
    same += 1
    assert same is made
    negated: Any = np.negative(same, out=same)  # type: ignore[call-overload]
    assert negated is made
    np.testing.assert_array_equal(made, -(plain + 1))


def test_numpy_gets_a_copy_only_where_it_asks(both: tuple[NDArray, np.ndarray]) -> None:
    made, _ = both
    assert np.asarray(made) is made.numpy()
    assert not np.shares_memory(np.array(made), made.numpy())
    assert np.asarray(made, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        np.array(made, dtype=np.float64, copy=False)


def test_other_shapes_and_types(both: tuple[NDArray, np.ndarray]) -> None:
    made, _ = both
    assert made.reshape(4, 6).shape == made.reshape((4, 6)).shape == (4, 6)
    assert np.shares_memory(made.reshape(-1).numpy(), made.numpy())
    assert [made.astype(t).dtype for t in ("int64", np.float16)] == ["int64", "float16"]


@pytest.mark.parametrize("source", [[1], 3, "text", None])
def test_only_numpy_arrays_are_wrapped(source: object) -> None:
    with pytest.raises(InputError, match=r"(?s)from a NumPy array.*treadle\.array"):
        NDArray(source)  # type: ignore[arg-type]


def test_a_conversion_is_told_as_the_tensors_library_says_it() -> None:
    tensor = type("Tensor", (), {"__module__": "torch"})()
    assert arrays.conversion_hint(tensor, "float32") == "convert it with .to(torch.float32)"
    assert arrays.conversion_hint(np.zeros(1), "int64") == "convert it with .astype('int64')"
    assert arrays.conversion_hint(object(), "int64") == "convert it to int64"
