/* SPDX-License-Identifier: Apache-2.0 */
/* HMAC-SHA-256 (RFC 2104): proofs of the key, keys made of it; Poly1305 (RFC 8439): codes of frames,
 * under keys that are made the same way. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "wire.h"

#define BLOCK 64
#define LAST_COUNTER UINT64_MAX

/* ---- hashes ---------------------------------------------------------------------------------- */

static void start_half(td_sha256_state* state, const uint8_t key[BLOCK], uint8_t mask) {
  uint8_t padded[BLOCK];
  for (int i = 0; i < BLOCK; i++) padded[i] = key[i] ^ mask;
  td_sha256_start(state);
  td_sha256_add(state, padded, BLOCK);
}

void rpc_hmac_start(rpc_hmac* hmac, const void* key, size_t bytes) {
  uint8_t padded[BLOCK] = {0};
  if (bytes <= BLOCK) {
    memcpy(padded, key, bytes);
  } else {
    td_sha256_state state;
    td_sha256_start(&state);
    td_sha256_add(&state, key, bytes);
    td_sha256_finish(&state, padded);
  }
  start_half(&hmac->inner, padded, 0x36);
  start_half(&hmac->outer, padded, 0x5c);
}

void rpc_hmac_finish(rpc_hmac* hmac, uint8_t digest[32]) {
  uint8_t inner[32];
  td_sha256_finish(&hmac->inner, inner);
  td_sha256_add(&hmac->outer, inner, sizeof inner);
  td_sha256_finish(&hmac->outer, digest);
}

bool rpc_is_equal(const void* a, const void* b, size_t bytes) {
  const volatile uint8_t *x = a, *y = b;
  uint8_t differing = 0;
  for (size_t i = 0; i < bytes; i++) differing |= (uint8_t)(x[i] ^ y[i]);
  return differing == 0;
}

static bool random_of_device(uint8_t* at, size_t count) {
  int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  while (count > 0) {
    ssize_t got = read(fd, at, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    at += got;
    count -= (size_t)got;
  }
  close(fd);
  return count == 0;
}

bool rpc_random(void* bytes, size_t count) {
#if defined(__linux__) && defined(SYS_getrandom)
  /* By number: the C library may be older than the kernel. It gives up to 256 bytes at once. */
  if (count <= 256 && syscall(SYS_getrandom, bytes, count, 0u) == (long)count) return true;
#endif
  return random_of_device(bytes, count);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void derive(const rpc_hmac* key, const char* purpose, const uint8_t* transcript,
                   uint8_t made[32]) {
  rpc_hmac hmac = *key;
  td_sha256_add(&hmac.inner, purpose, strlen(purpose) + 1); /* with the NUL */
  td_sha256_add(&hmac.inner, transcript, (size_t)2 * RPC_OPENING_BYTES);
  rpc_hmac_finish(&hmac, made);
}

void rpc_derive(const void* key, size_t bytes, const uint8_t transcript[2 * RPC_OPENING_BYTES],
                rpc_keys* keys) {
  rpc_hmac base;
  rpc_hmac_start(&base, key, bytes);
  derive(&base, "treadle-rpc 2 proof of the client", transcript, keys->client_proof);
  derive(&base, "treadle-rpc 2 proof of the server", transcript, keys->server_proof);
  derive(&base, "treadle-rpc 2 frames to the server", transcript, keys->to_server);
  derive(&base, "treadle-rpc 2 frames to the client", transcript, keys->to_client);
}

/* ---- codes of frames ------------------------------------------------------------------------- */

void rpc_seal_start(rpc_seal* seal, const uint8_t* key, uint64_t counter) {
  *seal = (rpc_seal){.is_keyed = key != NULL, .counter = counter};
  if (key != NULL) rpc_hmac_start(&seal->base, key, RPC_KEY_BYTES);
}

size_t rpc_seal_size(const rpc_seal* seal) { return seal->is_keyed ? RPC_CODE_BYTES : 0; }

void rpc_code_start(rpc_code* code, rpc_seal* seal, rpc_kind kind) {
  code->is_keyed = seal->is_keyed;
  if (!seal->is_keyed) return;
  rpc_hmac hmac = seal->base;
  uint8_t counter[8], once[32];
  rpc_store(counter, kind == RPC_CLOSE ? LAST_COUNTER : seal->counter, sizeof counter);
  td_sha256_add(&hmac.inner, counter, sizeof counter);
  rpc_hmac_finish(&hmac, once);
  td_poly1305_start(&code->state, once);
  seal->counter++;
}

void rpc_code_add(rpc_code* code, const void* data, size_t size) {
  if (code->is_keyed) td_poly1305_add(&code->state, data, size);
}

bool rpc_code_check(rpc_code* code, const uint8_t* found, rpc_error* error) {
  uint8_t made[RPC_CODE_BYTES];
  if (!code->is_keyed) return true;
  td_poly1305_finish(&code->state, made);
  if (rpc_is_equal(made, found, sizeof made)) return true;
  return rpc_fail(error, "a frame was changed on its way, or is not of this connection");
}

static void add_parts(rpc_code* code, const rpc_part* parts, size_t count) {
  for (size_t i = 0; i < count; i++) rpc_code_add(code, parts[i].data, parts[i].size);
}

void rpc_seal_code(rpc_seal* seal, rpc_kind kind, const rpc_part* parts, size_t count,
                   uint8_t made[RPC_CODE_BYTES]) {
  rpc_code code;
  rpc_code_start(&code, seal, kind);
  add_parts(&code, parts, count);
  if (seal->is_keyed) td_poly1305_finish(&code.state, made);
}

bool rpc_seal_check(rpc_seal* seal, rpc_kind kind, const rpc_part* parts, size_t count,
                    const uint8_t* found, rpc_error* error) {
  rpc_code code;
  rpc_code_start(&code, seal, kind);
  add_parts(&code, parts, count);
  return rpc_code_check(&code, found, error);
}
