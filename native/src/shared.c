/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared objects that hold a linked model: checked, then loaded where they are.
 *
 * Treadle ends such a file with MARK and the hash of all bytes before it. Loaders do not look there,
 * and tools that rewrite the file (strip) drop it: then there is nothing to compare.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "executor.h"

#define MARK "treadle-hash64: "
#define MARK_BYTES (sizeof MARK - 1)
#define HASH_BYTES ((size_t)16)
#define PIECE ((size_t)256 << 10)
#define VERIFIED_BYTES ((uint64_t)64 << 20) /* as of weights: more takes longer than loading */

bool td_is_shared_object(int fd) {
  char start[4];
  return td_read_at(fd, start, sizeof start, 0, NULL) == TD_OK && memcmp(start, "\177ELF", 4) == 0;
}

static int32_t hash_file(int fd, uint64_t bytes, char hex[17], td_error* error) {
  unsigned char* buffer = malloc(PIECE);
  if (buffer == NULL) return td_fail(error, TD_MEMORY, "not enough memory to check the file");
  td_hash64_state state;
  td_hash64_start(&state);
  int32_t code = TD_OK;
  for (uint64_t at = 0; at < bytes && code == TD_OK; at += PIECE) {
    size_t piece = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
    code = td_read_at(fd, buffer, piece, at, error);
    if (code == TD_OK) td_hash64_add(&state, buffer, piece);
  }
  td_hash64_hex(&state, hex);
  free(buffer);
  return code;
}

static int32_t check_hash(int fd, uint64_t size, bool all, td_error* error) {
  char end[MARK_BYTES + HASH_BYTES], found[17];
  bool has_hash = size > sizeof end &&
                  td_read_at(fd, end, sizeof end, size - sizeof end, NULL) == TD_OK &&
                  memcmp(end, MARK, MARK_BYTES) == 0;
  if (!has_hash)
    return all ? td_fail(error, TD_ARTIFACT, "the shared object does not end with its hash: there is "
                         "nothing to verify it with") : TD_OK;
  if (!all && size > VERIFIED_BYTES) return TD_OK;
  int32_t code = hash_file(fd, size - sizeof end, found, error);
  if (code != TD_OK || memcmp(found, end + MARK_BYTES, HASH_BYTES) == 0) return code;
  return td_fail(error, TD_ARTIFACT, "the shared object does not match the hash at its end: it is "
                 "damaged");
}

int32_t td_shared_open(int fd, uint32_t flags, td_executor** executor, td_error* error) {
  struct stat status;
  td_library* library;
  *executor = NULL;
  if (fstat(fd, &status) != 0) return td_fail(error, TD_SYSTEM, "cannot read the shared object");
  uint64_t size = (uint64_t)status.st_size;
  int32_t code = check_hash(fd, size, (flags & TD_VERIFY) != 0, error);
  if (code == TD_OK) code = td_library_open_in_place(fd, size, &library, error);
  if (code != TD_OK) return code;
  const td_linked* linked = td_library_symbol(library, "treadle_model");
  if (linked != NULL)
    return td_linked_open(linked, library, td_library_close, NULL, 0, executor, error);
  td_library_close(library);
  return td_hint(error, td_fail(error, TD_ARTIFACT, "the shared object holds no model"),
                 "make one with treadle compile --output-format so");
}
