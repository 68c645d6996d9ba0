/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as text. */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

#ifndef TD_VERSION
#define TD_VERSION "0.1.0"
#endif

const char* td_version(void) { return TD_VERSION; }

int32_t td_fail(td_error* error, int32_t code, const char* format, ...) {
  if (error == NULL) return code;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  error->code = code;
  error->hint[0] = '\0';
  return code;
}

int32_t td_hint(td_error* error, int32_t code, const char* format, ...) {
  if (error == NULL) return code;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->hint, sizeof error->hint, format, arguments);
  va_end(arguments);
  return code;
}
