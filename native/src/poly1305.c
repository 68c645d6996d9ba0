/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Poly1305 (RFC 8439, section 2.5): the code of one message under a key that is used once.
 *
 * The message is a polynomial over the integers modulo 2^130 - 5, one coefficient per block of 16
 * bytes, evaluated by Horner's rule. Numbers are five limbs of 26 bits, so that sums of five products
 * fit 64 bits. No branch and no address depends on key or message.
 */
#include <string.h>

#include "poly1305.h"

#define LIMB TD_POLY1305_LIMB
#define BLOCK TD_POLY1305_BLOCK
#define HIGH_BIT (UINT32_C(1) << 24) /* 2^128, which follows every whole block */
#define WIDE_LEAST ((size_t)128)     /* blocks; fewer are not worth the powers of r */
#define LANES_LEAST ((size_t)16)

static uint32_t load32(const uint8_t* p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store32(uint8_t* p, uint32_t word) {
  for (int i = 0; i < 4; i++) p[i] = (uint8_t)(word >> (8 * i));
}

/* h = h * r modulo 2^130 - 5; limbs of h may have 27 bits before, and have 26 after (the second one
 * bit more). */
static void multiply(uint32_t h[5], const uint32_t r[5]) {
  uint64_t h0 = h[0], h1 = h[1], h2 = h[2], h3 = h[3], h4 = h[4];
  uint32_t s1 = 5 * r[1], s2 = 5 * r[2], s3 = 5 * r[3], s4 = 5 * r[4];
  uint64_t d0 = h0 * r[0] + h1 * s4 + h2 * s3 + h3 * s2 + h4 * s1;
  uint64_t d1 = h0 * r[1] + h1 * r[0] + h2 * s4 + h3 * s3 + h4 * s2;
  uint64_t d2 = h0 * r[2] + h1 * r[1] + h2 * r[0] + h3 * s4 + h4 * s3;
  uint64_t d3 = h0 * r[3] + h1 * r[2] + h2 * r[1] + h3 * r[0] + h4 * s4;
  uint64_t d4 = h0 * r[4] + h1 * r[3] + h2 * r[2] + h3 * r[1] + h4 * r[0];
  d1 += d0 >> 26;
  d2 += d1 >> 26;
  d3 += d2 >> 26;
  d4 += d3 >> 26;
  uint64_t low = (d0 & LIMB) + 5 * (d4 >> 26);
  h[0] = (uint32_t)(low & LIMB);
  h[1] = (uint32_t)((d1 & LIMB) + (low >> 26));
  h[2] = (uint32_t)(d2 & LIMB);
  h[3] = (uint32_t)(d3 & LIMB);
  h[4] = (uint32_t)(d4 & LIMB);
}

static void add_block(td_poly1305_state* s, const uint8_t block[16], uint32_t high_bit) {
  uint32_t* h = s->h;
  h[0] += load32(block) & LIMB;
  h[1] += (load32(block + 3) >> 2) & LIMB;
  h[2] += (load32(block + 6) >> 4) & LIMB;
  h[3] += (load32(block + 9) >> 6) & LIMB;
  h[4] += load32(block + 12) >> 8 | high_bit;
  multiply(h, s->powers[0]);
}

void td_poly1305_find_powers(td_poly1305_state* s, int count) {
  for (; s->num_powers < count; s->num_powers++) {
    uint32_t* next = s->powers[s->num_powers];
    memcpy(next, s->powers[s->num_powers - 1], sizeof s->powers[0]);
    multiply(next, s->powers[0]);
  }
}

static void add_blocks(td_poly1305_state* s, const uint8_t* at, size_t blocks) {
  size_t done = 0;
  if (blocks >= WIDE_LEAST) done = td_poly1305_add_wide(s, at, blocks);
  if (blocks - done >= LANES_LEAST)
    done += td_poly1305_add_lanes(s, at + done * BLOCK, blocks - done);
  for (; done < blocks; done++) add_block(s, at + done * BLOCK, HIGH_BIT);
}

/* ---- messages -------------------------------------------------------------------------------- */

void td_poly1305_start(td_poly1305_state* s, const uint8_t key[32]) {
  uint32_t* r = s->powers[0]; /* some bits of it are 0 by definition */
  *s = (td_poly1305_state){.num_powers = 1};
  r[0] = load32(key) & 0x3ffffff;
  r[1] = (load32(key + 3) >> 2) & 0x3ffff03;
  r[2] = (load32(key + 6) >> 4) & 0x3ffc0ff;
  r[3] = (load32(key + 9) >> 6) & 0x3f03fff;
  r[4] = (load32(key + 12) >> 8) & 0x00fffff;
  for (int i = 0; i < 4; i++) s->last[i] = load32(key + 16 + 4 * i);
}

void td_poly1305_add(td_poly1305_state* s, const void* data, size_t bytes) {
  const uint8_t* at = data;
  if (bytes == 0) return; /* `data` may be NULL */
  if (s->held > 0) {
    size_t more = bytes < BLOCK - s->held ? bytes : BLOCK - s->held;
    memcpy(s->tail + s->held, at, more);
    s->held += more;
    at += more;
    bytes -= more;
    if (s->held < BLOCK) return;
    add_block(s, s->tail, HIGH_BIT);
    s->held = 0;
  }
  add_blocks(s, at, bytes / BLOCK);
  s->held = bytes % BLOCK;
  memcpy(s->tail, at + bytes - s->held, s->held);
}

/* Carries until every limb has 26 bits, and subtracts the modulus where the number reaches it. */
static void reduce(uint32_t h[5]) {
  uint32_t g[5], carry = 0;
  for (int i = 1; i < 11; i++) { /* twice around, for what the first time carries */
    h[i % 5] += carry;
    carry = h[i % 5] >> 26;
    h[i % 5] &= LIMB;
    if (i % 5 == 4) carry *= 5;
  }
  h[1] += carry;
  carry = 5;
  for (int i = 0; i < 5; i++) { /* g = h + 5, which has bit 130 where h is not below it */
    g[i] = h[i] + carry;
    carry = g[i] >> 26;
    g[i] &= LIMB;
  }
  uint32_t mask = 0 - carry;
  for (int i = 0; i < 5; i++) h[i] = (h[i] & ~mask) | (g[i] & mask);
}

void td_poly1305_finish(td_poly1305_state* s, uint8_t code[16]) {
  uint32_t* h = s->h;
  if (s->held > 0) {
    s->tail[s->held] = 1;
    memset(s->tail + s->held + 1, 0, BLOCK - s->held - 1);
    add_block(s, s->tail, 0);
  }
  reduce(h);
  uint32_t words[4] = {h[0] | h[1] << 26, h[1] >> 6 | h[2] << 20, h[2] >> 12 | h[3] << 14,
                       h[3] >> 18 | h[4] << 8};
  uint64_t sum_of_words = 0;
  for (int i = 0; i < 4; i++) {
    sum_of_words += (uint64_t)words[i] + s->last[i];
    store32(code + 4 * i, (uint32_t)sum_of_words);
    sum_of_words >>= 32;
  }
}

void td_poly1305(const uint8_t key[32], const void* first, size_t first_bytes, const void* second,
                 size_t second_bytes, uint8_t code[16]) {
  td_poly1305_state s;
  td_poly1305_start(&s, key);
  td_poly1305_add(&s, first, first_bytes);
  td_poly1305_add(&s, second, second_bytes);
  td_poly1305_finish(&s, code);
}
