/* SPDX-License-Identifier: Apache-2.0 */
/* The machine: usable CPUs, memory, the clock. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#endif

#include "internal.h"

int64_t td_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What a run takes besides its kernels, whose frames begin with a page. */
#define STACK_OF_RUN (((size_t)16 << 10) + TD_SMALLEST_PAGE)

size_t td_physical_memory(void) {
  static _Atomic size_t known = 0;
  if (known == 0) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    known = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX;
  }
  return known;
}

/* Memory with nothing behind it: what goes past its end faults at once. */
#if defined(__linux__)
static _Atomic(const char*) running = NULL;
static struct sigaction before_guards;

/* Tells the kernel and leaves the rest, the fault comes again, to who was asked before. */
static void tell_fault(int number) {
  static const char head[] = "treadle: a fault in or after kernel ";
  const char* name = running;
  sigaction(number, &before_guards, NULL);
  if (name == NULL) return;
  ssize_t told = write(STDERR_FILENO, head, sizeof head - 1);
  told = told < 0 ? told : write(STDERR_FILENO, name, strlen(name));
  if (told >= 0) (void)!write(STDERR_FILENO, "\n", 1);
}

bool td_guards(void) {
  static _Atomic int wanted = -1;
  if (wanted >= 0) return wanted == 1;
  const char* text = getenv("TREADLE_GUARD");
  bool is_wanted = text != NULL && strcmp(text, "1") == 0;
  if (is_wanted) {
    struct sigaction action = {.sa_handler = tell_fault};
    sigaction(SIGSEGV, &action, &before_guards);
  }
  wanted = is_wanted;
  return is_wanted;
}

void td_guards_name(const char* kernel) { running = kernel; }

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* A page that begins with the length of all, the block up to the end of its pages, and a page that
 * nobody may touch. Bytes are 0xff, so numbers that nobody wrote are no numbers. */
static void* guarded_alloc(size_t bytes) {
  size_t page = page_bytes(), used = (bytes + TD_ALIGNMENT - 1) / TD_ALIGNMENT * TD_ALIGNMENT;
  if (used == 0) used = TD_ALIGNMENT;
  size_t pages = (used + page - 1) / page * page, all = pages + 2 * page;
  char* base = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return NULL;
  memset(base + page, 0xff, pages);
  *(size_t*)(void*)base = all;
  mprotect(base + page + pages, page, PROT_NONE);
  return base + page + pages - used;
}

static void guarded_free(char* memory) {
  size_t page = page_bytes();
  char* base = memory - (uintptr_t)memory % page - page;
  munmap(base, *(size_t*)(void*)base);
}
#else
bool td_guards(void) { return false; }
void td_guards_name(const char* kernel) { (void)kernel; }
static void* guarded_alloc(size_t bytes) { (void)bytes; return NULL; }
static void guarded_free(char* memory) { (void)memory; }
#endif

static void* plain_alloc(size_t bytes) {
  size_t alignment = bytes >= TD_HUGE_PAGE ? TD_HUGE_PAGE : TD_ALIGNMENT;
  void* memory = NULL;
  if (posix_memalign(&memory, alignment, bytes > 0 ? bytes : 1) != 0) return NULL;
#if defined(MADV_HUGEPAGE)
  /* Advice only: without it the memory works, slower. */
  if (bytes >= TD_HUGE_PAGE) (void)madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  return memory;
}

void* td_alloc(size_t bytes, td_error* error) {
  void* memory = NULL;
  if (bytes <= SIZE_MAX / 2 && bytes <= td_physical_memory())
    memory = td_guards() ? guarded_alloc(bytes) : plain_alloc(bytes);
  if (memory == NULL)
    td_fail(error, TD_MEMORY, "%zu bytes of memory are not available (this machine has %zu)", bytes,
            td_physical_memory());
  return memory;
}

void td_touch(void* memory, size_t bytes) {
  if (bytes > td_physical_memory() / 16) return;
  volatile unsigned char* at = memory;
  for (size_t i = 0; i < bytes; i += TD_SMALLEST_PAGE) at[i] = 0;
  if (bytes > 0) at[bytes - 1] = 0;
}

/* Where the calling thread's stack lies, once the system has been asked: from its end on up. */
static _Thread_local struct {
  bool is_asked;
  uintptr_t end;
  size_t size;  /* 0 where the system does not say */
  size_t grows; /* what the first thread's may become below its end: musl tells what it is now */
} stack;

static void ask_for_stack(void) {
  stack.is_asked = true;
#if defined(__linux__)
  pthread_attr_t how;
  void* end;
  if (pthread_getattr_np(pthread_self(), &how) != 0) return;
  if (pthread_attr_getstack(&how, &end, &stack.size) != 0) stack.size = 0;
  stack.end = (uintptr_t)end;
  pthread_attr_destroy(&how);
  struct rlimit most;
  if (syscall(SYS_gettid) != getpid() || getrlimit(RLIMIT_STACK, &most) != 0) return;
  if (most.rlim_cur > stack.size) stack.grows = (size_t)most.rlim_cur - stack.size;
#endif
}

size_t td_stack_room(void) {
  if (!stack.is_asked) ask_for_stack();
  size_t room = (size_t)((uintptr_t)__builtin_frame_address(0) - stack.end);
  return room < stack.size ? room : 0; /* else this is another stack: one of a coroutine */
}

int32_t td_check_stack(size_t bytes, bool may_ask, td_error* error) {
  if (bytes == 0 || !(stack.is_asked || may_ask)) return TD_OK;
  size_t room = td_stack_room();
  if (room == 0) return TD_OK;
  room += stack.grows; /* no more than the limit: room is less than the size */
  if (room > STACK_OF_RUN && room - STACK_OF_RUN >= bytes) return TD_OK;
  td_fail(error, TD_MEMORY, "kernels take %zu bytes of the stack, and this thread has %zu left",
          bytes, room);
  return td_hint(error, TD_MEMORY, "run the model in a thread with a larger stack: ulimit -s, "
                                   "pthread_attr_setstacksize, threading.stack_size in Python");
}

/* Not inlined: its memory is to lie below the frames of its callers, and to be gone when it returns. */
__attribute__((noinline)) static void touch_below(size_t bytes) {
  td_touch(__builtin_alloca(bytes), bytes);
}

void td_touch_stack(size_t bytes, size_t room) {
  size_t most = room / 2; /* a handler of a signal may need some, and what runs until the kernel */
  if (bytes > most) bytes = most;
  if (bytes > 0) touch_below(bytes);
}

void td_free(void* memory) {
  if (memory != NULL && td_guards())
    guarded_free(memory);
  else
    free(memory);
}

/* ---- usable CPUs ----------------------------------------------------------------------------- */

#define PATH_BYTES 4096

/* Reads a small text file. False if there is none. */
static bool read_text(const char* path, char* text, size_t size) {
  FILE* file = fopen(path, "r");
  if (file == NULL) return false;
  size_t bytes = fread(text, 1, size - 1, file);
  fclose(file);
  text[bytes] = '\0';
  return bytes > 0;
}

/* CPUs a quota allows, rounded up; 0 for "no limit". */
static int64_t quota_cpus(long long quota, long long period) {
  return quota > 0 && period > 0 ? (quota + period - 1) / period : 0;
}

static int64_t quota_of_v2(const char* folder) {
  char path[PATH_BYTES], text[128];
  long long quota, period;
  if (snprintf(path, sizeof path, "%s/cpu.max", folder) >= (int)sizeof path) return 0;
  if (!read_text(path, text, sizeof text)) return 0;
  return sscanf(text, "%lld %lld", &quota, &period) == 2 ? quota_cpus(quota, period) : 0;
}

static int64_t quota_of_v1(const char* folder) {
  char path[PATH_BYTES], text[128];
  if (snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder) >= (int)sizeof path) return 0;
  if (!read_text(path, text, sizeof text)) return 0;
  long long quota = strtoll(text, NULL, 10);
  if (snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder) >= (int)sizeof path) return 0;
  if (!read_text(path, text, sizeof text)) return 0;
  return quota_cpus(quota, strtoll(text, NULL, 10));
}

static int64_t smaller_quota(int64_t a, int64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

/* The smallest quota from `group` up to the root of the hierarchy mounted at `mount`. Inside a
 * container the group's own path is often not mounted: then only the root answers. */
static int64_t quota_up(const char* mount, char* group, int64_t (*quota_of)(const char*)) {
  char folder[PATH_BYTES];
  int64_t smallest = quota_of(mount);
  for (char* slash; (slash = strrchr(group, '/')) != NULL; *slash = '\0')
    if (slash[1] != '\0' &&
        snprintf(folder, sizeof folder, "%s%s", mount, group) < (int)sizeof folder)
      smallest = smaller_quota(smallest, quota_of(folder));
  return smallest;
}

static bool lists_cpu_controller(const char* controllers) {
  for (const char* at = controllers; at != NULL; at = strchr(at, ',')) {
    at += *at == ',';
    if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == '\0')) return true;
  }
  return false;
}

/* One line of /proc/self/cgroup: "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1). */
static int64_t quota_of_line(const char* root, char* line) {
  char* controllers = strchr(line, ':');
  char* group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
  if (group == NULL) return 0;
  *group++ = '\0';
  controllers++;
  char mount[PATH_BYTES];
  bool v2 = *controllers == '\0';
  if (!v2 && !lists_cpu_controller(controllers)) return 0;
  const char* format = v2 ? "%s/sys/fs/cgroup" : "%s/sys/fs/cgroup/cpu";
  if (snprintf(mount, sizeof mount, format, root) >= (int)sizeof mount) return 0;
  return quota_up(mount, group, v2 ? quota_of_v2 : quota_of_v1);
}

static int64_t cgroup_cpus(const char* root) {
  char path[PATH_BYTES], line[PATH_BYTES];
  if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path) return 0;
  FILE* file = fopen(path, "r");
  if (file == NULL) return 0;
  int64_t smallest = 0;
  while (fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    smallest = smaller_quota(smallest, quota_of_line(root, line));
  }
  fclose(file);
  return smallest;
}

/* CPUs in the affinity mask. */
static int64_t affinity_cpus(void) {
#if defined(__linux__)
  for (int cpus = 1024; cpus <= (1 << 18); cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC((size_t)cpus);
    if (set == NULL) break;
    size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
    int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
#endif
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? online : 1;
}

bool td_bind_to_cpu(int32_t cpu) {
#if defined(__linux__)
  cpu_set_t* set = cpu < 0 ? NULL : CPU_ALLOC((size_t)cpu + 1);
  if (set == NULL) return false;
  size_t bytes = CPU_ALLOC_SIZE((size_t)cpu + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S((size_t)cpu, bytes, set);
  bool is_bound = sched_setaffinity(0, bytes, set) == 0; /* 0: the calling thread */
  CPU_FREE(set);
  return is_bound;
#else
  (void)cpu;
  return false;
#endif
}

int32_t td_may_use_cpu(int32_t cpu) {
#if defined(__linux__)
  for (int cpus = 1024; cpu >= 0 && cpus <= (1 << 18); cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC((size_t)cpus);
    if (set == NULL) break;
    size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
    int answer = sched_getaffinity(0, bytes, set) != 0 ? -1
                 : cpu < cpus && CPU_ISSET_S((size_t)cpu, bytes, set) ? 1 : 0;
    CPU_FREE(set);
    if (answer >= 0) return answer;
  }
  return cpu < 0 ? 0 : -1;
#else
  (void)cpu;
  return -1;
#endif
}

int32_t td_usable_cpus(const char* root) {
  int64_t allowed = affinity_cpus();
  int64_t quota = cgroup_cpus(root == NULL ? "" : root);
  return (int32_t)(quota > 0 && quota < allowed ? quota : allowed);
}
