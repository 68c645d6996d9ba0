/* SPDX-License-Identifier: Apache-2.0 */
/* Content hashes: SHA-256 (with the CPU's SHA instructions where it has them), and a fast 64-bit
 * check for weights. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int by) { return x >> by | x << (32 - by); }

static uint32_t load_big_endian(const uint8_t* p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void blocks_plain(uint32_t state[8], const uint8_t* data, size_t blocks) {
  uint32_t w[64];
  for (; blocks > 0; blocks--, data += 64) {
    for (int i = 0; i < 16; i++) w[i] = load_big_endian(data + 4 * i);
    for (int i = 16; i < 64; i++) {
      uint32_t x = w[i - 15], y = w[i - 2];
      w[i] = w[i - 16] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) + w[i - 7] +
             (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
      uint32_t t = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) +
                   K[i] + w[i];
      uint32_t u = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t, d = c, c = b, b = a, a = t + u;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_SHA_INSTRUCTIONS 1

#include <immintrin.h>

/* Four rounds at a time. The instructions keep the state as ABEF and CDGH. */
__attribute__((target("sha,sse4.1,ssse3"))) static void blocks_sha(uint32_t state[8],
                                                                   const uint8_t* data,
                                                                   size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  __m128i low = _mm_loadu_si128((const __m128i*)&state[0]);  /* DCBA */
  __m128i high = _mm_loadu_si128((const __m128i*)&state[4]); /* HGFE */
  low = _mm_shuffle_epi32(low, 0xb1);
  high = _mm_shuffle_epi32(high, 0x1b);
  __m128i abef = _mm_alignr_epi8(low, high, 8);
  __m128i cdgh = _mm_blend_epi16(high, low, 0xf0);
  for (; blocks > 0; blocks--, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; i++)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i*)(data + 16 * i)), swap);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
      __m128i words = w[i & 3];
      __m128i sum = _mm_add_epi32(words, _mm_loadu_si128((const __m128i*)&K[4 * i]));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      if (i >= 12) continue;
      /* The word quadruple needed four steps from now. */
      __m128i next = _mm_sha256msg1_epu32(words, w[(i + 1) & 3]);
      next = _mm_add_epi32(next, _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4));
      w[i & 3] = _mm_sha256msg2_epu32(next, w[(i + 3) & 3]);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  low = _mm_shuffle_epi32(abef, 0x1b);
  high = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128((__m128i*)&state[0], _mm_blend_epi16(low, high, 0xf0));
  _mm_storeu_si128((__m128i*)&state[4], _mm_alignr_epi8(high, low, 8));
}

static bool cpu_has_them(void) {
  return td_cpu_has("sha") == 1 && td_cpu_has("ssse3") == 1 && td_cpu_has("sse4.1") == 1;
}

/* Clang before 16 offers the instructions only where the whole file may use them. */
#elif defined(__aarch64__) && defined(__linux__) && defined(__GNUC__) && \
    (!defined(__clang__) || __clang_major__ >= 16)
#define HAS_SHA_INSTRUCTIONS 1

#include <arm_neon.h>

/* Four rounds at a time. */
__attribute__((target("+crypto"))) static void blocks_sha(uint32_t state[8], const uint8_t* data,
                                                          size_t blocks) {
  uint32x4_t abcd = vld1q_u32(&state[0]), efgh = vld1q_u32(&state[4]);
  for (; blocks > 0; blocks--, data += 64) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4];
    for (int i = 0; i < 4; i++)
      w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)));
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
      const uint32x4_t sum = vaddq_u32(w[i & 3], vld1q_u32(&K[4 * i]));
      const uint32x4_t abcd_now = abcd;
      abcd = vsha256hq_u32(abcd, efgh, sum);
      efgh = vsha256h2q_u32(efgh, abcd_now, sum);
      if (i >= 12) continue;
      /* The word quadruple needed four steps from now. */
      w[i & 3] = vsha256su1q_u32(vsha256su0q_u32(w[i & 3], w[(i + 1) & 3]), w[(i + 2) & 3],
                                 w[(i + 3) & 3]);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(&state[0], abcd);
  vst1q_u32(&state[4], efgh);
}

static bool cpu_has_them(void) { return td_cpu_has("sha2") == 1; }
#endif

#if defined(HAS_SHA_INSTRUCTIONS)
/* Asked once: under a hypervisor the question takes microseconds. */
static bool has_sha_instructions(void) {
  static _Atomic int answer = -1;
  if (answer < 0) answer = cpu_has_them();
  return answer > 0;
}
#endif

static void add_blocks(uint32_t state[8], const uint8_t* data, size_t blocks) {
#if defined(HAS_SHA_INSTRUCTIONS)
  if (has_sha_instructions()) {
    blocks_sha(state, data, blocks);
    return;
  }
#endif
  blocks_plain(state, data, blocks);
}

void td_sha256_start(td_sha256_state* s) {
  static const uint32_t START[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(s->state, START, sizeof START);
  s->bytes = 0;
}

void td_sha256_add(td_sha256_state* s, const void* data, size_t bytes) {
  const uint8_t* at = data;
  size_t held = s->bytes % 64;
  s->bytes += bytes;
  if (held > 0) {
    size_t more = bytes < 64 - held ? bytes : 64 - held;
    memcpy(s->tail + held, at, more);
    at += more;
    bytes -= more;
    if (held + more < 64) return;
    add_blocks(s->state, s->tail, 1);
  }
  add_blocks(s->state, at, bytes / 64);
  if (bytes % 64 > 0) memcpy(s->tail, at + bytes / 64 * 64, bytes % 64);
}

void td_sha256_finish(td_sha256_state* s, uint8_t digest[32]) {
  uint64_t bits = s->bytes * 8;
  uint8_t padding[72] = {0x80}, length[8];
  for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
  size_t held = s->bytes % 64;
  td_sha256_add(s, padding, held < 56 ? 56 - held : 120 - held);
  td_sha256_add(s, length, 8);
  for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

void td_sha256_hex(td_sha256_state* s, char hex[65]) {
  uint8_t digest[32];
  td_sha256_finish(s, digest);
  for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", (unsigned)digest[i]);
}

void td_sha256(const void* data, size_t bytes, char hex[65]) {
  td_sha256_state s;
  td_sha256_start(&s);
  td_sha256_add(&s, data, bytes);
  td_sha256_hex(&s, hex);
}

/* ---- 64 bits --------------------------------------------------------------------------------- */

/* Four lanes take 8 bytes each in turn: lane = rotate((lane ^ word) * FACTOR, 29), little endian,
 * the end filled with zeros. Every step is a bijection of the word, so no damage to a single word
 * goes unseen; the length enters at the end. */

#define FACTOR UINT64_C(0x9e3779b97f4a7c15)

static uint64_t mix(uint64_t lane, uint64_t word) {
  uint64_t x = (lane ^ word) * FACTOR;
  return x << 29 | x >> 35;
}

static uint64_t load_little_endian(const uint8_t* p) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  uint64_t word;
  memcpy(&word, p, sizeof word);
  return word;
#else
  uint64_t word = 0;
  for (int i = 7; i >= 0; i--) word = word << 8 | p[i];
  return word;
#endif
}

static void add_stripes(uint64_t lanes[4], const uint8_t* data, size_t stripes) {
  uint64_t a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
  for (; stripes > 0; stripes--, data += 32) {
    a = mix(a, load_little_endian(data));
    b = mix(b, load_little_endian(data + 8));
    c = mix(c, load_little_endian(data + 16));
    d = mix(d, load_little_endian(data + 24));
  }
  lanes[0] = a, lanes[1] = b, lanes[2] = c, lanes[3] = d;
}

void td_hash64_start(td_hash64_state* s) {
  for (int i = 0; i < 4; i++) s->lanes[i] = FACTOR * (uint64_t)(i + 1);
  s->bytes = 0;
}

void td_hash64_add(td_hash64_state* s, const void* data, size_t bytes) {
  const uint8_t* at = data;
  size_t held = s->bytes % 32;
  s->bytes += bytes;
  if (held > 0) {
    size_t more = bytes < 32 - held ? bytes : 32 - held;
    memcpy(s->tail + held, at, more);
    at += more;
    bytes -= more;
    if (held + more < 32) return;
    add_stripes(s->lanes, s->tail, 1);
  }
  add_stripes(s->lanes, at, bytes / 32);
  if (bytes % 32 > 0) memcpy(s->tail, at + bytes / 32 * 32, bytes % 32);
}

void td_hash64_hex(td_hash64_state* s, char hex[17]) {
  size_t held = s->bytes % 32;
  if (held > 0) {
    memset(s->tail + held, 0, 32 - held);
    add_stripes(s->lanes, s->tail, 1);
  }
  uint64_t hash = s->bytes;
  for (int i = 0; i < 4; i++) {
    hash = mix(hash, s->lanes[i]);
    hash ^= hash >> 32;
  }
  snprintf(hex, 17, "%016llx", (unsigned long long)hash);
}

void td_hash64(const void* data, size_t bytes, char hex[17]) {
  td_hash64_state s;
  td_hash64_start(&s);
  td_hash64_add(&s, data, bytes);
  td_hash64_hex(&s, hex);
}
