/* SPDX-License-Identifier: Apache-2.0 */
/* Element types: names, DLPack codes, sizes. */
#include <string.h>

#include "internal.h"

/* DLPack type codes: int 0, uint 1, float 2, bfloat 4, 8-bit floats 10 to 14, 4-bit floats 17. A
 * bool is stored as one byte and written as a one-bit unsigned integer; so are narrower types. */
static const td_dtype DTYPES[] = {
    {"bool", 1, 1, 1},     {"int8", 0, 8, 1},      {"int16", 0, 16, 2},   {"int32", 0, 32, 4},
    {"int64", 0, 64, 8},   {"uint8", 1, 8, 1},     {"uint16", 1, 16, 2},  {"uint32", 1, 32, 4},
    {"uint64", 1, 64, 8},  {"float16", 2, 16, 2},  {"bfloat16", 4, 16, 2}, {"float32", 2, 32, 4},
    {"float64", 2, 64, 8}, {"int4", 0, 4, 1},      {"uint4", 1, 4, 1},    {"int2", 0, 2, 1},
    {"uint2", 1, 2, 1},    {"float8_e4m3fn", 10, 8, 1}, {"float8_e4m3fnuz", 11, 8, 1},
    {"float8_e5m2", 12, 8, 1}, {"float8_e5m2fnuz", 13, 8, 1}, {"float8_e8m0fnu", 14, 8, 1},
    {"float4_e2m1fn", 17, 4, 1},
};

#define NUM_DTYPES (sizeof DTYPES / sizeof DTYPES[0])

const td_dtype* td_dtype_by_name(const char* name) {
  for (size_t i = 0; i < NUM_DTYPES; i++)
    if (strcmp(DTYPES[i].name, name) == 0) return &DTYPES[i];
  return NULL;
}

const td_dtype* td_dtype_by_code(unsigned code, unsigned bits) {
  if (code == 6 && bits == 8) return td_dtype_by_name("bool");
  for (size_t i = 0; i < NUM_DTYPES; i++)
    if (DTYPES[i].code == code && DTYPES[i].bits == bits) return &DTYPES[i];
  return NULL;
}

bool td_tensor_bytes(const td_dtype* dtype, const int64_t* shape, int32_t ndim, size_t* bytes) {
  bool empty = false;
  for (int32_t i = 0; i < ndim; i++) {
    if (shape[i] < 0) return false;
    empty |= shape[i] == 0;
  }
  size_t product = empty ? 0 : dtype->bytes;
  for (int32_t i = 0; i < ndim && !empty; i++) {
    if ((uint64_t)shape[i] > (SIZE_MAX >> 2) / product) return false;
    product *= (size_t)shape[i];
  }
  *bytes = product;
  return true;
}
