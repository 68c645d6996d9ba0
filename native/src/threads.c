/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread pool: teams of threads, started on first need.
 *
 * A run has a team to itself, the first that is free, so that runs beside each other do not wait for
 * each other and a run alone always has the same threads. Runs beside each other share the process's
 * number of threads: each uses its part of it, and takes more when the others end. With as many runs
 * as threads every run works alone, and no thread spins for work that will not come.
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
#define STACK ((size_t)8 << 20) /* several buffers of a megabyte; other C libraries give 128 KB */
#define MAX_TEAMS 256 /* more runs than that beside each other work alone */

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

typedef struct td_team td_team;

/* The team's threads and the loop they work on. */
struct td_team {
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
  _Atomic int32_t all;          /* threads of all runs beside each other */
  _Atomic int32_t result;
  _Alignas(128) _Atomic int32_t sleepers;
  _Atomic int32_t caller_sleeps;
  _Atomic int32_t stop;
  _Atomic int32_t is_taken; /* by a run, or by a loop outside of any */
  int32_t num_workers;
  pthread_t workers[TD_MAX_THREADS];
  pthread_mutex_t mutex;
  pthread_cond_t work_waits, loop_ends;
};

/* Teams are made in order, on first need, and stay. */
static _Atomic(td_team*) teams[MAX_TEAMS];

/* Runs and loops outside of runs that go on now: they share the threads. */
static _Atomic int32_t active = 0;

/* Whether there ever was one. */
static _Atomic int32_t have_run = 0;

static _Thread_local int32_t this_worker = 0;
static _Thread_local bool inside_loop = false;

/* ---- taking pieces --------------------------------------------------------------------------- */

typedef struct {
  uint32_t begin, end;
} td_piece;

/* Takes half of what is left of a thread's share, but no less than the smallest piece: off the
 * front for the owner, off the end for other participants. */
static bool take(td_team* team, int32_t owner, int32_t worker, td_piece* piece) {
  _Atomic uint64_t* share = &team->of[owner].share;
  uint64_t word = atomic_load_explicit(share, memory_order_acquire);
  bool is_own = owner == worker;
  while (LEFT(word) != 0 && worker < PARTICIPANTS(word)) {
    /* A stale value can only make the piece larger or smaller than meant. */
    uint32_t smallest = atomic_load_explicit(&team->smallest, memory_order_relaxed);
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
static bool take_any(td_team* team, int32_t worker, td_piece* piece) {
  if (take(team, worker, worker, piece)) return true;
  int32_t participants = atomic_load_explicit(&team->participants, memory_order_relaxed);
  for (int32_t k = 1; k < participants; k++)
    if (take(team, (worker + k) % participants, worker, piece)) return true;
  return false;
}

static void run_piece(td_team* team, int32_t worker, td_piece piece) {
  int64_t begin = (int64_t)piece.begin * team->unit, end = (int64_t)piece.end * team->unit;
  if (end > team->count) end = team->count;
  if (atomic_load_explicit(&team->result, memory_order_relaxed) != 0) return;
  int32_t result = team->body(team->env, team->closure, begin, end, worker);
  int32_t none = 0;
  if (result != 0) atomic_compare_exchange_strong(&team->result, &none, result);
}

static void work(td_team* team, int32_t worker) {
  td_piece piece;
  while (take_any(team, worker, &piece)) {
    run_piece(team, worker, piece);
    atomic_fetch_add(&team->done, piece.end - piece.begin);
    if (worker != 0 && atomic_load(&team->caller_sleeps)) {
      pthread_mutex_lock(&team->mutex);
      pthread_cond_signal(&team->loop_ends);
      pthread_mutex_unlock(&team->mutex);
    }
  }
}

/* ---- sharing the threads --------------------------------------------------------------------- */

/* The threads that one run may use now, of `all` that the runs beside each other have. */
static int32_t fair_share(int32_t all) {
  int32_t runs = atomic_load_explicit(&active, memory_order_relaxed);
  if (runs <= 1) return TD_MAX_THREADS; /* alone: as many as it is allowed */
  return all > runs ? all / runs : 1;
}

static td_team* make_team(int32_t index) {
  void* memory;
  if (posix_memalign(&memory, _Alignof(td_team), sizeof(td_team)) != 0) return NULL;
  td_team *team = memset(memory, 0, sizeof(td_team)), *other = NULL;
  pthread_mutex_init(&team->mutex, NULL);
  pthread_cond_init(&team->work_waits, NULL);
  pthread_cond_init(&team->loop_ends, NULL);
  if (atomic_compare_exchange_strong(&teams[index], &other, team)) return team;
  pthread_mutex_destroy(&team->mutex);
  pthread_cond_destroy(&team->work_waits);
  pthread_cond_destroy(&team->loop_ends);
  free(team);
  return other;
}

/* The first team that is free; NULL when there is none. */
static td_team* take_team(void) {
  for (int32_t i = 0; i < MAX_TEAMS; i++) {
    td_team* team = atomic_load_explicit(&teams[i], memory_order_acquire);
    if (team == NULL) team = make_team(i);
    if (team == NULL) return NULL;
    if (atomic_load_explicit(&team->is_taken, memory_order_relaxed) != 0) continue;
    if (atomic_exchange_explicit(&team->is_taken, 1, memory_order_acq_rel) == 0) return team;
  }
  return NULL;
}

static void give_back(td_team* team) {
  if (team != NULL) atomic_store_explicit(&team->is_taken, 0, memory_order_release);
}

void td_run_begins(td_env* env) {
  if (atomic_load_explicit(&have_run, memory_order_relaxed) == 0) atomic_store(&have_run, 1);
  atomic_fetch_add_explicit(&active, 1, memory_order_relaxed);
  env->pool = env->num_threads > 1 ? take_team() : NULL;
}

void td_run_ends(td_env* env) {
  give_back(env->pool);
  env->pool = NULL;
  atomic_fetch_sub_explicit(&active, 1, memory_order_relaxed);
}

/* ---- workers --------------------------------------------------------------------------------- */

/* True when a worker's own share has work: all that wakes it; it helps others while awake. */
static bool has_work(const td_team* team, int32_t worker) {
  return LEFT(atomic_load(&team->of[worker].share)) != 0;
}

static void sleep_until_work(td_team* team, int32_t worker) {
  pthread_mutex_lock(&team->mutex);
  atomic_fetch_add(&team->sleepers, 1);
  while (!atomic_load(&team->stop) && !has_work(team, worker))
    pthread_cond_wait(&team->work_waits, &team->mutex);
  atomic_fetch_sub(&team->sleepers, 1);
  pthread_mutex_unlock(&team->mutex);
}

/* Spins, then yields, until there is work (true) or the time to sleep has come (false): at once
 * while so many runs share the threads that this one is not due to get work. */
static bool watch_for_work(td_team* team, int32_t worker) {
  int64_t idle_since = td_now_ns();
  for (;;) {
    for (int look = 0; look < LOOKS_PER_CLOCK; look++) {
      if (has_work(team, worker)) return true;
      if (atomic_load_explicit(&team->stop, memory_order_relaxed)) return true;
      relax();
    }
    if (worker >= fair_share(atomic_load_explicit(&team->all, memory_order_relaxed))) return false;
    int64_t idle = td_now_ns() - idle_since;
    if (idle > YIELD_NS) return false;
    if (idle > SPIN_NS) sched_yield();
  }
}

/* Who a new thread is. */
typedef struct {
  td_team* team;
  int32_t worker;
  size_t stack_bytes; /* to be touched */
} td_place;

/* The CPUs that threads are bound to: worker k to number k modulo their count, which is 0 if none
 * were chosen. */
static int32_t chosen_cpus[TD_MAX_THREADS];
static _Atomic int32_t num_chosen_cpus = 0;

static void* worker_main(void* argument) {
  td_place place = *(td_place*)argument;
  free(argument);
  this_worker = place.worker;
  int32_t cpus = atomic_load(&num_chosen_cpus);
  if (cpus > 0) (void)td_bind_to_cpu(chosen_cpus[place.worker % cpus]);
  TD_FRAMES_FROM_PAGE();
  td_touch_stack(place.stack_bytes, STACK);
  inside_loop = true;
  while (!atomic_load(&place.team->stop)) {
    work(place.team, place.worker);
    if (!watch_for_work(place.team, place.worker)) sleep_until_work(place.team, place.worker);
  }
  return NULL;
}

/* ---- life of a team -------------------------------------------------------------------------- */

static bool start_worker(td_team* team, int32_t worker, size_t stack_bytes) {
  td_place* place = malloc(sizeof *place);
  if (place == NULL) return false;
  *place = (td_place){team, worker, stack_bytes};
  pthread_attr_t how;
  pthread_attr_init(&how);
  pthread_attr_setstacksize(&how, STACK);
  int failed = pthread_create(&team->workers[worker - 1], &how, worker_main, place);
  pthread_attr_destroy(&how);
  if (failed != 0) free(place);
  return failed == 0;
}

/* Starts workers until there are `wanted`, or as many as the system gives. The caller has the team.
 * Workers take no signals: those belong to the program's own threads. */
static int32_t start_workers(td_team* team, int32_t wanted, size_t stack_bytes) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (team->num_workers < wanted && start_worker(team, team->num_workers + 1, stack_bytes))
    team->num_workers++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return team->num_workers;
}

void td_threads_start(int32_t count, size_t stack_bytes) {
  if (atomic_load(&active) > 0) return;
  if (count > TD_MAX_THREADS) count = TD_MAX_THREADS;
  td_team* team = count > 1 ? take_team() : NULL;
  if (team != NULL && team->num_workers < count - 1) start_workers(team, count - 1, stack_bytes);
  give_back(team);
  static _Thread_local size_t touched = 0;
  if (stack_bytes > STACK) stack_bytes = STACK; /* where the caller's has no end, it has enough */
  if (stack_bytes <= touched) return;
  touched = stack_bytes;
  td_touch_stack(stack_bytes, td_stack_room());
}

static void stop_team(td_team* team) {
  pthread_mutex_lock(&team->mutex);
  atomic_store(&team->stop, 1);
  pthread_cond_broadcast(&team->work_waits);
  pthread_mutex_unlock(&team->mutex);
  for (int32_t i = 0; i < team->num_workers; i++) pthread_join(team->workers[i], NULL);
  team->num_workers = 0;
}

__attribute__((destructor)) static void stop_workers(void) {
  for (int32_t i = 0; i < MAX_TEAMS && teams[i] != NULL; i++) stop_team(teams[i]);
}

void td_threads_rest(void) {
  for (int32_t i = 0; i < MAX_TEAMS && teams[i] != NULL; i++) {
    td_team* team = teams[i];
    if (atomic_exchange_explicit(&team->is_taken, 1, memory_order_acq_rel) != 0) continue;
    stop_team(team);
    atomic_store(&team->stop, 0);
    give_back(team);
  }
}

int32_t td_set_cpus(const int32_t* cpus, int32_t count, td_error* error) {
  if (count < 0 || count > TD_MAX_THREADS || (count > 0 && cpus == NULL))
    return td_fail(error, TD_ARGUMENT, "%d is not a number of CPUs; it must be 0 to %d", (int)count,
                   TD_MAX_THREADS);
  if (atomic_load(&have_run) != 0)
    return td_hint(error, td_fail(error, TD_ARGUMENT, "threads are running already"),
                   "choose CPUs before the first run");
  for (int32_t i = 0; i < count; i++) {
    int32_t answer = td_may_use_cpu(cpus[i]);
    if (answer < 0) return td_fail(error, TD_UNSUPPORTED, "this system does not bind threads");
    if (answer == 0)
      return td_fail(error, TD_ARGUMENT, "this process may not run on CPU %d", (int)cpus[i]);
  }
  td_threads_rest(); /* those that were started ahead are not where they shall run */
  for (int32_t i = 0; i < count; i++) chosen_cpus[i] = cpus[i];
  atomic_store(&num_chosen_cpus, count);
  return TD_OK;
}

static void forget_workers(td_team* team) {
  for (int32_t i = 0; i < TD_MAX_THREADS; i++) atomic_store(&team->of[i].share, 0);
  atomic_store(&team->done, 0);
  atomic_store(&team->sleepers, 0);
  atomic_store(&team->caller_sleeps, 0);
  atomic_store(&team->is_taken, 0);
  team->num_workers = 0;
  pthread_mutex_init(&team->mutex, NULL);
  pthread_cond_init(&team->work_waits, NULL);
  pthread_cond_init(&team->loop_ends, NULL);
}

void td_threads_after_fork(void) {
  for (int32_t i = 0; i < MAX_TEAMS && teams[i] != NULL; i++) forget_workers(teams[i]);
  atomic_store(&active, 0);
  if (this_worker == 0) inside_loop = false;
}

void td_run_goes_on(const td_env* env) {
  td_team* team = env->pool;
  if (team != NULL) atomic_store(&team->is_taken, 1);
  atomic_fetch_add(&active, 1);
}

/* ---- the caller ------------------------------------------------------------------------------ */

/* Deals out a loop. The shares come last, the caller's own at the very end. */
static void publish(td_team* team, const td_env* env, td_body body, void* closure, int64_t count,
                    int32_t participants) {
  team->env = env;
  team->body = body;
  team->closure = closure;
  team->count = count;
  team->unit = (count + MOST_UNITS - 1) / MOST_UNITS;
  team->units = (uint32_t)((count + team->unit - 1) / team->unit);
  atomic_store_explicit(&team->all, env->all, memory_order_relaxed);
  atomic_store_explicit(&team->smallest, team->units / (16 * (uint32_t)participants) + 1,
                        memory_order_relaxed);
  atomic_store_explicit(&team->participants, participants, memory_order_relaxed);
  atomic_store_explicit(&team->result, 0, memory_order_relaxed);
  atomic_store_explicit(&team->done, 0, memory_order_relaxed);
  for (int32_t i = participants - 1; i >= 0; i--) {
    uint64_t begin = (uint64_t)team->units * (uint32_t)i / (uint32_t)participants;
    uint64_t end = (uint64_t)team->units * (uint32_t)(i + 1) / (uint32_t)participants;
    /* Sequentially consistent with the sleeper's "count me, then look again". */
    atomic_store(&team->of[i].share, SHARE(participants, begin, end));
  }
  if (atomic_load(&team->sleepers) == 0) return;
  pthread_mutex_lock(&team->mutex);
  pthread_cond_broadcast(&team->work_waits);
  pthread_mutex_unlock(&team->mutex);
}

static bool all_done(const td_team* team) {
  return atomic_load_explicit(&team->done, memory_order_acquire) == team->units;
}

static void sleep_until_done(td_team* team) {
  pthread_mutex_lock(&team->mutex);
  atomic_store(&team->caller_sleeps, 1);
  while (atomic_load(&team->done) != team->units)
    pthread_cond_wait(&team->loop_ends, &team->mutex);
  atomic_store(&team->caller_sleeps, 0);
  pthread_mutex_unlock(&team->mutex);
}

static void wait_until_done(td_team* team) {
  for (int look = 0; look < LOOKS_PER_CLOCK; look++) {
    if (all_done(team)) return;
    relax();
  }
  int64_t since = td_now_ns();
  for (;;) {
    for (int look = 0; look < LOOKS_PER_CLOCK; look++) {
      if (all_done(team)) return;
      relax();
    }
    int64_t waited = td_now_ns() - since;
    if (waited > YIELD_NS) break;
    if (waited > SPIN_NS) sched_yield();
  }
  sleep_until_done(team);
}

/* Runs a loop on a team that the caller has. */
static int32_t run_on(td_team* team, const td_env* env, td_body body, void* closure, int64_t count,
                      int32_t participants) {
  if (team->num_workers < participants - 1) {
    int32_t workers = start_workers(team, participants - 1, 0);
    if (participants > workers + 1) participants = workers + 1;
  }
  inside_loop = true;
  publish(team, env, body, closure, count, participants);
  work(team, 0);
  wait_until_done(team);
  inside_loop = false;
  return atomic_load_explicit(&team->result, memory_order_relaxed);
}

/* A loop outside of any run counts as one for as long as it takes. */
static int32_t run_by_itself(const td_env* env, td_body body, void* closure, int64_t count,
                             int32_t participants) {
  td_env own = *env;
  td_run_begins(&own);
  td_team* team = own.pool;
  int32_t share = fair_share(env->all), result;
  if (participants > share) participants = share;
  if (team == NULL || participants <= 1) result = body(env, closure, 0, count, this_worker);
  else result = run_on(team, env, body, closure, count, participants);
  td_run_ends(&own);
  return result;
}

static int32_t parallel(const td_env* env, td_body body, void* closure, int64_t count) {
  if (count <= 0) return 0;
  int32_t participants = env->num_threads < TD_MAX_THREADS ? env->num_threads : TD_MAX_THREADS;
  if (participants > count) participants = (int32_t)count;
  if (participants <= 1 || inside_loop) return body(env, closure, 0, count, this_worker);
  if (env->pool == NULL) return run_by_itself(env, body, closure, count, participants);
  int32_t share = fair_share(env->all);
  if (participants > share) participants = share;
  if (participants <= 1) return body(env, closure, 0, count, this_worker);
  return run_on(env->pool, env, body, closure, count, participants);
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
  env->all = td_num_threads();
  env->num_threads = num_threads > 0 ? num_threads : env->all;
  env->pool = NULL;
  return TD_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int32_t kernel_failed(int32_t code, td_error* error) {
  return td_fail(error, TD_KERNEL, "the kernel returns code %d", (int)code);
}

int32_t td_kernel_call(td_kernel kernel, const td_env* env, void* const* buffers,
                       const int64_t* dims, td_error* error) {
  TD_FRAMES_FROM_PAGE();
  int32_t code = kernel(env, buffers, dims);
  return code == 0 ? TD_OK : kernel_failed(code, error);
}

int32_t td_kernel_time(td_kernel kernel, const td_env* env, void* const* buffers,
                       const int64_t* dims, int64_t number, int64_t* elapsed_ns, td_error* error) {
  TD_FRAMES_FROM_PAGE();
  int64_t start = td_now_ns();
  for (int64_t i = 0; i < number; i++) {
    int32_t code = kernel(env, buffers, dims);
    if (code != 0) return kernel_failed(code, error);
  }
  *elapsed_ns = td_now_ns() - start;
  return TD_OK;
}
