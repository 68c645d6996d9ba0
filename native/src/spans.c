/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison of scattered bytes with a copy of them. */
#include <string.h>

#include "internal.h"

int32_t td_spans_equal(const void* const* places, const size_t* bytes, size_t count,
                       const void* kept) {
  const uint8_t* next = kept;
  for (size_t i = 0; i < count; i++) {
    if (memcmp(places[i], next, bytes[i]) != 0) return 0;
    next += bytes[i];
  }
  return 1;
}
