/* SPDX-License-Identifier: Apache-2.0 */
/* Linked models: code, plan and weights are part of the program, or of a shared object. */
#include "executor.h"

static int32_t check_format(const td_linked* linked, td_error* error) {
  if (linked == NULL) return td_fail(error, TD_ARGUMENT, "no model is given");
  if (linked->format == TD_LINKED_FORMAT) return TD_OK;
  return td_hint(error,
                 td_fail(error, TD_UNSUPPORTED, "the linked model has format %u; this runtime knows "
                         "format %u", (unsigned)linked->format, TD_LINKED_FORMAT),
                 "compile the model and build the runtime with the same version of Treadle");
}

static int32_t check_memory(const td_plan* plan, size_t bytes, td_error* error) {
  if (plan->is_dynamic)
    return td_hint(error,
                   td_fail(error, TD_ARGUMENT, "the model has sizes that each run decides: how much "
                           "memory it needs is not known before"),
                   "compile it with fixed sizes, or call td_open_linked");
  size_t need = td_lent_bytes(plan);
  if (bytes >= need) return TD_OK;
  return td_hint(error,
                 td_fail(error, TD_MEMORY, "the model needs %zu bytes of working memory; %zu are given",
                         need, bytes),
                 "td_linked.arena_bytes says how many it needs");
}

static int32_t fill(td_model* model, const td_linked* linked, const void* memory, size_t bytes,
                    td_error* error) {
  int32_t code = td_model_read_plan(model, linked->plan, linked->plan_bytes, error);
  if (code == TD_OK && memory != NULL) code = check_memory(&model->plan, bytes, error);
  if (code == TD_OK) code = td_check_machine(&model->plan, error);
  if (code == TD_OK)
    code = td_model_set_kernels(model, linked->kernels, linked->num_kernels, error);
  if (code == TD_OK)
    code = td_model_set_constants(model, linked->constants, linked->num_constants, error);
  return code;
}

int32_t td_linked_open(const td_linked* linked, td_library* library,
                       void (*close_library)(td_library*), void* memory, size_t bytes,
                       td_executor** executor, td_error* error) {
  td_model* model;
  *executor = NULL;
  int32_t code = td_model_create(&model, error);
  if (code != TD_OK) {
    if (close_library != NULL) close_library(library);
    return code;
  }
  model->library = library;
  model->close_library = close_library;
  code = check_format(linked, error);
  if (code == TD_OK) code = fill(model, linked, memory, bytes, error);
  if (code == TD_OK)
    code = memory != NULL ? td_executor_make_in(model, memory, executor, error)
                          : td_executor_open(model, executor, error);
  td_model_drop(model); /* the executor is a user of its own */
  return code;
}

int32_t td_open_linked(const td_linked* model, td_executor** executor, td_error* error) {
  return td_linked_open(model, NULL, NULL, NULL, 0, executor, error);
}

int32_t td_open_static(const td_linked* model, void* memory, size_t bytes, td_executor** executor,
                       td_error* error) {
  *executor = NULL;
  if (memory == NULL) return td_fail(error, TD_ARGUMENT, "no working memory is given");
  return td_linked_open(model, NULL, NULL, memory, bytes, executor, error);
}
