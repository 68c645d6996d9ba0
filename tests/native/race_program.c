/* SPDX-License-Identifier: Apache-2.0 */
/* Parallel loops of several callers at once, for the thread sanitizer. */
#include <pthread.h>
#include <stdio.h>

#include "treadle.h"

#define CALLERS 3
#define ITERATIONS 20000
#define ROUNDS 100

static int32_t add(const td_env* env, void* closure, int64_t begin, int64_t end, int32_t worker) {
  int64_t* sums = closure;
  (void)env;
  (void)worker;
  for (int64_t i = begin; i < end; i++) sums[i] += i;
  return 0;
}

static int32_t kernel(const td_env* env, void* const* buffers, const int64_t* dims) {
  return env->parallel(env, add, buffers[0], dims[0]);
}

static void* call(void* sums) {
  const int64_t count = ITERATIONS;
  void* const buffers[] = {sums};
  td_env env;
  if (td_env_init(&env, 4, NULL) != TD_OK) return "no environment";
  for (int i = 0; i < ROUNDS; i++)
    if (td_kernel_call(kernel, &env, buffers, &count, NULL) != TD_OK) return "a call fails";
  for (int64_t i = 0; i < count; i++)
    if (((int64_t*)sums)[i] != ROUNDS * i) return "a sum is wrong";
  return NULL;
}

int main(void) {
  static int64_t sums[CALLERS][ITERATIONS];
  pthread_t callers[CALLERS];
  int failed = 0;
  for (int i = 0; i < CALLERS; i++)
    if (pthread_create(&callers[i], NULL, call, sums[i]) != 0) return 2;
  for (int i = 0; i < CALLERS; i++) {
    void* said;
    pthread_join(callers[i], &said);
    if (said != NULL) failed = puts((const char*)said) > 0;
  }
  return failed;
}
