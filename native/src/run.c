/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of executors: one after another for each, and so on after a fork.
 *
 * A process that is forked off has none of the other threads. What they were running stays as they
 * left it: locked, half bound, half placed. So an executor knows for which process it was locked
 * last; the first use in another one gives it a new lock and, if somebody was running it, new state
 * made from the model, which never changes. Nothing waits for a run to end, in neither process.
 */
#include <stdatomic.h>
#include <string.h>

#include "executor.h"

/* ---- the lock -------------------------------------------------------------------------------- */

static pthread_mutex_t renewal = PTHREAD_MUTEX_INITIALIZER;

/* The executor that this thread runs now; the others by `outer`. */
static _Thread_local td_executor* running_here = NULL;

bool td_executor_is_lost(const td_executor* e) {
  return atomic_load(&e->process) != td_process() && atomic_load(&e->is_held);
}

void td_runs_after_fork(void) {
  pthread_mutex_init(&renewal, NULL);
  for (td_executor* e = running_here; e != NULL; e = e->outer) {
    atomic_store(&e->process, td_process());
    td_run_goes_on(&e->env);
  }
}

/* The first use in this process. */
static int32_t take_over(td_executor* e, td_error* error) {
  int32_t code = TD_OK;
  pthread_mutex_lock(&renewal);
  if (atomic_load(&e->process) != td_process()) {
    if (atomic_load(&e->is_held)) code = td_executor_renew(e, error);
    if (code == TD_OK) {
      pthread_mutex_init(&e->mutex, NULL);
      atomic_store(&e->is_held, false);
      atomic_store(&e->process, td_process());
    }
  }
  pthread_mutex_unlock(&renewal);
  return code;
}

int32_t td_executor_lock(td_executor* e, td_error* error) {
  if (atomic_load_explicit(&e->process, memory_order_acquire) != td_process()) {
    int32_t code = take_over(e, error);
    if (code != TD_OK) return code;
  }
  pthread_mutex_lock(&e->mutex);
  atomic_store(&e->is_held, true);
  atomic_thread_fence(memory_order_seq_cst); /* a fork copies no change of a run but not this */
  e->outer = running_here;
  running_here = e;
  return TD_OK;
}

void td_executor_unlock(td_executor* e) {
  running_here = e->outer;
  atomic_store_explicit(&e->is_held, false, memory_order_release);
  pthread_mutex_unlock(&e->mutex);
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
  bool guards = td_guards();
  for (uint32_t i = begin; i < end; i++) {
    if (guards && e->steps[i].kernel != NULL)
      td_guards_name(e->plan.kernels[e->plan.instructions[i].kernel]);
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
  /* with lent memory the stack may be small, and nothing draws where it begins */
  if (!e->is_lent) TD_FRAMES_FROM_PAGE();
  return watched ? run_watched(e, begin, end, error) : run_plain(e, begin, end, error);
}

/* Before a run: the executor is locked, and its kernels have the stack that they take. */
static int32_t begin(td_executor* e, td_error* error) {
  int32_t code = td_check_stack(e->plan.stack_bytes, !e->is_lent, error);
  if (code == TD_OK) code = td_executor_lock(e, error);
  if (code == TD_OK) td_run_begins(&e->env);
  return code;
}

static void end(td_executor* e) {
  td_run_ends(&e->env);
  td_executor_unlock(e);
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
  int32_t code = begin(e, error);
  if (code != TD_OK) return code;
  code = run_static(e, inputs, outputs, error);
  end(e);
  return code;
}

int32_t td_run_shaped(td_executor* e, const td_tensor* inputs, const td_buffer* outputs,
                      td_error* error) {
  if (!e->plan.is_dynamic)
    return td_fail(error, TD_ARGUMENT, "this model has fixed sizes: call td_run");
  if (inputs == NULL && e->plan.num_inputs > 0)
    return td_fail(error, TD_INPUT, "no inputs are given");
  int32_t code = begin(e, error);
  if (code != TD_OK) return code;
  code = td_dynamic_run(e, inputs, outputs, error);
  end(e);
  return code;
}

int32_t td_run_call(const td_call* call) {
  td_executor* e = call->executor;
  return e->plan.is_dynamic ? td_run_shaped(e, call->inputs, call->outputs, call->error)
                            : td_run(e, call->inputs, call->outputs, call->error);
}
