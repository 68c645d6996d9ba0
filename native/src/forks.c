/* SPDX-License-Identifier: Apache-2.0 */
/* Forks: threads that wait for work end before, so that a program which loads models and then forks
 * has no more threads than its own. The child puts right what threads that it does not have were in
 * the middle of. Locks that a fork takes are taken where they are: a program that is linked without
 * those files needs none. */
#include <pthread.h>
#include <stdatomic.h>

#include "internal.h"

static _Atomic uint32_t forks = 0;

uint32_t td_process(void) { return atomic_load_explicit(&forks, memory_order_acquire); }

static void in_child(void) {
  atomic_fetch_add(&forks, 1);
  td_threads_after_fork();
  td_runs_after_fork();
}

__attribute__((constructor)) static void watch_forks(void) {
  (void)pthread_atfork(td_threads_rest, NULL, in_child);
}
