/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread pool: one for the process, started on first need.
 *
 * A parallel loop is dealt out in equal shares, one per participant and always the same one to the
 * same thread: loops of the same extent meet their data in the cache of the core that made it
 * (affinity scheduling: Markatos and LeBlanc, "Using Processor Affinity in Loop Scheduling on
 * Shared-Memory Multiprocessors", IEEE TPDS 1994). A share is one atomic word (participants, first
 * unit left, end). Its owner takes pieces off its front with compare-and-swap, large ones first;
 * who has finished takes pieces off the ends of the others' shares. A piece taken from a word
 * belongs to the loop that is current, and that loop cannot end before the piece is counted as
 * done; so a worker that is late, asleep or descheduled holds nobody up unless it has taken work.
 * Workers spin for a moment, then yield, then sleep; the caller, waiting for the last pieces, does
 * the same.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define SPIN_NS 30000    /* then give way to others between looks */
#define YIELD_NS 1000000 /* then sleep: waking up costs tens of microseconds */
#define LOOKS_PER_CLOCK 16

#if defined(__x86_64__) || defined(__i386__)
#define relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define relax() __asm__ __volatile__("yield")
#else
#define relax() ((void)0)
#endif

/* A share: 10 bits participants of the loop, 27 bits first unit left, 27 bits end. */
#define MOST_UNITS ((int64_t)1 << 26)
#define SHARE(participants, begin, end) \
  (((uint64_t)(participants) << 54) | ((uint64_t)(begin) << 27) | (uint64_t)(end))
#define PARTICIPANTS(share) ((int32_t)((share) >> 54))
#define BEGIN(share) ((uint32_t)((share) >> 27) & 0x7ffffff)
#define END(share) ((uint32_t)(share) & 0x7ffffff)
#define LEFT(share) (END(share) - BEGIN(share))

static struct {
  struct {
    _Alignas(128) _Atomic uint64_t share;
  } of[TD_MAX_THREADS];
  _Alignas(128) _Atomic uint64_t done; /* units of the current loop that are finished */
  /* The current loop: written by its caller while nobody holds a piece. */
  _Alignas(128) td_body body;
  const td_env* env;
  void* closure;
  int64_t count;
  int64_t unit; /* iterations per unit: 1 unless there are more than MOST_UNITS */
  uint32_t units;
  _Atomic uint32_t smallest;    /* piece, in units */
  _Atomic int32_t participants; /* the first so many threads have shares */
  _Atomic int32_t result;
  _Alignas(128) _Atomic int32_t sleepers;
  _Atomic int32_t caller_sleeps;
  _Atomic int32_t stop;
  _Atomic int32_t busy; /* a caller owns the pool */
  int32_t num_workers;
  pthread_t workers[TD_MAX_THREADS];
  pthread_mutex_t mutex;
  pthread_cond_t work_waits, loop_ends;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER,
          .work_waits = PTHREAD_COND_INITIALIZER,
          .loop_ends = PTHREAD_COND_INITIALIZER};

static _Thread_local int32_t this_worker = 0;
static _Thread_local bool inside_loop = false;

/* ---- taking pieces --------------------------------------------------------------------------- */

typedef struct {
  uint32_t begin, end;
} td_piece;

/* Takes half of what is left of a thread's share, but no less than the smallest piece: off the
 * front for the owner, off the end for other participants. */
static bool take(int32_t owner, int32_t worker, td_piece* piece) {
  _Atomic uint64_t* share = &pool.of[owner].share;
  uint64_t word = atomic_load_explicit(share, memory_order_acquire);
  bool is_own = owner == worker;
  while (LEFT(word) != 0 && worker < PARTICIPANTS(word)) {
    /* A stale value can only make the piece larger or smaller than meant. */
    uint32_t smallest = atomic_load_explicit(&pool.smallest, memory_order_relaxed);
    uint32_t left = LEFT(word), size = left / 2 > smallest ? left / 2 : smallest;
    if (size > left) size = left;
    uint32_t begin = BEGIN(word), end = END(word);
    uint32_t cut = is_own ? begin + size : end - size;
    uint64_t rest = SHARE(PARTICIPANTS(word), is_own ? cut : begin, is_own ? end : cut);
    if (atomic_compare_exchange_weak_explicit(share, &word, rest, memory_order_acq_rel,
                                              memory_order_acquire)) {
      *piece = is_own ? (td_piece){begin, cut} : (td_piece){cut, end};
      return true;
    }
  }
  return false;
}

/* Takes a piece of the thread's own share, or else of the next one that has work. */
static bool take_any(int32_t worker, td_piece* piece) {
  if (take(worker, worker, piece)) return true;
  int32_t participants = atomic_load_explicit(&pool.participants, memory_order_relaxed);
  for (int32_t k = 1; k < participants; k++)
    if (take((worker + k) % participants, worker, piece)) return true;
  return false;
}

static void run_piece(int32_t worker, td_piece piece) {
  int64_t begin = (int64_t)piece.begin * pool.unit, end = (int64_t)piece.end * pool.unit;
  if (end > pool.count) end = pool.count;
  if (atomic_load_explicit(&pool.result, memory_order_relaxed) != 0) return;
  int32_t result = pool.body(pool.env, pool.closure, begin, end, worker);
  int32_t none = 0;
  if (result != 0) atomic_compare_exchange_strong(&pool.result, &none, result);
}

static void work(int32_t worker) {
  td_piece piece;
  while (take_any(worker, &piece)) {
    run_piece(worker, piece);
    atomic_fetch_add(&pool.done, piece.end - piece.begin);
    if (worker != 0 && atomic_load(&pool.caller_sleeps)) {
      pthread_mutex_lock(&pool.mutex);
      pthread_cond_signal(&pool.loop_ends);
      pthread_mutex_unlock(&pool.mutex);
    }
  }
}

/* ---- workers --------------------------------------------------------------------------------- */

/* True when a worker's own share has work: all that wakes it; it helps others while awake. */
static bool has_work(int32_t worker) { return LEFT(atomic_load(&pool.of[worker].share)) != 0; }

static void sleep_until_work(int32_t worker) {
  pthread_mutex_lock(&pool.mutex);
  atomic_fetch_add(&pool.sleepers, 1);
  while (!atomic_load(&pool.stop) && !has_work(worker))
    pthread_cond_wait(&pool.work_waits, &pool.mutex);
  atomic_fetch_sub(&pool.sleepers, 1);
  pthread_mutex_unlock(&pool.mutex);
}

/* Spins, then yields, until there is work (true) or the time to sleep has come (false). */
static bool watch_for_work(int32_t worker) {
  int64_t idle_since = td_now_ns();
  for (;;) {
    for (int look = 0; look < LOOKS_PER_CLOCK; look++) {
      if (has_work(worker) || atomic_load_explicit(&pool.stop, memory_order_relaxed)) return true;
      relax();
    }
    int64_t idle = td_now_ns() - idle_since;
    if (idle > YIELD_NS) return false;
    if (idle > SPIN_NS) sched_yield();
  }
}

static void* worker_main(void* argument) {
  this_worker = (int32_t)(intptr_t)argument;
  inside_loop = true;
  while (!atomic_load(&pool.stop)) {
    work(this_worker);
    if (!watch_for_work(this_worker)) sleep_until_work(this_worker);
  }
  return NULL;
}

/* ---- life of the pool ------------------------------------------------------------------------ */

static void forget_workers_after_fork(void) {
  for (int32_t i = 0; i < TD_MAX_THREADS; i++) atomic_store(&pool.of[i].share, 0);
  atomic_store(&pool.done, 0);
  atomic_store(&pool.sleepers, 0);
  atomic_store(&pool.caller_sleeps, 0);
  atomic_store(&pool.busy, 0);
  pool.num_workers = 0;
  pthread_mutex_init(&pool.mutex, NULL);
  pthread_cond_init(&pool.work_waits, NULL);
  pthread_cond_init(&pool.loop_ends, NULL);
  if (this_worker == 0) inside_loop = false;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_workers_after_fork); }

/* Starts workers until there are `wanted`, or as many as the system gives. The caller owns the
 * pool. Workers take no signals: those belong to the program's own threads. */
static int32_t start_workers(int32_t wanted) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (pool.num_workers < wanted) {
    void* number = (void*)(intptr_t)(pool.num_workers + 1);
    if (pthread_create(&pool.workers[pool.num_workers], NULL, worker_main, number) != 0) break;
    pool.num_workers++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return pool.num_workers;
}

__attribute__((destructor)) static void stop_workers(void) {
  pthread_mutex_lock(&pool.mutex);
  atomic_store(&pool.stop, 1);
  pthread_cond_broadcast(&pool.work_waits);
  pthread_mutex_unlock(&pool.mutex);
  for (int32_t i = 0; i < pool.num_workers; i++) pthread_join(pool.workers[i], NULL);
  pool.num_workers = 0;
}

/* ---- the caller ------------------------------------------------------------------------------ */

/* Deals out a loop. The shares come last, the caller's own at the very end. */
static void publish(const td_env* env, td_body body, void* closure, int64_t count,
                    int32_t participants) {
  pool.env = env;
  pool.body = body;
  pool.closure = closure;
  pool.count = count;
  pool.unit = (count + MOST_UNITS - 1) / MOST_UNITS;
  pool.units = (uint32_t)((count + pool.unit - 1) / pool.unit);
  atomic_store_explicit(&pool.smallest, pool.units / (16 * (uint32_t)participants) + 1,
                        memory_order_relaxed);
  atomic_store_explicit(&pool.participants, participants, memory_order_relaxed);
  atomic_store_explicit(&pool.result, 0, memory_order_relaxed);
  atomic_store_explicit(&pool.done, 0, memory_order_relaxed);
  for (int32_t i = participants - 1; i >= 0; i--) {
    uint64_t begin = (uint64_t)pool.units * (uint32_t)i / (uint32_t)participants;
    uint64_t end = (uint64_t)pool.units * (uint32_t)(i + 1) / (uint32_t)participants;
    /* Sequentially consistent with the sleeper's "count me, then look again". */
    atomic_store(&pool.of[i].share, SHARE(participants, begin, end));
  }
  if (atomic_load(&pool.sleepers) == 0) return;
  pthread_mutex_lock(&pool.mutex);
  pthread_cond_broadcast(&pool.work_waits);
  pthread_mutex_unlock(&pool.mutex);
}

static bool all_done(void) {
  return atomic_load_explicit(&pool.done, memory_order_acquire) == pool.units;
}

static void sleep_until_done(void) {
  pthread_mutex_lock(&pool.mutex);
  atomic_store(&pool.caller_sleeps, 1);
  while (atomic_load(&pool.done) != pool.units) pthread_cond_wait(&pool.loop_ends, &pool.mutex);
  atomic_store(&pool.caller_sleeps, 0);
  pthread_mutex_unlock(&pool.mutex);
}

static void wait_until_done(void) {
  for (int look = 0; look < LOOKS_PER_CLOCK; look++) {
    if (all_done()) return;
    relax();
  }
  int64_t since = td_now_ns();
  for (;;) {
    for (int look = 0; look < LOOKS_PER_CLOCK; look++) {
      if (all_done()) return;
      relax();
    }
    int64_t waited = td_now_ns() - since;
    if (waited > YIELD_NS) break;
    if (waited > SPIN_NS) sched_yield();
  }
  sleep_until_done();
}

static int32_t parallel(const td_env* env, td_body body, void* closure, int64_t count) {
  if (count <= 0) return 0;
  int32_t participants = env->num_threads < TD_MAX_THREADS ? env->num_threads : TD_MAX_THREADS;
  if (participants > count) participants = (int32_t)count;
  if (participants <= 1 || inside_loop || atomic_exchange(&pool.busy, 1) != 0)
    return body(env, closure, 0, count, this_worker);
  if (pool.num_workers < participants - 1) {
    int32_t workers = start_workers(participants - 1);
    if (participants > workers + 1) participants = workers + 1;
  }
  inside_loop = true;
  publish(env, body, closure, count, participants);
  work(0);
  wait_until_done();
  inside_loop = false;
  int32_t result = atomic_load_explicit(&pool.result, memory_order_relaxed);
  atomic_store_explicit(&pool.busy, 0, memory_order_release);
  return result;
}

/* ---- number of threads ----------------------------------------------------------------------- */

static _Atomic int32_t chosen_threads = 0;

/* The value of TREADLE_NUM_THREADS; 0 if not set, -1 if it is not a number of threads. */
static int32_t threads_from_environment(const char** text) {
  *text = getenv("TREADLE_NUM_THREADS");
  if (*text == NULL || **text == '\0') return 0;
  char* end;
  errno = 0;
  long value = strtol(*text, &end, 10);
  return errno != 0 || *end != '\0' || value < 1 || value > TD_MAX_THREADS ? -1 : (int32_t)value;
}

static int32_t default_threads(void) {
  static _Atomic int32_t usable = 0;
  if (atomic_load(&usable) == 0) atomic_store(&usable, td_usable_cpus(NULL));
  int32_t count = atomic_load(&usable);
  return count < TD_MAX_THREADS ? count : TD_MAX_THREADS;
}

int32_t td_num_threads(void) {
  int32_t count = atomic_load(&chosen_threads);
  if (count > 0) return count;
  const char* text;
  count = threads_from_environment(&text);
  return count > 0 ? count : default_threads();
}

static int32_t check_threads(int32_t count, td_error* error) {
  if (count >= 0 && count <= TD_MAX_THREADS) return TD_OK;
  return td_fail(error, TD_ARGUMENT, "%d is not a number of threads; it must be 1 to %d, or 0 for "
                 "the default", (int)count, TD_MAX_THREADS);
}

int32_t td_set_num_threads(int32_t count, td_error* error) {
  if (check_threads(count, error) != TD_OK) return TD_ARGUMENT;
  atomic_store(&chosen_threads, count);
  return TD_OK;
}

int32_t td_env_init(td_env* env, int32_t num_threads, td_error* error) {
  if (check_threads(num_threads, error) != TD_OK) return TD_ARGUMENT;
  const char* text;
  if (num_threads == 0 && atomic_load(&chosen_threads) == 0 && threads_from_environment(&text) < 0)
    return td_fail(error, TD_ARGUMENT, "TREADLE_NUM_THREADS is '%.40s'; it must be a number from 1 "
                   "to %d", text, TD_MAX_THREADS);
  env->parallel = parallel;
  env->num_threads = num_threads > 0 ? num_threads : td_num_threads();
  env->reserved = 0;
  env->pool = NULL;
  return TD_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int32_t kernel_failed(int32_t code, td_error* error) {
  return td_fail(error, TD_KERNEL, "the kernel returns code %d", (int)code);
}

int32_t td_kernel_call(td_kernel kernel, const td_env* env, void* const* buffers,
                       const int64_t* dims, td_error* error) {
  int32_t code = kernel(env, buffers, dims);
  return code == 0 ? TD_OK : kernel_failed(code, error);
}

int32_t td_kernel_time(td_kernel kernel, const td_env* env, void* const* buffers,
                       const int64_t* dims, int64_t number, int64_t* elapsed_ns, td_error* error) {
  int64_t start = td_now_ns();
  for (int64_t i = 0; i < number; i++) {
    int32_t code = kernel(env, buffers, dims);
    if (code != 0) return kernel_failed(code, error);
  }
  *elapsed_ns = td_now_ns() - start;
  return TD_OK;
}
