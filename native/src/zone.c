/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is released all at once, and sorted name tables. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define BLOCK_BYTES ((size_t)64 << 10)

struct td_zone_block {
  td_zone_block* next;
  size_t bytes;
  _Alignas(16) unsigned char data[];
};

static td_zone_block* add_block(td_zone* zone, size_t bytes) {
  size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
  td_zone_block* block = calloc(1, sizeof *block + size);
  if (block == NULL) return NULL;
  block->bytes = size;
  block->next = zone->blocks;
  zone->blocks = block;
  zone->used = 0;
  return block;
}

void* td_zone_alloc(td_zone* zone, size_t count, size_t item_bytes) {
  if (item_bytes != 0 && count > (SIZE_MAX >> 1) / item_bytes) return NULL;
  size_t bytes = (count * item_bytes + 15) & ~(size_t)15;
  td_zone_block* block = zone->blocks;
  if (block == NULL || bytes > block->bytes - zone->used) block = add_block(zone, bytes);
  if (block == NULL) return NULL;
  void* memory = block->data + zone->used;
  zone->used += bytes;
  return memory;
}

char* td_zone_text(td_zone* zone, const char* text) {
  size_t bytes = strlen(text) + 1;
  char* copy = td_zone_alloc(zone, bytes, 1);
  return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

void td_zone_free(td_zone* zone) {
  while (zone->blocks != NULL) {
    td_zone_block* next = zone->blocks->next;
    free(zone->blocks);
    zone->blocks = next;
  }
  zone->used = 0;
}

static int compare_names(const void* a, const void* b) {
  return strcmp(((const td_name*)a)->name, ((const td_name*)b)->name);
}

void td_names_sort(td_name* names, size_t count) {
  if (count > 1) qsort(names, count, sizeof *names, compare_names);
}

const td_name* td_names_find(const td_name* names, size_t count, const char* name) {
  td_name key = {name, 0};
  return count == 0 ? NULL : bsearch(&key, names, count, sizeof *names, compare_names);
}

const char* td_names_duplicate(const td_name* names, size_t count) {
  for (size_t i = 1; i < count; i++)
    if (strcmp(names[i - 1].name, names[i].name) == 0) return names[i].name;
  return NULL;
}
