/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The port: who may connect, and how that is found out.
 *
 * Every connection has little time to show that it has the key; until then nothing of it is read
 * but messages of fixed size, and no memory is taken but its place.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server.h"

#define MOST_STRANGERS 512
#define MOST_OF_ADDRESS (MOST_STRANGERS * 3 / 4)
#define MOST_CONNECTIONS 2048
#define MOST_ADDRESSES 4096
#define STAGE_TIME (5 * RPC_SECOND)
#define DOOR_TIME (RPC_SECOND / 2) /* a session that is just ending is let end */
#define PAUSE_TIME (RPC_SECOND / 20)
#define FIRST_BYTES ((size_t)1024)  /* of a frame, before more of it have come */

/* How often an address may fail yet. */
typedef struct {
  uint8_t peer[16];
  double left;
  int64_t then;
} failures;

struct rpc_gate {
  int listener;
  const rpc_options* options;
  int64_t pause_end; /* accepts nothing before: no descriptors are left */
  rpc_connection* connections[MOST_CONNECTIONS];
  size_t count;
  failures failed[MOST_ADDRESSES]; /* the one that failed longest ago first */
  size_t num_failed;
};

/* ---- failures -------------------------------------------------------------------------------- */

static size_t find_failed(const rpc_gate* gate, const uint8_t peer[16]) {
  size_t i = 0;
  while (i < gate->num_failed && memcmp(gate->failed[i].peer, peer, 16) != 0) i++;
  return i;
}

static double allowance(const rpc_gate* gate, const uint8_t peer[16]) {
  double most = (double)gate->options->most_failures;
  size_t i = find_failed(gate, peer);
  if (i == gate->num_failed) return most;
  double left = gate->failed[i].left + (double)(td_now_ns() - gate->failed[i].then) / RPC_SECOND;
  return left < most ? left : most;
}

static void note_failure(rpc_gate* gate, const uint8_t peer[16]) {
  if (allowance(gate, peer) < 1) return; /* it is slowed down already */
  failures made = {.left = allowance(gate, peer) - 1, .then = td_now_ns()};
  memcpy(made.peer, peer, 16);
  size_t i = find_failed(gate, peer);
  if (i == MOST_ADDRESSES) i = 0;
  if (i < gate->num_failed) {
    gate->num_failed--;
    memmove(&gate->failed[i], &gate->failed[i + 1], (gate->num_failed - i) * sizeof made);
  }
  gate->failed[gate->num_failed++] = made;
}

/* ---- connections ----------------------------------------------------------------------------- */

rpc_gate* rpc_gate_open(int listener, const rpc_options* options) {
  rpc_gate* gate = calloc(1, sizeof *gate);
  if (gate == NULL) return NULL;
  gate->listener = listener;
  gate->options = options;
  return gate;
}

static void forget(rpc_connection* c) {
  if (c->fd >= 0) close(c->fd);
  free(c->payload);
  free(c);
}

void rpc_gate_close(rpc_gate* gate) {
  if (gate == NULL) return;
  for (size_t i = 0; i < gate->count; i++) forget(gate->connections[i]);
  if (gate->listener >= 0) close(gate->listener);
  free(gate);
}

static bool is_stranger(const rpc_connection* c) {
  return c->stage == RPC_AT_HELLO || c->stage == RPC_AT_PROOF;
}

static bool has_room(const rpc_gate* gate, const uint8_t peer[16]) {
  size_t strangers = 0, of_address = 0;
  for (size_t i = 0; i < gate->count; i++) {
    const rpc_connection* c = gate->connections[i];
    if (!is_stranger(c)) continue;
    strangers++;
    of_address += memcmp(c->peer, peer, 16) == 0;
  }
  return gate->count < MOST_CONNECTIONS && strangers < MOST_STRANGERS &&
         of_address < MOST_OF_ADDRESS;
}

static void read_peer(const struct sockaddr_storage* name, uint8_t peer[16]) {
  memset(peer, 0, 16);
  if (name->ss_family == AF_INET6)
    memcpy(peer, &((const struct sockaddr_in6*)name)->sin6_addr, 16);
  else if (name->ss_family == AF_INET)
    memcpy(peer + 12, &((const struct sockaddr_in*)name)->sin_addr, 4);
}

static void expect(rpc_connection* c, rpc_stage stage, size_t bytes) {
  c->stage = stage;
  c->have = 0;
  c->want = bytes;
}

/* Sends a message that is so short that it goes at once, or not at all. */
static bool say(const rpc_connection* c, const void* data, size_t size) {
  return rpc_send_some(c->fd, data, size) == (long)size;
}

static bool refuse(const rpc_gate* gate, rpc_connection* c, rpc_status status, rpc_error* error) {
  static const uint8_t NOTHING[RPC_NONCE_BYTES];
  uint8_t answer[RPC_OPENING_BYTES];
  rpc_write_opening(answer, (uint8_t)status, gate->options->key.size > 0, NOTHING);
  (void)say(c, answer, sizeof answer);
  return rpc_fail(error, "a connection is refused with status %d", (int)status);
}

bool rpc_gate_take(rpc_gate* gate, int fd, const uint8_t peer[16]) {
  rpc_connection* c = has_room(gate, peer) ? calloc(1, sizeof *c) : NULL;
  if (c == NULL) {
    close(fd);
    return false;
  }
  c->fd = fd;
  memcpy(c->peer, peer, 16);
  rpc_set_blocking(fd, false);
  rpc_tune_socket(fd);
  c->end = td_now_ns() + STAGE_TIME;
  expect(c, RPC_AT_HELLO, RPC_OPENING_BYTES);
  gate->connections[gate->count++] = c;
  return true;
}

bool rpc_gate_is_empty(const rpc_gate* gate) { return gate->count == 0; }

/* Takes one connection more; false where there is none. */
static bool accept_one(rpc_gate* gate) {
  struct sockaddr_storage name;
  socklen_t size = sizeof name;
  uint8_t peer[16];
  int fd = accept(gate->listener, (struct sockaddr*)&name, &size);
  if (fd < 0) {
    bool is_full = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
    if (is_full) gate->pause_end = td_now_ns() + PAUSE_TIME;
    return errno == ECONNABORTED || errno == EINTR;
  }
  read_peer(&name, peer);
  (void)rpc_gate_take(gate, fd, peer);
  return true;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void expect_frame(rpc_connection* c) {
  c->end = td_now_ns() + STAGE_TIME;
  expect(c, RPC_AT_HEADER, RPC_HEADER_BYTES);
}

static bool take_hello(const rpc_gate* gate, rpc_connection* c, rpc_error* error) {
  bool has_key = gate->options->key.size > 0;
  rpc_opening hello;
  uint8_t nonce[RPC_NONCE_BYTES], *challenge = c->transcript + RPC_OPENING_BYTES;
  if (!rpc_read_opening(c->bytes, &hello, error)) return false;
  if (allowance(gate, c->peer) < 1) return refuse(gate, c, RPC_STATUS_SLOW_DOWN, error);
  if (hello.version != RPC_VERSION) return refuse(gate, c, RPC_STATUS_VERSION, error);
  if (hello.word != RPC_ROLE_CLIENT) return refuse(gate, c, RPC_STATUS_ROLE, error);
  if (hello.is_keyed != has_key)
    return refuse(gate, c, has_key ? RPC_STATUS_KEY_NEEDED : RPC_STATUS_NO_KEY, error);
  if (!rpc_random(nonce, sizeof nonce)) return rpc_fail(error, "the system has no random numbers");
  rpc_write_opening(challenge, RPC_STATUS_OK, has_key, nonce);
  memcpy(c->transcript, c->bytes, RPC_OPENING_BYTES);
  rpc_seal_start(&c->in, NULL, 0);
  if (has_key) {
    expect(c, RPC_AT_PROOF, RPC_PROOF_BYTES);
  } else {
    expect_frame(c);
  }
  return say(c, challenge, RPC_OPENING_BYTES) || rpc_fail(error, "the connection is broken");
}

static bool take_proof(const rpc_gate* gate, rpc_connection* c, rpc_error* error) {
  uint8_t verdict[RPC_VERDICT_BYTES] = {RPC_STATUS_OK};
  rpc_derive(gate->options->key.data, gate->options->key.size, c->transcript, &c->keys);
  bool is_right = rpc_is_equal(c->bytes, c->keys.client_proof, RPC_PROOF_BYTES);
  if (is_right) {
    memcpy(verdict + 8, c->keys.server_proof, RPC_PROOF_BYTES);
  } else {
    verdict[0] = RPC_STATUS_WRONG_KEY;
  }
  bool is_said = say(c, verdict, sizeof verdict);
  if (!is_right) return rpc_fail(error, "it has another key");
  rpc_seal_start(&c->in, c->keys.to_server, 0);
  expect_frame(c);
  return is_said || rpc_fail(error, "the connection is broken");
}

/* ---- the first frame ------------------------------------------------------------------------- */

static bool take_header(rpc_connection* c, rpc_error* error) {
  if (!rpc_read_header(c->bytes, RPC_LARGEST_CONTROL, &c->header, error)) return false;
  expect(c, RPC_AT_PAYLOAD, (size_t)c->header.size + rpc_seal_size(&c->in));
  return true;
}

/* Memory grows with what has come, not with what is promised. */
static bool grow_payload(rpc_connection* c, rpc_error* error) {
  size_t wanted = c->room == 0 ? FIRST_BYTES : 2 * c->room;
  if (wanted > c->want) wanted = c->want;
  uint8_t* grown = realloc(c->payload, wanted);
  if (grown == NULL) return rpc_fail(error, "not enough memory for a frame");
  c->payload = grown;
  c->room = wanted;
  return true;
}

static bool read_wishes(const rpc_frame* frame, rpc_wishes* wishes, rpc_error* error) {
  char name[64];
  rpc_args args = rpc_args_of(frame->values, "session.open", error);
  rpc_text function = rpc_take_text(&args, 40);
  if (args.failed) return false;
  if (frame->kind != RPC_CALL || !rpc_copy_text(function, name, sizeof name) ||
      strcmp(name, "session.open") != 0)
    return rpc_fail(error, "a connection begins with session.open");
  rpc_text token = rpc_take_bytes(&args, RPC_TOKEN_BYTES);
  rpc_text client = rpc_take_text(&args, 200);
  wishes->session_seconds = rpc_take_number(&args, 0, 1e9);
  wishes->call_seconds = rpc_take_number(&args, 0, 1e9);
  if (!rpc_args_end(&args)) return false;
  if (!rpc_copy_text(client, wishes->client, sizeof wishes->client))
    return rpc_fail(error, "the name of the client is not plain");
  memcpy(wishes->token, token.data, token.size);
  wishes->token_size = token.size;
  return true;
}

static void answer_error(rpc_connection* c, const rpc_error* error) {
  rpc_out out = {0};
  rpc_seal seal;
  uint8_t code[RPC_CODE_BYTES];
  rpc_seal_start(&seal, rpc_seal_size(&c->in) > 0 ? c->keys.to_client : NULL, 0);
  if (rpc_write_error_frame(&out, RPC_ERROR, c->header.number, error)) {
    rpc_part part = {out.data, out.size};
    rpc_seal_code(&seal, RPC_ERROR, &part, 1, code);
    rpc_put(&out, code, rpc_seal_size(&seal));
    (void)say(c, out.data, out.size);
  }
  rpc_out_free(&out);
}

static bool check_payload(rpc_connection* c, rpc_frame* frame, rpc_error* error) {
  size_t size = (size_t)c->header.size;
  rpc_part parts[] = {{c->bytes, RPC_HEADER_BYTES}, {c->payload, size}};
  return rpc_seal_check(&c->in, c->header.kind, parts, 2, c->payload + size, error) &&
         rpc_read_frame(&c->header, c->payload, frame, error);
}

/* Lets a client in, or says why not; waits a little where the device is busy. */
static bool at_the_door(rpc_connection* c, rpc_server* server, rpc_error* error) {
  rpc_wishes wishes;
  rpc_frame frame;
  if (!rpc_read_frame(&c->header, c->payload, &frame, error)) return false;
  bool ok = read_wishes(&frame, &wishes, error);
  if (ok && server->state == RPC_BUSY && td_now_ns() < c->end) return true;
  if (ok && rpc_server_admit(server, &wishes, error)) {
    rpc_server_start(server, c, frame.number, &wishes);
    c->fd = -1;
    return rpc_fail(error, "%s", ""); /* it ends here, and nothing is wrong */
  }
  answer_error(c, error);
  return false;
}

static bool take_payload(rpc_connection* c, rpc_server* server, rpc_error* error) {
  rpc_frame frame;
  if (!check_payload(c, &frame, error)) return false;
  c->end = td_now_ns() + DOOR_TIME;
  expect(c, RPC_AT_DOOR, 0);
  return at_the_door(c, server, error);
}

/* ---- serving --------------------------------------------------------------------------------- */

static bool take_message(rpc_gate* gate, rpc_connection* c, rpc_server* server,
                         rpc_error* error) {
  switch (c->stage) {
    case RPC_AT_HELLO: return take_hello(gate, c, error);
    case RPC_AT_PROOF: return take_proof(gate, c, error);
    case RPC_AT_HEADER: return take_header(c, error);
    default: return take_payload(c, server, error);
  }
}

/* Reads what is there of the message that is due; false ends the connection. */
static bool read_more(rpc_gate* gate, rpc_connection* c, rpc_server* server, rpc_error* error) {
  while (c->stage != RPC_AT_DOOR) {
    bool is_payload = c->stage == RPC_AT_PAYLOAD;
    if (is_payload && c->have == c->room && !grow_payload(c, error)) return false;
    uint8_t* buffer = is_payload ? c->payload : c->bytes;
    size_t end = is_payload ? c->room : c->want;
    long got = rpc_receive_some(c->fd, buffer + c->have, end - c->have);
    if (got < 0) return rpc_fail(error, "the other side has closed the connection");
    if (got == 0) return true;
    c->have += (size_t)got;
    if (c->have == c->want && !take_message(gate, c, server, error)) return false;
  }
  return true;
}

static bool serve_one(rpc_gate* gate, rpc_connection* c, bool is_ready, rpc_server* server,
                      rpc_error* error) {
  if (c->stage == RPC_AT_DOOR) return at_the_door(c, server, error);
  if (is_ready && !read_more(gate, c, server, error)) return false;
  if (td_now_ns() < c->end) return true;
  return rpc_fail(error, "it takes too long");
}

void rpc_gate_serve(rpc_gate* gate, const struct pollfd* places, size_t count,
                    rpc_server* server) {
  size_t kept = 0;
  for (size_t i = 0; i < gate->count; i++) {
    rpc_connection* c = gate->connections[i];
    bool is_ready = i + 1 < count && places[i + 1].revents != 0;
    bool was_stranger = is_stranger(c);
    rpc_error error;
    if (serve_one(gate, c, is_ready, server, &error)) {
      gate->connections[kept++] = c;
      continue;
    }
    if (was_stranger && is_stranger(c)) note_failure(gate, c->peer);
    if (error.problem[0] != '\0') rpc_log(RPC_LOG_INFO, "a connection ends: %s", error.problem);
    forget(c);
  }
  gate->count = kept;
  if (count > 0 && places[0].revents != 0)
    for (int i = 0; i < MOST_STRANGERS && accept_one(gate); i++) continue;
}

size_t rpc_gate_most(void) { return MOST_CONNECTIONS + 1; }

size_t rpc_gate_watch(rpc_gate* gate, struct pollfd* places) {
  bool accepts = td_now_ns() >= gate->pause_end;
  places[0] = (struct pollfd){accepts ? gate->listener : -1, POLLIN, 0};
  for (size_t i = 0; i < gate->count; i++) {
    const rpc_connection* c = gate->connections[i];
    places[i + 1] = (struct pollfd){c->stage == RPC_AT_DOOR ? -1 : c->fd, POLLIN, 0};
  }
  return gate->count + 1;
}

int64_t rpc_gate_due(const rpc_gate* gate) {
  int64_t due = td_now_ns() < gate->pause_end ? gate->pause_end : INT64_MAX;
  for (size_t i = 0; i < gate->count; i++)
    if (gate->connections[i]->end < due) due = gate->connections[i]->end;
  return due;
}
