/* SPDX-License-Identifier: Apache-2.0 */
/* What a parallel loop of the native runtime costs; prints one line per case: name, median ns. */
#include <stdio.h>
#include <stdlib.h>

#include "treadle.h"

#define LOOPS 2001
#define WORK_ITEMS 256

static int32_t nothing(const td_env* env, void* closure, int64_t begin, int64_t end,
                       int32_t worker) {
  (void)env, (void)closure, (void)begin, (void)end, (void)worker;
  return 0;
}

/* Ends when every participant has come: the time until the last one is at work. */
static int32_t meet(const td_env* env, void* closure, int64_t begin, int64_t end, int32_t worker) {
  int32_t* arrived = closure;
  (void)begin, (void)end, (void)worker;
  __atomic_fetch_add(arrived, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(arrived, __ATOMIC_SEQ_CST) < env->num_threads) continue;
  return 0;
}

/* About 20 microseconds of arithmetic per item. */
static int32_t work(const td_env* env, void* closure, int64_t begin, int64_t end, int32_t worker) {
  (void)env, (void)worker;
  double* results = closure;
  for (int64_t i = begin; i < end; i++) {
    double x = (double)i;
    for (int k = 0; k < 10000; k++) x = x * 0.999999 + 1.0;
    results[i] = x;
  }
  return 0;
}

static void wait_ns(int64_t gap) {
  int64_t until = td_now_ns() + gap;
  while (td_now_ns() < until) continue;
}

static int compare(const void* a, const void* b) {
  int64_t x = *(const int64_t*)a, y = *(const int64_t*)b;
  return (x > y) - (x < y);
}

/* Loops are timed `batch` at a time, each after a gap that is not counted. */
static void measure(const char* name, const td_env* env, td_body body, int64_t gap, int batch,
                    int samples) {
  static int64_t times[LOOPS];
  for (int s = 0; s < samples; s++) {
    if (gap > 0) wait_ns(gap);
    int64_t start = td_now_ns();
    for (int b = 0; b < batch; b++) {
      int32_t arrived = 0;
      env->parallel(env, body, &arrived, env->num_threads);
    }
    times[s] = (td_now_ns() - start) / batch;
  }
  qsort(times, (size_t)samples, sizeof times[0], compare);
  printf("%s %lld\n", name, (long long)times[samples / 2]);
}

static void measure_work(const char* name, int threads) {
  static double results[WORK_ITEMS];
  int64_t times[11];
  td_env env;
  if (td_env_init(&env, threads, NULL) != TD_OK) return;
  for (int s = 0; s < 11; s++) {
    int64_t start = td_now_ns();
    env.parallel(&env, work, results, WORK_ITEMS);
    times[s] = td_now_ns() - start;
  }
  qsort(times, 11, sizeof times[0], compare);
  printf("%s %lld\n", name, (long long)times[5]);
}

int main(void) {
  td_env env;
  td_error error;
  if (td_env_init(&env, 0, &error) != TD_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 2;
  }
  printf("threads %d\n", (int)env.num_threads);
  measure("warm_up", &env, meet, 0, 100, 100);
  measure("empty_back_to_back", &env, nothing, 0, 100, LOOPS);
  measure("all_at_work_back_to_back", &env, meet, 0, 100, LOOPS);
  measure("all_at_work_after_20_us", &env, meet, 20000, 1, LOOPS);
  measure("all_at_work_after_100_us", &env, meet, 100000, 1, LOOPS);
  measure("all_at_work_after_2_ms", &env, meet, 2000000, 1, 301);
  measure("empty_after_2_ms", &env, nothing, 2000000, 1, 301);
  measure_work("work_1_thread", 1);
  measure_work("work_all_threads", 0);
  measure_work("work_4_times_the_threads", 4 * env.num_threads);
  return 0;
}
