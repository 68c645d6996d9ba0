/* SPDX-License-Identifier: Apache-2.0 */
/* Indices that come as data: refused before a kernel reads or writes with them. */
#include "executor.h"
#include "reader.h"

/* {"op": "check", "args": [id], "dims": [extents], "axis": first}. Read like a call's. */
bool td_read_indices(td_reader* r, const td_json* object, td_instruction* instruction) {
  if (!td_read_args(r, object, instruction) || !td_read_dims(r, object, instruction) ||
      !td_read_size(r, object, "axis", &instruction->axis))
    return false;
  bool is_one = instruction->num_args == 1 && instruction->num_dims > 0;
  const td_dtype* dtype = is_one ? r->plan->values[instruction->args[0]].dtype : NULL;
  if (is_one && dtype->code == 0 && (dtype->bits == 32 || dtype->bits == 64)) return true;
  td_fail(r->error, TD_PLAN, "%s: a check is of one int32 or int64 value and at least one extent",
          r->where);
  return false;
}

static int64_t index_at(const td_step* s, size_t i) {
  return s->index_bytes == 4 ? ((const int32_t*)s->buffers[0])[i]
                             : ((const int64_t*)s->buffers[0])[i];
}

static bool is_outside(int64_t index, int64_t extent) { return index < -extent || index >= extent; }

/* Where an index is outside, one of index + extent and extent - 1 - index is negative, also where it
 * wraps; for extents of up to half the type's range it is so nowhere else. Written like this for
 * SSE2, which compares no 64-bit numbers, and a block at a time for compilers that make no vectors
 * of loops of unknown length. */
#define BLOCK 16

#define ANY_OUTSIDE(NAME, TYPE, WORD)                                              \
  static bool NAME(const TYPE* at, size_t count, int64_t limit) {                  \
    WORD extent = (WORD)limit, last = extent - 1, seen[BLOCK] = {0}, all = 0;      \
    size_t i = 0;                                                                  \
    for (; count - i >= BLOCK; i += BLOCK)                                         \
      for (size_t k = 0; k < BLOCK; k++)                                           \
        seen[k] |= ((WORD)at[i + k] + extent) | (last - (WORD)at[i + k]);          \
    for (; i < count; i++) all |= ((WORD)at[i] + extent) | (last - (WORD)at[i]);   \
    for (size_t k = 0; k < BLOCK; k++) all |= seen[k];                             \
    return (all >> (sizeof(WORD) * 8 - 1)) != 0;                                   \
  }

ANY_OUTSIDE(any_outside32, int32_t, uint32_t)
ANY_OUTSIDE(any_outside64, int64_t, uint64_t)

/* Looks at the indices [begin, end); index i is one of axis i % num_extents. */
static bool any_outside(const td_step* s, size_t begin, size_t end) {
  bool is_wide = s->index_bytes == 8, found = false;
  if (s->num_extents == 1 && s->dims[0] <= (is_wide ? INT64_MAX : INT32_MAX) / 2)
    return is_wide
               ? any_outside64((const int64_t*)s->buffers[0] + begin, end - begin, s->dims[0])
               : any_outside32((const int32_t*)s->buffers[0] + begin, end - begin, s->dims[0]);
  for (size_t i = begin, k = begin % s->num_extents; i < end; i++) {
    found |= is_outside(index_at(s, i), s->dims[k]);
    k = k + 1 < s->num_extents ? k + 1 : 0;
  }
  return found;
}

/* Worth an iteration of its own, and threads from twice as many on. */
#define INDICES ((size_t)16 << 10)

static int32_t look(const td_env* env, void* closure, int64_t begin, int64_t end, int32_t worker) {
  const td_step* s = closure;
  size_t count = s->bytes / s->index_bytes, last = (size_t)end * INDICES;
  (void)env, (void)worker;
  return any_outside(s, (size_t)begin * INDICES, last < count ? last : count);
}

bool td_indices_fit(const td_env* env, td_step* s) {
  size_t count = s->bytes / s->index_bytes;
  if (count < 2 * INDICES) return !any_outside(s, 0, count);
  return env->parallel(env, look, s, (int64_t)((count + INDICES - 1) / INDICES)) == 0;
}

int32_t td_refuse_indices(const td_executor* e, uint32_t i, td_error* error) {
  const td_instruction* instruction = &e->plan.instructions[i];
  const td_step* s = &e->steps[i];
  size_t k = 0;
  while (!is_outside(index_at(s, k), s->dims[k % s->num_extents])) k++;
  int64_t extent = s->dims[k % s->num_extents];
  td_fail(error, TD_INPUT, "%.300s takes element %lld of axis %zu, which has %lld (element %zu of "
          "its indices)", instruction->origin, (long long)index_at(s, k),
          instruction->axis + k % s->num_extents, (long long)extent, k);
  return td_hint(error, TD_INPUT, "give indices from %lld to %lld", (long long)-extent,
                 (long long)extent - 1);
}
