/* SPDX-License-Identifier: Apache-2.0 */
/* The pre-shared key in its file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire.h"

static bool is_space(uint8_t byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

static void strip(rpc_key* key) {
  size_t begin = 0;
  while (key->size > 0 && is_space(key->data[key->size - 1])) key->size--;
  while (begin < key->size && is_space(key->data[begin])) begin++;
  key->size -= begin;
  memmove(key->data, key->data + begin, key->size);
}

static bool check_file(int fd, const char* path, rpc_error* error) {
  struct stat status;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & 077) == 0)
    return true;
  rpc_fail_as(error, "UsageError", "the key file can be read by others, or is no file");
  return rpc_hint(error, "chmod 600 %s", path);
}

static bool read_all(int fd, rpc_key* key, rpc_error* error) {
  key->size = 0;
  while (key->size < sizeof key->data) {
    ssize_t got = read(fd, key->data + key->size, sizeof key->data - key->size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return rpc_fail_as(error, "UsageError", "the key file cannot be read: %s", strerror(errno));
    if (got == 0) break;
    key->size += (size_t)got;
  }
  strip(key);
  if (key->size >= RPC_LEAST_KEY && key->size <= RPC_MOST_KEY) return true;
  rpc_fail_as(error, "UsageError", "the key has %zu bytes; it must have %d to %d", key->size,
              RPC_LEAST_KEY, RPC_MOST_KEY);
  return rpc_hint(error, "treadle rpc key FILE makes one that nobody can guess");
}

bool rpc_read_key(const char* path, rpc_key* key, rpc_error* error) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    rpc_fail_as(error, "UsageError", "the key file cannot be read: %s", strerror(errno));
    rpc_hint(error, "treadle rpc key FILE makes one");
  }
  bool ok = fd >= 0 && check_file(fd, path, error) && read_all(fd, key, error);
  if (!ok) snprintf(error->at, sizeof error->at, "%s", path);
  if (fd >= 0) close(fd);
  return ok;
}
