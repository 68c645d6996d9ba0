/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Poly1305 by the 52-bit products of AVX-512 (IFMA): eight lanes as in poly1305_lanes.c, of numbers of
 * three limbs of 44, 44 and 42 bits. TD_PORTABLE leaves it out.
 */
#include "poly1305.h"

#define BLOCK TD_POLY1305_BLOCK
#define LIMB TD_POLY1305_LIMB

#if defined(__GNUC__) && defined(__x86_64__) && !defined(TD_PORTABLE)

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512ifma")))
#define INLINE __attribute__((always_inline)) static inline /* limbs stay in registers */
#define LANES 8
#define GROUPS 4
#define GROUP (LANES * BLOCK) /* bytes */
#define STEP (GROUPS * GROUP)
#define BITS_44 ((UINT64_C(1) << 44) - 1)
#define BITS_42 ((UINT64_C(1) << 42) - 1)

static const int ORDER[LANES] = {0, 4, 1, 5, 2, 6, 3, 7}; /* which block of eight is in which lane */

/* Three limbs of a number of five. */
static void narrow(uint64_t to[3], const uint32_t from[5]) {
  uint64_t low = from[0] + ((uint64_t)from[1] << 26);
  uint64_t middle = ((uint64_t)from[2] << 8) + ((uint64_t)from[3] << 34) + (low >> 44);
  to[0] = low & BITS_44;
  to[1] = middle & BITS_44;
  to[2] = ((uint64_t)from[4] << 16) + (middle >> 44);
}

/* Five limbs of a number of three, which may be large. */
static void widen(uint32_t to[5], const uint64_t from[3]) {
  uint64_t g0 = from[0], g1 = from[1], g2 = from[2];
  for (int i = 0; i < 2; i++) { /* twice around, for what the first time carries */
    g1 += g0 >> 44, g0 &= BITS_44;
    g2 += g1 >> 44, g1 &= BITS_44;
    g0 += 5 * (g2 >> 42), g2 &= BITS_42;
  }
  g1 += g0 >> 44, g0 &= BITS_44; /* may leave a limb a little larger than its bits */
  g2 += g1 >> 44, g1 &= BITS_44;
  to[0] = (uint32_t)(g0 & LIMB);
  to[1] = (uint32_t)((g0 >> 26 | g1 << 18) & LIMB);
  to[2] = (uint32_t)((g1 >> 8) & LIMB);
  to[3] = (uint32_t)((g1 >> 34 | g2 << 10) & LIMB);
  to[4] = (uint32_t)(g2 >> 16);
}

/* The next eight blocks, as limbs. */
TARGET INLINE void load_blocks(__m512i m[3], const uint8_t* at) {
  __m512i first = _mm512_loadu_si512(at), second = _mm512_loadu_si512(at + 64);
  __m512i low = _mm512_unpacklo_epi64(first, second);
  __m512i high = _mm512_unpackhi_epi64(first, second);
  const __m512i mask = _mm512_set1_epi64((long long)BITS_44);
  __m512i middle = _mm512_or_si512(_mm512_srli_epi64(low, 44), _mm512_slli_epi64(high, 20));
  m[0] = _mm512_and_si512(low, mask);
  m[1] = _mm512_and_si512(middle, mask);
  m[2] = _mm512_or_si512(_mm512_srli_epi64(high, 24), _mm512_set1_epi64(1LL << 40)); /* 2^128 */
}

/* Sums of products: a product of 104 bits comes as two of 52, of which the upper one counts 2^8 times in
 * the next limb. */
typedef struct {
  __m512i low[3], high[3];
} products;

/* r^count in every lane, and 20 times that: 2^132 is 20. */
typedef struct {
  __m512i r[3], around[3];
} factor;

/* Adds h * r. Limbs of h may have 46 bits; there is room for the sum of sixteen products. */
TARGET INLINE void add_product(products* p, const __m512i h[3], const factor* f) {
#pragma GCC unroll 3
  for (int i = 0; i < 3; i++) {
#pragma GCC unroll 3
    for (int j = 0; j < 3; j++) {
      __m512i r = j <= i ? f->r[i - j] : f->around[3 + i - j];
      p->low[i] = _mm512_madd52lo_epu64(p->low[i], h[j], r);
      p->high[i] = _mm512_madd52hi_epu64(p->high[i], h[j], r);
    }
  }
}

/* The number that the products are, in limbs of 44 bits and a little, 44 and 42. */
TARGET INLINE void carry(__m512i h[3], const products* p) {
  const __m512i mask = _mm512_set1_epi64((long long)BITS_44);
  __m512i top = p->high[2];
  __m512i around = _mm512_add_epi64(_mm512_slli_epi64(top, 12), _mm512_slli_epi64(top, 10));
  __m512i d0 = _mm512_add_epi64(p->low[0], around);
  __m512i d1 = _mm512_add_epi64(p->low[1], _mm512_slli_epi64(p->high[0], 8));
  __m512i d2 = _mm512_add_epi64(p->low[2], _mm512_slli_epi64(p->high[1], 8));
  d1 = _mm512_add_epi64(d1, _mm512_srli_epi64(d0, 44));
  d2 = _mm512_add_epi64(d2, _mm512_srli_epi64(d1, 44));
  top = _mm512_srli_epi64(d2, 42);
  h[0] = _mm512_add_epi64(_mm512_and_si512(d0, mask),
                          _mm512_add_epi64(top, _mm512_slli_epi64(top, 2)));
  h[1] = _mm512_and_si512(d1, mask);
  h[2] = _mm512_and_si512(d2, _mm512_set1_epi64((long long)BITS_42));
}

TARGET static inline __m512i times_20(__m512i r) {
  return _mm512_add_epi64(_mm512_slli_epi64(r, 4), _mm512_slli_epi64(r, 2));
}

TARGET static void spread_power(const td_poly1305_state* s, int count, factor* f) {
  uint64_t power[3];
  narrow(power, s->powers[count - 1]);
  for (int i = 0; i < 3; i++) {
    f->r[i] = _mm512_set1_epi64((long long)power[i]);
    f->around[i] = times_20(f->r[i]);
  }
}

/* r^8 ... r^1, in the order of the blocks in the lanes. */
TARGET static void last_powers(const td_poly1305_state* s, factor* f) {
  uint64_t powers[3][LANES], power[3];
  for (int j = 0; j < LANES; j++) {
    narrow(power, s->powers[LANES - 1 - ORDER[j]]);
    for (int i = 0; i < 3; i++) powers[i][j] = power[i];
  }
  for (int i = 0; i < 3; i++) {
    f->r[i] = _mm512_loadu_si512(powers[i]);
    f->around[i] = times_20(f->r[i]);
  }
}

TARGET INLINE void add(__m512i h[3], const __m512i m[3]) {
#pragma GCC unroll 3
  for (int i = 0; i < 3; i++) h[i] = _mm512_add_epi64(h[i], m[i]);
}

/* The next GROUPS times eight blocks: h = h * r^32 + m0 * r^24 + m1 * r^16 + m2 * r^8 + m3, with one
 * carry for all. Only the first product waits for the step before, and comes last. */
TARGET INLINE void take_groups(__m512i h[3], const uint8_t* at, const factor by[GROUPS]) {
  products sums;
  __m512i m[3];
#pragma GCC unroll 3
  for (int i = 0; i < 3; i++) sums.low[i] = sums.high[i] = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int g = 0; g < GROUPS - 1; g++) {
    load_blocks(m, at + (size_t)g * GROUP);
    add_product(&sums, m, &by[g + 1]);
  }
  add_product(&sums, h, &by[0]);
  carry(h, &sums);
  load_blocks(m, at + (size_t)(GROUPS - 1) * GROUP);
  add(h, m);
}

/* Takes a group of eight blocks, then steps of four groups. */
TARGET static void add_steps(td_poly1305_state* s, const uint8_t* at, size_t steps) {
  uint64_t start[3], limbs[3];
  __m512i h[3];
  factor by[GROUPS], last;
  products sums = {{_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()},
                   {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()}};
  td_poly1305_find_powers(s, GROUPS * LANES);
  for (int g = 0; g < GROUPS; g++) spread_power(s, (GROUPS - g) * LANES, &by[g]);
  last_powers(s, &last);
  narrow(start, s->h);
  load_blocks(h, at);
  for (int i = 0; i < 3; i++) /* lane 0 has the first block */
    h[i] = _mm512_add_epi64(h[i], _mm512_maskz_set1_epi64(1, (long long)start[i]));
  at += GROUP;
  for (const uint8_t* end = at + steps * STEP; at < end; at += STEP) take_groups(h, at, by);
  add_product(&sums, h, &last);
  carry(h, &sums);
  for (int i = 0; i < 3; i++) limbs[i] = (uint64_t)_mm512_reduce_add_epi64(h[i]);
  widen(s->h, limbs);
}

static bool has_products(void) {
  static _Atomic int answer = -1; /* under a hypervisor the question takes microseconds */
  if (answer < 0) answer = td_cpu_has("avx512f") == 1 && td_cpu_has("avx512ifma") == 1;
  return answer > 0;
}

size_t td_poly1305_add_wide(td_poly1305_state* s, const uint8_t* at, size_t blocks) {
  if (!has_products()) return 0;
  size_t steps = (blocks - LANES) / (STEP / BLOCK);
  add_steps(s, at, steps);
  return LANES + steps * (STEP / BLOCK);
}
#else
size_t td_poly1305_add_wide(td_poly1305_state* s, const uint8_t* at, size_t blocks) {
  (void)s, (void)at, (void)blocks;
  return 0;
}
#endif
