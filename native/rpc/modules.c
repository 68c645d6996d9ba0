/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels in files: libraries that treadle.build(...).save wrote, and what tables say of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session.h"

#define LIBRARY_TEXT "treadle_kernels"

/* ---- what kernels take ----------------------------------------------------------------------- */

static bool unreadable(rpc_error* error, const char* what) {
  return rpc_fail_as(error, "ArtifactError",
                     "what the file says of its kernels cannot be read: %.100s", what);
}

static const td_json* member(const td_json* object, const char* key, td_json_type type) {
  const td_json* found = object->type == TD_JSON_OBJECT ? td_json_get(object, key) : NULL;
  return found != NULL && found->type == type ? found : NULL;
}

static int64_t find_size(const rpc_kernel* kernel, const char* name) {
  for (uint32_t i = 0; i < kernel->num_sizes; i++)
    if (strcmp(kernel->sizes[i], name) == 0) return i;
  return -1;
}

static bool read_extent(const rpc_kernel* kernel, const td_json* json, rpc_extent* extent,
                        rpc_error* error) {
  if (json->type == TD_JSON_INTEGER && json->integer >= 0) {
    *extent = (rpc_extent){.kind = RPC_NUMBER, .number = json->integer};
    return true;
  }
  if (json->type == TD_JSON_STRING) {
    *extent = (rpc_extent){RPC_SIZE, find_size(kernel, json->text), json->text, NULL};
    return extent->number >= 0 ||
           rpc_fail_as(error, "UsageError", "kernel %.200s does not list the size '%.100s' it uses",
                       kernel->name, json->text);
  }
  const td_json* text = member(json, "text", TD_JSON_STRING);
  const td_json* formula = json->type == TD_JSON_OBJECT ? td_json_get(json, "formula") : NULL;
  if (text == NULL || !rpc_is_formula(formula, kernel->num_sizes))
    return unreadable(error, "an extent");
  *extent = (rpc_extent){RPC_FORMULA, 0, text->text, formula};
  return true;
}

static bool read_param(rpc_module* module, const rpc_kernel* kernel, const td_json* json,
                       rpc_param* param, rpc_error* error) {
  const td_json* name = member(json, "name", TD_JSON_STRING);
  const td_json* dtype = member(json, "dtype", TD_JSON_STRING);
  const td_json* shape = member(json, "shape", TD_JSON_ARRAY);
  if (name == NULL || dtype == NULL || shape == NULL || shape->count > TD_MAX_NDIM)
    return unreadable(error, "a parameter");
  *param = (rpc_param){name->text, td_dtype_by_name(dtype->text), shape->count,
                       td_zone_alloc(&module->zone, (size_t)shape->count + 1,
                                     sizeof *param->shape)};
  if (param->dtype == NULL) return unreadable(error, dtype->text);
  if (param->shape == NULL) return rpc_fail(error, "the device has not enough memory");
  rpc_extent* extent = param->shape;
  for (const td_json* size = shape->child; size != NULL; size = size->next)
    if (!read_extent(kernel, size, extent++, error)) return false;
  return true;
}

static bool read_sizes(rpc_module* module, rpc_kernel* kernel, const td_json* symbols,
                       rpc_error* error) {
  kernel->sizes = td_zone_alloc(&module->zone, (size_t)symbols->count + 1, sizeof *kernel->sizes);
  if (kernel->sizes == NULL) return rpc_fail(error, "the device has not enough memory");
  for (const td_json* symbol = symbols->child; symbol != NULL; symbol = symbol->next) {
    if (symbol->type != TD_JSON_STRING) return unreadable(error, "symbols");
    kernel->sizes[kernel->num_sizes++] = symbol->text;
  }
  return true;
}

static bool read_kernel(rpc_module* module, const td_json* json, rpc_kernel* kernel,
                        rpc_error* error) {
  const td_json* params = member(json, "params", TD_JSON_ARRAY);
  const td_json* symbols = member(json, "symbols", TD_JSON_ARRAY);
  const td_json* workspace = json->type == TD_JSON_OBJECT ? td_json_get(json, "workspace_bytes")
                                                          : NULL;
  *kernel = (rpc_kernel){.name = json->key};
  if (params == NULL || symbols == NULL || workspace == NULL ||
      workspace->type == TD_JSON_STRING)
    return unreadable(error, json->key);
  if (!read_sizes(module, kernel, symbols, error) ||
      !read_extent(kernel, workspace, &kernel->workspace, error))
    return false;
  kernel->params = td_zone_alloc(&module->zone, (size_t)params->count + 1,
                                 sizeof *kernel->params);
  if (kernel->params == NULL) return rpc_fail(error, "the device has not enough memory");
  for (const td_json* param = params->child; param != NULL; param = param->next)
    if (!read_param(module, kernel, param, &kernel->params[kernel->num_params++], error))
      return false;
  return true;
}

bool rpc_read_kernels(rpc_module* module, const td_json* table, rpc_error* error) {
  if (table == NULL || table->type != TD_JSON_OBJECT) return unreadable(error, "kernels");
  module->kernels = td_zone_alloc(&module->zone, (size_t)table->count + 1,
                                  sizeof *module->kernels);
  if (module->kernels == NULL) return rpc_fail(error, "the device has not enough memory");
  for (const td_json* row = table->child; row != NULL; row = row->next)
    if (!read_kernel(module, row, &module->kernels[module->count++], error)) return false;
  return true;
}

/* ---- modules --------------------------------------------------------------------------------- */

void rpc_module_drop(rpc_module* module) {
  if (module == NULL) return;
  if (module->library != NULL) td_library_close(module->library);
  td_zone_free(&module->zone);
  free(module);
}

static bool find_kernels(rpc_module* module, rpc_error* error) {
  if (module->count == 0)
    return rpc_fail_as(error, "UsageError", "a module needs at least one kernel");
  for (uint32_t i = 0; i < module->count; i++) {
    rpc_kernel* kernel = &module->kernels[i];
    kernel->kernel = td_library_kernel(module->library, kernel->name);
    if (kernel->kernel == NULL)
      return rpc_fail_as(error, "ArtifactError", "the machine code has no kernel '%.300s'",
                         kernel->name);
  }
  return true;
}

bool rpc_add_module(rpc_session* session, rpc_module* module, rpc_call* call) {
  int64_t handle = 0;
  if (find_kernels(module, call->error))
    handle = rpc_table_add(&session->modules, module, call->error);
  if (handle == 0) {
    rpc_module_drop(module);
    return false;
  }
  rpc_put_list(call->out, 2);
  rpc_put_int(call->out, handle);
  rpc_put_list(call->out, module->count);
  for (uint32_t i = 0; i < module->count; i++) rpc_put_text(call->out, module->kernels[i].name);
  return true;
}

bool rpc_module_free(rpc_session* session, rpc_call* call) {
  int64_t handle = rpc_take_int(&call->args, 0, INT64_MAX);
  if (!rpc_args_end(&call->args)) return false;
  rpc_module_drop(rpc_table_remove(&session->modules, handle));
  rpc_put_list(call->out, 0);
  return true;
}

/* ---- libraries ------------------------------------------------------------------------------- */

static bool check_features(const td_json* features, rpc_error* error) {
  char missing[512] = "";
  size_t used = 0;
  for (const td_json* feature = features->child; feature != NULL; feature = feature->next) {
    if (feature->type != TD_JSON_STRING) return unreadable(error, "cpu_features");
    if (td_cpu_has(feature->text) == 1 || used > sizeof missing - 100) continue;
    used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%.64s",
                             used > 0 ? ", " : "", feature->text);
  }
  if (used == 0) return true;
  rpc_fail_as(error, "ArtifactError", "the kernels need CPU features that this machine lacks: %s",
              missing);
  return rpc_hint(error, "build them for this machine");
}

static bool read_description(rpc_module* module, const char* text, size_t size,
                             rpc_error* error) {
  td_error failed;
  td_json* root;
  if (td_json_parse(text, size, &module->zone, &root, &failed) != TD_OK)
    return unreadable(error, failed.text);
  const td_json* features = member(root, "cpu_features", TD_JSON_ARRAY);
  if (features == NULL) return unreadable(error, "cpu_features");
  return check_features(features, error) &&
         rpc_read_kernels(module, member(root, "kernels", TD_JSON_OBJECT), error);
}

static bool load(rpc_module* module, int fd, rpc_text given, rpc_error* error) {
  td_error failed;
  struct stat status;
  if (fstat(fd, &status) != 0) return rpc_fail(error, "the file cannot be read");
  if (td_library_open_range(fd, 0, (size_t)status.st_size, NULL, &module->library, &failed) !=
      TD_OK)
    return rpc_fail_td(error, &failed, "");
  if (given.size > 0) return read_description(module, given.data, given.size, error);
  const char* text = td_library_symbol(module->library, LIBRARY_TEXT);
  if (text != NULL) return read_description(module, text, strlen(text), error);
  rpc_fail_as(error, "ArtifactError", "the library does not say which kernels it holds");
  return rpc_hint(error, "load one that treadle.build(...).save made; models are loaded by "
                  "Session.load");
}

bool rpc_module_load(rpc_session* session, rpc_call* call) {
  char name[160];
  rpc_text file = rpc_take_text(&call->args, 4096);
  rpc_text given = rpc_take_text(&call->args, RPC_LARGEST_FRAME);
  if (!rpc_args_end(&call->args)) return false;
  int fd = rpc_files_located(&session->files, file, name, sizeof name, call->error);
  if (fd < 0) return false;
  rpc_module* module = calloc(1, sizeof *module);
  bool ok = module != NULL || rpc_fail(call->error, "the device has not enough memory");
  ok = ok && load(module, fd, given, call->error);
  close(fd);
  if (ok) return rpc_add_module(session, module, call);
  snprintf(call->error->at, sizeof call->error->at, "%s", name);
  rpc_module_drop(module);
  return false;
}
