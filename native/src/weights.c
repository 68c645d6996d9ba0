/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped weights: a part of a file is mapped once per process, however many models are loaded from
 * it, and its pages are those of the file cache, which all processes share.
 *
 * What is mapped is told apart by the file's identity and its times: a file that was replaced or
 * rewritten is mapped anew. A mapping follows the file it was made of, not the name: replacing the
 * file by renaming leaves it as it is.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#if defined(__APPLE__)
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec
#endif

#define POPULATE_READ 22 /* MADV_POPULATE_READ, which older headers do not have */
#define POPULATE_BYTES ((size_t)16 << 20) /* at once */
#define POPULATE_NS 50000000              /* in all: a disk reads on while the first run begins */

struct td_mapping {
  td_mapping* next;
  uint32_t users; /* under the registry's lock */
  _Atomic bool is_verified;
  struct stat file;
  uint64_t offset;
  size_t bytes;
  void* base; /* what was mapped, from the start of a page */
  size_t length;
};

static td_mapping* registry = NULL;
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;

/* The registry is held for moments only; a child finds it whole. */
static void before_fork(void) { pthread_mutex_lock(&registry_lock); }

static void after_fork(void) { pthread_mutex_unlock(&registry_lock); }

__attribute__((constructor)) static void watch_forks(void) {
  (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static bool same_time(struct timespec a, struct timespec b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same_file(const struct stat* a, const struct stat* b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
         same_time(a->st_mtim, b->st_mtim) && same_time(a->st_ctim, b->st_ctim);
}

static td_mapping* find(const struct stat* file, uint64_t offset, size_t bytes) {
  for (td_mapping* m = registry; m != NULL; m = m->next)
    if (m->offset == offset && m->bytes == bytes && same_file(&m->file, file)) return m;
  return NULL;
}

/* Maps the pages of a file, not by faults of the first run: until then its kernels' hints to fetch
 * ahead find no page. A file that is not in the cache is not waited for longer than a moment. */
static void populate(const td_mapping* m) {
#if defined(__linux__)
  int64_t end = td_now_ns() + POPULATE_NS;
  for (size_t at = 0; at < m->length && td_now_ns() < end; at += POPULATE_BYTES) {
    size_t bytes = m->length - at < POPULATE_BYTES ? m->length - at : POPULATE_BYTES;
    if (madvise((char*)m->base + at, bytes, POPULATE_READ) != 0) return; /* before Linux 5.14 */
  }
#else
  (void)m;
#endif
}

static td_mapping* map(int fd, const struct stat* file, uint64_t offset, size_t bytes) {
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = offset / page * page;
  td_mapping* m = calloc(1, sizeof *m);
  if (m == NULL) return NULL;
  m->file = *file;
  m->offset = offset;
  m->bytes = bytes;
  m->length = bytes + (size_t)(offset - start);
  m->base = mmap(NULL, m->length, PROT_READ, MAP_PRIVATE, fd, (off_t)start);
  if (m->base == MAP_FAILED) {
    free(m);
    return NULL;
  }
  /* Advice only: what is not in the file cache yet is read ahead. */
  (void)posix_madvise(m->base, m->length, POSIX_MADV_WILLNEED);
  populate(m);
  m->next = registry;
  return registry = m;
}

td_mapping* td_mapping_open(int fd, uint64_t offset, size_t bytes) {
  struct stat file;
  if (fstat(fd, &file) != 0 || bytes == 0) return NULL;
  pthread_mutex_lock(&registry_lock);
  td_mapping* m = find(&file, offset, bytes);
  if (m == NULL) m = map(fd, &file, offset, bytes);
  if (m != NULL) m->users++;
  pthread_mutex_unlock(&registry_lock);
  return m;
}

static void close_mapping(td_mapping* mapping) {
  pthread_mutex_lock(&registry_lock);
  bool is_last = --mapping->users == 0;
  for (td_mapping** at = &registry; is_last && *at != NULL; at = &(*at)->next) {
    if (*at != mapping) continue;
    *at = mapping->next;
    break;
  }
  pthread_mutex_unlock(&registry_lock);
  if (!is_last) return;
  munmap(mapping->base, mapping->length);
  free(mapping);
}

const unsigned char* td_mapping_data(const td_mapping* mapping) {
  return (const unsigned char*)mapping->base + (mapping->length - mapping->bytes);
}

bool td_mapping_is_verified(const td_mapping* mapping) {
  return atomic_load(&mapping->is_verified);
}

void td_mapping_set_verified(td_mapping* mapping) { atomic_store(&mapping->is_verified, true); }

void td_weights_drop(td_weights* weights) {
  if (weights->mapping != NULL) close_mapping(weights->mapping);
  td_free(weights->block);
  *weights = (td_weights){NULL, NULL};
}
