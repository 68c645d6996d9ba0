/* SPDX-License-Identifier: Apache-2.0 */
/* Objects by handle. */
#include <stdlib.h>

#include "session.h"

#define SLOT_BITS 20
#define MOST (1u << SLOT_BITS)

static bool grow(rpc_table* table) {
  uint32_t wanted = table->capacity == 0 ? 16 : 2 * table->capacity;
  rpc_slot* grown = realloc(table->slots, wanted * sizeof *grown);
  if (grown == NULL) return false;
  for (uint32_t i = table->capacity; i < wanted; i++) grown[i] = (rpc_slot){0};
  table->slots = grown;
  table->capacity = wanted;
  return true;
}

/* The number of a free slot, from 1; 0 where there is none. */
static uint32_t free_slot(rpc_table* table) {
  uint32_t slot = table->first_free;
  if (slot != 0) {
    table->first_free = table->slots[slot].next_free;
    return slot;
  }
  if (table->count + 1 >= MOST) return 0;
  if (table->count + 1 >= table->capacity && !grow(table)) return 0;
  return ++table->count;
}

int64_t rpc_table_add(rpc_table* table, void* object, rpc_error* error) {
  uint32_t slot = free_slot(table);
  if (slot == 0) {
    rpc_fail(error, "the session holds too many %ss", table->what);
    rpc_hint(error, "free some");
    return 0;
  }
  table->slots[slot].object = object;
  return (int64_t)(table->slots[slot].generation << SLOT_BITS | slot);
}

static rpc_slot* find(const rpc_table* table, int64_t handle) {
  uint64_t slot = (uint64_t)handle & (MOST - 1);
  if (handle <= 0 || slot == 0 || slot > table->count) return NULL;
  rpc_slot* found = &table->slots[slot];
  bool is_it = found->object != NULL && found->generation == (uint64_t)handle >> SLOT_BITS;
  return is_it ? found : NULL;
}

void* rpc_table_at(const rpc_table* table, int64_t handle, rpc_error* error) {
  const rpc_slot* found = find(table, handle);
  if (found != NULL) return found->object;
  if (error != NULL)
    rpc_fail(error, "the session has no %s %lld: it was freed, or never made", table->what,
             (long long)handle);
  return NULL;
}

void* rpc_table_remove(rpc_table* table, int64_t handle) {
  rpc_slot* found = find(table, handle);
  if (found == NULL) return NULL;
  void* object = found->object;
  found->object = NULL;
  found->generation++;
  found->next_free = table->first_free;
  table->first_free = (uint32_t)(found - table->slots);
  return object;
}
