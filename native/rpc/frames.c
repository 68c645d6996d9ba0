/* SPDX-License-Identifier: Apache-2.0 */
/* Openings and frames: what is at which byte of them. */
#include <string.h>

#include "wire.h"

#define MAGIC "TRPC"
#define FLAG_KEYED 1
#define HEAD_BYTES 4 /* the size of the values, in front of them */

/* ---- openings -------------------------------------------------------------------------------- */

void rpc_write_opening(uint8_t bytes[RPC_OPENING_BYTES], uint8_t word, bool is_keyed,
                       const uint8_t nonce[RPC_NONCE_BYTES]) {
  memset(bytes, 0, RPC_OPENING_BYTES);
  memcpy(bytes, MAGIC, 4);
  rpc_store(bytes + 4, RPC_VERSION, 2);
  bytes[6] = word;
  bytes[7] = is_keyed ? FLAG_KEYED : 0;
  memcpy(bytes + 16, nonce, RPC_NONCE_BYTES);
}

bool rpc_read_opening(const uint8_t bytes[RPC_OPENING_BYTES], rpc_opening* opening,
                      rpc_error* error) {
  if (memcmp(bytes, MAGIC, 4) != 0)
    return rpc_fail(error, "the other side does not speak this protocol");
  uint16_t version = (uint16_t)rpc_load(bytes + 4, 2);
  *opening = (rpc_opening){version, bytes[6], (bytes[7] & FLAG_KEYED) != 0};
  return true;
}

/* ---- frames ---------------------------------------------------------------------------------- */

bool rpc_read_header(const uint8_t bytes[RPC_HEADER_BYTES], size_t largest, rpc_header* header,
                     rpc_error* error) {
  uint64_t size = rpc_load(bytes, 8), kind = rpc_load(bytes + 8, 2);
  uint64_t flags = rpc_load(bytes + 10, 2);
  if (size > largest)
    return rpc_fail(error, "a frame of %llu bytes is larger than the %zu that are allowed",
                    (unsigned long long)size, largest);
  if (size < HEAD_BYTES)
    return rpc_fail(error, "a frame of %llu bytes is too small", (unsigned long long)size);
  if (kind < RPC_CALL || kind > RPC_CLOSE || flags != 0)
    return rpc_fail(error, "a frame is of an unknown kind, %u, or has unknown flags, %u",
                    (unsigned)kind, (unsigned)flags);
  *header = (rpc_header){size, (rpc_kind)kind, (uint32_t)rpc_load(bytes + 12, 4)};
  return true;
}

bool rpc_read_frame(const rpc_header* header, const uint8_t* payload, rpc_frame* frame,
                    rpc_error* error) {
  size_t head = (size_t)rpc_load(payload, HEAD_BYTES), room = (size_t)header->size - HEAD_BYTES;
  if (head > room) return rpc_fail(error, "a frame's values are longer than the frame");
  const uint8_t* values = payload + HEAD_BYTES;
  *frame = (rpc_frame){header->kind, header->number, values, values + head, room - head};
  return rpc_check_values(values, head, error);
}

void rpc_begin_frame(rpc_out* out) {
  static const uint8_t NOTHING[RPC_HEADER_BYTES + HEAD_BYTES];
  out->size = 0;
  rpc_put(out, NOTHING, sizeof NOTHING);
}

bool rpc_end_frame(rpc_out* out, rpc_kind kind, uint32_t number, size_t blob_size,
                   rpc_error* error) {
  if (out->failed) return rpc_fail(error, "the device has not enough memory for an answer");
  size_t head = out->size - RPC_HEADER_BYTES - HEAD_BYTES;
  size_t size = HEAD_BYTES + head + blob_size;
  if (size > RPC_LARGEST_FRAME)
    return rpc_fail(error, "an answer of %zu bytes is larger than the %zu that are allowed", size,
                    RPC_LARGEST_FRAME);
  rpc_store(out->data, size, 8);
  rpc_store(out->data + 8, kind, 2);
  rpc_store(out->data + 12, number, 4);
  rpc_store(out->data + RPC_HEADER_BYTES, head, HEAD_BYTES);
  return true;
}

bool rpc_write_error_frame(rpc_out* out, rpc_kind kind, uint32_t number, const rpc_error* error) {
  rpc_error ignored;
  out->failed = false;
  rpc_begin_frame(out);
  rpc_put_error(out, error);
  return rpc_end_frame(out, kind, number, 0, &ignored);
}
