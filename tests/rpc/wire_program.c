/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers, a line for a line, what native/rpc makes of bytes: see tests/rpc/test_wire_c.py.
 *
 *   values HEX                        the values, read and written again, or "refused"
 *   header LARGEST HEX                size, kind and number, or "refused"
 *   frame KEY|- COUNTER HEX           kind, number and blob, and the frame written again
 *   opening WORD KEYED NONCE          the opening
 *   derive KEY TRANSCRIPT             both proofs, both keys
 *   code KEY SPLIT HEX|-              the Poly1305 code of bytes that come in two parts
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

#define MOST ((size_t)1 << 20)

static uint8_t bytes[3][MOST];

static uint8_t digit(char c) {
  static const char DIGITS[] = "0123456789abcdef";
  const char* found = strchr(DIGITS, c);
  if (found == NULL || c == '\0') abort();
  return (uint8_t)(found - DIGITS);
}

static size_t unhex(const char* text, uint8_t* to) {
  size_t size = strlen(text) / 2;
  for (size_t i = 0; i < size; i++)
    to[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  return size;
}

static void print_hex(const uint8_t* data, size_t size) {
  for (size_t i = 0; i < size; i++) printf("%02x", data[i]);
}

/* Writes a value again by what its tag says; returns what follows it. */
static const uint8_t* write_again(const uint8_t* at, rpc_out* out) {
  static const char* const TEXT = "x";
  uint64_t word = 0;
  uint8_t tag = *at++;
  if (tag <= 2) {
    rpc_put(out, &tag, 1);
    return at;
  }
  int bytes_of_word = tag == 3 || tag == 4 ? 8 : 4;
  for (int i = bytes_of_word - 1; i >= 0; i--) word = word << 8 | at[i];
  at += bytes_of_word;
  double real;
  memcpy(&real, &word, sizeof real);
  if (tag == 3) rpc_put_int(out, (int64_t)word);
  if (tag == 4) rpc_put_float(out, real);
  if (tag == 6) rpc_put_bytes(out, at, word);
  if (tag == 5) {
    char* text = malloc(word + 1);
    if (text == NULL) abort();
    memcpy(text, at, word);
    text[word] = '\0';
    rpc_put_text(out, word > 0 ? text : TEXT + 1);
    free(text);
  }
  if (tag == 5 || tag == 6) return at + word;
  if (tag == 7) {
    rpc_put_list(out, (uint32_t)word);
    for (uint64_t i = 0; i < word; i++) at = write_again(at, out);
  }
  return at;
}

static void values(const char* hex) {
  rpc_error error;
  rpc_out out = {0};
  size_t size = unhex(hex, bytes[0]);
  if (rpc_check_values(bytes[0], size, &error)) {
    write_again(bytes[0], &out);
    print_hex(out.data, out.size);
  } else {
    printf("refused");
  }
  rpc_out_free(&out);
}

static void header(const char* largest, const char* hex) {
  rpc_error error;
  rpc_header found;
  unhex(hex, bytes[0]);
  if (rpc_read_header(bytes[0], (size_t)strtoull(largest, NULL, 10), &found, &error))
    printf("%llu %d %u", (unsigned long long)found.size, (int)found.kind, (unsigned)found.number);
  else
    printf("refused");
}

static void frame(const char* key, const char* counter, const char* hex) {
  rpc_error error;
  rpc_header found;
  rpc_frame made;
  rpc_seal seal, again;
  rpc_out out = {0};
  uint8_t code[RPC_CODE_BYTES];
  const uint8_t* own = NULL;
  size_t size = unhex(hex, bytes[0]);
  if (strcmp(key, "-") != 0) {
    unhex(key, bytes[1]);
    own = bytes[1];
  }
  rpc_seal_start(&seal, own, strtoull(counter, NULL, 10));
  again = seal;
  rpc_part part = {bytes[0], size - rpc_seal_size(&seal)};
  if (!rpc_read_header(bytes[0], RPC_LARGEST_FRAME, &found, &error) ||
      RPC_HEADER_BYTES + found.size != part.size ||
      !rpc_seal_check(&seal, found.kind, &part, 1, bytes[0] + part.size, &error) ||
      !rpc_read_frame(&found, bytes[0] + RPC_HEADER_BYTES, &made, &error)) {
    printf("refused");
    return;
  }
  rpc_begin_frame(&out);
  write_again(made.values, &out);
  if (!rpc_end_frame(&out, made.kind, made.number, made.blob_size, &error)) abort();
  rpc_put(&out, made.blob, made.blob_size);
  rpc_part whole = {out.data, out.size};
  rpc_seal_code(&again, made.kind, &whole, 1, code);
  rpc_put(&out, code, rpc_seal_size(&again));
  printf("%d %u ", (int)made.kind, (unsigned)made.number);
  print_hex(made.blob, made.blob_size);
  printf(" ");
  print_hex(out.data, out.size);
  rpc_out_free(&out);
}

static void opening(const char* word, const char* keyed, const char* nonce) {
  uint8_t made[RPC_OPENING_BYTES];
  rpc_opening found;
  rpc_error error;
  unhex(nonce, bytes[0]);
  rpc_write_opening(made, (uint8_t)atoi(word), atoi(keyed) != 0, bytes[0]);
  if (!rpc_read_opening(made, &found, &error) || found.word != atoi(word)) abort();
  print_hex(made, sizeof made);
}

static void derive(const char* key, const char* transcript) {
  rpc_keys keys;
  size_t size = unhex(key, bytes[0]);
  unhex(transcript, bytes[1]);
  rpc_derive(bytes[0], size, bytes[1], &keys);
  print_hex(keys.client_proof, 32);
  printf(" ");
  print_hex(keys.server_proof, 32);
  printf(" ");
  print_hex(keys.to_server, 32);
  printf(" ");
  print_hex(keys.to_client, 32);
}

static void code_of(const char* key, const char* split, const char* hex) {
  uint8_t made[16];
  size_t first = (size_t)strtoull(split, NULL, 10), size = 0;
  if (strcmp(hex, "-") != 0) size = unhex(hex, bytes[0]);
  unhex(key, bytes[1]);
  td_poly1305(bytes[1], bytes[0], first, bytes[0] + first, size - first, made);
  print_hex(made, sizeof made);
}

int main(void) {
  static char line[4 * MOST];
  while (fgets(line, sizeof line, stdin) != NULL) {
    const char* words[4] = {"", "", "", ""};
    size_t count = 0;
    for (char* word = strtok(line, " \n"); word != NULL && count < 4; word = strtok(NULL, " \n"))
      words[count++] = word;
    if (strcmp(words[0], "values") == 0) values(words[1]);
    if (strcmp(words[0], "header") == 0) header(words[1], words[2]);
    if (strcmp(words[0], "frame") == 0) frame(words[1], words[2], words[3]);
    if (strcmp(words[0], "opening") == 0) opening(words[1], words[2], words[3]);
    if (strcmp(words[0], "derive") == 0) derive(words[1], words[2]);
    if (strcmp(words[0], "code") == 0) code_of(words[1], words[2], words[3]);
    printf("\n");
    fflush(stdout);
  }
  return 0;
}
