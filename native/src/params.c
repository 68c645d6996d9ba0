/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights (mod.params): the list-of-arrays format, mapped or read into one block of memory.
 *
 * A first walk reads headers only and checks every length and type. Where arrays lie aligned in the
 * file, as Treadle writes them, the member is mapped and they are used where they are; what is not
 * aligned is copied. A file without any, a small one, or one that cannot be mapped is read in order,
 * arrays directly to their place.
 *
 * The content hash finds damage, nothing else depends on it: lengths and types are checked without
 * it. It is compared whenever the weights are read anyway. Mapped ones are compared up to
 * VERIFIED_BYTES, once per process; more only on demand, for that would take longer than all the
 * rest of loading.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define LIST_MAGIC 0xF7E58D4F05049CB7ULL
#define ARRAY_MAGIC 0xDD5E40F096B4A13FULL
#define MAX_ARRAYS 200000u
#define MAX_NAME_BYTES 4096u
#define PIECE ((size_t)256 << 10)
#define MAPPED_BYTES ((uint64_t)1 << 20) /* less is copied faster than mapped */
#define VERIFIED_BYTES ((uint64_t)64 << 20)
#define HEADER_PIECE ((size_t)8 << 10) /* more than MAX_NAME_BYTES */

/* ---- a cursor over the member ---------------------------------------------------------------- */

typedef struct {
  int fd;
  uint64_t at, end; /* in the file */
  uint64_t buffered_at;
  size_t buffered;
  unsigned char* buffer; /* PIECE bytes */
  td_error* error;
  int32_t code;
} cursor;

static bool fail(cursor* c, const char* what) {
  c->code = td_fail(c->error, TD_ARTIFACT, "the weights (mod.params) are damaged: %s", what);
  return false;
}

/* Fills the buffer with what follows `at`. */
static bool refill(cursor* c) {
  uint64_t left = c->end - c->at;
  c->buffered = left < HEADER_PIECE ? (size_t)left : HEADER_PIECE;
  c->buffered_at = c->at;
  c->code = td_read_at(c->fd, c->buffer, c->buffered, c->at, c->error);
  return c->code == TD_OK;
}

static bool read_bytes(cursor* c, void* data, size_t bytes) {
  if (bytes > c->end - c->at) return fail(c, "they are cut off");
  uint64_t inside = c->at - c->buffered_at;
  if (c->at < c->buffered_at || inside > c->buffered || c->buffered - inside < bytes) {
    if (!refill(c)) return false;
    inside = 0;
  }
  memcpy(data, c->buffer + inside, bytes);
  c->at += bytes;
  return true;
}

/* The next little-endian number. */
static bool read_u64(cursor* c, uint64_t* value) {
  unsigned char raw[8];
  if (!read_bytes(c, raw, sizeof raw)) return false;
  *value = 0;
  for (int i = 7; i >= 0; i--) *value = *value << 8 | raw[i];
  return true;
}

/* ---- first walk: headers --------------------------------------------------------------------- */

typedef struct {
  const char* name;
  const td_dtype* dtype;
  int64_t shape[TD_MAX_NDIM];
  int32_t ndim;
  uint64_t offset; /* of the data in the file */
  size_t bytes;
  bool is_needed; /* by the plan */
  bool is_mapped; /* it is used where it lies in the file */
  unsigned char* place; /* for the data of one that is needed and not mapped */
} array;

typedef struct {
  cursor in;
  td_zone* zone;
  array* arrays;
  size_t count;
} walk;

static bool no_memory(walk* w) {
  w->in.code = td_fail(w->in.error, TD_MEMORY, "not enough memory to read the weights");
  return false;
}

static bool read_name(walk* w, const char** name) {
  uint64_t bytes;
  if (!read_u64(&w->in, &bytes)) return false;
  if (bytes == 0 || bytes > MAX_NAME_BYTES) return fail(&w->in, "a name has an impossible length");
  char* text = td_zone_alloc(w->zone, (size_t)bytes + 1, 1);
  if (text == NULL) return no_memory(w);
  if (!read_bytes(&w->in, text, (size_t)bytes)) return false;
  if (memchr(text, '\0', (size_t)bytes) != NULL) return fail(&w->in, "a name holds a NUL");
  *name = text;
  return true;
}

static bool read_names(walk* w) {
  uint64_t magic, reserved, count;
  if (!read_u64(&w->in, &magic) || !read_u64(&w->in, &reserved) || !read_u64(&w->in, &count))
    return false;
  if (magic != LIST_MAGIC) return fail(&w->in, "they do not start with the format's mark");
  if (count > MAX_ARRAYS || count > (w->in.end - w->in.at) / 8)
    return fail(&w->in, "they claim an impossible number of arrays");
  w->arrays = td_zone_alloc(w->zone, (size_t)count, sizeof *w->arrays);
  td_name* names = td_zone_alloc(w->zone, (size_t)count, sizeof *names);
  if (w->arrays == NULL || names == NULL) return no_memory(w);
  w->count = (size_t)count;
  for (size_t i = 0; i < w->count; i++) {
    if (!read_name(w, &w->arrays[i].name)) return false;
    names[i].name = w->arrays[i].name;
  }
  td_names_sort(names, w->count);
  if (td_names_duplicate(names, w->count) != NULL) return fail(&w->in, "a name occurs twice");
  return true;
}

static bool read_type(walk* w, array* a) {
  unsigned char raw[16]; /* i32 device type, i32 device id, i32 ndim, u8 code, u8 bits, u16 lanes */
  if (!read_bytes(&w->in, raw, sizeof raw)) return false;
  uint32_t device = raw[0] | (uint32_t)raw[1] << 8 | (uint32_t)raw[2] << 16 |
                    (uint32_t)raw[3] << 24;
  uint32_t ndim = raw[8] | (uint32_t)raw[9] << 8 | (uint32_t)raw[10] << 16 |
                  (uint32_t)raw[11] << 24;
  if (device != 1) return fail(&w->in, "an array is not in CPU memory");
  if (ndim > TD_MAX_NDIM) return fail(&w->in, "an array has too many dimensions");
  a->ndim = (int32_t)ndim;
  a->dtype = td_dtype_by_code(raw[12], raw[13]);
  if (a->dtype == NULL || raw[14] != 1 || raw[15] != 0)
    return fail(&w->in, "an array has an unknown element type");
  return true;
}

static bool read_array_header(walk* w, array* a) {
  uint64_t magic, reserved, bytes, size;
  size_t expected;
  if (!read_u64(&w->in, &magic) || !read_u64(&w->in, &reserved)) return false;
  if (magic != ARRAY_MAGIC) return fail(&w->in, "an array does not start with the format's mark");
  if (!read_type(w, a)) return false;
  for (int32_t i = 0; i < a->ndim; i++) {
    if (!read_u64(&w->in, &size)) return false;
    if (size > INT64_MAX) return fail(&w->in, "an array has a negative size");
    a->shape[i] = (int64_t)size;
  }
  if (!read_u64(&w->in, &bytes)) return false;
  if (!td_tensor_bytes(a->dtype, a->shape, a->ndim, &expected) || expected != bytes)
    return fail(&w->in, "the length of an array contradicts its shape");
  if (bytes > w->in.end - w->in.at) return fail(&w->in, "they are cut off");
  a->bytes = (size_t)bytes;
  a->offset = w->in.at;
  w->in.at += bytes;
  return true;
}

static bool read_headers(walk* w) {
  uint64_t count;
  if (!read_names(w) || !read_u64(&w->in, &count)) return false;
  if (count != w->count) return fail(&w->in, "there are not as many arrays as names");
  for (size_t i = 0; i < w->count; i++)
    if (!read_array_header(w, &w->arrays[i])) return false;
  return w->in.at == w->in.end || fail(&w->in, "there is something after the last array");
}

/* ---- against the plan ------------------------------------------------------------------------ */

static bool same_type(const array* a, const td_value* value) {
  return a->dtype == value->dtype && a->ndim == value->ndim &&
         memcmp(a->shape, value->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0;
}

/* Marks the arrays that a plan and its bodies use and checks their types. */
static bool mark_arrays(walk* w, const td_plan* plan, const td_name* names) {
  for (uint32_t v = 0; v < plan->num_values; v++) {
    const td_value* value = &plan->values[v];
    if (value->kind != TD_VALUE_CONSTANT) continue;
    const td_name* name = td_names_find(names, w->count, value->param);
    if (name == NULL || !same_type(&w->arrays[name->position], value)) {
      w->in.code = td_fail(w->in.error, TD_ARTIFACT, "constant \"%.200s\" of the plan %s", value->param,
                           name == NULL ? "is not among the weights (mod.params)"
                                        : "differs in type or shape from the weights (mod.params)");
      return false;
    }
    w->arrays[name->position].is_needed = true;
  }
  for (uint32_t k = 0; k < plan->num_plans; k++)
    if (!mark_arrays(w, &plan->plans[k], names)) return false;
  return true;
}

static bool match_plan(walk* w, const td_plan* plan) {
  td_name* names = td_zone_alloc(w->zone, w->count, sizeof *names);
  if (names == NULL) return no_memory(w);
  for (size_t i = 0; i < w->count; i++) names[i] = (td_name){w->arrays[i].name, i};
  td_names_sort(names, w->count);
  return mark_arrays(w, plan, names);
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Maps the member if that is worth while: if enough of it can be used where it lies. */
static void map_arrays(walk* w, const td_member* member, td_params* params) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < w->count; i++) {
    array* a = &w->arrays[i];
    a->is_mapped = a->is_needed && a->offset % TD_ALIGNMENT == 0;
    if (a->is_mapped) bytes += a->bytes;
  }
  if (bytes >= MAPPED_BYTES && member->bytes <= SIZE_MAX / 2)
    params->weights.mapping = td_mapping_open(w->in.fd, member->offset, (size_t)member->bytes);
  for (size_t i = 0; i < w->count && params->weights.mapping == NULL; i++)
    w->arrays[i].is_mapped = false;
}

static size_t padded(size_t bytes) { return (bytes + TD_ALIGNMENT - 1) & ~(TD_ALIGNMENT - 1); }

/* Makes memory for the arrays that are not mapped. */
static bool make_block(walk* w, td_params* params) {
  size_t bytes = 0, count = 0;
  for (size_t i = 0; i < w->count; i++) {
    if (!w->arrays[i].is_needed || w->arrays[i].is_mapped) continue;
    bytes += padded(w->arrays[i].bytes);
    count++;
  }
  if (count == 0) return true;
  unsigned char* at = params->weights.block = td_alloc(bytes, w->in.error);
  if (at == NULL) {
    w->in.code = TD_MEMORY;
    return false;
  }
  for (size_t i = 0; i < w->count; i++) {
    array* a = &w->arrays[i];
    if (!a->is_needed || a->is_mapped) continue;
    a->place = at;
    at += padded(a->bytes);
  }
  return true;
}

static bool place_arrays(walk* w, const td_member* member, td_params* params) {
  map_arrays(w, member, params);
  if (!make_block(w, params)) return false;
  params->constants = td_zone_alloc(w->zone, w->count, sizeof *params->constants);
  if (params->constants == NULL) return no_memory(w);
  for (size_t i = 0; i < w->count; i++) {
    const array* a = &w->arrays[i];
    if (!a->is_needed) continue;
    const void* data = a->place;
    if (a->is_mapped)
      data = td_mapping_data(params->weights.mapping) + (a->offset - member->offset);
    params->constants[params->count++] = (td_constant){a->name, data, a->bytes};
  }
  return true;
}

/* ---- data ------------------------------------------------------------------------------------ */

typedef struct {
  const char* sha256; /* expected; NULL if the other one is */
  const char* hash64;
  td_sha256_state sha256_state;
  td_hash64_state hash64_state;
} check;

static void check_add(check* c, const void* data, size_t bytes) {
  if (c->hash64 != NULL) td_hash64_add(&c->hash64_state, data, bytes);
  else td_sha256_add(&c->sha256_state, data, bytes);
}

static bool check_holds(check* c) {
  char hex[65];
  if (c->hash64 != NULL) td_hash64_hex(&c->hash64_state, hex);
  else td_sha256_hex(&c->sha256_state, hex);
  return strcmp(hex, c->hash64 != NULL ? c->hash64 : c->sha256) == 0;
}

/* Reads [at, at + bytes) into `place`, or only hashes it if there is none, piece by piece so that
 * the hash finds the bytes in the cache. */
static bool read_range(walk* w, uint64_t at, uint64_t bytes, unsigned char* place, check* c) {
  while (bytes > 0) {
    size_t piece = bytes < PIECE ? (size_t)bytes : PIECE;
    unsigned char* to = place != NULL ? place : w->in.buffer;
    w->in.code = td_read_at(w->in.fd, to, piece, at, w->in.error);
    if (w->in.code != TD_OK) return false;
    check_add(c, to, piece);
    at += piece;
    bytes -= piece;
    if (place != NULL) place += piece;
  }
  return true;
}

static bool compare(walk* w, check* c) {
  if (check_holds(c)) return true;
  w->in.code = td_fail(w->in.error, TD_ARTIFACT, "the weights (mod.params) do not match their hash "
                       "in the manifest: the artifact is damaged");
  return false;
}

static bool read_data(walk* w, const td_member* member, check* c) {
  uint64_t at = member->offset;
  for (size_t i = 0; i < w->count; i++) {
    array* a = &w->arrays[i];
    if (!read_range(w, at, a->offset - at, NULL, c)) return false;
    if (!read_range(w, a->offset, a->bytes, a->place, c)) return false;
    at = a->offset + a->bytes;
  }
  return read_range(w, at, member->offset + member->bytes - at, NULL, c) && compare(w, c);
}

/* Compares the hash of a mapped member as the head of this file says, and copies the arrays that
 * cannot be used where they lie. */
static bool check_mapped(walk* w, const td_member* member, bool all, td_mapping* mapping,
                         check* c) {
  const unsigned char* data = td_mapping_data(mapping);
  if ((all || member->bytes <= VERIFIED_BYTES) && !td_mapping_is_verified(mapping)) {
    check_add(c, data, (size_t)member->bytes);
    if (!compare(w, c)) return false;
    td_mapping_set_verified(mapping);
  }
  for (size_t i = 0; i < w->count; i++) {
    const array* a = &w->arrays[i];
    if (a->place != NULL) memcpy(a->place, data + (a->offset - member->offset), a->bytes);
  }
  return true;
}

static bool read_all(walk* w, const td_member* member, const td_plan* plan, bool all, check* c,
                     td_params* params) {
  if (!read_headers(w) || !match_plan(w, plan) || !place_arrays(w, member, params)) return false;
  if (params->weights.mapping == NULL) return read_data(w, member, c);
  return check_mapped(w, member, all, params->weights.mapping, c);
}

int32_t td_params_read(int fd, const td_member* member, const td_plan* plan,
                       const td_expected* expected, td_zone* zone, td_params* params,
                       td_error* error) {
  memset(params, 0, sizeof *params);
  walk w = {.in = {.fd = fd, .at = member->offset, .end = member->offset + member->bytes,
                   .error = error, .buffer = malloc(PIECE)},
            .zone = zone};
  check c = {.sha256 = expected->sha256, .hash64 = expected->hash64};
  td_sha256_start(&c.sha256_state);
  td_hash64_start(&c.hash64_state);
  if (w.in.buffer == NULL) no_memory(&w);
  else (void)read_all(&w, member, plan, expected->all, &c, params);
  free(w.in.buffer);
  if (w.in.code != TD_OK) td_weights_drop(&params->weights);
  return w.in.code;
}
