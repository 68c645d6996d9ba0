/* SPDX-License-Identifier: Apache-2.0 */
/* Tar archives nobody vouches for: wanted members are located, anything else is refused. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define RECORD ((uint64_t)512)
#define MAX_EXTENDED_BYTES ((uint64_t)64 << 10)
#define MAX_HEADERS 64 /* far more than three members and their extended headers */

int32_t td_read_at(int fd, void* data, size_t bytes, uint64_t offset, td_error* error) {
  char* at = data;
  while (bytes > 0) {
    ssize_t got = pread(fd, at, bytes < (1u << 30) ? bytes : (1u << 30), (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return td_fail(error, TD_SYSTEM, "cannot read the artifact: %s", strerror(errno));
    if (got == 0) return td_fail(error, TD_ARTIFACT, "the artifact is cut off");
    at += got;
    bytes -= (size_t)got;
    offset += (uint64_t)got;
  }
  return TD_OK;
}

/* ---- headers --------------------------------------------------------------------------------- */

/* A number field: octal digits, or big-endian binary marked by the top bit. */
static bool read_number(const unsigned char* field, size_t width, uint64_t* value) {
  *value = 0;
  if (field[0] & 0x80) {
    *value = field[0] & 0x7f;
    for (size_t i = 1; i < width; i++) {
      if (*value >> 55 != 0) return false;
      *value = *value << 8 | field[i];
    }
    return true;
  }
  size_t i = 0, digits = 0;
  while (i < width && field[i] == ' ') i++;
  for (; i < width && field[i] >= '0' && field[i] <= '7'; i++, digits++)
    *value = *value << 3 | (uint64_t)(field[i] - '0');
  for (; i < width; i++)
    if (field[i] != ' ' && field[i] != '\0') return false;
  return digits > 0;
}

static bool checksum_holds(const unsigned char* header) {
  uint64_t said, sum = 0;
  for (size_t i = 0; i < RECORD; i++) sum += i >= 148 && i < 156 ? ' ' : header[i];
  return read_number(header + 148, 8, &said) && said == sum;
}

static bool is_zero(const unsigned char* header) {
  for (size_t i = 0; i < RECORD; i++)
    if (header[i] != 0) return false;
  return true;
}

/* The name for a message: printable and short. */
static void printable(const char* name, char out[80]) {
  size_t i = 0;
  for (; i < 79 && name[i] != '\0'; i++)
    out[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
  out[i] = '\0';
}

static const char* type_name(char type) {
  switch (type) {
    case '1': return "a hard link";
    case '2': return "a symbolic link";
    case '3':
    case '4': return "a device";
    case '5': return "a folder";
    case '6': return "a pipe";
    default: return "not a plain file";
  }
}

static int32_t refuse(td_error* error, const char* name, const char* why) {
  char shown[80];
  printable(name, shown);
  return td_hint(error,
                 td_fail(error, TD_ARTIFACT, "the archive is not a Treadle artifact: member \"%s\" "
                         "%s", shown, why),
                 "an artifact holds mod.so, mod.json and mod.params, as treadle compile writes "
                 "them");
}

/* ---- members --------------------------------------------------------------------------------- */

static td_wanted* find_wanted(td_wanted* wanted, size_t count, const char* name) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(wanted[i].name, name) == 0) return &wanted[i];
  return NULL;
}

static int32_t check_member(const unsigned char* header, const char* name, td_wanted* wanted,
                            uint64_t bytes, td_error* error) {
  char type = (char)header[156], why[128];
  if (wanted == NULL) {
    bool escapes = name[0] == '/' || strstr(name, "..") != NULL;
    return refuse(error, name, escapes ? "points out of the archive" : "does not belong there");
  }
  if (type != '0' && type != '\0') {
    snprintf(why, sizeof why, "is %s", type_name(type));
    return refuse(error, name, why);
  }
  if (wanted->member.found) return refuse(error, name, "occurs twice");
  if (bytes <= wanted->limit) return TD_OK;
  snprintf(why, sizeof why, "has %llu bytes; %llu are accepted", (unsigned long long)bytes,
           (unsigned long long)wanted->limit);
  return refuse(error, name, why);
}

static bool is_harmless_key(const char* key, size_t bytes) {
  static const char* const KEYS[] = {"mtime", "atime", "ctime",   "uid",
                                     "gid",   "uname", "gname", "comment"};
  for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++)
    if (strlen(KEYS[i]) == bytes && memcmp(KEYS[i], key, bytes) == 0) return true;
  return false;
}

/* An extended header ("x"): lines "LENGTH key=value". Only times, owners and comments may be in
 * it, nothing that changes a member's name, type or size. */
static int32_t check_extended(int fd, uint64_t offset, uint64_t bytes, td_error* error) {
  char text[MAX_EXTENDED_BYTES];
  if (bytes > sizeof text)
    return td_fail(error, TD_ARTIFACT, "an extended header of the archive is too long");
  int32_t code = td_read_at(fd, text, (size_t)bytes, offset, error);
  for (size_t at = 0; code == TD_OK && at < bytes;) {
    size_t length = 0, i = at;
    for (; i < bytes && text[i] >= '0' && text[i] <= '9' && length <= bytes; i++)
      length = length * 10 + (size_t)(text[i] - '0');
    const char* equals = i < bytes && text[i] == ' '
                             ? memchr(text + i, '=', (size_t)bytes - i) : NULL;
    if (equals == NULL || length <= (size_t)(equals - text) - at || length > bytes - at)
      return td_fail(error, TD_ARTIFACT, "an extended header of the archive is malformed");
    if (!is_harmless_key(text + i + 1, (size_t)(equals - text) - i - 1))
      return td_fail(error, TD_ARTIFACT, "an extended header of the archive changes more than "
                     "times and owners");
    at += length;
  }
  return code;
}

static int32_t visit(int fd, const unsigned char* header, uint64_t data, uint64_t bytes,
                     td_wanted* wanted, size_t count, td_error* error) {
  char name[101] = "";
  memcpy(name, header, 100);
  bool pax = header[156] == 'x' || header[156] == 'g';
  if (pax) return check_extended(fd, data, bytes, error);
  bool prefixed = memcmp(header + 257, "ustar\0", 6) == 0 && header[345] != '\0';
  if (prefixed) return refuse(error, name, "is in a folder");
  td_wanted* match = find_wanted(wanted, count, name);
  int32_t code = check_member(header, name, match, bytes, error);
  if (code == TD_OK) match->member = (td_member){data, bytes, true};
  return code;
}

int32_t td_tar_find(int fd, td_wanted* wanted, size_t count, td_error* error) {
  struct stat status;
  if (fstat(fd, &status) != 0)
    return td_fail(error, TD_SYSTEM, "cannot read the artifact: %s", strerror(errno));
  if (!S_ISREG(status.st_mode))
    return td_fail(error, TD_ARTIFACT, "the artifact is not a regular file");
  uint64_t size = (uint64_t)status.st_size;
  unsigned char header[RECORD];
  uint64_t at = 0;
  for (int headers = 0;; headers++) {
    if (headers == MAX_HEADERS)
      return td_fail(error, TD_ARTIFACT, "the archive has too many headers");
    if (size - at < RECORD)
      return td_fail(error, TD_ARTIFACT, at == 0 ? "the file is not a tar archive"
                                                 : "the archive is cut off: it has no end mark");
    int32_t code = td_read_at(fd, header, sizeof header, at, error);
    if (code != TD_OK) return code;
    if (at > 0 && is_zero(header)) break;
    uint64_t bytes;
    if (!checksum_holds(header) || !read_number(header + 124, 12, &bytes))
      return td_fail(error, TD_ARTIFACT, at == 0 ? "the file is not a tar archive"
                                                 : "a header of the archive is damaged");
    at += RECORD;
    if (bytes > size - at) {
      char name[101] = "", shown[80];
      memcpy(name, header, 100);
      printable(name, shown);
      return td_fail(error, TD_ARTIFACT, "the archive is cut off inside member \"%s\"", shown);
    }
    code = visit(fd, header, at, bytes, wanted, count, error);
    if (code != TD_OK) return code;
    at += (bytes + RECORD - 1) / RECORD * RECORD;
    if (at > size) return td_fail(error, TD_ARTIFACT, "the archive is cut off");
  }
  for (size_t i = 0; i < count; i++)
    if (!wanted[i].member.found)
      return td_fail(error, TD_ARTIFACT, "the archive is not a Treadle artifact: it has no %s",
                     wanted[i].name);
  return TD_OK;
}
