/* SPDX-License-Identifier: Apache-2.0 */
/* Models: what all executors of one share (plan, kernels, weights), released with the last one. */
#include <stdlib.h>
#include <string.h>

#include "executor.h"

static int32_t no_memory(td_error* error) {
  return td_fail(error, TD_MEMORY, "not enough memory for the model");
}

int32_t td_model_create(td_model** model, td_error* error) {
  *model = calloc(1, sizeof **model);
  if (*model == NULL) return no_memory(error);
  atomic_init(&(*model)->users, 1);
  return TD_OK;
}

td_model* td_model_use(td_model* model) {
  atomic_fetch_add_explicit(&model->users, 1, memory_order_relaxed);
  return model;
}

void td_model_drop(td_model* model) {
  if (atomic_fetch_sub_explicit(&model->users, 1, memory_order_acq_rel) != 1) return;
  for (size_t i = 0; model->copies != NULL && i < model->num_constants; i++)
    td_free(model->copies[i]);
  td_weights_drop(&model->weights);
  if (model->close_library != NULL) model->close_library(model->library);
  td_zone_free(&model->zone);
  free(model);
}

int32_t td_model_take_plan(td_model* model, const td_json* root, const char* text, size_t bytes,
                           td_error* error) {
  char* copy = td_zone_alloc(&model->zone, bytes + 1, 1);
  if (copy == NULL) return no_memory(error);
  memcpy(copy, text, bytes);
  model->plan_text = copy;
  model->plan_bytes = bytes;
  return td_plan_read(root, &model->zone, &model->plan, error);
}

int32_t td_model_read_plan(td_model* model, const char* text, size_t bytes, td_error* error) {
  td_zone zone = {NULL, 0};
  td_json* root;
  int32_t code = td_json_parse(text, bytes, &zone, &root, error);
  if (code == TD_OK) code = td_model_take_plan(model, root, text, bytes, error);
  td_zone_free(&zone);
  return code;
}

int32_t td_model_set_kernels(td_model* model, const td_symbol* kernels, size_t count,
                             td_error* error) {
  model->kernels = td_zone_alloc(&model->zone, count, sizeof *model->kernels);
  model->kernel_names = td_zone_alloc(&model->zone, count, sizeof *model->kernel_names);
  if (model->kernels == NULL || model->kernel_names == NULL) return no_memory(error);
  model->num_kernels = count;
  for (size_t i = 0; i < count; i++) {
    const char* name = td_zone_text(&model->zone, kernels[i].name);
    if (name == NULL) return no_memory(error);
    model->kernels[i] = (td_symbol){name, kernels[i].kernel};
    model->kernel_names[i] = (td_name){name, i};
  }
  td_names_sort(model->kernel_names, count);
  return TD_OK;
}

int32_t td_model_set_constants(td_model* model, const td_constant* constants, size_t count,
                               td_error* error) {
  model->constants = td_zone_alloc(&model->zone, count, sizeof *model->constants);
  model->constant_names = td_zone_alloc(&model->zone, count, sizeof *model->constant_names);
  model->copies = td_zone_alloc(&model->zone, count, sizeof *model->copies);
  if (model->constants == NULL || model->constant_names == NULL || model->copies == NULL)
    return no_memory(error);
  model->num_constants = count;
  for (size_t i = 0; i < count; i++) {
    const char* name = td_zone_text(&model->zone, constants[i].name);
    if (name == NULL) return no_memory(error);
    model->constants[i] = (td_constant){name, constants[i].data, constants[i].bytes};
    model->constant_names[i] = (td_name){name, i};
  }
  td_names_sort(model->constant_names, count);
  return TD_OK;
}

int32_t td_model_align(td_model* model, size_t position, void** data, td_error* error) {
  td_constant* constant = &model->constants[position];
  void* copy = td_alloc(constant->bytes, error);
  if (copy == NULL) return TD_MEMORY;
  if (constant->bytes > 0) memcpy(copy, constant->data, constant->bytes);
  constant->data = *data = model->copies[position] = copy;
  return TD_OK;
}
