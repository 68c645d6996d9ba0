/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of random numbers: what a kernel draws is a function of the key and the element's place. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "executor.h"
#include "reader.h"

#define STEP UINT64_C(0x9E3779B97F4A7C15)

/* {"op": "random", "to": id}: a new key in a value of one uint64. */
bool td_read_random(td_reader* r, const td_json* object, td_instruction* instruction) {
  uint32_t* to = td_zone_alloc(r->zone, 1, sizeof *to);
  if (to == NULL) return td_read_no_memory(r);
  if (!td_read_id(r, td_json_get(object, "to"), "to", r->plan->num_values, to)) return false;
  instruction->args = to;
  instruction->num_args = 1;
  const td_value* value = &r->plan->values[*to];
  if (strcmp(value->dtype->name, "uint64") == 0 && value->ndim == 0 && td_is_writable(r->plan, *to))
    return true;
  td_fail(r->error, TD_PLAN, "%s: value %u is not one uint64 that can be written", r->where,
          (unsigned)*to);
  return false;
}

/* The output function of SplitMix64 (Steele, Lea and Flood, 2014). */
static uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
  return x ^ x >> 31;
}

/* A number that nobody can tell: the system's, or what differs from run to run. */
static uint64_t any_seed(const void* place) {
  uint64_t seed = 0;
  FILE* file = fopen("/dev/urandom", "rb");
  size_t read = file == NULL ? 0 : fread(&seed, sizeof seed, 1, file);
  if (file != NULL) fclose(file);
  if (read == 1) return seed;
  return mixed((uint64_t)td_now_ns() ^ mixed((uint64_t)getpid() + mixed((uintptr_t)place)));
}

/* A forked child is given a state of its own, unless the user has chosen the numbers. */
uint64_t td_random_key(td_random* state) {
  if (!state->is_chosen && state->process != (int64_t)getpid()) {
    state->next = any_seed(state);
    state->process = (int64_t)getpid();
  }
  return mixed(state->next += STEP);
}

void td_executor_seed(td_executor* e, uint64_t seed) {
  if (td_executor_lock(e, NULL) != TD_OK) return;
  e->own_random = (td_random){mixed(seed), 0, true};
  td_executor_unlock(e);
}
