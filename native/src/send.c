/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long frames on their way into a socket: a piece of one is sent while the cache holds what its code
 * has just read. (To give the system the pages instead, by vmsplice, moves the cost of a copy to who
 * receives them, and adds to it.)
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "internal.h"

#define PIECE ((size_t)1 << 18)
#define PARTS 3
#define CODE ((size_t)16)

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0
#endif
#if !defined(MSG_MORE)
#define MSG_MORE 0
#endif

typedef struct {
  int socket, timeout_ms;
} road;

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* What lies in bytes from..to of a frame and its code. */
static size_t parts_between(const td_frame* frame, const uint8_t* code, size_t from, size_t to,
                            struct iovec parts[PARTS]) {
  const void* data[PARTS] = {frame->start, frame->blob, code};
  size_t sizes[PARTS] = {frame->start_bytes, frame->blob_bytes, frame->key != NULL ? CODE : 0};
  size_t at = 0, count = 0;
  for (int i = 0; i < PARTS; i++) {
    size_t end = at + sizes[i], first = from > at ? from : at, last = smaller(to, end);
    if (first < last) {
      uintptr_t place = (uintptr_t)data[i] + (first - at); /* sendmsg does not write to it */
      parts[count++] = (struct iovec){(void*)place, last - first};
    }
    at = end;
  }
  return count;
}

static int wait_for_room(const road* to) {
  struct pollfd wanted = {.fd = to->socket, .events = POLLOUT};
  int ready = poll(&wanted, 1, to->timeout_ms);
  if (ready < 0) return errno;
  return ready == 0 ? ETIMEDOUT : 0;
}

/* Sends a frame's bytes from *sent to `end`, and counts them there. */
static int send_until(const road* to, const td_frame* frame, const uint8_t* code, size_t end,
                      bool is_last, size_t* sent) {
  int flags = MSG_NOSIGNAL | (is_last ? 0 : MSG_MORE);
  while (*sent < end) {
    struct iovec parts[PARTS];
    struct msghdr message = {.msg_iov = parts};
    message.msg_iovlen = parts_between(frame, code, *sent, end, parts);
    ssize_t bytes = sendmsg(to->socket, &message, flags);
    int error = 0;
    if (bytes >= 0) *sent += (size_t)bytes;
    else error = errno == EAGAIN || errno == EWOULDBLOCK ? wait_for_room(to) : errno;
    if (error != 0) return error;
  }
  return 0;
}

/* Sends what is left of a frame. The code of what was sent before is computed again. */
static int send_frame(const road* to, const td_frame* frame, size_t* sent) {
  td_poly1305_state state;
  uint8_t code[CODE];
  bool is_keyed = frame->key != NULL, is_last = false;
  if (is_keyed) {
    td_poly1305_start(&state, frame->key);
    td_poly1305_add(&state, frame->start, frame->start_bytes);
  }
  for (size_t done = 0; !is_last;) {
    size_t piece = smaller(PIECE, frame->blob_bytes - done);
    if (is_keyed) td_poly1305_add(&state, (const uint8_t*)frame->blob + done, piece);
    done += piece;
    is_last = done == frame->blob_bytes;
    size_t end = frame->start_bytes + done;
    if (is_last && is_keyed) {
      td_poly1305_finish(&state, code);
      end += CODE;
    }
    int error = send_until(to, frame, code, end, is_last, sent);
    if (error != 0) return error;
  }
  return 0;
}

int32_t td_send_frames(int32_t socket, const td_frame* frames, size_t count, int32_t timeout_ms,
                       td_frames_sent* sent) {
  const road to = {socket, timeout_ms};
  for (; sent->frames < count; sent->frames++, sent->bytes = 0) {
    int error = send_frame(&to, &frames[sent->frames], &sent->bytes);
    if (error != 0) return error;
  }
  return 0;
}
