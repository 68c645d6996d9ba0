# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries on NVIDIA GPUs say where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from treadle.errors import InputError
from treadle.runtime.gpu.foreign import foreign_array


class Tensor:
    """What torch shows of a tensor of a GPU."""

    def __init__(self, **told: Any) -> None:
        shown = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 2}
        self.__cuda_array_interface__ = {**shown, **told}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 1)


class Refusing:
    """A tensor that cannot be shared."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise RuntimeError("it requires grad")


@pytest.mark.parametrize("strides", [None, (12, 4)])
def test_an_array_is_where_it_says(strides: tuple[int, ...] | None) -> None:
    found = foreign_array(Tensor(strides=strides), "x")
    assert found is not None
    assert (found.shape, found.dtype, found.pointer, found.index) == ((2, 3), "float32", 4096, 1)


def test_arrays_of_the_host_are_none() -> None:
    assert foreign_array(np.zeros(3), "x") is None


def test_strides_of_axes_of_one_element_do_not_count() -> None:
    assert foreign_array(Tensor(shape=(1, 3), strides=(999, 4)), "x") is not None
    assert foreign_array(Tensor(shape=(0, 3), strides=(1, 1)), "x") is not None


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(InputError, match="x is not contiguous in memory"):
        foreign_array(Tensor(strides=(4, 8)), "x")
    with pytest.raises(InputError, match="x has elements of type <M8"):
        foreign_array(Tensor(typestr="<M8"), "x")
    with pytest.raises(InputError, match="it requires grad"):
        foreign_array(Refusing(), "x")
