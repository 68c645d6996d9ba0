/* SPDX-License-Identifier: Apache-2.0 */
/* Timing: how often to run, and arguments that no cache holds. */
#include <stdlib.h>
#include <unistd.h>

#include "session.h"

#define LEAST_EVICTED ((size_t)64 << 20)
#define MOST_EVICTED ((size_t)1 << 30)
#define GROWTH 1.618
#define MOST_GROWTH 1000.0
#define LEAST_MS 1e-6 /* of a run, as far as a clock tells */

rpc_repeats rpc_take_repeats(rpc_args* args) {
  rpc_repeats repeats;
  repeats.number = rpc_take_int(args, 1, RPC_MOST_REPEATS);
  repeats.repeat = rpc_take_int(args, 1, RPC_MOST_REPEATS);
  repeats.least_ms = rpc_take_number(args, 0, 1e7);
  return repeats;
}

/* How many runs take the least time, after `number` took so many milliseconds. */
static int64_t more_runs(int64_t number, double ms, double least_ms) {
  double each = ms / (double)number > LEAST_MS ? ms / (double)number : LEAST_MS;
  double wanted = least_ms / each + 1, most = (double)number * MOST_GROWTH;
  double least = (double)number * GROWTH + 1;
  if (wanted > most) wanted = most;
  return (int64_t)(wanted > least ? wanted : least);
}

bool rpc_measure(rpc_runner runner, void* context, rpc_repeats repeats, rpc_call* call) {
  double seconds;
  int64_t number = repeats.number;
  if (!runner(context, 1, &seconds, call->error)) return false;
  rpc_put_list(call->out, 1);
  rpc_put_list(call->out, (uint32_t)repeats.repeat);
  for (int64_t i = 0; i < repeats.repeat; i++) {
    if (!runner(context, number, &seconds, call->error)) return false;
    while (seconds * 1e3 < repeats.least_ms) {
      number = more_runs(number, seconds * 1e3, repeats.least_ms);
      if (!runner(context, number, &seconds, call->error)) return false;
    }
    rpc_put_float(call->out, seconds / (double)number);
  }
  return true;
}

/* Twice the last cache, within bounds. */
static size_t evicted_bytes(void) {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  long last = sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
  long last = 0;
#endif
  size_t bytes = last > 0 ? 2 * (size_t)last : 0;
  if (bytes < LEAST_EVICTED) return LEAST_EVICTED;
  return bytes < MOST_EVICTED ? bytes : MOST_EVICTED;
}

bool rpc_empty_caches(rpc_error* error) {
  static volatile uint8_t* other = NULL;
  static size_t bytes;
  if (other == NULL) {
    bytes = evicted_bytes();
    other = calloc(bytes, 1);
  }
  if (other == NULL) return rpc_fail(error, "the device has not enough memory to empty its caches");
  for (size_t i = 0; i < bytes; i += 16) other[i]++; /* lines have at least 16 bytes */
  return true;
}
