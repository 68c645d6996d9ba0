/* SPDX-License-Identifier: Apache-2.0 */
/* Executors: a plan with its memory bound, run by one call per inference. */
#include <stdlib.h>
#include <string.h>

#include "executor.h"

/* ---- building -------------------------------------------------------------------------------- */

static int32_t no_memory(td_error* error) {
  return td_fail(error, TD_MEMORY, "not enough memory for the executor");
}

static int32_t find_kernels(td_executor* e, td_kernel** found, td_error* error) {
  const td_model* model = e->model;
  *found = td_zone_alloc(&e->zone, e->plan.num_kernels, sizeof **found);
  if (*found == NULL) return no_memory(error);
  for (uint32_t i = 0; i < e->plan.num_kernels; i++) {
    const td_name* name = td_names_find(model->kernel_names, model->num_kernels,
                                        e->plan.kernels[i]);
    if (name == NULL || model->kernels[name->position].kernel == NULL)
      return td_fail(error, TD_PLAN, "kernel \"%.200s\" of the plan is not in the machine code",
                     e->plan.kernels[i]);
    (*found)[i] = model->kernels[name->position].kernel;
  }
  return TD_OK;
}

bool td_is_aligned(const void* pointer) { return (uintptr_t)pointer % TD_ALIGNMENT == 0; }

bool td_is_in_place(const td_executor* e, const void* input) {
  return (uintptr_t)input % e->plan.input_alignment == 0;
}

static int32_t bind_constant(td_executor* e, uint32_t v, void** base, td_error* error) {
  const td_value* value = &e->plan.values[v];
  const td_model* model = e->model;
  const td_name* name = td_names_find(model->constant_names, model->num_constants, value->param);
  if (name == NULL)
    return td_fail(error, TD_PLAN, "constant \"%.200s\" of the plan is not among the weights",
                   value->param);
  const td_constant* constant = &model->constants[name->position];
  if (constant->bytes != value->bytes)
    return td_fail(error, TD_PLAN, "constant \"%.200s\" has %zu bytes but the plan expects %zu",
                   value->param, constant->bytes, value->bytes);
  if (constant->data == NULL && value->bytes > 0)
    return td_fail(error, TD_ARGUMENT, "constant \"%.200s\" has no data", value->param);
  e->constant_bytes += value->bytes;
  /* The ABI passes every buffer as void*; kernels do not write to constants. */
  base[v] = (void*)(uintptr_t)constant->data;
  if (td_is_aligned(base[v])) return TD_OK;
  return td_model_align(e->model, name->position, &base[v], error);
}

static int32_t bind_constants(td_executor* e, void** base, td_error* error) {
  int32_t code = TD_OK;
  e->constant_bytes = 0;
  for (uint32_t v = 0; code == TD_OK && v < e->plan.num_values; v++)
    if (e->plan.values[v].kind == TD_VALUE_CONSTANT) code = bind_constant(e, v, base, error);
  return code;
}

static int32_t bind_arena(td_executor* e, void** base, td_error* error) {
  if (e->plan.is_dynamic) return TD_OK; /* its memory comes with the first run */
  if (!e->is_lent) e->arena = td_alloc(e->plan.arena_bytes, error);
  if (e->arena == NULL) return TD_MEMORY;
  if (!e->is_lent) td_touch(e->arena, e->plan.arena_bytes);
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

static size_t padded(size_t bytes) { return (bytes + TD_ALIGNMENT - 1) & ~(TD_ALIGNMENT - 1); }

static size_t add_padded(size_t sum, size_t bytes) {
  return bytes > SIZE_MAX / 4 || sum > SIZE_MAX / 4 ? SIZE_MAX / 2 : sum + padded(bytes);
}

size_t td_lent_bytes(const td_plan* plan) {
  size_t sum = add_padded(TD_ALIGNMENT - 1, plan->arena_bytes);
  for (uint32_t i = 0; i < plan->num_inputs; i++)
    sum = add_padded(sum, plan->values[plan->inputs[i].value].bytes);
  for (uint32_t i = 0; i < plan->num_outputs; i++)
    sum = add_padded(sum, plan->values[plan->outputs[i].value].bytes);
  return sum > SIZE_MAX / 4 ? SIZE_MAX : sum;
}

/* Gives inputs and outputs their part of lent memory, behind the arena. */
static void lend_ports(td_executor* e) {
  unsigned char* at = (unsigned char*)e->arena + padded(e->plan.arena_bytes);
  for (uint32_t i = 0; i < e->plan.num_inputs + e->plan.num_outputs; i++) {
    bool is_input = i < e->plan.num_inputs;
    td_binding* p = is_input ? &e->inputs[i] : &e->outputs[i - e->plan.num_inputs];
    p->own = at;
    p->own_bytes = p->value->bytes;
    at += padded(p->value->bytes);
  }
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

static int32_t assemble(td_executor* e, td_error* error) {
  td_kernel* found;
  td_binding** by_value;
  void** base = td_zone_alloc(&e->zone, e->plan.num_values, sizeof *base);
  if (base == NULL) return no_memory(error);
  int32_t code = td_check_machine(&e->plan, error);
  if (code == TD_OK) code = td_env_init(&e->env, 0, error);
  if (code == TD_OK) code = check_memory(&e->plan, error);
  if (code == TD_OK) code = find_kernels(e, &found, error);
  if (code == TD_OK) code = bind_constants(e, base, error);
  if (code == TD_OK) code = bind_arena(e, base, error);
  if (code == TD_OK) code = make_ports(e, &by_value, error);
  if (code == TD_OK && e->is_lent) lend_ports(e);
  if (code == TD_OK) code = make_steps(e, found, base, error);
  if (code == TD_OK) code = link_ports(e, by_value, error);
  if (code == TD_OK && e->plan.is_dynamic) code = td_dynamic_create(e, base, error);
  if (code == TD_OK && e->plan.is_dynamic) code = td_blocks_create(e, error);
  return code;
}

static void free_state(td_executor* e) {
  bool is_own = !e->is_lent;
  for (uint32_t i = 0; is_own && e->inputs != NULL && i < e->plan.num_inputs; i++)
    td_free(e->inputs[i].own);
  for (uint32_t i = 0; is_own && e->outputs != NULL && i < e->plan.num_outputs; i++)
    td_free(e->outputs[i].own);
  td_blocks_free(e);
  td_dynamic_free(e);
  if (is_own) td_free(e->arena);
  td_zone_free(&e->zone);
}

static int32_t make(td_model* model, const td_plan* plan, void* lent, td_executor** executor,
                    td_error* error) {
  td_executor* e = calloc(1, sizeof *e);
  if (e == NULL) return no_memory(error);
  pthread_mutex_init(&e->mutex, NULL);
  atomic_init(&e->process, td_process());
  e->model = td_model_use(model);
  e->plan = *plan;
  e->random = &e->own_random;
  e->arena = lent;
  e->is_lent = lent != NULL;
  int32_t code = assemble(e, error);
  if (code == TD_OK) *executor = e;
  else td_close(e);
  return code;
}

int32_t td_executor_make(td_model* model, const td_plan* plan, td_executor** executor,
                         td_error* error) {
  return make(model, plan, NULL, executor, error);
}

int32_t td_executor_open(td_model* model, td_executor** executor, td_error* error) {
  int32_t code = td_executor_make(model, &model->plan, executor, error);
  if (code == TD_OK) td_threads_start((*executor)->env.num_threads, model->plan.stack_bytes);
  return code;
}

int32_t td_executor_make_in(td_model* model, void* memory, td_executor** executor,
                            td_error* error) {
  uintptr_t gap = (uintptr_t)0 - (uintptr_t)memory;
  void* aligned = (unsigned char*)memory + gap % TD_ALIGNMENT;
  int32_t code = make(model, &model->plan, aligned, executor, error);
  if (code == TD_OK) (*executor)->env.num_threads = 1;
  return code;
}

int32_t td_executor_renew(td_executor* e, td_error* error) {
  td_executor* made;
  int32_t code = td_executor_make(e->model, &e->plan, &made, error);
  if (code != TD_OK) return code;
  e->zone = made->zone;
  e->steps = made->steps;
  e->inputs = made->inputs;
  e->outputs = made->outputs;
  e->arena = made->arena;
  e->is_lent = false; /* what was lent stays as the other process left it */
  e->dynamic = made->dynamic;
  e->bodies = made->bodies;
  e->blocks = made->blocks;
  e->profile_ns = made->profile_ns;
  e->profile_runs = made->profile_runs;
  e->env.pool = NULL;
  e->profiling = false;
  e->observer = NULL;
  pthread_mutex_destroy(&made->mutex);
  td_model_drop(made->model);
  free(made);
  return TD_OK;
}

int32_t td_executor_create(const char* plan_text, size_t plan_bytes, const td_symbol* kernels,
                           size_t num_kernels, const td_constant* constants, size_t num_constants,
                           td_executor** executor, td_error* error) {
  *executor = NULL;
  td_model* model;
  int32_t code = td_model_create(&model, error);
  if (code != TD_OK) return code;
  code = td_model_read_plan(model, plan_text, plan_bytes, error);
  if (code == TD_OK) code = td_model_set_kernels(model, kernels, num_kernels, error);
  if (code == TD_OK) code = td_model_set_constants(model, constants, num_constants, error);
  if (code == TD_OK) code = td_executor_open(model, executor, error);
  td_model_drop(model);
  return code;
}

int32_t td_executor_fork(td_executor* e, td_executor** executor, td_error* error) {
  *executor = NULL;
  int32_t code = td_executor_make(e->model, &e->plan, executor, error);
  if (code == TD_OK) (*executor)->env.num_threads = e->env.num_threads;
  return code;
}

void td_close(td_executor* e) {
  if (e == NULL) return;
  td_model* model = e->model;
  if (!td_executor_is_lost(e)) { /* else its state is somebody's who is not here: it stays */
    free_state(e);
    pthread_mutex_destroy(&e->mutex);
    free(e);
  }
  td_model_drop(model);
}
