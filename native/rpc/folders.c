/* SPDX-License-Identifier: Apache-2.0 */
/* The folders of the server: the work folder, and one for each session in it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server.h"

#define PREFIX "session-"
#define KEPT_SECONDS (24 * 3600) /* a part of a file that is being uploaded */
#define DEEPEST 64               /* folders in folders that are removed */
#define OPEN_FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* ---- removing -------------------------------------------------------------------------------- */

static bool is_dots(const char* name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

static void remove_at(int parent, const char* name, int depth) {
  if (unlinkat(parent, name, 0) == 0 || depth > DEEPEST) return;
  int fd = openat(parent, name, OPEN_FOLDER);
  DIR* folder = fd >= 0 ? fdopendir(fd) : NULL;
  if (folder == NULL) {
    if (fd >= 0) close(fd);
    return;
  }
  for (struct dirent* entry; (entry = readdir(folder)) != NULL;)
    if (!is_dots(entry->d_name)) remove_at(dirfd(folder), entry->d_name, depth + 1);
  closedir(folder);
  (void)unlinkat(parent, name, AT_REMOVEDIR);
}

void rpc_remove_folder(const char* path) { remove_at(AT_FDCWD, path, 0); }

/* ---- the work folder ------------------------------------------------------------------------- */

/* Makes a folder, and those it lies in. */
static bool make_folders(const char* path) {
  char part[PATH_MAX];
  if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) {
    errno = ENAMETOOLONG;
    return false;
  }
  for (char* at = part + 1; *at != '\0'; at++) {
    if (*at != '/') continue;
    *at = '\0';
    (void)mkdir(part, 0777);
    *at = '/';
  }
  return mkdir(part, 0700) == 0 || errno == EEXIST;
}

static bool make_partial(const char* root, rpc_error* error) {
  char path[PATH_MAX];
  struct stat status;
  snprintf(path, sizeof path, "%.*s/%s", PATH_MAX - 16, root, RPC_PARTIAL);
  if (mkdir(path, 0700) != 0 && errno != EEXIST)
    return rpc_fail(error, "the work folder cannot be used: %s", strerror(errno));
  if (lstat(path, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid())
    return rpc_fail(error, "the folder 'partial' in it is not this user's");
  if (chmod(path, 0700) != 0)
    return rpc_fail(error, "the work folder cannot be used: %s", strerror(errno));
  return true;
}

/* Whether the server that made a session's folder runs. */
static bool is_in_use(const char* name) {
  char* end;
  long number = strtol(name + strlen(PREFIX), &end, 10);
  if (*end != '-' || number <= 0 || number > INT_MAX) return false;
  return kill((pid_t)number, 0) == 0 || errno == EPERM;
}

static void remove_left_sessions(int root) {
  int fd = openat(root, ".", OPEN_FOLDER);
  DIR* folder = fd >= 0 ? fdopendir(fd) : NULL;
  if (folder == NULL) return;
  for (struct dirent* entry; (entry = readdir(folder)) != NULL;)
    if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0 && !is_in_use(entry->d_name))
      remove_at(root, entry->d_name, 0);
  closedir(folder);
}

static void remove_old_partials(int root) {
  int fd = openat(root, RPC_PARTIAL, OPEN_FOLDER);
  DIR* folder = fd >= 0 ? fdopendir(fd) : NULL;
  if (folder == NULL) return;
  for (struct dirent* entry; (entry = readdir(folder)) != NULL;) {
    struct stat status;
    if (is_dots(entry->d_name)) continue;
    if (fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        time(NULL) - status.st_mtime > KEPT_SECONDS)
      (void)unlinkat(dirfd(folder), entry->d_name, 0);
  }
  closedir(folder);
}

bool rpc_prepare_folder(const char* path, char* resolved, size_t size, rpc_error* error) {
  char real[PATH_MAX];
  bool ok = make_folders(path) && realpath(path, real) != NULL;
  if (!ok) rpc_fail(error, "the work folder cannot be used: %s", strerror(errno));
  if (ok && strlen(real) >= size) ok = rpc_fail(error, "the path of the work folder is too long");
  ok = ok && make_partial(real, error);
  int root = ok ? open(real, OPEN_FOLDER) : -1;
  if (ok && root < 0)
    ok = rpc_fail(error, "the work folder cannot be used: %s", strerror(errno));
  if (!ok) {
    snprintf(error->at, sizeof error->at, "%s", path);
    return false;
  }
  snprintf(resolved, size, "%s", real);
  remove_left_sessions(root);
  remove_old_partials(root);
  close(root);
  return true;
}

bool rpc_session_folder(const char* root, char* path, size_t size, rpc_error* error) {
  int length = snprintf(path, size, "%s/%s%ld-XXXXXX", root, PREFIX, (long)getpid());
  if (length > 0 && (size_t)length < size && mkdtemp(path) != NULL) return true;
  path[0] = '\0';
  return rpc_fail(error, "the session cannot be started: %s", strerror(errno));
}
