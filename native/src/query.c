/* SPDX-License-Identifier: Apache-2.0 */
/* What an executor tells about itself: its tensors, results, instructions and times. */
#include <string.h>

#include "executor.h"

/* ---- questions ------------------------------------------------------------------------------- */

int32_t td_executor_num_inputs(const td_executor* e) { return (int32_t)e->plan.num_inputs; }

int32_t td_executor_num_outputs(const td_executor* e) { return (int32_t)e->plan.num_outputs; }

static int32_t describe(const td_plan* plan, const td_port* ports, uint32_t count, int32_t index,
                        const char* what, td_tensor_info* info, td_error* error) {
  if (index < 0 || (uint32_t)index >= count)
    return td_fail(error, TD_ARGUMENT, "%s %d does not exist; there are %u", what, (int)index,
                   (unsigned)count);
  const td_value* value = &plan->values[ports[index].value];
  *info = (td_tensor_info){ports[index].name, value->dtype->name, value->shape, value->ndim,
                           value->bytes};
  return TD_OK;
}

int32_t td_executor_input(const td_executor* e, int32_t index, td_tensor_info* info,
                          td_error* error) {
  return describe(&e->plan, e->plan.inputs, e->plan.num_inputs, index, "input", info, error);
}

int32_t td_executor_output(const td_executor* e, int32_t index, td_tensor_info* info,
                           td_error* error) {
  return describe(&e->plan, e->plan.outputs, e->plan.num_outputs, index, "output", info, error);
}

static int32_t find_port(const td_port* ports, uint32_t count, const char* name) {
  for (uint32_t i = 0; i < count; i++)
    if (strcmp(ports[i].name, name) == 0) return (int32_t)i;
  return -1;
}

int32_t td_executor_find_input(const td_executor* e, const char* name) {
  return find_port(e->plan.inputs, e->plan.num_inputs, name);
}

int32_t td_executor_find_output(const td_executor* e, const char* name) {
  return find_port(e->plan.outputs, e->plan.num_outputs, name);
}

const void* td_executor_output_data(const td_executor* e, int32_t index) {
  if (index < 0 || (uint32_t)index >= e->plan.num_outputs) return NULL;
  return e->outputs[index].has_result ? e->outputs[index].own : NULL;
}

int32_t td_executor_is_dynamic(const td_executor* e) { return e->plan.is_dynamic; }

int32_t td_executor_result(td_executor* e, int32_t index, td_tensor_info* info, td_error* error) {
  int32_t code = td_executor_output(e, index, info, error);
  if (code != TD_OK || !e->plan.is_dynamic) return code;
  code = td_executor_lock(e, error);
  if (code != TD_OK) return code;
  code = td_dynamic_result(e, (uint32_t)index, info, error);
  td_executor_unlock(e);
  return code;
}

void* td_executor_take_output(td_executor* e, int32_t index) {
  if (index < 0 || (uint32_t)index >= e->plan.num_outputs) return NULL;
  if (td_executor_lock(e, NULL) != TD_OK) return NULL;
  td_binding* output = &e->outputs[index];
  void* memory = output->has_result && !e->is_lent ? output->own : NULL;
  if (memory != NULL) {
    output->own = NULL;
    output->own_bytes = 0;
    output->has_result = false;
  }
  td_executor_unlock(e);
  return memory;
}

void td_executor_give_output(td_executor* e, int32_t index, void* memory, size_t bytes) {
  if (index >= 0 && (uint32_t)index < e->plan.num_outputs && td_executor_lock(e, NULL) == TD_OK) {
    td_binding* output = &e->outputs[index];
    if (output->own == NULL) {
      output->own = memory;
      output->own_bytes = bytes;
      memory = NULL;
    }
    td_executor_unlock(e);
  }
  td_free(memory);
}

const char* td_executor_target(const td_executor* e) { return e->plan.target; }

size_t td_executor_arena_bytes(const td_executor* e) {
  return e->plan.is_dynamic ? td_dynamic_arena_bytes(e) : e->plan.arena_bytes;
}

const char* td_executor_plan(const td_executor* e, size_t* bytes) {
  if (bytes != NULL) *bytes = e->model->plan_bytes;
  return e->model->plan_text;
}

size_t td_executor_constant_bytes(const td_executor* e) { return e->constant_bytes; }

int32_t td_executor_num_threads(const td_executor* e) { return e->env.num_threads; }

int32_t td_executor_set_num_threads(td_executor* e, int32_t count, td_error* error) {
  int32_t code = td_executor_lock(e, error);
  if (code != TD_OK) return code;
  code = td_env_init(&e->env, count, error);
  if (code == TD_OK && e->is_lent) td_threads_start(e->env.num_threads, e->plan.stack_bytes);
  td_executor_unlock(e);
  return code;
}

int32_t td_executor_num_instructions(const td_executor* e) {
  return (int32_t)e->plan.num_instructions;
}

int32_t td_executor_instruction(const td_executor* e, int32_t index, td_instruction_info* info,
                                td_error* error) {
  if (index < 0 || (uint32_t)index >= e->plan.num_instructions)
    return td_fail(error, TD_ARGUMENT, "instruction %d does not exist; there are %u", (int)index,
                   (unsigned)e->plan.num_instructions);
  const td_instruction* instruction = &e->plan.instructions[index];
  static const char* const NAMES[] = {"call", "copy", "size",  "if",
                                      "loop", "result", "check", "random"};
  bool call = instruction->op == TD_OP_CALL;
  *info = (td_instruction_info){NAMES[instruction->op],
                                call ? e->plan.kernels[instruction->kernel] : "",
                                instruction->origin};
  return TD_OK;
}

/* The position of the value that an instruction writes, among its arguments; -1 for what only
 * decides sizes or runs other instructions. */
static int32_t result_argument(const td_executor* e, int32_t index) {
  const td_instruction* instruction = &e->plan.instructions[index];
  if (instruction->op == TD_OP_SIZE || instruction->op == TD_OP_CHECK) return -1;
  if (instruction->block != NULL) return -1;
  int32_t last = (int32_t)instruction->num_args - 1;
  while (last >= 0 && e->plan.values[instruction->args[last]].kind == TD_VALUE_WORKSPACE) last--;
  return last;
}

int32_t td_executor_written(const td_executor* e, int32_t index, td_tensor_info* info,
                            const void** data, td_error* error) {
  if (index < 0 || (uint32_t)index >= e->plan.num_instructions)
    return td_fail(error, TD_ARGUMENT, "instruction %d does not exist; there are %u", (int)index,
                   (unsigned)e->plan.num_instructions);
  int32_t argument = result_argument(e, index);
  if (argument < 0)
    return td_fail(error, TD_ARGUMENT, "instruction %d writes no value", (int)index);
  uint32_t v = e->plan.instructions[index].args[argument];
  const td_value* value = &e->plan.values[v];
  *info = (td_tensor_info){"", value->dtype->name, value->shape, value->ndim, value->bytes};
  if (e->plan.is_dynamic) td_dynamic_type(e, v, info);
  bool is_result = e->plan.instructions[index].op == TD_OP_RESULT; /* a copy, by its one argument */
  *data = e->steps[index].buffers[is_result ? 1 : argument];
  return TD_OK;
}

void td_observe(td_executor* e, td_observer observer, void* context) {
  if (td_executor_lock(e, NULL) != TD_OK) return;
  e->observer = observer;
  e->observer_context = context;
  td_executor_unlock(e);
}

/* ---- profile --------------------------------------------------------------------------------- */

void td_profile_start(td_executor* e) {
  if (td_executor_lock(e, NULL) != TD_OK) return;
  memset(e->profile_ns, 0, e->plan.num_instructions * sizeof *e->profile_ns);
  memset(e->profile_runs, 0, e->plan.num_instructions * sizeof *e->profile_runs);
  e->profiling = true;
  td_executor_unlock(e);
}

void td_profile_stop(td_executor* e) {
  if (td_executor_lock(e, NULL) != TD_OK) return;
  e->profiling = false;
  td_executor_unlock(e);
}

int32_t td_profile_read(td_executor* e, uint64_t* nanoseconds, uint64_t* runs, td_error* error) {
  if (nanoseconds == NULL || runs == NULL)
    return td_fail(error, TD_ARGUMENT, "td_profile_read needs memory for both columns");
  int32_t code = td_executor_lock(e, error);
  if (code != TD_OK) return code;
  memcpy(nanoseconds, e->profile_ns, e->plan.num_instructions * sizeof *nanoseconds);
  memcpy(runs, e->profile_runs, e->plan.num_instructions * sizeof *runs);
  td_executor_unlock(e);
  return TD_OK;
}
