/* SPDX-License-Identifier: Apache-2.0 */
/* Executors: a plan with its memory bound, run by one call per inference. */
#include <stdlib.h>
#include <string.h>

#include "executor.h"

/* ---- building -------------------------------------------------------------------------------- */

static int32_t no_memory(td_error* error) {
  return td_fail(error, TD_MEMORY, "not enough memory for the executor");
}

static int32_t sorted_symbols(td_zone* zone, const td_symbol* kernels, size_t count,
                              td_name** names, td_error* error) {
  *names = td_zone_alloc(zone, count, sizeof **names);
  if (*names == NULL) return no_memory(error);
  for (size_t i = 0; i < count; i++) (*names)[i] = (td_name){kernels[i].name, i};
  td_names_sort(*names, count);
  return TD_OK;
}

static int32_t find_kernels(td_executor* e, const td_symbol* kernels, size_t count,
                            td_kernel** found, td_error* error) {
  td_name* names;
  int32_t code = sorted_symbols(&e->zone, kernels, count, &names, error);
  if (code != TD_OK) return code;
  *found = td_zone_alloc(&e->zone, e->plan.num_kernels, sizeof **found);
  if (*found == NULL) return no_memory(error);
  for (uint32_t i = 0; i < e->plan.num_kernels; i++) {
    const td_name* name = td_names_find(names, count, e->plan.kernels[i]);
    if (name == NULL || kernels[name->position].kernel == NULL)
      return td_fail(error, TD_PLAN, "kernel \"%.200s\" of the plan is not in the machine code",
                     e->plan.kernels[i]);
    (*found)[i] = kernels[name->position].kernel;
  }
  return TD_OK;
}

bool td_is_aligned(const void* pointer) { return (uintptr_t)pointer % TD_ALIGNMENT == 0; }

bool td_is_in_place(const td_executor* e, const void* input) {
  return (uintptr_t)input % e->plan.input_alignment == 0;
}

/* The pointer of a constant; a copy when it is not aligned. */
static int32_t bind_constant(td_executor* e, uint32_t v, const td_constant* constant, void** base,
                             td_error* error) {
  const td_value* value = &e->plan.values[v];
  if (constant->bytes != value->bytes)
    return td_fail(error, TD_PLAN, "constant \"%.200s\" has %zu bytes but the plan expects %zu",
                   value->param, constant->bytes, value->bytes);
  if (constant->data == NULL && value->bytes > 0)
    return td_fail(error, TD_ARGUMENT, "constant \"%.200s\" has no data", value->param);
  e->constant_bytes += value->bytes;
  /* The ABI passes every buffer as void*; kernels do not write to constants. */
  base[v] = (void*)(uintptr_t)constant->data;
  if (td_is_aligned(base[v])) return TD_OK;
  base[v] = e->copies[v] = td_alloc(value->bytes, error);
  if (base[v] == NULL) return TD_MEMORY;
  memcpy(base[v], constant->data, value->bytes);
  return TD_OK;
}

static int32_t bind_constants(td_executor* e, const td_constant* constants, size_t count,
                              void** base, td_error* error) {
  td_name* names = td_zone_alloc(&e->zone, count, sizeof *names);
  e->copies = td_zone_alloc(&e->zone, e->plan.num_values, sizeof *e->copies);
  if (names == NULL || e->copies == NULL) return no_memory(error);
  for (size_t i = 0; i < count; i++) names[i] = (td_name){constants[i].name, i};
  td_names_sort(names, count);
  for (uint32_t v = 0; v < e->plan.num_values; v++) {
    if (e->plan.values[v].kind != TD_VALUE_CONSTANT) continue;
    const td_name* name = td_names_find(names, count, e->plan.values[v].param);
    if (name == NULL)
      return td_fail(error, TD_PLAN, "constant \"%.200s\" of the plan is not among the weights",
                     e->plan.values[v].param);
    int32_t code = bind_constant(e, v, &constants[name->position], base, error);
    if (code != TD_OK) return code;
  }
  return TD_OK;
}

static int32_t bind_arena(td_executor* e, void** base, td_error* error) {
  if (e->plan.is_dynamic) return TD_OK; /* its memory comes with the first run */
  e->arena = td_alloc(e->plan.arena_bytes, error);
  if (e->arena == NULL) return TD_MEMORY;
  for (uint32_t v = 0; v < e->plan.num_values; v++) {
    const td_value* value = &e->plan.values[v];
    if (value->kind == TD_VALUE_ARENA || value->kind == TD_VALUE_WORKSPACE)
      base[v] = (char*)e->arena + value->offset;
  }
  return TD_OK;
}

/* The port of every input and output value, by value. */
static int32_t make_ports(td_executor* e, td_binding*** by_value, td_error* error) {
  td_plan* plan = &e->plan;
  e->inputs = td_zone_alloc(&e->zone, plan->num_inputs, sizeof *e->inputs);
  e->outputs = td_zone_alloc(&e->zone, plan->num_outputs, sizeof *e->outputs);
  *by_value = td_zone_alloc(&e->zone, plan->num_values, sizeof **by_value);
  if (e->inputs == NULL || e->outputs == NULL || *by_value == NULL) return no_memory(error);
  for (uint32_t i = 0; i < plan->num_inputs; i++) {
    e->inputs[i].value = &plan->values[plan->inputs[i].value];
    (*by_value)[plan->inputs[i].value] = &e->inputs[i];
  }
  for (uint32_t i = 0; i < plan->num_outputs; i++) {
    e->outputs[i].value = &plan->values[plan->outputs[i].value];
    (*by_value)[plan->outputs[i].value] = &e->outputs[i];
  }
  return TD_OK;
}

/* Gives every port the list of places its pointer goes to. */
static int32_t link_ports(td_executor* e, td_binding** by_value, td_error* error) {
  const td_plan* plan = &e->plan;
  for (int pass = 0; pass < 2; pass++) { /* count, then fill */
    for (uint32_t i = 0; i < plan->num_instructions; i++) {
      for (uint32_t a = 0; a < plan->instructions[i].num_args; a++) {
        td_binding* p = by_value[plan->instructions[i].args[a]];
        if (p == NULL) continue;
        if (pass == 1) p->slots[p->num_slots] = &e->steps[i].buffers[a];
        p->num_slots++;
      }
    }
    for (uint32_t v = 0; pass == 0 && v < plan->num_values; v++) {
      td_binding* p = by_value[v];
      if (p == NULL) continue;
      p->slots = td_zone_alloc(&e->zone, p->num_slots, sizeof *p->slots);
      if (p->slots == NULL) return no_memory(error);
      p->num_slots = 0;
    }
  }
  return TD_OK;
}

static int32_t make_steps(td_executor* e, const td_kernel* kernels, void* const* base,
                          td_error* error) {
  const td_plan* plan = &e->plan;
  size_t count = plan->num_instructions;
  e->steps = td_zone_alloc(&e->zone, count, sizeof *e->steps);
  e->profile_ns = td_zone_alloc(&e->zone, count, sizeof *e->profile_ns);
  e->profile_runs = td_zone_alloc(&e->zone, count, sizeof *e->profile_runs);
  if (e->steps == NULL || e->profile_ns == NULL || e->profile_runs == NULL)
    return no_memory(error);
  for (size_t i = 0; i < count; i++) {
    const td_instruction* instruction = &plan->instructions[i];
    td_step* s = &e->steps[i];
    size_t buffers = (size_t)instruction->num_args + (instruction->op == TD_OP_RESULT ? 1 : 0);
    s->buffers = td_zone_alloc(&e->zone, buffers, sizeof *s->buffers);
    if (s->buffers == NULL) return no_memory(error);
    for (uint32_t a = 0; a < instruction->num_args; a++)
      s->buffers[a] = base[instruction->args[a]];
    if (instruction->op == TD_OP_CALL) s->kernel = kernels[instruction->kernel];
    bool is_check = instruction->op == TD_OP_CHECK;
    if (instruction->op == TD_OP_COPY || is_check)
      s->bytes = plan->values[instruction->args[0]].bytes;
    s->is_random = instruction->op == TD_OP_RANDOM;
    if (is_check) s->num_extents = instruction->num_dims;
    if (is_check) s->index_bytes = plan->values[instruction->args[0]].dtype->bytes;
    if ((instruction->op != TD_OP_CALL && !is_check) || instruction->num_dims == 0) continue;
    s->dims = td_zone_alloc(&e->zone, instruction->num_dims, sizeof *s->dims);
    if (s->dims == NULL) return no_memory(error);
    if (instruction->dims != NULL)
      memcpy(s->dims, instruction->dims, instruction->num_dims * sizeof *s->dims);
  }
  return TD_OK;
}

static int32_t check_memory(const td_plan* plan, td_error* error) {
  size_t need = plan->arena_bytes, have = td_physical_memory();
  for (uint32_t i = 0; i < plan->num_outputs && need <= have; i++)
    need += plan->values[plan->outputs[i].value].bytes;
  if (need <= have) return TD_OK;
  return td_fail(error, TD_MEMORY, "the plan needs %zu bytes of working memory; this machine has "
                 "%zu", need, have);
}

static int32_t assemble(td_executor* e, const td_symbol* kernels, size_t num_kernels,
                        const td_constant* constants, size_t num_constants, td_error* error) {
  td_kernel* found;
  td_binding** by_value;
  void** base = td_zone_alloc(&e->zone, e->plan.num_values, sizeof *base);
  if (base == NULL) return no_memory(error);
  int32_t code = td_check_features(e->plan.features, e->plan.num_features, error);
  if (code == TD_OK) code = td_env_init(&e->env, 0, error);
  if (code == TD_OK) code = check_memory(&e->plan, error);
  if (code == TD_OK) code = find_kernels(e, kernels, num_kernels, &found, error);
  if (code == TD_OK) code = bind_constants(e, constants, num_constants, base, error);
  if (code == TD_OK) code = bind_arena(e, base, error);
  if (code == TD_OK) code = make_ports(e, &by_value, error);
  if (code == TD_OK) code = make_steps(e, found, base, error);
  if (code == TD_OK) code = link_ports(e, by_value, error);
  if (code == TD_OK && e->plan.is_dynamic) code = td_dynamic_create(e, base, error);
  if (code == TD_OK && e->plan.is_dynamic)
    code = td_blocks_create(e, kernels, num_kernels, constants, num_constants, error);
  return code;
}

int32_t td_executor_build(td_zone* zone, const td_plan* plan, const td_symbol* kernels,
                          size_t num_kernels, const td_constant* constants, size_t num_constants,
                          void* block, td_library* library, td_executor** executor,
                          td_error* error) {
  td_executor* e = calloc(1, sizeof *e);
  if (e == NULL) return no_memory(error);
  pthread_mutex_init(&e->mutex, NULL);
  e->zone = *zone;
  e->plan = *plan;
  e->random = &e->own_random;
  int32_t code = assemble(e, kernels, num_kernels, constants, num_constants, error);
  if (code != TD_OK) {
    *zone = e->zone; /* stays the caller's, as do block and library */
    e->zone = (td_zone){NULL, 0};
    for (uint32_t v = 0; e->copies != NULL && v < e->plan.num_values; v++) td_free(e->copies[v]);
    td_blocks_free(e);
    td_dynamic_free(e);
    td_free(e->arena);
    pthread_mutex_destroy(&e->mutex);
    free(e);
    return code;
  }
  *zone = (td_zone){NULL, 0};
  e->block = block;
  e->library = library;
  *executor = e;
  return TD_OK;
}

int32_t td_executor_create(const char* plan_text, size_t plan_bytes, const td_symbol* kernels,
                           size_t num_kernels, const td_constant* constants, size_t num_constants,
                           td_executor** executor, td_error* error) {
  td_zone json_zone = {NULL, 0}, zone = {NULL, 0};
  td_json* root;
  td_plan plan;
  *executor = NULL;
  int32_t code = td_json_parse(plan_text, plan_bytes, &json_zone, &root, error);
  if (code == TD_OK) code = td_plan_read(root, &zone, &plan, error);
  td_zone_free(&json_zone);
  if (code == TD_OK)
    code = td_executor_build(&zone, &plan, kernels, num_kernels, constants, num_constants, NULL,
                             NULL, executor, error);
  td_zone_free(&zone);
  return code;
}

void td_close(td_executor* e) {
  if (e == NULL) return;
  for (uint32_t i = 0; i < e->plan.num_inputs; i++) td_free(e->inputs[i].own);
  for (uint32_t i = 0; i < e->plan.num_outputs; i++) td_free(e->outputs[i].own);
  for (uint32_t v = 0; v < e->plan.num_values; v++) td_free(e->copies[v]);
  td_blocks_free(e);
  td_dynamic_free(e);
  td_free(e->arena);
  td_free(e->block);
  td_library_close(e->library);
  pthread_mutex_destroy(&e->mutex);
  td_zone_free(&e->zone);
  free(e);
}

/* ---- running --------------------------------------------------------------------------------- */

static void bind_port(td_binding* p, void* pointer) {
  if (p->bound == pointer) return;
  p->bound = pointer;
  for (size_t i = 0; i < p->num_slots; i++) *p->slots[i] = pointer;
}

/* The executor's own buffer of a port, made on first need. */
static void* own_buffer(td_binding* p, td_error* error) {
  if (p->own == NULL) p->own = td_alloc(p->value->bytes, error);
  return p->own;
}

static int32_t bind_inputs(td_executor* e, const void* const* inputs, td_error* error) {
  for (uint32_t i = 0; i < e->plan.num_inputs; i++) {
    td_binding* p = &e->inputs[i];
    const void* given = inputs == NULL ? NULL : inputs[i];
    if (given == NULL && p->value->bytes > 0)
      return td_fail(error, TD_INPUT, "input \"%.200s\" is not given", e->plan.inputs[i].name);
    if (td_is_in_place(e, given)) {
      bind_port(p, (void*)(uintptr_t)given); /* kernels do not write to inputs */
      continue;
    }
    void* own = own_buffer(p, error);
    if (own == NULL) return TD_MEMORY;
    memcpy(own, given, p->value->bytes);
    bind_port(p, own);
  }
  return TD_OK;
}

bool td_overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return x < y + b_bytes && y < x + a_bytes;
}

/* A result written over memory that is still read would be silently wrong. */
static int32_t check_output_memory(const td_executor* e, const void* const* inputs,
                               void* const* outputs, uint32_t o, td_error* error) {
  size_t bytes = e->outputs[o].value->bytes;
  for (uint32_t i = 0; i < e->plan.num_inputs; i++)
    if (td_overlap(outputs[o], bytes, inputs[i], e->inputs[i].value->bytes))
      return td_fail(error, TD_INPUT, "the buffer of output \"%.200s\" overlaps input \"%.200s\"",
                     e->plan.outputs[o].name, e->plan.inputs[i].name);
  for (uint32_t i = 0; i < o; i++)
    if (outputs[i] != NULL && td_overlap(outputs[o], bytes, outputs[i], e->outputs[i].value->bytes))
      return td_fail(error, TD_INPUT, "the buffers of outputs \"%.200s\" and \"%.200s\" overlap",
                     e->plan.outputs[i].name, e->plan.outputs[o].name);
  return TD_OK;
}

static int32_t bind_outputs(td_executor* e, const void* const* inputs, void* const* outputs,
                            td_error* error) {
  for (uint32_t o = 0; o < e->plan.num_outputs; o++) {
    td_binding* p = &e->outputs[o];
    void* given = outputs == NULL ? NULL : outputs[o];
    if (given != NULL) {
      int32_t code = check_output_memory(e, inputs, outputs, o, error);
      if (code != TD_OK) return code;
    }
    bool direct = given != NULL && td_is_aligned(given);
    void* pointer = direct ? given : own_buffer(p, error);
    if (pointer == NULL) return TD_MEMORY;
    if (given == NULL) p->has_result = true;
    bind_port(p, pointer);
  }
  return TD_OK;
}

static void copy_outputs(td_executor* e, void* const* outputs) {
  for (uint32_t o = 0; outputs != NULL && o < e->plan.num_outputs; o++)
    if (outputs[o] != NULL && outputs[o] != e->outputs[o].bound)
      memcpy(outputs[o], e->outputs[o].bound, e->outputs[o].value->bytes);
}

static int32_t run_step(const td_executor* e, td_step* s) {
  if (s->kernel != NULL) return s->kernel(&e->env, s->buffers, s->dims);
  if (s->num_extents > 0) return !td_indices_fit(&e->env, s);
  if (s->is_random) {
    *(uint64_t*)s->buffers[0] = td_random_key(e->random);
    return 0;
  }
  if (s->buffers[1] != s->buffers[0] && s->bytes > 0)
    memmove(s->buffers[1], s->buffers[0], s->bytes);
  return 0;
}

static int32_t step_failed(const td_executor* e, uint32_t i, int32_t result, td_error* error) {
  const td_instruction* instruction = &e->plan.instructions[i];
  if (instruction->op == TD_OP_CHECK) return td_refuse_indices(e, i, error);
  return td_fail(error, TD_KERNEL, "kernel \"%.200s\" (from %.300s) returns code %d",
                 e->plan.kernels[instruction->kernel], instruction->origin, (int)result);
}

static int32_t run_plain(td_executor* e, uint32_t begin, uint32_t end, td_error* error) {
  for (uint32_t i = begin; i < end; i++) {
    int32_t result = run_step(e, &e->steps[i]);
    if (result != 0) return step_failed(e, i, result, error);
  }
  return TD_OK;
}

static int32_t run_watched(td_executor* e, uint32_t begin, uint32_t end, td_error* error) {
  int64_t before = td_now_ns();
  for (uint32_t i = begin; i < end; i++) {
    int32_t result = run_step(e, &e->steps[i]);
    if (result != 0) return step_failed(e, i, result, error);
    int64_t after = td_now_ns();
    e->profile_ns[i] += (uint64_t)(after - before);
    e->profile_runs[i]++;
    if (e->observer != NULL) e->observer(e->observer_context, (int32_t)i);
    before = e->observer == NULL ? after : td_now_ns();
  }
  return TD_OK;
}

int32_t td_run_steps(td_executor* e, uint32_t begin, uint32_t end, td_error* error) {
  bool watched = e->profiling || e->observer != NULL;
  return watched ? run_watched(e, begin, end, error) : run_plain(e, begin, end, error);
}

static int32_t run_static(td_executor* e, const void* const* inputs, void* const* outputs,
                          td_error* error) {
  int32_t code = bind_inputs(e, inputs, error);
  if (code == TD_OK) code = bind_outputs(e, inputs, outputs, error);
  if (code == TD_OK) code = td_run_steps(e, 0, e->plan.num_instructions, error);
  if (code == TD_OK) copy_outputs(e, outputs);
  return code;
}

int32_t td_run(td_executor* e, const void* const* inputs, void* const* outputs, td_error* error) {
  if (e->plan.is_dynamic) {
    td_fail(error, TD_ARGUMENT, "the inputs of this model have sizes that each run decides");
    return td_hint(error, TD_ARGUMENT, "give their shapes: call td_run_shaped");
  }
  pthread_mutex_lock(&e->mutex);
  int32_t code = run_static(e, inputs, outputs, error);
  pthread_mutex_unlock(&e->mutex);
  return code;
}

int32_t td_run_shaped(td_executor* e, const td_tensor* inputs, const td_buffer* outputs,
                      td_error* error) {
  if (!e->plan.is_dynamic)
    return td_fail(error, TD_ARGUMENT, "this model has fixed sizes: call td_run");
  if (inputs == NULL && e->plan.num_inputs > 0)
    return td_fail(error, TD_INPUT, "no inputs are given");
  pthread_mutex_lock(&e->mutex);
  int32_t code = td_dynamic_run(e, inputs, outputs, error);
  pthread_mutex_unlock(&e->mutex);
  return code;
}

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
  pthread_mutex_lock(&e->mutex);
  code = td_dynamic_result(e, (uint32_t)index, info, error);
  pthread_mutex_unlock(&e->mutex);
  return code;
}

void* td_executor_take_output(td_executor* e, int32_t index) {
  if (index < 0 || (uint32_t)index >= e->plan.num_outputs) return NULL;
  pthread_mutex_lock(&e->mutex);
  td_binding* output = &e->outputs[index];
  void* memory = output->has_result ? output->own : NULL;
  if (memory != NULL) {
    output->own = NULL;
    output->own_bytes = 0;
    output->has_result = false;
  }
  pthread_mutex_unlock(&e->mutex);
  return memory;
}

const char* td_executor_target(const td_executor* e) { return e->plan.target; }

size_t td_executor_arena_bytes(const td_executor* e) {
  return e->plan.is_dynamic ? td_dynamic_arena_bytes(e) : e->plan.arena_bytes;
}

size_t td_executor_constant_bytes(const td_executor* e) { return e->constant_bytes; }

int32_t td_executor_num_threads(const td_executor* e) { return e->env.num_threads; }

int32_t td_executor_set_num_threads(td_executor* e, int32_t count, td_error* error) {
  pthread_mutex_lock(&e->mutex);
  int32_t code = td_env_init(&e->env, count, error);
  pthread_mutex_unlock(&e->mutex);
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
  static const char* const NAMES[] = {"call", "copy", "size", "if", "loop", "result", "check", "random"};
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
  pthread_mutex_lock(&e->mutex);
  e->observer = observer;
  e->observer_context = context;
  pthread_mutex_unlock(&e->mutex);
}

/* ---- profile --------------------------------------------------------------------------------- */

void td_profile_start(td_executor* e) {
  pthread_mutex_lock(&e->mutex);
  memset(e->profile_ns, 0, e->plan.num_instructions * sizeof *e->profile_ns);
  memset(e->profile_runs, 0, e->plan.num_instructions * sizeof *e->profile_runs);
  e->profiling = true;
  pthread_mutex_unlock(&e->mutex);
}

void td_profile_stop(td_executor* e) {
  pthread_mutex_lock(&e->mutex);
  e->profiling = false;
  pthread_mutex_unlock(&e->mutex);
}

int32_t td_profile_read(td_executor* e, uint64_t* nanoseconds, uint64_t* runs, td_error* error) {
  if (nanoseconds == NULL || runs == NULL)
    return td_fail(error, TD_ARGUMENT, "td_profile_read needs memory for both columns");
  pthread_mutex_lock(&e->mutex);
  memcpy(nanoseconds, e->profile_ns, e->plan.num_instructions * sizeof *nanoseconds);
  memcpy(runs, e->profile_runs, e->plan.num_instructions * sizeof *runs);
  pthread_mutex_unlock(&e->mutex);
  return TD_OK;
}
