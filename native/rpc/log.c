/* SPDX-License-Identifier: Apache-2.0 */
/* Lines on the standard error output, in the form of the server in Python. */
#include <stdarg.h>
#include <stdio.h>

#include "server.h"

static rpc_level lowest = RPC_LOG_INFO;

void rpc_log_from(rpc_level level) { lowest = level; }

void rpc_log(rpc_level level, const char* format, ...) {
  static const char* const NAMES[] = {"INFO", "WARNING", "ERROR"};
  char line[2048];
  if (level < lowest) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  for (char* at = line; *at != '\0'; at++) /* what others say writes no lines of its own */
    if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
  fprintf(stderr, "%s:treadle.rpc:%s\n", NAMES[level], line);
}
