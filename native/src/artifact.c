/* SPDX-License-Identifier: Apache-2.0 */
/* Artifacts: a tar of mod.so, mod.json and mod.params becomes an executor. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "executor.h"

#define MAX_MANIFEST_BYTES ((uint64_t)64 << 20)
#define MAX_CODE_BYTES ((uint64_t)1 << 30)
#define MAX_PARAMS_BYTES ((uint64_t)1 << 44)

enum { CODE, MANIFEST, PARAMS, NUM_MEMBERS };

/* What is open while an artifact is loaded. */
typedef struct {
  int fd;
  uint32_t flags;
  td_wanted members[NUM_MEMBERS];
  td_zone json_zone;
  const td_json* manifest;
  td_model* model;
  td_error* error;
} loading;

static bool is_hex(const char* text, size_t digits) {
  return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

/* The hash of a member in one of the manifest's tables; NULL if it is not there. */
static const char* expected_hash(const loading* l, const char* table, const char* member,
                                 size_t digits) {
  const td_json* hash = td_json_get(td_json_get(l->manifest, table), member);
  if (hash == NULL || hash->type != TD_JSON_STRING || !is_hex(hash->text, digits)) return NULL;
  return hash->text;
}

/* The plan's text against its checksum, if the manifest has one: damage to a number would otherwise
 * go unseen. */
static int32_t check_plan_text(const loading* l, const char* text) {
  const char* expected = expected_hash(l, "checksums", "treadle", 16);
  const td_json* plan = td_json_get(l->manifest, "treadle");
  if (expected == NULL) return TD_OK;
  char found[17];
  td_hash64(text + plan->start, plan->end - plan->start, found);
  if (strcmp(found, expected) == 0) return TD_OK;
  return td_fail(l->error, TD_ARTIFACT, "the execution plan (in mod.json) does not match its hash: "
                 "the artifact is damaged");
}

static int32_t parse_manifest(loading* l, const char* text, size_t bytes) {
  td_json* root;
  int32_t code = td_json_parse(text, bytes, &l->json_zone, &root, l->error);
  if (code != TD_OK) return code;
  l->manifest = root;
  const td_json* plan = td_json_get(root, "treadle");
  if (plan == NULL)
    return td_hint(
        l->error, td_fail(l->error, TD_ARTIFACT, "the manifest (mod.json) has no execution plan"),
        "this archive was not written by Treadle: compile the model with treadle compile");
  code = check_plan_text(l, text);
  if (code != TD_OK) return code;
  return td_model_take_plan(l->model, plan, text + plan->start, plan->end - plan->start, l->error);
}

static int32_t read_manifest(loading* l) {
  const td_member* member = &l->members[MANIFEST].member;
  char* text = malloc((size_t)member->bytes + 1);
  if (text == NULL) return td_fail(l->error, TD_MEMORY, "not enough memory to read mod.json");
  int32_t code = td_read_at(l->fd, text, (size_t)member->bytes, member->offset, l->error);
  if (code == TD_OK) code = parse_manifest(l, text, (size_t)member->bytes);
  free(text);
  return code;
}

static int32_t load_weights(loading* l) {
  td_expected expected = {expected_hash(l, "hashes", "mod.params", 64),
                          expected_hash(l, "checksums", "mod.params", 16),
                          (l->flags & TD_VERIFY) != 0};
  if (expected.sha256 == NULL && expected.hash64 == NULL)
    return td_fail(l->error, TD_ARTIFACT, "the manifest (mod.json) has no hash of mod.params");
  td_params params;
  int32_t code = td_params_read(l->fd, &l->members[PARAMS].member, &l->model->plan, &expected,
                                &l->model->zone, &params, l->error);
  if (code != TD_OK) return code;
  l->model->weights = params.weights;
  return td_model_set_constants(l->model, params.constants, params.count, l->error);
}

/* The kernels of a plan and its bodies; one that several use counts for each. */
static size_t count_kernels(const td_plan* plan) {
  size_t count = plan->num_kernels;
  for (uint32_t k = 0; k < plan->num_plans; k++) count += count_kernels(&plan->plans[k]);
  return count;
}

/* Looks all of them up; returns where the next symbol goes. */
static td_symbol* find_symbols(const loading* l, const td_plan* plan, td_symbol* symbol) {
  for (uint32_t i = 0; i < plan->num_kernels; i++)
    *symbol++ = (td_symbol){plan->kernels[i], td_library_kernel(l->model->library, plan->kernels[i])};
  for (uint32_t k = 0; k < plan->num_plans; k++) symbol = find_symbols(l, &plan->plans[k], symbol);
  return symbol;
}

static int32_t load_code(loading* l) {
  const char* sha256 = expected_hash(l, "hashes", "mod.so", 64);
  const td_member* member = &l->members[CODE].member;
  if (sha256 == NULL)
    return td_fail(l->error, TD_ARTIFACT, "the manifest (mod.json) has no SHA-256 of mod.so");
  if (member->bytes == 0 && count_kernels(&l->model->plan) == 0) return TD_OK; /* copies only */
  l->model->close_library = td_library_close;
  return td_library_open_range(l->fd, member->offset, (size_t)member->bytes, sha256,
                               &l->model->library, l->error);
}

static int32_t take_kernels(loading* l) {
  size_t count = count_kernels(&l->model->plan);
  td_symbol* symbols = calloc(count > 0 ? count : 1, sizeof *symbols);
  if (symbols == NULL) return td_fail(l->error, TD_MEMORY, "not enough memory for the model");
  if (l->model->library != NULL) find_symbols(l, &l->model->plan, symbols);
  int32_t code = td_model_set_kernels(l->model, symbols, count, l->error);
  free(symbols);
  return code;
}

/* The cheap checks first, the machine code last: dlopen may run code of the artifact. */
static int32_t load_all(loading* l, td_executor** executor) {
  int32_t code = td_tar_find(l->fd, l->members, NUM_MEMBERS, l->error);
  if (code == TD_OK) code = read_manifest(l);
  if (code == TD_OK) code = td_check_machine(&l->model->plan, l->error);
  if (code == TD_OK) code = load_weights(l);
  if (code == TD_OK) code = load_code(l);
  if (code == TD_OK) code = take_kernels(l);
  if (code == TD_OK) code = td_executor_open(l->model, executor, l->error);
  return code;
}

int32_t td_open_file(int fd, uint32_t flags, td_executor** executor, td_error* error) {
  *executor = NULL;
  if ((flags & ~TD_VERIFY) != 0)
    return td_fail(error, TD_ARGUMENT, "flags are 0 or TD_VERIFY, not %u", (unsigned)flags);
  if (td_is_shared_object(fd)) return td_shared_open(fd, flags, executor, error);
  loading l = {.fd = fd,
               .flags = flags,
               .members = {{"mod.so", MAX_CODE_BYTES, {0, 0, false}},
                           {"mod.json", MAX_MANIFEST_BYTES, {0, 0, false}},
                           {"mod.params", MAX_PARAMS_BYTES, {0, 0, false}}},
               .error = error};
  int32_t code = td_model_create(&l.model, error);
  if (code != TD_OK) return code;
  code = load_all(&l, executor);
  td_zone_free(&l.json_zone);
  td_model_drop(l.model); /* the executor is a user of its own */
  return code;
}

int32_t td_open(const char* path, td_executor** executor, td_error* error) {
  *executor = NULL;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return td_fail(error, TD_SYSTEM, "cannot open %.400s: %s", path, strerror(errno));
  int32_t code = td_open_file(fd, 0, executor, error);
  close(fd);
  return code;
}

int32_t td_open_memory(const void* data, size_t bytes, uint32_t flags, td_executor** executor,
                       td_error* error) {
  char path[1024];
  bool temporary;
  *executor = NULL;
  if (data == NULL && bytes > 0) return td_fail(error, TD_ARGUMENT, "the artifact has no data");
  int fd = td_private_file(path, sizeof path, &temporary);
  if (fd < 0)
    return td_fail(error, TD_SYSTEM, "cannot make a file for the artifact: %s", strerror(errno));
  if (temporary) unlink(path);
  int32_t code = td_write_all(fd, data, bytes, error);
  if (code == TD_OK) code = td_open_file(fd, flags, executor, error);
  close(fd);
  return code;
}
