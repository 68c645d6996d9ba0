# SPDX-License-Identifier: Apache-2.0
"""The two languages of GPU kernels, CUDA C and OpenCL C 1.2, as what differs between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treadle.dtype import itemsize
from treadle.limits import TWICE_HELD
from treadle.target.c_dialects import Dialect

_CUDA_PRELUDE = """\
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807ll - 1)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#else
#include <math.h>
#include <stdint.h>
#endif"""

_OPENCL_PRELUDE = """\
#pragma OPENCL FP_CONTRACT OFF
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
typedef char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
#define INT32_MIN INT_MIN
#define INT64_MIN LONG_MIN"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDialect(Dialect):
    """How a language of GPU kernels writes what C has no word for.

    `kernel(threads)` stands before the name of a function that the host launches with blocks of so
    many threads along three axes. `device` and `shared` mark pointers to, and arrays in, the
    memory of the device and of a block; `restrict` says that no other pointer leads there.
    `indices` is what a hardware index is read as. `move` is the statement that moves `lanes`
    elements from `source` to `to`, both aligned to all of them, as one `vector` of CUDA C.
    """

    prelude: str
    head: str
    device: str
    shared: str
    restrict: str
    barrier: str
    indices: Mapping[str, str]
    aligned: str
    reserved: str
    move: str

    def kernel(self, threads: tuple[int, int, int]) -> str:
        """Return what stands before the name of a kernel that runs in such blocks."""
        x, y, z = threads
        count = x * y * z
        return self.head.format(x=x, y=y, z=z, count=count, blocks=1 + (count <= TWICE_HELD))


_FUNCTIONS = ("fabs", "sqrt", "fma", "rint", "trunc", "floor", "ceil", "copysign")

CUDA = GpuDialect(
    helper="static __device__ __forceinline__",
    names={**{n: n for n in _FUNCTIONS}, "popcountll": "__popcll", "clzll": "__clzll"},
    wraps=False,
    rounds=True,
    prelude=_CUDA_PRELUDE,
    head='extern "C" __global__ void __launch_bounds__({count}, {blocks})',
    device="",
    shared="__shared__ ",
    restrict="__restrict__ ",
    barrier="__syncthreads();",
    indices={f"{i}.{a}": f"{i}.{a}" for i in ("blockIdx", "threadIdx") for a in "xyz"},
    aligned="__align__({})",
    move="*({vector}*){to} = *(const {vector}*){source};",
    reserved="""
    alignas alignof and and_eq asm bitand bitor catch class compl concept const_cast constexpr
    decltype delete dynamic_cast explicit export friend mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public reinterpret_cast requires static_assert
    static_cast template this throw try typeid typename using virtual wchar_t xor xor_eq true false
    blockIdx threadIdx blockDim gridDim warpSize workspace fabs fabsf sqrt sqrtf fma fmaf rint rintf
    trunc truncf floor floorf ceil ceilf copysign copysignf float4 float2 int4 uint4
    """,
)

OPENCL = GpuDialect(
    names={**{n: n for n in _FUNCTIONS}, "popcountll": "popcount", "clzll": "clz"},
    f="",
    wraps=False,
    rounds=True,
    prelude=_OPENCL_PRELUDE,
    head="__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))) void",
    device="__global ",
    shared="__local ",
    restrict="restrict ",
    barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    indices={
        **{f"blockIdx.{a}": f"get_group_id({k})" for k, a in enumerate("xyz")},
        **{f"threadIdx.{a}": f"get_local_id({k})" for k, a in enumerate("xyz")},
    },
    aligned="__attribute__((aligned({})))",
    move="vstore{lanes}(vload{lanes}(0, {source}), 0, {to});",
    reserved="""
    kernel __kernel global __global local __local constant __constant private __private generic
    read_only write_only read_write half uchar ushort uint ulong size_t ptrdiff_t event_t sampler_t
    image1d_t image2d_t image3d_t pipe uniform complex imaginary true false workspace barrier
    fabs sqrt fma rint trunc floor ceil copysign popcount clz get_group_id get_local_id
    float4 float2 int4 uint4 quad
    """,
)


def vector_type(dtype: str, lanes: int) -> str:
    """Return a type of CUDA C that has the size of so many elements."""
    words = itemsize(dtype) * lanes // 4
    if dtype == "float64":
        return f"double{words // 2}"
    return f"{'float' if dtype == 'float32' else 'uint'}{words}"


DIALECTS: Mapping[str, GpuDialect] = {"cuda": CUDA, "opencl": OPENCL}
"""By the kind of target."""
