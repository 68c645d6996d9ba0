/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What native/rpc reads of strangers and clients, for libFuzzer: openings, headers, frames with their
 * values, arguments and codes, the description of kernels. docs/how-to/fuzz.md says how to run it.
 *
 * With -DSTANDALONE it mutates the files it is given itself: program RUNS FILE...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

/* Takes all values of a list in the way that their tags ask for, or in a wrong one. */
static void take_all(rpc_args* args, int depth) {
  char buffer[64];
  for (int i = 0; args->left > 0 && !args->failed; i++) {
    uint8_t tag = *args->at;
    int way = tag + (i % 7 == 6);
    if (way == 3) (void)rpc_take_int(args, INT64_MIN, INT64_MAX);
    else if (way == 4) (void)rpc_take_number(args, -1e300, 1e300);
    else if (way == 5) (void)rpc_copy_text(rpc_take_text(args, 100), buffer, sizeof buffer);
    else if (way == 6) (void)rpc_take_bytes(args, 1000);
    else if (way == 7 && depth < RPC_DEEPEST) {
      rpc_args inner = rpc_take_list(args);
      take_all(&inner, depth + 1);
      rpc_args_leave(args, &inner);
    } else (void)rpc_take_int(args, 0, 1);
  }
}

static void read_frame(const uint8_t* data, size_t size) {
  rpc_error error;
  rpc_header header;
  rpc_frame frame;
  if (size < RPC_HEADER_BYTES || !rpc_read_header(data, RPC_LARGEST_FRAME, &header, &error) ||
      header.size > size - RPC_HEADER_BYTES)
    return;
  uint8_t* payload = malloc((size_t)header.size); /* exactly: what is read beyond it is noticed */
  if (payload == NULL) abort();
  memcpy(payload, data + RPC_HEADER_BYTES, (size_t)header.size);
  if (rpc_read_frame(&header, payload, &frame, &error)) {
    rpc_args args = rpc_args_of(frame.values, "fuzz", &error);
    take_all(&args, 0);
    (void)rpc_args_end(&args);
  }
  free(payload);
}

static void read_values(const uint8_t* data, size_t size) {
  rpc_error error;
  uint8_t* copy = malloc(size + (size == 0));
  if (copy == NULL) abort();
  memcpy(copy, data, size);
  if (rpc_check_values(copy, size, &error)) {
    rpc_args args = rpc_args_of(copy, "fuzz", &error);
    take_all(&args, 0);
  }
  free(copy);
}

static void read_kernels(const uint8_t* data, size_t size) {
  rpc_error error;
  td_json* root;
  rpc_out out = {0};
  rpc_module* module = calloc(1, sizeof *module);
  if (module == NULL) abort();
  if (td_json_parse((const char*)data, size, &module->zone, &root, NULL) == TD_OK) {
    (void)rpc_read_kernels(module, root, &error);
    rpc_put_canonical(&out, root);
  }
  rpc_out_free(&out);
  rpc_module_drop(module);
}

/* The code of a frame is the same however it comes in parts, and another one is refused. */
static void read_code(const uint8_t* data, size_t size) {
  static const uint8_t KEY[RPC_KEY_BYTES] = {1, 2, 3};
  rpc_error error;
  rpc_seal seal;
  uint8_t code[RPC_CODE_BYTES];
  if (size < 3) return;
  uint8_t wrong = data[2];
  size_t first = (data[0] | (size_t)data[1] << 8) % (size - 2);
  const uint8_t* at = data + 3;
  size -= 3;
  rpc_part whole = {at, size}, parts[] = {{at, first}, {at + first, size - first}};
  rpc_seal_start(&seal, KEY, 7);
  rpc_seal_code(&seal, RPC_CALL, &whole, 1, code);
  rpc_seal_start(&seal, KEY, 7);
  if (!rpc_seal_check(&seal, RPC_CALL, parts, 2, code, &error)) abort();
  code[wrong % sizeof code] ^= (uint8_t)(1 << wrong / sizeof code % 8);
  rpc_seal_start(&seal, KEY, 7);
  if (rpc_seal_check(&seal, RPC_CALL, &whole, 1, code, &error)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rpc_error error;
  rpc_opening opening;
  if (size == 0) return 0;
  switch (data[0] % 5) {
    case 0: read_frame(data + 1, size - 1); break;
    case 1: read_values(data + 1, size - 1); break;
    case 2: read_kernels(data + 1, size - 1); break;
    case 3: read_code(data + 1, size - 1); break;
    default:
      if (size > RPC_OPENING_BYTES) (void)rpc_read_opening(data + 1, &opening, &error);
  }
  return 0;
}

#if defined(STANDALONE)
static uint64_t state = 88172645463325252u;

static size_t below(size_t count) { /* xorshift */
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (size_t)(state % count);
}

int main(int count, char** words) {
  static uint8_t files[64][4096], data[4096];
  size_t sizes[64], known = 0;
  for (int i = 2; i < count && known < 64; i++) {
    FILE* file = fopen(words[i], "rb");
    if (file == NULL) return 1;
    sizes[known] = fread(files[known], 1, sizeof data, file);
    known += sizes[known] > 0;
    fclose(file);
  }
  if (known == 0) return 1;
  for (long run = atol(words[1]); run > 0; run--) {
    size_t which = below(known), size = sizes[which];
    memcpy(data, files[which], size);
    for (size_t n = 1 + below(4); n > 0; n--) data[below(size)] = (uint8_t)below(256);
    if (below(4) == 0) size = 1 + below(size);
    (void)LLVMFuzzerTestOneInput(data, size);
  }
  printf("done\n");
  return 0;
}
#endif
