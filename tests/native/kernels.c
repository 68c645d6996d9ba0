/* SPDX-License-Identifier: Apache-2.0 */
/* Small kernels with the ABI of compiled code, for the tests of the runtime. */
#include "treadle.h"

/* c[i] = a[i] + b[i] over dims[0] elements. */
typedef struct {
  const float *a, *b;
  float* c;
} add_closure;

static int32_t add_body(const td_env* env, void* closure, int64_t begin, int64_t end,
                        int32_t worker) {
  add_closure* x = closure;
  (void)env, (void)worker;
  for (int64_t i = begin; i < end; i++) x->c[i] = x->a[i] + x->b[i];
  return 0;
}

int32_t add(const td_env* env, void* const* buffers, const int64_t* dims) {
  add_closure closure = {buffers[0], buffers[1], buffers[2]};
  return env->parallel(env, add_body, &closure, dims[0]);
}

/* The same with a fixed size, no sizes given. */
int32_t add16(const td_env* env, void* const* buffers, const int64_t* dims) {
  add_closure closure = {buffers[0], buffers[1], buffers[2]};
  return dims != NULL ? 99 : add_body(env, &closure, 0, 16, 0);
}

/* out[i] = 2 * in[i] through a workspace of the same size. */
int32_t twice16(const td_env* env, void* const* buffers, const int64_t* dims) {
  const float* in = buffers[0];
  float *out = buffers[1], *scratch = buffers[2];
  (void)env, (void)dims;
  for (int i = 0; i < 16; i++) scratch[i] = in[i];
  for (int i = 0; i < 16; i++) out[i] = in[i] + scratch[i];
  return 0;
}

/* out[i] = how far above the start of a page of 4096 bytes the frame of iteration i is. */
static int32_t frame_body(const td_env* env, void* closure, int64_t begin, int64_t end,
                          int32_t worker) {
  (void)env, (void)worker;
  for (int64_t i = begin; i < end; i++)
    ((float*)closure)[i] = (float)((uintptr_t)__builtin_frame_address(0) % 4096);
  return 0;
}

int32_t frame(const td_env* env, void* const* buffers, const int64_t* dims) {
  return env->parallel(env, frame_body, buffers[1], dims[0]);
}

/* Returns what its input says. */
int32_t code_of(const td_env* env, void* const* buffers, const int64_t* dims) {
  (void)env, (void)dims;
  *(int32_t*)buffers[1] = 1;
  return *(const int32_t*)buffers[0];
}

/* Adds 1 to counts[i] for every iteration i, and writes the participant to workers[i]. */
typedef struct {
  int32_t *counts, *workers;
  int64_t width;
} cover_closure;

static int32_t cover_body(const td_env* env, void* closure, int64_t begin, int64_t end,
                          int32_t worker) {
  cover_closure* x = closure;
  (void)env;
  for (int64_t i = begin; i < end; i++) {
    x->counts[i]++;
    x->workers[i] = worker;
  }
  return 0;
}

int32_t cover(const td_env* env, void* const* buffers, const int64_t* dims) {
  cover_closure closure = {buffers[0], buffers[1], 1};
  return env->parallel(env, cover_body, &closure, dims[0]);
}

/* A parallel loop inside a parallel loop: row i of counts[m][n] is covered by the inner one. */
static int32_t nested_body(const td_env* env, void* closure, int64_t begin, int64_t end,
                           int32_t worker) {
  cover_closure* x = closure;
  (void)worker;
  for (int64_t i = begin; i < end; i++) {
    cover_closure row = {x->counts + i * x->width, x->workers + i * x->width, x->width};
    int32_t code = env->parallel(env, cover_body, &row, x->width);
    if (code != 0) return code;
  }
  return 0;
}

int32_t nested(const td_env* env, void* const* buffers, const int64_t* dims) {
  cover_closure closure = {buffers[0], buffers[1], dims[1]};
  return env->parallel(env, nested_body, &closure, dims[0]);
}

/* Every participant waits until all of `dims[0]` have arrived: they must run at the same time.
 * Iteration i writes who ran it to workers[i]. Gives up after a long while with code 5. */
typedef struct {
  int32_t *arrived, *workers;
} meet_closure;

static int32_t meet_body(const td_env* env, void* closure, int64_t begin, int64_t end,
                         int32_t worker) {
  meet_closure* x = closure;
  for (int64_t i = begin; i < end; i++) x->workers[i] = worker;
  __atomic_fetch_add(x->arrived, 1, __ATOMIC_SEQ_CST);
  for (int64_t i = 0; i < 4000000000; i++)
    if (__atomic_load_n(x->arrived, __ATOMIC_SEQ_CST) >= env->num_threads) return 0;
  return 5;
}

int32_t meet(const td_env* env, void* const* buffers, const int64_t* dims) {
  meet_closure closure = {buffers[0], buffers[1]};
  (void)dims;
  return env->parallel(env, meet_body, &closure, env->num_threads);
}

/* Iteration dims[1] fails with code 42. */
static int32_t fail_body(const td_env* env, void* closure, int64_t begin, int64_t end,
                         int32_t worker) {
  const int64_t* bad = closure;
  (void)env, (void)worker;
  return begin <= *bad && *bad < end ? 42 : 0;
}

int32_t fail_at(const td_env* env, void* const* buffers, const int64_t* dims) {
  int64_t bad = dims[1];
  (void)buffers;
  return env->parallel(env, fail_body, &bad, dims[0]);
}

/* A loop of nothing, for measuring what a parallel loop costs. */
static int32_t nothing_body(const td_env* env, void* closure, int64_t begin, int64_t end,
                            int32_t worker) {
  (void)env, (void)closure, (void)begin, (void)end, (void)worker;
  return 0;
}

int32_t nothing(const td_env* env, void* const* buffers, const int64_t* dims) {
  (void)buffers;
  return env->parallel(env, nothing_body, NULL, dims[0]);
}

/* out = in transposed, in[dims[0]][dims[1]], through a workspace of that size. */
int32_t flip(const td_env* env, void* const* buffers, const int64_t* dims) {
  const float* in = buffers[0];
  float *out = buffers[1], *scratch = buffers[2];
  (void)env;
  for (int64_t i = 0; i < dims[0] * dims[1]; i++) scratch[i] = in[i];
  for (int64_t i = 0; i < dims[0]; i++)
    for (int64_t j = 0; j < dims[1]; j++) out[j * dims[0] + i] = scratch[i * dims[1] + j];
  return 0;
}

/* count[0] = how many of the dims[0] elements are positive, count[1] = -1. */
int32_t count_positive(const td_env* env, void* const* buffers, const int64_t* dims) {
  const float* in = buffers[0];
  int64_t* count = buffers[1];
  (void)env;
  count[0] = 0;
  count[1] = -1;
  for (int64_t i = 0; i < dims[0]; i++) count[0] += in[i] > 0;
  return 0;
}

/* out = the positive ones of dims[0] elements, in order. */
int32_t keep_positive(const td_env* env, void* const* buffers, const int64_t* dims) {
  const float* in = buffers[0];
  float* out = buffers[1];
  (void)env;
  for (int64_t i = 0; i < dims[0]; i++)
    if (in[i] > 0) *out++ = in[i];
  return 0;
}

/* out = the dims[0] elements, and their number behind them. */
int32_t append(const td_env* env, void* const* buffers, const int64_t* dims) {
  const float* in = buffers[0];
  float* out = buffers[1];
  (void)env;
  for (int64_t i = 0; i < dims[0]; i++) out[i] = in[i];
  out[dims[0]] = (float)dims[0];
  return 0;
}

/* goes_on = iteration < 4. */
int32_t below_four(const td_env* env, void* const* buffers, const int64_t* dims) {
  (void)env, (void)dims;
  *(unsigned char*)buffers[1] = *(const int64_t*)buffers[0] < 4;
  return 0;
}
