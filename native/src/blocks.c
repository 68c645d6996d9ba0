/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Branches and loops. A body is an executor of its own with an arena of its own, so bodies may hold
 * bodies, and a loop whose sizes stay the same finds its places as it left them.
 *
 * The states of a loop change places with the results of its body: what an iteration made is what
 * the next one reads, and the memory read before takes the results after that. Rows are collected
 * in memory that doubles when it is full. All of it stays for the next run.
 */
#include <string.h>

#include "executor.h"

/* What a branch or loop gives: one of its results. */
typedef struct {
  const void* data;
  const int64_t* shape;
} given_result;

/* Memory that grows, and the shape of what lies in it. */
typedef struct {
  void* memory;
  size_t capacity;
  int64_t* shape; /* with room for one more extent than a value of the body has */
  int32_t ndim;
} slot;

struct td_block_state {
  given_result* results;
  td_tensor* inputs; /* of the body that runs */
  slot* slots;       /* by result; of loops */
  void* counter;     /* the iteration's number and, TD_ALIGNMENT behind it, the condition */
};

static int32_t no_memory(td_error* error) {
  return td_fail(error, TD_MEMORY, "not enough memory for the executor");
}

/* ---- building -------------------------------------------------------------------------------- */

static bool make_slots(td_executor* e, const td_instruction* instruction, td_block_state* state) {
  const td_plan* body = &e->plan.plans[instruction->block->bodies[0]];
  uint32_t count = instruction->block->num_results;
  state->slots = td_zone_alloc(&e->zone, count, sizeof *state->slots);
  if (state->slots == NULL) return false;
  for (uint32_t j = 0; j < count; j++) {
    int32_t ndim = body->values[body->outputs[j + 1].value].ndim;
    state->slots[j].ndim = ndim;
    state->slots[j].shape = td_zone_alloc(&e->zone, (size_t)ndim + 1, sizeof(int64_t));
    if (state->slots[j].shape == NULL) return false;
  }
  return true;
}

static int32_t make_state(td_executor* e, uint32_t i, td_error* error) {
  const td_instruction* instruction = &e->plan.instructions[i];
  const td_plan* body = &e->plan.plans[instruction->block->bodies[0]];
  td_block_state* state = e->blocks[i] = td_zone_alloc(&e->zone, 1, sizeof *state);
  if (state == NULL) return no_memory(error);
  state->results = td_zone_alloc(&e->zone, instruction->block->num_results, sizeof *state->results);
  state->inputs = td_zone_alloc(&e->zone, body->num_inputs, sizeof *state->inputs);
  if (state->results == NULL || state->inputs == NULL) return no_memory(error);
  if (instruction->op == TD_OP_IF) return TD_OK;
  if (!make_slots(e, instruction, state)) return no_memory(error);
  state->counter = td_alloc(2 * TD_ALIGNMENT, error);
  return state->counter == NULL ? TD_MEMORY : TD_OK;
}

int32_t td_blocks_create(td_executor* e, td_error* error) {
  const td_plan* plan = &e->plan;
  e->bodies = td_zone_alloc(&e->zone, plan->num_plans, sizeof *e->bodies);
  e->blocks = td_zone_alloc(&e->zone, plan->num_instructions, sizeof *e->blocks);
  if (e->bodies == NULL || e->blocks == NULL) return no_memory(error);
  int32_t code = TD_OK;
  for (uint32_t k = 0; code == TD_OK && k < plan->num_plans; k++)
    code = td_executor_make(e->model, &plan->plans[k], &e->bodies[k], error);
  for (uint32_t i = 0; code == TD_OK && i < plan->num_instructions; i++)
    if (plan->instructions[i].block != NULL) code = make_state(e, i, error);
  return code;
}

static void free_state(const td_instruction* instruction, td_block_state* state) {
  for (uint32_t j = 0; state->slots != NULL && j < instruction->block->num_results; j++)
    td_free(state->slots[j].memory);
  td_free(state->counter);
}

void td_blocks_free(td_executor* e) {
  for (uint32_t k = 0; e->bodies != NULL && k < e->plan.num_plans; k++) td_close(e->bodies[k]);
  for (uint32_t i = 0; e->blocks != NULL && i < e->plan.num_instructions; i++)
    if (e->blocks[i] != NULL) free_state(&e->plan.instructions[i], e->blocks[i]);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Operand a of instruction i as a tensor. */
static td_tensor operand(const td_executor* e, uint32_t i, uint32_t a) {
  uint32_t v = e->plan.instructions[i].args[a];
  return (td_tensor){e->steps[i].buffers[a], td_dynamic_shape(e, v), e->plan.values[v].ndim};
}

/* The operands from `skip` on become the inputs from `first` on. */
static void take_operands(const td_executor* e, uint32_t i, uint32_t skip, uint32_t first) {
  for (uint32_t a = skip; a < e->plan.instructions[i].num_args; a++)
    e->blocks[i]->inputs[first + a - skip] = operand(e, i, a);
}

static int32_t run_body(const td_executor* e, uint32_t i, td_executor* body, td_error* error) {
  const td_block* block = e->plan.instructions[i].block;
  for (uint32_t k = 0; k < block->num_given; k++)
    td_dynamic_given(body)[k] = td_dynamic_extent(e, block->given[k]);
  body->env = e->env; /* as many threads as the whole has now */
  body->random = e->random;
  return td_dynamic_run(body, e->blocks[i]->inputs, NULL, error);
}

static int32_t run_if(td_executor* e, uint32_t i, td_error* error) {
  const td_block* block = e->plan.instructions[i].block;
  td_block_state* state = e->blocks[i];
  bool is_true = *(const unsigned char*)e->steps[i].buffers[0] != 0;
  td_executor* body = e->bodies[block->bodies[is_true ? 0 : 1]];
  take_operands(e, i, 1, 0);
  int32_t code = run_body(e, i, body, error);
  for (uint32_t j = 0; code == TD_OK && j < block->num_results; j++) {
    size_t bytes;
    td_tensor made = td_dynamic_output(body, j, &bytes);
    state->results[j] = (given_result){made.data, made.shape};
  }
  return code;
}

/* What an iteration made of state j is what the next one reads. */
static void take_state(td_executor* body, uint32_t j, td_block_state* state) {
  slot* s = &state->slots[j];
  size_t bytes;
  td_tensor made = td_dynamic_output(body, j + 1, &bytes);
  for (int32_t k = 0; k < made.ndim; k++) s->shape[k] = made.shape[k];
  td_dynamic_swap(body, j + 1, &s->memory, &s->capacity);
  state->inputs[2 + j] = (td_tensor){s->memory, s->shape, s->ndim};
}

static int32_t grow(slot* s, size_t used, size_t need, td_error* error) {
  if (need <= s->capacity) return TD_OK;
  size_t capacity = 2 * s->capacity > need ? 2 * s->capacity : need;
  void* memory = td_alloc(capacity, error);
  if (memory == NULL) return TD_MEMORY;
  if (used > 0) memcpy(memory, s->memory, used);
  td_free(s->memory);
  s->memory = memory;
  s->capacity = capacity;
  return TD_OK;
}

/* Adds the row that iteration `done` made to those before it. */
static int32_t add_row(td_executor* body, uint32_t j, slot* s, int64_t done, const char* origin,
                       td_error* error) {
  size_t bytes, used, need;
  td_tensor made = td_dynamic_output(body, j + 1, &bytes);
  for (int32_t k = 0; k < made.ndim; k++) {
    if (done > 0 && s->shape[k + 1] != made.shape[k])
      return td_fail(error, TD_INPUT, "iteration %lld of %.300s gives %lld elements along axis %d "
                     "of what it collects, the ones before give %lld", (long long)done, origin,
                     (long long)made.shape[k], (int)k, (long long)s->shape[k + 1]);
    s->shape[k + 1] = made.shape[k];
  }
  if (__builtin_mul_overflow((size_t)done, bytes, &used) || used > SIZE_MAX / 4 - bytes)
    return td_fail(error, TD_MEMORY, "what %.300s collects fits into no memory", origin);
  need = used + bytes;
  int32_t code = grow(s, used, need, error);
  if (code == TD_OK && bytes > 0) memcpy((char*)s->memory + used, made.data, bytes);
  return code;
}

/* The rows of a loop that never runs: what is not known of their shape is 0. */
static void set_no_rows(const td_plan* body, uint32_t j, slot* s) {
  const int64_t* shape = body->values[body->outputs[j + 1].value].shape;
  for (int32_t k = 0; k < s->ndim; k++) s->shape[k + 1] = shape[k] == TD_UNKNOWN ? 0 : shape[k];
}

static void give_results(td_executor* e, uint32_t i, int64_t done) {
  const td_block* block = e->plan.instructions[i].block;
  td_block_state* state = e->blocks[i];
  for (uint32_t j = 0; j < block->num_results; j++) {
    slot* s = &state->slots[j];
    if (j < block->states) {
      state->results[j] = (given_result){state->inputs[2 + j].data, state->inputs[2 + j].shape};
      continue;
    }
    if (done == 0) set_no_rows(&e->plan.plans[block->bodies[0]], j, s);
    s->shape[0] = done;
    state->results[j] = (given_result){s->memory, s->shape};
  }
}

static int32_t run_loop(td_executor* e, uint32_t i, td_error* error) {
  static const int64_t NO_SHAPE[1] = {0};
  const td_instruction* instruction = &e->plan.instructions[i];
  const td_block* block = instruction->block;
  td_block_state* state = e->blocks[i];
  td_executor* body = e->bodies[block->bodies[0]];
  int64_t limit = *(const int64_t*)e->steps[i].buffers[0], done = 0;
  bool goes_on = *(const unsigned char*)e->steps[i].buffers[1] != 0;
  unsigned char* condition = (unsigned char*)state->counter + TD_ALIGNMENT;
  state->inputs[0] = (td_tensor){state->counter, NO_SHAPE, 0};
  state->inputs[1] = (td_tensor){condition, NO_SHAPE, 0};
  take_operands(e, i, 2, 2);
  int32_t code = TD_OK;
  for (; code == TD_OK && goes_on && done < limit; done++) {
    *(int64_t*)state->counter = done;
    *condition = 1;
    code = run_body(e, i, body, error);
    if (code != TD_OK) return code;
    size_t bytes;
    goes_on = *(const unsigned char*)td_dynamic_output(body, 0, &bytes).data != 0;
    for (uint32_t j = 0; j < block->states; j++) take_state(body, j, state);
    for (uint32_t j = block->states; code == TD_OK && j < block->num_results; j++)
      code = add_row(body, j, &state->slots[j], done, instruction->origin, error);
  }
  give_results(e, i, done);
  return code;
}

int32_t td_block_run(td_executor* e, uint32_t i, td_error* error) {
  const td_instruction* instruction = &e->plan.instructions[i];
  const td_block* block = instruction->block;
  int32_t code = instruction->op == TD_OP_IF ? run_if(e, i, error) : run_loop(e, i, error);
  for (uint32_t k = 0; code == TD_OK && k < instruction->num_dims; k++)
    td_dynamic_set_size(e, instruction->sizes[k],
                        e->blocks[i]->results[block->result[k]].shape[block->axis[k]]);
  return code;
}

int32_t td_block_result(const td_executor* e, uint32_t i, uint32_t index, const int64_t* shape,
                        const void** data, td_error* error) {
  const td_instruction* instruction = &e->plan.instructions[i];
  const given_result* result = &e->blocks[i]->results[index];
  const td_plan* body = &e->plan.plans[instruction->block->bodies[0]];
  bool is_loop = instruction->op == TD_OP_LOOP;
  int32_t ndim = body->values[body->outputs[index + (is_loop ? 1 : 0)].value].ndim;
  if (is_loop && index >= instruction->block->states) ndim++;
  *data = result->data;
  if (ndim > 0 && result->shape[0] == 0 && shape[0] == 0) return TD_OK; /* nothing to speak of */
  for (int32_t k = 0; k < ndim; k++)
    if (result->shape[k] != shape[k])
      return td_fail(error, TD_INPUT, "result %u of %.300s has %lld elements along axis %d where "
                     "%lld are expected", (unsigned)index, instruction->origin,
                     (long long)result->shape[k], (int)k, (long long)shape[k]);
  return TD_OK;
}
