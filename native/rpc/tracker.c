/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link to the tracker: made again whenever it breaks, for as long as the server runs.
 *
 * The server registers and then tells its state when it changes, and every few seconds; the tracker
 * asks it to take a lease, or to give one back.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server.h"

#define BEAT_TIME (2 * RPC_SECOND)
#define RETRY_TIME (2 * RPC_SECOND)
#define ANSWER_TIME (5 * RPC_SECOND)
#define MOST_UNSENT ((size_t)256 << 10)
#define LONGEST 200 /* characters of a state's texts */

typedef enum { LINK_NONE, LINK_CONNECTING, LINK_CHALLENGE, LINK_VERDICT, LINK_FRAMES } link_stage;

struct rpc_link {
  const rpc_options* options;
  link_stage stage;
  int fd;
  int64_t due; /* when the next step must have been made, or is to be made */
  uint8_t transcript[2 * RPC_OPENING_BYTES];
  rpc_keys keys;
  rpc_seal in, out;
  uint8_t* bytes; /* what is being read, RPC_LARGEST_CONTROL and more */
  size_t have;
  rpc_out unsent;
  size_t sent;
  uint32_t number;  /* of the last call */
  bool is_waiting;  /* for its answer */
  bool is_registered;
  char said[256];   /* the last complaint: it is not repeated */
};

rpc_link* rpc_link_open(const rpc_options* options) {
  rpc_link* link = calloc(1, sizeof *link);
  uint8_t* bytes = malloc(RPC_HEADER_BYTES + RPC_LARGEST_CONTROL + RPC_CODE_BYTES);
  if (link == NULL || bytes == NULL) {
    free(link);
    free(bytes);
    return NULL;
  }
  *link = (rpc_link){.options = options, .fd = -1, .bytes = bytes};
  return link;
}

static void drop(rpc_link* link, int64_t wait) {
  if (link->fd >= 0) close(link->fd);
  link->fd = -1;
  link->stage = LINK_NONE;
  link->due = td_now_ns() + wait;
  link->have = link->sent = 0;
  link->is_waiting = link->is_registered = false;
  rpc_out_free(&link->unsent);
}

void rpc_link_close(rpc_link* link) {
  if (link == NULL) return;
  drop(link, 0);
  free(link->bytes);
  free(link);
}

static void complain(rpc_link* link, const rpc_error* error) {
  const rpc_address* at = &link->options->tracker;
  char text[sizeof link->said];
  snprintf(text, sizeof text, "%.255s", error->problem);
  if (strcmp(text, link->said) != 0)
    rpc_log(RPC_LOG_WARNING, "the tracker at %s:%u: %s; trying again", at->host,
            (unsigned)at->port, error->problem);
  memcpy(link->said, text, sizeof text);
}

/* ---- sending --------------------------------------------------------------------------------- */

static bool flush(rpc_link* link, rpc_error* error) {
  while (link->sent < link->unsent.size) {
    long sent = rpc_send_some(link->fd, link->unsent.data + link->sent,
                              link->unsent.size - link->sent);
    if (sent < 0) return rpc_fail(error, "the connection broke: %s", strerror(errno));
    if (sent == 0) return true;
    link->sent += (size_t)sent;
  }
  link->unsent.size = link->sent = 0;
  return true;
}

static bool send_bytes(rpc_link* link, const void* data, size_t size, rpc_error* error) {
  if (link->unsent.size - link->sent > MOST_UNSENT)
    return rpc_fail(error, "it does not read what it is sent");
  rpc_put(&link->unsent, data, size);
  if (link->unsent.failed) return rpc_fail(error, "not enough memory");
  return flush(link, error);
}

/* Sends a frame whose values were put; the frame is freed. */
static bool send_frame(rpc_link* link, rpc_out* frame, rpc_kind kind, uint32_t number,
                       rpc_error* error) {
  uint8_t code[RPC_CODE_BYTES];
  bool ok = rpc_end_frame(frame, kind, number, 0, error);
  if (ok) {
    rpc_part part = {frame->data, frame->size};
    rpc_seal_code(&link->out, kind, &part, 1, code);
    ok = send_bytes(link, frame->data, frame->size, error) &&
         send_bytes(link, code, rpc_seal_size(&link->out), error);
  }
  rpc_out_free(frame);
  return ok;
}

/* ---- calls of the tracker -------------------------------------------------------------------- */

/* A text of at most so many characters: longer ones end there. */
static void put_cut(rpc_out* out, const char* text) {
  char cut[RPC_NAME_BYTES];
  size_t characters = 0, size = 0;
  for (; text[size] != '\0' && size < sizeof cut - 1; size++) {
    if ((text[size] & 0xc0) != 0x80 && ++characters > LONGEST) break;
    cut[size] = text[size];
  }
  cut[size] = '\0';
  rpc_put_text(out, cut);
}

static void put_state(rpc_out* out, rpc_server* server) {
  server->has_changed = false;
  rpc_put_text(out, rpc_state_name(server->state));
  put_cut(out, server->client);
  put_cut(out, server->last_error);
}

static bool call(rpc_link* link, rpc_server* server, rpc_error* error) {
  rpc_out frame = {0};
  rpc_begin_frame(&frame);
  if (link->is_registered) {
    rpc_put_list(&frame, 4);
    rpc_put_text(&frame, "device.beat");
  } else {
    rpc_put_list(&frame, 7);
    rpc_put_text(&frame, "device.register");
    rpc_put_text(&frame, link->options->device_key);
    rpc_put_text(&frame, link->options->reported.host);
    rpc_put_int(&frame, link->options->reported.port);
  }
  put_state(&frame, server);
  link->is_waiting = true;
  link->due = td_now_ns() + ANSWER_TIME;
  return send_frame(link, &frame, RPC_CALL, ++link->number, error);
}

static bool take_answer(rpc_link* link, const rpc_frame* frame, rpc_error* error) {
  if (!link->is_waiting || frame->number != link->number) return true;
  link->is_waiting = false;
  if (frame->kind != RPC_RESULT) {
    char problem[512] = "it refuses";
    rpc_args args = rpc_args_of(frame->values, "an error", error);
    (void)rpc_take_text(&args, 40);
    rpc_text said = rpc_take_text(&args, 4096);
    if (!args.failed) (void)rpc_copy_text(said, problem, sizeof problem);
    return rpc_fail(error, "%s", problem);
  }
  if (!link->is_registered) {
    const rpc_address* at = &link->options->tracker;
    rpc_log(RPC_LOG_INFO, "registered as %s at the tracker %s:%u", link->options->device_key,
            at->host, (unsigned)at->port);
    link->is_registered = true;
    link->said[0] = '\0';
    link->due = td_now_ns();
  } else {
    link->due = td_now_ns() + BEAT_TIME;
  }
  return true;
}

/* ---- calls by the tracker -------------------------------------------------------------------- */

static bool do_call(const rpc_frame* frame, rpc_server* server, rpc_error* error) {
  char name[64] = "";
  rpc_args args = rpc_args_of(frame->values, "a call of the tracker", error);
  rpc_text function = rpc_take_text(&args, 40);
  rpc_text token = rpc_take_bytes(&args, RPC_TOKEN_BYTES);
  if (!rpc_args_end(&args)) return false;
  (void)rpc_copy_text(function, name, sizeof name);
  if (strcmp(name, "lease.grant") == 0) return rpc_server_grant(server, token, error);
  if (strcmp(name, "lease.revoke") != 0)
    return rpc_fail(error, "'%.40s' is nothing a device does", name);
  rpc_server_revoke(server, token);
  return true;
}

static bool answer_call(rpc_link* link, const rpc_frame* frame, rpc_server* server,
                        rpc_error* error) {
  rpc_error refused;
  rpc_out out = {0};
  bool ok = do_call(frame, server, &refused);
  rpc_begin_frame(&out);
  if (ok) {
    rpc_put_list(&out, 0);
  } else {
    rpc_put_error(&out, &refused);
  }
  return send_frame(link, &out, ok ? RPC_RESULT : RPC_ERROR, frame->number, error);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool take_challenge(rpc_link* link, rpc_error* error) {
  static const char* const REFUSALS[] = {
      "", "it speaks another version of the protocol", "it wants a key: --key-file",
      "it has no key, so it cannot show who it is", "too many attempts from this address failed",
      "it has another key", "it is no tracker"};
  rpc_opening answer;
  const rpc_key* key = &link->options->key;
  if (!rpc_read_opening(link->bytes, &answer, error)) return false;
  if (answer.word != RPC_STATUS_OK || answer.version != RPC_VERSION)
    return rpc_fail(error, "the connection is refused: %s",
                    answer.word <= RPC_STATUS_ROLE ? REFUSALS[answer.word] : "it does not say why");
  if (answer.is_keyed != (key->size > 0))
    return rpc_fail(error, "the other side answers as if it had another kind of key");
  memcpy(link->transcript + RPC_OPENING_BYTES, link->bytes, RPC_OPENING_BYTES);
  if (key->size == 0) {
    rpc_seal_start(&link->in, NULL, 0);
    rpc_seal_start(&link->out, NULL, 0);
    link->stage = LINK_FRAMES;
    return true;
  }
  rpc_derive(key->data, key->size, link->transcript, &link->keys);
  link->stage = LINK_VERDICT;
  return send_bytes(link, link->keys.client_proof, RPC_PROOF_BYTES, error);
}

static bool take_verdict(rpc_link* link, rpc_error* error) {
  if (link->bytes[0] != RPC_STATUS_OK)
    return rpc_fail(error, "the connection is refused: it has another key");
  if (!rpc_is_equal(link->bytes + 8, link->keys.server_proof, RPC_PROOF_BYTES))
    return rpc_fail(error, "the other side does not have the key");
  rpc_seal_start(&link->in, link->keys.to_client, 0);
  rpc_seal_start(&link->out, link->keys.to_server, 0);
  link->stage = LINK_FRAMES;
  return true;
}

static bool take_frame(rpc_link* link, const rpc_header* header, rpc_server* server,
                       rpc_error* error) {
  size_t size = (size_t)header->size;
  rpc_part part = {link->bytes, RPC_HEADER_BYTES + size};
  const uint8_t* code = link->bytes + RPC_HEADER_BYTES + size;
  rpc_frame frame;
  if (!rpc_seal_check(&link->in, header->kind, &part, 1, code, error) ||
      !rpc_read_frame(header, link->bytes + RPC_HEADER_BYTES, &frame, error))
    return false;
  if (frame.kind == RPC_CALL) return answer_call(link, &frame, server, error);
  return take_answer(link, &frame, error);
}

/* How many bytes the message has that is being read, as far as that is known. */
static bool wanted(const rpc_link* link, rpc_header* header, size_t* size, rpc_error* error) {
  *size = link->stage == LINK_CHALLENGE ? RPC_OPENING_BYTES
          : link->stage == LINK_VERDICT ? RPC_VERDICT_BYTES
                                        : RPC_HEADER_BYTES;
  if (link->stage != LINK_FRAMES || link->have < RPC_HEADER_BYTES) return true;
  if (!rpc_read_header(link->bytes, RPC_LARGEST_CONTROL, header, error)) return false;
  *size = RPC_HEADER_BYTES + (size_t)header->size + rpc_seal_size(&link->in);
  return true;
}

static bool take_message(rpc_link* link, const rpc_header* header, rpc_server* server,
                         rpc_error* error) {
  bool ok = link->stage == LINK_CHALLENGE ? take_challenge(link, error)
            : link->stage == LINK_VERDICT ? take_verdict(link, error)
                                          : take_frame(link, header, server, error);
  link->have = 0;
  if (ok && link->stage == LINK_FRAMES && link->number == 0) ok = call(link, server, error);
  return ok;
}

static bool read_more(rpc_link* link, rpc_server* server, rpc_error* error) {
  for (;;) {
    rpc_header header = {0};
    size_t size;
    if (!wanted(link, &header, &size, error)) return false;
    if (link->have == size) {
      if (!take_message(link, &header, server, error)) return false;
      continue;
    }
    long got = rpc_receive_some(link->fd, link->bytes + link->have, size - link->have);
    if (got < 0) return rpc_fail(error, "the connection has ended");
    if (got == 0) return true;
    link->have += (size_t)got;
  }
}

/* ---- connecting ------------------------------------------------------------------------------ */

static bool begin(rpc_link* link, rpc_error* error) {
  link->number = 0;
  link->due = td_now_ns() + ANSWER_TIME;
  link->fd = rpc_connect_begin(&link->options->tracker, error);
  link->stage = LINK_CONNECTING;
  return link->fd >= 0;
}

static bool say_hello(rpc_link* link, rpc_error* error) {
  uint8_t nonce[RPC_NONCE_BYTES];
  if (!rpc_connect_end(link->fd, error)) return false;
  if (!rpc_random(nonce, sizeof nonce)) return rpc_fail(error, "the system has no random numbers");
  rpc_write_opening(link->transcript, RPC_ROLE_DEVICE, link->options->key.size > 0, nonce);
  link->stage = LINK_CHALLENGE;
  return send_bytes(link, link->transcript, RPC_OPENING_BYTES, error);
}

bool rpc_link_watch(const rpc_link* link, struct pollfd* place) {
  if (link->stage == LINK_NONE) return false;
  bool has_more = link->stage == LINK_CONNECTING || link->unsent.size > link->sent;
  *place = (struct pollfd){link->fd, (short)(POLLIN | (has_more ? POLLOUT : 0)), 0};
  return true;
}

static bool serve(rpc_link* link, short events, rpc_server* server, rpc_error* error) {
  bool is_due = td_now_ns() >= link->due;
  if (link->stage == LINK_NONE) return !is_due || begin(link, error);
  if (link->stage == LINK_CONNECTING) {
    if (events != 0 && !say_hello(link, error)) return false;
  } else {
    if (!flush(link, error)) return false;
    if (events != 0 && !read_more(link, server, error)) return false;
  }
  bool can_call = link->is_registered && !link->is_waiting;
  if (can_call && (server->has_changed || td_now_ns() >= link->due))
    return call(link, server, error);
  return td_now_ns() < link->due || can_call || rpc_fail(error, "it does not answer");
}

void rpc_link_serve(rpc_link* link, short events, rpc_server* server) {
  rpc_error error;
  if (serve(link, events, server, &error)) return;
  complain(link, &error);
  drop(link, RETRY_TIME);
}

int64_t rpc_link_due(const rpc_link* link) { return link->due; }
