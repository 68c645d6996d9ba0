/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, as they are sent and logged. */
#include <stdarg.h>
#include <stdio.h>

#include "wire.h"

static void fill(rpc_error* error, const char* kind, const char* format, va_list arguments) {
  error->kind = kind;
  vsnprintf(error->problem, sizeof error->problem, format, arguments);
  error->at[0] = error->hint[0] = '\0';
}

bool rpc_fail(rpc_error* error, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fill(error, "RpcError", format, arguments);
  va_end(arguments);
  return false;
}

bool rpc_fail_as(rpc_error* error, const char* kind, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fill(error, kind, format, arguments);
  va_end(arguments);
  return false;
}

bool rpc_hint(rpc_error* error, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->hint, sizeof error->hint, format, arguments);
  va_end(arguments);
  return false;
}

static const char* kind_of(int32_t code) {
  switch (code) {
    case TD_ARGUMENT: return "UsageError";
    case TD_INPUT: return "InputError";
    case TD_SIZES: return "SizesError";
    case TD_PLAN:
    case TD_ARTIFACT:
    case TD_UNSUPPORTED:
    case TD_SYSTEM: return "ArtifactError";
    default: return "RpcError";
  }
}

bool rpc_fail_td(rpc_error* error, const td_error* from, const char* at) {
  rpc_fail_as(error, kind_of(from->code), "%s", from->text);
  snprintf(error->at, sizeof error->at, "%s", at);
  return rpc_hint(error, "%s", from->hint);
}
