/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a session: all in one folder, by names that lead nowhere else.
 *
 * A file that is being uploaded lies in a folder that the sessions of a server share, so that an
 * upload that was cut off goes on where it ended. No name has a folder in it; no link is followed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session.h"

#define LONGEST 128 /* a name */
#define LISTED 400  /* bytes of names in a message */
#define OPEN_FLAGS (O_NOFOLLOW | O_CLOEXEC)
#define OPEN_FOLDER (O_RDONLY | O_DIRECTORY | OPEN_FLAGS)

/* ---- names ----------------------------------------------------------------------------------- */

static bool is_plain(char c, bool is_first) {
  bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return is_letter || c == '_' || c == '+' || c == '-' || (c == '.' && !is_first);
}

/* Copies a file's name; refuses one that is a path, hidden, or not plain. */
static bool check_name(rpc_text text, char name[LONGEST + 1], rpc_error* error) {
  bool ok = text.size > 0 && text.size <= LONGEST;
  for (size_t i = 0; ok && i < text.size; i++) ok = is_plain(text.data[i], i == 0);
  if (ok) return rpc_copy_text(text, name, LONGEST + 1);
  char shown[101] = "";
  size_t size = text.size < sizeof shown - 1 ? text.size : sizeof shown - 1;
  for (size_t i = 0; i < size; i++)
    shown[i] = text.data[i] >= ' ' && text.data[i] < 127 ? text.data[i] : '?';
  rpc_fail(error, "'%s' is no name for a file on a device", shown);
  return rpc_hint(error, "use letters, digits, '_', '-', '+' and '.', no folders: files lie side "
                  "by side");
}

/* ---- folders --------------------------------------------------------------------------------- */

typedef struct {
  char name[LONGEST + 1];
  int64_t size;
  struct timespec modified;
} entry;

/* The regular files of a folder; a partial's name is as short as a file's. */
static bool list_folder(int folder, entry** entries, size_t* count, rpc_error* error) {
  *entries = NULL;
  *count = 0;
  int fd = openat(folder, ".", OPEN_FOLDER);
  DIR* opened = fd >= 0 ? fdopendir(fd) : NULL;
  size_t room = 0;
  if (opened == NULL) {
    if (fd >= 0) close(fd);
    return rpc_fail(error, "the device's system refuses: %s", strerror(errno));
  }
  bool ok = true;
  for (struct dirent* found; ok && (found = readdir(opened)) != NULL;) {
    struct stat status;
    if (fstatat(fd, found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode) || strlen(found->d_name) > LONGEST)
      continue;
    if (*count == room) {
      room = room == 0 ? 16 : 2 * room;
      entry* grown = realloc(*entries, room * sizeof *grown);
      if (grown == NULL) {
        ok = rpc_fail(error, "the device has not enough memory");
        break;
      }
      *entries = grown;
    }
    entry* made = &(*entries)[(*count)++];
    *made = (entry){.size = (int64_t)status.st_size, .modified = status.st_mtim};
    snprintf(made->name, sizeof made->name, "%.*s", LONGEST, found->d_name);
  }
  closedir(opened);
  if (!ok) free(*entries);
  return ok;
}

static int by_name(const void* a, const void* b) {
  return strcmp(((const entry*)a)->name, ((const entry*)b)->name);
}

static int by_age(const void* a, const void* b) {
  const struct timespec *x = &((const entry*)a)->modified, *y = &((const entry*)b)->modified;
  if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
  return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

static bool list_files(const rpc_files* files, entry** entries, size_t* count, rpc_error* error) {
  if (!list_folder(files->folder, entries, count, error)) return false;
  if (*count > 0) qsort(*entries, *count, sizeof **entries, by_name);
  return true;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool not_there(const rpc_files* files, const char* name, rpc_error* error) {
  char listed[LISTED + LONGEST + 8] = "";
  size_t count = 0, used = 0;
  entry* entries;
  rpc_error ignored;
  if (!list_files(files, &entries, &count, &ignored)) return rpc_fail(error, "no file '%s'", name);
  for (size_t i = 0; i < count && used < LISTED; i++)
    used += (size_t)snprintf(listed + used, sizeof listed - used, "%s%s", i > 0 ? ", " : "",
                             entries[i].name);
  free(entries);
  rpc_fail(error, "the session has no file '%s'", name);
  return rpc_hint(error, "its files are %s", count > 0 ? listed : "none");
}

static bool refused(const rpc_files* files, const char* name, rpc_error* error) {
  if (errno == ELOOP) return rpc_fail(error, "%s is a symbolic link, which is not followed", name);
  if (errno == ENOENT) return not_there(files, name, error);
  return rpc_fail(error, "%s cannot be opened: %s", name, strerror(errno));
}

/* Opens a regular file in one of the folders; -1 with an error. A part of a file is locked. */
static int open_in(const rpc_files* files, int folder, const char* name, int flags,
                   rpc_error* error) {
  struct stat status;
  int fd = openat(folder, name, flags | OPEN_FLAGS | O_NONBLOCK, 0600);
  bool ok = fd >= 0 || refused(files, name, error);
  if (ok && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)))
    ok = rpc_fail(error, "%s is not a regular file", name);
  if (ok && folder == files->partials && flock(fd, LOCK_EX | LOCK_NB) != 0)
    ok = rpc_fail(error, "%s is being uploaded by another session", name);
  if (ok) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

int rpc_files_located(const rpc_files* files, rpc_text name, char* plain, size_t size,
                      rpc_error* error) {
  char checked[LONGEST + 1];
  if (!check_name(name, checked, error)) return -1;
  snprintf(plain, size, "%s", checked);
  return open_in(files, files->folder, checked, O_RDONLY, error);
}

bool rpc_files_open(rpc_files* files, const char* root, const char* folder, int64_t quota,
                    rpc_error* error) {
  *files = (rpc_files){.folder = -1, .partials = -1, .upload = -1, .quota = quota};
  int of_root = open(root, OPEN_FOLDER);
  files->folder = open(folder, OPEN_FOLDER);
  if (of_root >= 0) files->partials = openat(of_root, RPC_PARTIAL, OPEN_FOLDER);
  bool ok = files->folder >= 0 && files->partials >= 0;
  if (!ok) rpc_fail(error, "the work folder cannot be opened: %s", strerror(errno));
  if (of_root >= 0) close(of_root);
  return ok;
}

static void drop_upload(rpc_files* files) {
  if (files->upload >= 0) close(files->upload);
  files->upload = -1;
}

void rpc_files_close(rpc_files* files) {
  drop_upload(files);
  close(files->folder);
  close(files->partials);
}

/* ---- uploading ------------------------------------------------------------------------------- */

static bool check_quota(const rpc_files* files, const char* name, int64_t size,
                        rpc_error* error) {
  entry* entries;
  size_t count;
  int64_t left = files->quota;
  if (!list_folder(files->folder, &entries, &count, error)) return false;
  for (size_t i = 0; i < count; i++) left -= entries[i].size;
  free(entries);
  if (size <= left) return true;
  rpc_fail(error, "%s of %lld bytes is more than the %lld a session may hold", name,
           (long long)size, (long long)files->quota);
  return rpc_hint(error, "remove files, or start the server with a larger --quota");
}

/* Removes the oldest parts of other uploads until those left take `most` bytes or fewer; what
 * another session writes to stays. */
static bool forget_partials(rpc_files* files, int64_t most, rpc_error* error) {
  entry* entries;
  size_t count;
  int64_t held = 0;
  rpc_error ignored;
  if (!list_folder(files->partials, &entries, &count, error)) return false;
  if (count > 0) qsort(entries, count, sizeof *entries, by_age);
  for (size_t i = 0; i < count; i++)
    if (strcmp(entries[i].name, files->partial) != 0) held += entries[i].size;
  for (size_t i = 0; i < count && held > most; i++) {
    if (strcmp(entries[i].name, files->partial) == 0) continue;
    int fd = open_in(files, files->partials, entries[i].name, O_RDWR, &ignored);
    if (fd < 0) continue;
    if (unlinkat(files->partials, entries[i].name, 0) == 0) held -= entries[i].size;
    close(fd);
  }
  free(entries);
  return true;
}

static bool begin_upload(rpc_files* files, bool resume, rpc_error* error) {
  char text[200];
  struct stat status;
  snprintf(text, sizeof text, "%lld %s", (long long)files->size, files->name);
  td_sha256(text, strlen(text), files->partial);
  if (!forget_partials(files, files->quota - files->size, error)) return false;
  int fd = open_in(files, files->partials, files->partial, O_RDWR | O_CREAT, error);
  if (fd < 0) return false;
  bool ok = fstat(fd, &status) == 0;
  files->length = ok ? (int64_t)status.st_size : 0;
  /* not when it is new: the system would write a truncated file to its disk when it is closed */
  if (ok && files->length > 0 && (!resume || files->length > files->size)) {
    ok = ftruncate(fd, 0) == 0;
    files->length = 0;
  }
  if (!ok) {
    rpc_fail(error, "%s cannot be written: %s", files->name, strerror(errno));
    close(fd);
    return false;
  }
  files->upload = fd;
  return true;
}

bool rpc_file_begin(rpc_session* session, rpc_call* call) {
  rpc_files* files = &session->files;
  rpc_text name = rpc_take_text(&call->args, 4096);
  int64_t size = rpc_take_int(&call->args, 0, INT64_MAX);
  bool resume = rpc_take_int(&call->args, 0, 1) != 0;
  char checked[LONGEST + 1];
  if (!rpc_args_end(&call->args) || !check_name(name, checked, call->error)) return false;
  drop_upload(files);
  if (!check_quota(files, checked, size, call->error)) return false;
  snprintf(files->name, sizeof files->name, "%s", checked);
  files->size = size;
  if (!begin_upload(files, resume, call->error)) return false;
  rpc_put_list(call->out, 1);
  rpc_put_int(call->out, files->length);
  return true;
}

static bool has_upload(const rpc_files* files, rpc_error* error) {
  return files->upload >= 0 || rpc_fail(error, "no upload has begun");
}

bool rpc_file_check(rpc_session* session, rpc_call* call) {
  rpc_files* files = &session->files;
  char hex[65];
  td_sha256_state state;
  if (!rpc_args_end(&call->args) || !has_upload(files, call->error)) return false;
  td_sha256_start(&state);
  for (int64_t at = 0; at < files->length;) {
    ssize_t got = pread(files->upload, session->piece, RPC_PIECE_BYTES, (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return rpc_fail(call->error, "%s cannot be read again", files->name);
    td_sha256_add(&state, session->piece, (size_t)got);
    at += got;
  }
  td_sha256_hex(&state, hex);
  rpc_put_list(call->out, 1);
  rpc_put_text(call->out, hex);
  return true;
}

bool rpc_file_write(rpc_session* session, rpc_call* call) {
  rpc_files* files = &session->files;
  int64_t offset = rpc_take_int(&call->args, 0, INT64_MAX);
  if (!rpc_args_end(&call->args) || !has_upload(files, call->error)) return false;
  if (offset != files->length)
    return rpc_fail(call->error, "%s goes on at %lld, not at %lld", files->name,
                    (long long)files->length, (long long)offset);
  if ((int64_t)call->blob.size > files->size - files->length)
    return rpc_fail(call->error, "%s is longer than the %lld bytes that were said", files->name,
                    (long long)files->size);
  for (size_t at = 0; at < call->blob.size;) {
    ssize_t put = pwrite(files->upload, call->blob.data + at, call->blob.size - at,
                         (off_t)files->length);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return rpc_fail(call->error, "the device's system refuses: %s", strerror(errno));
    at += (size_t)put;
    files->length += put;
  }
  rpc_put_list(call->out, 1);
  rpc_put_int(call->out, files->length);
  return true;
}

/* The upload gets its name; it takes the place of a file that has it. */
bool rpc_file_end(rpc_session* session, rpc_call* call) {
  rpc_files* files = &session->files;
  if (!rpc_args_end(&call->args) || !has_upload(files, call->error)) return false;
  if (files->length != files->size)
    return rpc_fail(call->error, "%s has %lld of %lld bytes", files->name,
                    (long long)files->length, (long long)files->size);
  if (renameat(files->partials, files->partial, files->folder, files->name) != 0)
    return rpc_fail(call->error, "the device's system refuses: %s", strerror(errno));
  drop_upload(files);
  rpc_put_list(call->out, 0);
  return true;
}

/* ---- files that are here --------------------------------------------------------------------- */

bool rpc_file_read(rpc_session* session, rpc_call* call) {
  char name[LONGEST + 1];
  rpc_text text = rpc_take_text(&call->args, 4096);
  int64_t offset = rpc_take_int(&call->args, 0, INT64_MAX);
  size_t size = (size_t)rpc_take_int(&call->args, 0, (int64_t)RPC_PIECE_BYTES);
  if (!rpc_args_end(&call->args)) return false;
  int fd = rpc_files_located(&session->files, text, name, sizeof name, call->error);
  if (fd < 0) return false;
  ssize_t got;
  do got = pread(fd, session->piece, size, (off_t)offset);
  while (got < 0 && errno == EINTR);
  int code = errno;
  close(fd);
  if (got < 0) return rpc_fail(call->error, "the device's system refuses: %s", strerror(code));
  call->answer = session->piece;
  call->answer_size = (size_t)got;
  rpc_put_list(call->out, 0);
  return true;
}

bool rpc_file_remove(rpc_session* session, rpc_call* call) {
  char name[LONGEST + 1];
  rpc_text text = rpc_take_text(&call->args, 4096);
  if (!rpc_args_end(&call->args) || !check_name(text, name, call->error)) return false;
  if (unlinkat(session->files.folder, name, 0) != 0)
    return refused(&session->files, name, call->error);
  rpc_put_list(call->out, 0);
  return true;
}

bool rpc_file_list(rpc_session* session, rpc_call* call) {
  entry* entries;
  size_t count;
  if (!rpc_args_end(&call->args) ||
      !list_files(&session->files, &entries, &count, call->error))
    return false;
  rpc_put_list(call->out, 1);
  rpc_put_list(call->out, (uint32_t)count);
  for (size_t i = 0; i < count; i++) {
    rpc_put_list(call->out, 2);
    rpc_put_text(call->out, entries[i].name);
    rpc_put_int(call->out, entries[i].size);
  }
  free(entries);
  return true;
}
