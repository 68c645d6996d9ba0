/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a session, in and out. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "session.h"

#define HOT_BYTES ((size_t)1 << 18) /* of a frame, that a cache holds until its code has them */

#define WAKE_LEAST ((size_t)1 << 15)

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0
#endif

bool rpc_channel_open(rpc_channel* c, int fd, const rpc_keys* keys, rpc_shared* shared) {
  *c = (rpc_channel){.socket = fd, .shared = shared};
  c->buffer = malloc(RPC_HEADER_BYTES + RPC_LARGEST_FRAME + RPC_CODE_BYTES);
  rpc_seal_start(&c->in, keys != NULL ? keys->to_server : NULL, 1);
  rpc_seal_start(&c->out, keys != NULL ? keys->to_client : NULL, 0);
  return c->buffer != NULL;
}

/* ---- out ------------------------------------------------------------------------------------- */

static bool send_parts(int fd, struct iovec* parts, size_t count) {
  while (count > 0) {
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    for (; count > 0 && (size_t)sent >= parts->iov_len; parts++, count--)
      sent -= (ssize_t)parts->iov_len;
    if (count == 0) break;
    parts->iov_base = (uint8_t*)parts->iov_base + sent;
    parts->iov_len -= (size_t)sent;
  }
  return true;
}

bool rpc_channel_send(rpc_channel* c, rpc_kind kind, const rpc_out* start, const void* blob,
                      size_t blob_size) {
  uint8_t code[RPC_CODE_BYTES];
  rpc_part sealed[] = {{start->data, start->size}, {blob, blob_size}};
  struct iovec parts[3];
  size_t count = 0;
  rpc_seal_code(&c->out, kind, sealed, 2, code);
  parts[count++] = (struct iovec){start->data, start->size};
  if (blob_size > 0) {
    void* data;
    memcpy(&data, &blob, sizeof data); /* sendmsg does not write to it */
    parts[count++] = (struct iovec){data, blob_size};
  }
  if (c->out.is_keyed) parts[count++] = (struct iovec){code, sizeof code};
  atomic_store(&c->shared->is_sending, 1);
  bool ok = send_parts(c->socket, parts, count);
  atomic_store(&c->shared->is_sending, 0);
  return ok;
}

/* ---- in -------------------------------------------------------------------------------------- */

static bool receive(int fd, uint8_t* at, size_t size) {
  while (size > 0) {
    ssize_t got = recv(fd, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= (size_t)got;
  }
  return true;
}

static void wake_for(rpc_channel* c, size_t bytes) {
  int least = (int)bytes;
  if (c->woken_for == bytes) return;
  (void)setsockopt(c->socket, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
  c->woken_for = bytes;
}

/* Receives bytes, and asks the system to wake this thread when all of them have come: being woken for
 * each packet costs both sides more than what is done with it. */
static bool receive_at_once(rpc_channel* c, uint8_t* at, size_t size) {
  struct pollfd wanted = {.fd = c->socket, .events = POLLIN};
  while (size > 0) {
    wake_for(c, size < WAKE_LEAST ? 1 : size);
    if (poll(&wanted, 1, -1) < 0 && errno != EINTR) return false;
    ssize_t got = recv(c->socket, at, size, MSG_DONTWAIT); /* fewer where buffers are smaller */
    if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) continue;
    if (got <= 0) return false;
    at += got;
    size -= (size_t)got;
  }
  return true;
}

/* Receives a payload and its code; adds the payload to `code` while the cache holds it. */
static bool receive_payload(rpc_channel* c, uint8_t* payload, size_t size, rpc_code* code) {
  size_t all = size + rpc_seal_size(&c->in);
  for (size_t done = 0; done < all;) {
    size_t piece = all - done < HOT_BYTES ? all - done : HOT_BYTES;
    if (!receive_at_once(c, payload + done, piece)) return false;
    size_t end = done + piece < size ? done + piece : size;
    if (done < end) rpc_code_add(code, payload + done, end - done);
    done += piece;
  }
  wake_for(c, 1);
  return true;
}

rpc_received rpc_channel_receive(rpc_channel* c, rpc_frame* frame, rpc_error* error) {
  rpc_header header;
  rpc_code code;
  uint8_t* payload = c->buffer + RPC_HEADER_BYTES;
  if (!receive(c->socket, c->buffer, RPC_HEADER_BYTES)) return RPC_ENDED;
  if (!rpc_read_header(c->buffer, RPC_LARGEST_FRAME, &header, error)) return RPC_WRONG;
  size_t size = (size_t)header.size;
  rpc_code_start(&code, &c->in, header.kind);
  rpc_code_add(&code, c->buffer, RPC_HEADER_BYTES);
  if (!receive_payload(c, payload, size, &code)) return RPC_ENDED;
  bool ok = rpc_code_check(&code, payload + size, error) &&
            rpc_read_frame(&header, payload, frame, error);
  return ok ? RPC_RECEIVED : RPC_WRONG;
}
