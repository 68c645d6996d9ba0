/* SPDX-License-Identifier: Apache-2.0 */
/* Machine code: checked, copied to memory nobody else can change, then loaded. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "internal.h"

#define MAX_LIBRARY_BYTES ((uint64_t)1 << 30)
#define COPY_BYTES ((size_t)256 << 10)

struct td_library {
  void* handle;
  /* Open as long as the library is loaded: the loader knows libraries by path, and here the path is
   * a descriptor's number. */
  int fd;
  dev_t device;
  ino_t file;
  uint32_t users; /* 0 of what the loader keeps although nobody uses it */
  td_library* next;
};

/* The dynamic loader changes its tables under a lock that a child may find held by a thread it does
 * not have. Ours is taken around it, and by a fork: a child finds the tables whole. */
static pthread_mutex_t loader_lock = PTHREAD_MUTEX_INITIALIZER;
static td_library* loaded = NULL; /* under the lock */

static void before_fork(void) { pthread_mutex_lock(&loader_lock); }

static void after_fork(void) { pthread_mutex_unlock(&loader_lock); }

__attribute__((constructor)) static void watch_forks(void) {
  (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static td_library* find_loaded(const struct stat* status) {
  for (td_library* l = loaded; l != NULL; l = l->next)
    if (l->file == status->st_ino && l->device == status->st_dev) return l;
  return NULL;
}

/* A file that is loaded is not loaded again: the loader would give the library one more path. Takes
 * over `fd` where it succeeds. Under the lock. */
static int32_t load_locked(int fd, const char* path, td_library** library, td_error* error) {
  struct stat status;
  if (fstat(fd, &status) != 0) return td_fail(error, TD_SYSTEM, "cannot read the machine code");
  td_library* known = *library = find_loaded(&status);
  if (known != NULL) {
    known->users++;
    close(fd);
    return TD_OK;
  }
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL)
    return td_fail(error, TD_ARTIFACT, "the system cannot load the machine code: %s", dlerror());
  td_library* made = malloc(sizeof *made);
  if (made == NULL) {
    dlclose(handle);
    return td_fail(error, TD_MEMORY, "not enough memory to load machine code");
  }
  *made = (td_library){handle, fd, status.st_dev, status.st_ino, 1, loaded};
  *library = loaded = made;
  return TD_OK;
}

/* Some are never unloaded: others use them too, or they were linked with -z nodelete. Their paths
 * must not become those of other files. Under the lock. */
static void unload_locked(td_library* library) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", library->fd);
  dlclose(library->handle);
  library->handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library->handle != NULL) return;
  td_library** at = &loaded;
  while (*at != library) at = &(*at)->next;
  *at = library->next;
  close(library->fd);
  free(library);
}

static int32_t system_failed(td_error* error, const char* what) {
  return td_fail(error, TD_SYSTEM, "%s: %s", what, strerror(errno));
}

/* ---- ELF ------------------------------------------------------------------------------------- */

#if defined(__linux__)

#if defined(__x86_64__)
#define HOST_MACHINE 62
#elif defined(__aarch64__)
#define HOST_MACHINE 183
#elif defined(__riscv) && __riscv_xlen == 64
#define HOST_MACHINE 243
#else
#define HOST_MACHINE 0 /* unknown: not compared */
#endif

static uint64_t field(const unsigned char* at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
  return value;
}

static const char* machine_name(unsigned machine) {
  return machine == 62    ? "x86_64"
         : machine == 183 ? "aarch64"
         : machine == 40  ? "arm"
         : machine == 243 ? "riscv64"
         : machine == 3   ? "x86"
                          : "an unknown CPU";
}

static int32_t damaged(td_error* error, const char* what) {
  return td_fail(error, TD_ARTIFACT, "the machine code is not a valid shared object: %s", what);
}

/* Every part the loader would map lies inside the file. */
static int32_t check_segments(const unsigned char* data, size_t bytes, td_error* error) {
  uint64_t table = field(data + 32, 8), entry = field(data + 54, 2), count = field(data + 56, 2);
  if (entry != 56 || count == 0) return damaged(error, "it has no program headers");
  if (table > bytes || count * entry > bytes - table)
    return damaged(error, "its program headers are cut off");
  for (uint64_t i = 0; i < count; i++) {
    const unsigned char* header = data + table + i * entry;
    uint64_t offset = field(header + 8, 8), size = field(header + 32, 8);
    if (offset > bytes || size > bytes - offset) return damaged(error, "it is cut off");
  }
  return TD_OK;
}

static int32_t check_code(const unsigned char* data, size_t bytes, td_error* error) {
  if (bytes < 64 || memcmp(data, "\177ELF", 4) != 0) return damaged(error, "it is no ELF file");
  if (data[4] != 2 || data[5] != 1) return damaged(error, "it is not 64-bit little endian");
  if (field(data + 16, 2) != 3) return damaged(error, "it is not a shared object");
  unsigned machine = (unsigned)field(data + 18, 2);
  if (HOST_MACHINE != 0 && machine != HOST_MACHINE)
    return td_hint(error,
                   td_fail(error, TD_ARTIFACT, "the machine code is made for %s, this machine is %s",
                           machine_name(machine), machine_name(HOST_MACHINE)),
                   "compile the model for this machine (--target)");
  return check_segments(data, bytes, error);
}

#else

static int32_t check_code(const unsigned char* data, size_t bytes, td_error* error) {
  (void)data;
  return bytes > 0 ? TD_OK : td_fail(error, TD_ARTIFACT, "the machine code is empty");
}

#endif

/* ---- a private copy -------------------------------------------------------------------------- */

int td_private_file(char* path, size_t size, bool* temporary) {
#if defined(__linux__) && defined(SYS_memfd_create)
  /* By number: the C library may be older than the kernel. 1 is MFD_CLOEXEC. */
  int anonymous = (int)syscall(SYS_memfd_create, "treadle", 1u);
  *temporary = false;
  snprintf(path, size, "/proc/self/fd/%d", anonymous);
  if (anonymous >= 0 && access(path, R_OK) == 0) return anonymous;
  if (anonymous >= 0) close(anonymous);
#endif
  const char* folder = getenv("TMPDIR");
  *temporary = true;
  if (snprintf(path, size, "%s/treadle-XXXXXX",
               folder != NULL && *folder != '\0' ? folder : "/tmp") >= (int)size)
    return -1;
  int fd = mkstemp(path);
  if (fd >= 0) (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

int32_t td_write_all(int fd, const void* data, size_t bytes, td_error* error) {
  const char* at = data;
  while (bytes > 0) {
    ssize_t written = write(fd, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_failed(error, "cannot copy to a file of our own");
    at += written;
    bytes -= (size_t)written;
  }
  return TD_OK;
}

static int32_t copy_range(int from, uint64_t offset, size_t bytes, int to, td_error* error) {
  char* buffer = malloc(COPY_BYTES);
  if (buffer == NULL) return td_fail(error, TD_MEMORY, "not enough memory to load machine code");
  int32_t code = TD_OK;
  while (bytes > 0 && code == TD_OK) {
    size_t piece = bytes < COPY_BYTES ? bytes : COPY_BYTES;
    code = td_read_at(from, buffer, piece, offset, error);
    if (code == TD_OK) code = td_write_all(to, buffer, piece, error);
    offset += piece;
    bytes -= piece;
  }
  free(buffer);
  return code;
}

/* Checks what the loader is going to see, not what it was copied from. */
static int32_t check_private_file(int fd, size_t bytes, const char* sha256, td_error* error) {
  void* data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return system_failed(error, "cannot check the machine code");
  int32_t code = TD_OK;
  if (sha256 != NULL) {
    char found[65];
    td_sha256(data, bytes, found);
    if (strcmp(found, sha256) != 0)
      code = td_fail(error, TD_ARTIFACT, "the machine code (mod.so) does not match its SHA-256 in "
                     "the manifest: the artifact is damaged");
  }
  if (code == TD_OK) code = check_code(data, bytes, error);
  munmap(data, bytes);
  return code;
}

static int32_t load(int fd, const char* path, td_library** library, td_error* error) {
  pthread_mutex_lock(&loader_lock);
  int32_t code = load_locked(fd, path, library, error);
  pthread_mutex_unlock(&loader_lock);
  return code;
}

static int32_t check_size(uint64_t bytes, td_error* error) {
  if (bytes == 0) return td_fail(error, TD_ARTIFACT, "the machine code is empty");
  if (bytes <= MAX_LIBRARY_BYTES) return TD_OK;
  return td_fail(error, TD_ARTIFACT, "the machine code has %llu bytes; %llu are accepted",
                 (unsigned long long)bytes, (unsigned long long)MAX_LIBRARY_BYTES);
}

/* Loads code from `data`, or from a range of `from` if `data` is NULL. */
static int32_t open_copy(const void* data, int from, uint64_t offset, size_t bytes,
                         const char* sha256, td_library** library, td_error* error) {
  *library = NULL;
  if (check_size(bytes, error) != TD_OK) return TD_ARTIFACT;
  char path[1024];
  bool temporary;
  int fd = td_private_file(path, sizeof path, &temporary);
  if (fd < 0) return system_failed(error, "cannot make a file for the machine code");
  int32_t code = data != NULL ? td_write_all(fd, data, bytes, error)
                              : copy_range(from, offset, bytes, fd, error);
  if (code == TD_OK) code = check_private_file(fd, bytes, sha256, error);
  if (code == TD_OK) code = load(fd, path, library, error);
  if (temporary) unlink(path);
  if (code != TD_OK) close(fd);
  return code;
}

int32_t td_library_open_range(int fd, uint64_t offset, size_t bytes, const char* sha256,
                              td_library** library, td_error* error) {
  return open_copy(NULL, fd, offset, bytes, sha256, library, error);
}

int32_t td_library_open_memory(const void* data, size_t bytes, td_library** library,
                               td_error* error) {
  return open_copy(data, -1, 0, bytes, NULL, library, error);
}

int32_t td_library_open(const char* path, td_library** library, td_error* error) {
  *library = NULL;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) {
    int32_t code = td_fail(error, TD_SYSTEM, "cannot read %.400s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return code;
  }
  int32_t code = !S_ISREG(status.st_mode)
                     ? td_fail(error, TD_ARTIFACT, "%.400s is not a regular file", path)
                     : check_size((uint64_t)status.st_size, error);
  if (code == TD_OK)
    code = open_copy(NULL, fd, 0, (size_t)status.st_size, NULL, library, error);
  close(fd);
  return code;
}

int32_t td_library_open_in_place(int fd, uint64_t bytes, td_library** library, td_error* error) {
  *library = NULL;
  if (bytes == 0 || bytes > SIZE_MAX / 2)
    return td_fail(error, TD_ARTIFACT, "the shared object has an impossible size");
  int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return system_failed(error, "cannot open the shared object again");
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", own);
  int32_t code = check_private_file(own, (size_t)bytes, NULL, error);
  if (code == TD_OK) code = load(own, path, library, error);
  if (code != TD_OK) close(own);
  return code;
}

void* td_library_symbol(const td_library* library, const char* name) {
  pthread_mutex_lock(&loader_lock);
  void* address = dlsym(library->handle, name);
  pthread_mutex_unlock(&loader_lock);
  return address;
}

td_kernel td_library_kernel(const td_library* library, const char* name) {
  void* address = td_library_symbol(library, name);
  td_kernel kernel;
  memcpy(&kernel, &address, sizeof kernel); /* ISO C has no conversion between the two */
  return kernel;
}

void td_library_close(td_library* library) {
  if (library == NULL) return;
  pthread_mutex_lock(&loader_lock);
  if (--library->users == 0) unload_locked(library);
  pthread_mutex_unlock(&loader_lock);
}
