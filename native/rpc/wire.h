/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of the RPC protocol: errors, values, openings, frames and their codes. No input or
 * output. docs/design/rpc.md is the specification, tests/rpc/vectors.json has bytes that follow it.
 *
 * Functions that can fail return false and fill the error they are given.
 */
#ifndef TREADLE_RPC_WIRE_H_
#define TREADLE_RPC_WIRE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "internal.h"

#define RPC_VERSION 2
#define RPC_NONCE_BYTES 32
#define RPC_OPENING_BYTES 48
#define RPC_PROOF_BYTES 32
#define RPC_VERDICT_BYTES 40
#define RPC_HEADER_BYTES 16
#define RPC_CODE_BYTES 16
#define RPC_KEY_BYTES 32 /* of a key that is derived */
#define RPC_LEAST_KEY 16 /* of a key in a file */
#define RPC_MOST_KEY 4096
#define RPC_DEEPEST 8                              /* lists in lists */
#define RPC_PIECE_BYTES ((size_t)1 << 18)          /* of a file or array in one answer */
#define RPC_LARGEST_FRAME ((size_t)(1 << 20) + (1 << 16)) /* a payload in a session */
#define RPC_LARGEST_CONTROL ((size_t)1 << 16)      /* before a session, and with a tracker */

/* Numbers in the protocol are little-endian, of 1 to 8 bytes. */
static inline uint64_t rpc_load(const uint8_t* at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
  return value;
}

static inline void rpc_store(uint8_t* at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

typedef enum { RPC_ROLE_CLIENT = 1, RPC_ROLE_DEVICE = 2 } rpc_role;

typedef enum {
  RPC_STATUS_OK = 0,
  RPC_STATUS_VERSION = 1,
  RPC_STATUS_KEY_NEEDED = 2,
  RPC_STATUS_NO_KEY = 3,
  RPC_STATUS_SLOW_DOWN = 4,
  RPC_STATUS_WRONG_KEY = 5,
  RPC_STATUS_ROLE = 6
} rpc_status;

typedef enum { RPC_CALL = 1, RPC_RESULT = 2, RPC_ERROR = 3, RPC_CLOSE = 4 } rpc_kind;

/* ---- errors.c -------------------------------------------------------------------------------- */

/* An error as it is sent: its kind by the name of the Python class, the problem, where, and the
 * next action. */
typedef struct {
  const char* kind;
  char problem[1280];
  char at[256];
  char hint[640];
} rpc_error;

/* Fills an error of the kind RpcError. Returns false. */
bool rpc_fail(rpc_error* error, const char* format, ...) TD_PRINTF(2, 3);
/* The same with another kind. */
bool rpc_fail_as(rpc_error* error, const char* kind, const char* format, ...) TD_PRINTF(3, 4);
/* Adds the next action. Returns false. */
bool rpc_hint(rpc_error* error, const char* format, ...) TD_PRINTF(2, 3);
/* Takes over an error of the runtime, which is about `at`. Returns false. */
bool rpc_fail_td(rpc_error* error, const td_error* from, const char* at);

/* ---- values.c: reading ----------------------------------------------------------------------- */

/* Whether some bytes are a list of values, as a whole. What follows reads only bytes that are. */
bool rpc_check_values(const uint8_t* data, size_t size, rpc_error* error);

/* Text is UTF-8 without an end mark; bytes are any. */
typedef struct {
  const char* data;
  size_t size;
} rpc_text;

/* The values of a call, or of a list in one, taken in order. The first that is not what it must be
 * fills `error`; from then on zeros and empty texts are taken, until rpc_args_end says so. */
typedef struct {
  const uint8_t* at;
  uint32_t left, place;
  char function[48];
  bool failed;
  rpc_error* error;
} rpc_args;

/* Reads checked values. `function` is what messages name. */
rpc_args rpc_args_of(const uint8_t* values, const char* function, rpc_error* error);
int64_t rpc_take_int(rpc_args* args, int64_t low, int64_t high);
/* Takes an integer or a float. */
double rpc_take_number(rpc_args* args, double low, double high);
/* `longest` counts characters. */
rpc_text rpc_take_text(rpc_args* args, size_t longest);
rpc_text rpc_take_bytes(rpc_args* args, size_t longest);
/* The values of a list; a failure in them is one of `args` after rpc_args_leave. */
rpc_args rpc_take_list(rpc_args* args);
void rpc_args_leave(rpc_args* args, const rpc_args* inner);
/* True when all values were taken and were what they must be. */
bool rpc_args_end(rpc_args* args);

/* Copies a text to a buffer with an end mark; false where it does not fit, or holds a NUL. */
bool rpc_copy_text(rpc_text text, char* buffer, size_t size);

/* ---- values.c: writing ----------------------------------------------------------------------- */

/* Bytes that grow; after a failure to grow nothing more is added. */
typedef struct {
  uint8_t* data;
  size_t size, capacity;
  bool failed;
} rpc_out;

void rpc_put(rpc_out* out, const void* data, size_t size);
void rpc_put_int(rpc_out* out, int64_t value);
void rpc_put_float(rpc_out* out, double value);
/* Text; what is not UTF-8 becomes '?'. */
void rpc_put_text(rpc_out* out, const char* text);
void rpc_put_bytes(rpc_out* out, const void* data, size_t size);
/* A list of so many values, which follow. */
void rpc_put_list(rpc_out* out, uint32_t count);
/* What is sent of an error: a list of four texts. */
void rpc_put_error(rpc_out* out, const rpc_error* error);
void rpc_out_free(rpc_out* out);

/* ---- frames.c -------------------------------------------------------------------------------- */

/* The first message of either side; `word` is the role, or the status of the answer. */
typedef struct {
  uint16_t version;
  uint8_t word;
  bool is_keyed;
} rpc_opening;

void rpc_write_opening(uint8_t bytes[RPC_OPENING_BYTES], uint8_t word, bool is_keyed,
                       const uint8_t nonce[RPC_NONCE_BYTES]);
bool rpc_read_opening(const uint8_t bytes[RPC_OPENING_BYTES], rpc_opening* opening,
                      rpc_error* error);

typedef struct {
  uint64_t size; /* of the payload */
  rpc_kind kind;
  uint32_t number;
} rpc_header;

/* Refuses sizes above `largest`: before memory is taken for the payload. */
bool rpc_read_header(const uint8_t bytes[RPC_HEADER_BYTES], size_t largest, rpc_header* header,
                     rpc_error* error);

typedef struct {
  rpc_kind kind;
  uint32_t number;
  const uint8_t* values; /* checked */
  const uint8_t* blob;
  size_t blob_size;
} rpc_frame;

/* Reads a payload of header->size bytes, which the frame points into. */
bool rpc_read_frame(const rpc_header* header, const uint8_t* payload, rpc_frame* frame,
                    rpc_error* error);

/* Begins a frame whose values are put next; rpc_end_frame fills in the sizes. */
void rpc_begin_frame(rpc_out* out);
bool rpc_end_frame(rpc_out* out, rpc_kind kind, uint32_t number, size_t blob_size,
                   rpc_error* error);
/* A whole frame with an error. */
bool rpc_write_error_frame(rpc_out* out, rpc_kind kind, uint32_t number, const rpc_error* error);

/* ---- seal.c ---------------------------------------------------------------------------------- */

typedef struct {
  td_sha256_state inner, outer;
} rpc_hmac;

void rpc_hmac_start(rpc_hmac* hmac, const void* key, size_t bytes);
void rpc_hmac_finish(rpc_hmac* hmac, uint8_t digest[32]);
/* In time that does not depend on the bytes. */
bool rpc_is_equal(const void* a, const void* b, size_t bytes);
/* Bytes nobody can guess; false where the system has none. */
bool rpc_random(void* bytes, size_t count);

/* What shows that a side has the key, and the keys of the frames of each direction. */
typedef struct {
  uint8_t client_proof[32], server_proof[32];
  uint8_t to_server[RPC_KEY_BYTES], to_client[RPC_KEY_BYTES];
} rpc_keys;

/* `transcript` are both openings. */
void rpc_derive(const void* key, size_t bytes, const uint8_t transcript[2 * RPC_OPENING_BYTES],
                rpc_keys* keys);

/* Makes the codes of the frames of one direction. The key of a code is made of how many frames there
 * were before, so that none can be repeated, left out or moved. No two frames may be given the code of
 * one count: it would tell whoever reads both how to make others. */
typedef struct {
  bool is_keyed;
  rpc_hmac base;
  uint64_t counter;
} rpc_seal;

typedef struct {
  const void* data;
  size_t size;
} rpc_part;

/* `key` NULL: without codes. */
void rpc_seal_start(rpc_seal* seal, const uint8_t* key, uint64_t counter);
/* The bytes of a code. */
size_t rpc_seal_size(const rpc_seal* seal);
/* The code of the next frame, whose bytes are `parts`. A close is the last one, whoever sends
 * it. */
void rpc_seal_code(rpc_seal* seal, rpc_kind kind, const rpc_part* parts, size_t count,
                   uint8_t code[RPC_CODE_BYTES]);
/* Whether `found` is the code of the next frame. */
bool rpc_seal_check(rpc_seal* seal, rpc_kind kind, const rpc_part* parts, size_t count,
                    const uint8_t* found, rpc_error* error);

/* The same for a frame whose bytes come one after the other: begun once its kind is known. */
typedef struct {
  bool is_keyed;
  td_poly1305_state state;
} rpc_code;

void rpc_code_start(rpc_code* code, rpc_seal* seal, rpc_kind kind);
void rpc_code_add(rpc_code* code, const void* data, size_t size);
bool rpc_code_check(rpc_code* code, const uint8_t* found, rpc_error* error);

/* ---- keys.c ---------------------------------------------------------------------------------- */

typedef struct {
  uint8_t data[RPC_MOST_KEY + 1];
  size_t size; /* 0: none */
} rpc_key;

/* Reads the key in a file that others may not read: its bytes without white space around them. */
bool rpc_read_key(const char* path, rpc_key* key, rpc_error* error);

#endif /* TREADLE_RPC_WIRE_H_ */
