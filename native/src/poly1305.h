/* SPDX-License-Identifier: Apache-2.0 */
/* What the ways to compute Poly1305 share. */
#ifndef TREADLE_POLY1305_H_
#define TREADLE_POLY1305_H_

#include "internal.h"

#define TD_POLY1305_BLOCK ((size_t)16)
#define TD_POLY1305_LIMB UINT32_C(0x3ffffff)

/* Makes the first powers of r known. */
void td_poly1305_find_powers(td_poly1305_state* s, int count);

/* Take as many whole blocks as they can, of at least 8; return how many. 0: the machine lacks what they
 * need. */
size_t td_poly1305_add_lanes(td_poly1305_state* s, const uint8_t* at, size_t blocks);
size_t td_poly1305_add_wide(td_poly1305_state* s, const uint8_t* at, size_t blocks);

#endif /* TREADLE_POLY1305_H_ */
