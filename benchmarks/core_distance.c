/* SPDX-License-Identifier: Apache-2.0 */
/* How long a line takes from one CPU to another and back, and what writing a buffer again takes that
 * both have read, in nanoseconds: what tells whether two virtual CPUs share a cache just now. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#define TURNS 2000
#define LINE 64
#define LINES 16384 /* 1 MB: each thread writes a half, both read it all */
#define ROUNDS 8

static _Alignas(LINE) _Atomic int turn;
static _Alignas(LINE) _Atomic int arrived;
static _Alignas(LINE) volatile int64_t lines[LINES][LINE / sizeof(int64_t)];

typedef struct {
  int cpu, is_second;
  double nanoseconds;
} Side;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

static void* pass_on(void* argument) {
  Side* side = argument;
  stay_on(side->cpu);
  double start = now();
  for (int k = side->is_second; k < TURNS; k += 2) {
    while (atomic_load(&turn) != k) continue;
    atomic_store(&turn, k + 1);
  }
  side->nanoseconds = (now() - start) / (TURNS / 2);
  return NULL;
}

static void meet(int number) {
  atomic_fetch_add(&arrived, 1);
  while (atomic_load(&arrived) < 2 * number) continue;
}

static void* share(void* argument) {
  Side* side = argument;
  stay_on(side->cpu);
  int first = side->is_second ? LINES / 2 : 0, meetings = 0;
  double writing = 0;
  for (int round = 0; round < ROUNDS; round++) {
    int64_t sum = 0;
    for (int k = 0; k < LINES; k++) sum += lines[k][0];
    meet(++meetings);
    double start = now();
    for (int k = first; k < first + LINES / 2; k++) lines[k][0] = sum;
    if (round > 0) writing += now() - start;
    meet(++meetings);
  }
  side->nanoseconds = writing / (ROUNDS - 1) / (LINES / 2);
  return NULL;
}

static double both(void* (*run)(void*), int a, int b) {
  Side sides[2] = {{a, 0, 0}, {b, 1, 0}};
  pthread_t threads[2];
  atomic_store(&turn, 0);
  atomic_store(&arrived, 0);
  for (int k = 0; k < 2; k++)
    if (pthread_create(&threads[k], NULL, run, &sides[k]) != 0) return -1;
  for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
  return (sides[0].nanoseconds + sides[1].nanoseconds) / 2;
}

double round_trip(int a, int b) { return both(pass_on, a, b); }
double rewriting(int a, int b) { return both(share, a, b); }
