/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Poly1305 by vectors of 64-bit numbers that multiply their lower halves (AVX2, NEON): L lanes evaluate
 * every L-th block each by steps of r^L, and are multiplied by r^L ... r^1 in the end. Goll and Gueron,
 * "Vectorization of Poly1305 Message Authentication Code" (ITNG 2015). TD_PORTABLE leaves it out.
 */
#include "poly1305.h"

#define LIMB TD_POLY1305_LIMB
#define BLOCK TD_POLY1305_BLOCK
#define HIGH_BIT (UINT64_C(1) << 24)

#if defined(__GNUC__) && defined(__x86_64__) && !defined(TD_PORTABLE)
#define HAS_LANES 1

#include <immintrin.h>

#define TARGET __attribute__((target("avx2")))
#define LANES 4

typedef __m256i lanes; /* a number of 64 bits in each */

static const int ORDER[LANES] = {0, 2, 1, 3}; /* which block of four is in which lane */

TARGET static inline lanes product(lanes a, lanes b) { return _mm256_mul_epu32(a, b); }
TARGET static inline lanes sum(lanes a, lanes b) { return _mm256_add_epi64(a, b); }
TARGET static inline lanes both(lanes a, lanes b) { return _mm256_and_si256(a, b); }
TARGET static inline lanes either(lanes a, lanes b) { return _mm256_or_si256(a, b); }
TARGET static inline lanes same(uint64_t x) { return _mm256_set1_epi64x((long long)x); }
TARGET static inline lanes from(const uint64_t* at) {
  return _mm256_loadu_si256((const __m256i*)at);
}
TARGET static inline void to(uint64_t* at, lanes a) { _mm256_storeu_si256((__m256i*)at, a); }
#define RIGHT(a, bits) _mm256_srli_epi64(a, bits)
#define LEFT(a, bits) _mm256_slli_epi64(a, bits)

/* The lower and the upper halves of four blocks. */
TARGET static inline void load_halves(const uint8_t* at, lanes* low, lanes* high) {
  lanes first = _mm256_loadu_si256((const __m256i*)at);
  lanes second = _mm256_loadu_si256((const __m256i*)(at + 32));
  *low = _mm256_unpacklo_epi64(first, second);
  *high = _mm256_unpackhi_epi64(first, second);
}

static bool cpu_has_them(void) { return td_cpu_has("avx2") == 1; }

#elif defined(__GNUC__) && defined(__ARM_NEON) && defined(__AARCH64EL__) && !defined(TD_PORTABLE)
#define HAS_LANES 1

#include <arm_neon.h>

#define TARGET
#define LANES 2

typedef uint64x2_t lanes;

static const int ORDER[LANES] = {0, 1};

static inline lanes product(lanes a, lanes b) { return vmull_u32(vmovn_u64(a), vmovn_u64(b)); }
static inline lanes sum(lanes a, lanes b) { return vaddq_u64(a, b); }
static inline lanes both(lanes a, lanes b) { return vandq_u64(a, b); }
static inline lanes either(lanes a, lanes b) { return vorrq_u64(a, b); }
static inline lanes same(uint64_t x) { return vdupq_n_u64(x); }
static inline lanes from(const uint64_t* at) { return vld1q_u64(at); }
static inline void to(uint64_t* at, lanes a) { vst1q_u64(at, a); }
#define RIGHT(a, bits) vshrq_n_u64(a, bits)
#define LEFT(a, bits) vshlq_n_u64(a, bits)

static inline void load_halves(const uint8_t* at, lanes* low, lanes* high) {
  lanes first = vreinterpretq_u64_u8(vld1q_u8(at));
  lanes second = vreinterpretq_u64_u8(vld1q_u8(at + 16));
  *low = vzip1q_u64(first, second);
  *high = vzip2q_u64(first, second);
}

static bool cpu_has_them(void) { return true; }
#endif

#if defined(HAS_LANES)

static bool has_lanes(void) {
  static _Atomic int answer = -1; /* under a hypervisor the question takes microseconds */
  if (answer < 0) answer = cpu_has_them();
  return answer > 0;
}

/* The next LANES blocks, as limbs. */
TARGET static inline void load_blocks(lanes m[5], const uint8_t* at) {
  lanes low, high, mask = same(LIMB);
  load_halves(at, &low, &high);
  m[0] = both(low, mask);
  m[1] = both(RIGHT(low, 26), mask);
  m[2] = both(either(RIGHT(low, 52), LEFT(high, 12)), mask);
  m[3] = both(RIGHT(high, 14), mask);
  m[4] = either(RIGHT(high, 40), same(HIGH_BIT));
}

/* h = h * r; `s` is 5 * r. Limbs of h may have 28 bits before, and have 26 and a little after. */
TARGET static inline void multiply_lanes(lanes h[5], const lanes r[5], const lanes s[5]) {
  lanes d[5];
#pragma GCC unroll 5
  for (int i = 0; i < 5; i++) {
    d[i] = product(h[0], r[i]);
#pragma GCC unroll 5
    for (int j = 1; j < 5; j++)
      d[i] = sum(d[i], product(h[j], j <= i ? r[i - j] : s[5 + i - j]));
  }
  lanes mask = same(LIMB);
  lanes from_3 = RIGHT(d[3], 26), from_0 = RIGHT(d[0], 26); /* two chains, to wait less */
  d[3] = both(d[3], mask), d[0] = both(d[0], mask);
  d[4] = sum(d[4], from_3), d[1] = sum(d[1], from_0);
  lanes from_4 = RIGHT(d[4], 26), from_1 = RIGHT(d[1], 26);
  d[4] = both(d[4], mask), d[1] = both(d[1], mask);
  d[0] = sum(d[0], sum(from_4, LEFT(from_4, 2))), d[2] = sum(d[2], from_1);
  lanes again_0 = RIGHT(d[0], 26), from_2 = RIGHT(d[2], 26);
  h[0] = both(d[0], mask), h[2] = both(d[2], mask);
  h[1] = sum(d[1], again_0), d[3] = sum(d[3], from_2);
  h[3] = both(d[3], mask), h[4] = sum(d[4], RIGHT(d[3], 26));
}

/* The sum of all lanes, times r^LANES ... r^1, in the order of their blocks. */
TARGET static void finish_lanes(td_poly1305_state* s, lanes h[5]) {
  uint64_t limbs[5][LANES];
  uint64_t carry = 0;
  lanes r[5], times_5[5];
  for (int i = 0; i < 5; i++) {
    for (int j = 0; j < LANES; j++) limbs[0][j] = s->powers[LANES - 1 - ORDER[j]][i];
    r[i] = from(limbs[0]);
    times_5[i] = sum(r[i], LEFT(r[i], 2));
  }
  multiply_lanes(h, r, times_5);
  for (int i = 0; i < 5; i++) {
    to(limbs[i], h[i]);
    for (int j = 0; j < LANES; j++) carry += limbs[i][j];
    s->h[i] = (uint32_t)(carry & LIMB);
    carry >>= 26;
  }
  carry = s->h[0] + 5 * carry;
  s->h[0] = (uint32_t)(carry & LIMB);
  s->h[1] += (uint32_t)(carry >> 26);
}

/* Takes LANES blocks in each group. */
TARGET static void add_groups(td_poly1305_state* s, const uint8_t* at, size_t groups) {
  lanes h[5], m[5], r[5], times_5[5];
  td_poly1305_find_powers(s, LANES);
  load_blocks(h, at);
  for (int i = 0; i < 5; i++) {
    uint64_t first[LANES] = {s->h[i]}; /* lane 0 has the first block */
    h[i] = sum(h[i], from(first));
    r[i] = same(s->powers[LANES - 1][i]);
    times_5[i] = sum(r[i], LEFT(r[i], 2));
  }
  for (size_t g = 1; g < groups; g++) {
    load_blocks(m, at + g * LANES * BLOCK);
    multiply_lanes(h, r, times_5);
#pragma GCC unroll 5
    for (int i = 0; i < 5; i++) h[i] = sum(h[i], m[i]);
  }
  finish_lanes(s, h);
}

size_t td_poly1305_add_lanes(td_poly1305_state* s, const uint8_t* at, size_t blocks) {
  if (!has_lanes()) return 0;
  add_groups(s, at, blocks / LANES);
  return blocks / LANES * LANES;
}
#else
size_t td_poly1305_add_lanes(td_poly1305_state* s, const uint8_t* at, size_t blocks) {
  (void)s, (void)at, (void)blocks;
  return 0;
}
#endif
