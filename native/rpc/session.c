/* SPDX-License-Identifier: Apache-2.0 */
/* The session's process: call after call until the client goes. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "session.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#define MOST_DESCRIPTORS 65536

static const struct {
  const char* name;
  rpc_function function;
} FUNCTIONS[] = {
    {"array.copy", rpc_array_copy},       {"array.free", rpc_array_free},
    {"array.new", rpc_array_new},         {"array.read", rpc_array_read},
    {"array.write", rpc_array_write},     {"device.info", rpc_device_info},
    {"device.threads", rpc_device_threads}, {"file.begin", rpc_file_begin},
    {"file.check", rpc_file_check},       {"file.end", rpc_file_end},
    {"file.list", rpc_file_list},         {"file.read", rpc_file_read},
    {"file.remove", rpc_file_remove},     {"file.write", rpc_file_write},
    {"kernel.call", rpc_kernel_call},     {"kernel.rotate", rpc_kernel_rotate},
    {"kernel.time", rpc_kernel_time},     {"model.free", rpc_model_free},
    {"model.load", rpc_model_load},       {"model.module", rpc_model_module},
    {"model.plan", rpc_model_plan},       {"model.profile", rpc_model_profile},
    {"model.run", rpc_model_run},         {"model.seed", rpc_model_seed},
    {"model.threads", rpc_model_threads}, {"model.time", rpc_model_time},
    {"model.watch", rpc_model_watch},     {"module.free", rpc_module_free},
    {"module.load", rpc_module_load},
};

/* Sends the frame in `answer`, which is ended, with a blob. */
static bool send_frame(rpc_session* s, rpc_kind kind, const void* blob, size_t blob_size) {
  return rpc_channel_send(&s->channel, kind, &s->answer, blob, blob_size);
}

static bool send_error(rpc_session* s, uint32_t number, const rpc_error* error) {
  return rpc_write_error_frame(&s->answer, RPC_ERROR, number, error) &&
         send_frame(s, RPC_ERROR, NULL, 0);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static rpc_function find_function(const char* name, rpc_error* error) {
  size_t low = 0, high = sizeof FUNCTIONS / sizeof *FUNCTIONS;
  while (low < high) {
    size_t middle = (low + high) / 2;
    int order = strcmp(name, FUNCTIONS[middle].name);
    if (order == 0) return FUNCTIONS[middle].function;
    if (order < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  rpc_fail(error, "the device has no function '%.100s'", name);
  rpc_hint(error, "its Treadle may be older");
  return NULL;
}

static bool do_call(rpc_session* s, const rpc_frame* frame, rpc_call* call, rpc_error* error) {
  char name[128];
  if (frame->kind != RPC_CALL) return rpc_fail(error, "a session answers calls only");
  call->args = rpc_args_of(frame->values, "a call", error);
  rpc_text text = rpc_take_text(&call->args, 4096);
  if (call->args.failed) return false;
  if (!rpc_copy_text(text, name, sizeof name))
    return rpc_fail(error, "the device has no function of that name");
  rpc_function function = find_function(name, error);
  if (function == NULL) return false;
  snprintf(call->args.function, sizeof call->args.function, "%.47s", name);
  call->args.place = 0;
  return function(s, call);
}

static bool answer(rpc_session* s, const rpc_frame* frame) {
  rpc_error error = {.kind = "RpcError"};
  rpc_call call = {.blob = {(const char*)frame->blob, frame->blob_size}, .out = &s->answer,
                   .error = &error};
  int64_t deadline = INT64_MAX;
  if (s->call_seconds > 0) deadline = td_now_ns() + (int64_t)(s->call_seconds * 1e9);
  atomic_store(&s->shared->deadline, deadline);
  rpc_begin_frame(&s->answer);
  bool ok = do_call(s, frame, &call, &error) &&
            rpc_end_frame(&s->answer, RPC_RESULT, frame->number, call.answer_size, &error);
  atomic_store(&s->shared->deadline, 0);
  if (!ok) return send_error(s, frame->number, &error);
  return send_frame(s, RPC_RESULT, call.answer, call.answer_size);
}

/* Confirms the session, then answers until the client goes or sends what is no frame. */
static void serve(rpc_session* s, uint32_t opening) {
  rpc_error error;
  rpc_frame frame;
  rpc_begin_frame(&s->answer);
  rpc_put_list(&s->answer, 0);
  if (!rpc_end_frame(&s->answer, RPC_RESULT, opening, 0, &error) ||
      !send_frame(s, RPC_RESULT, NULL, 0))
    return;
  for (;;) {
    rpc_received received = rpc_channel_receive(&s->channel, &frame, &error);
    if (received == RPC_WRONG) (void)send_error(s, 0, &error); /* the rest cannot be trusted */
    if (received != RPC_RECEIVED || frame.kind == RPC_CLOSE || !answer(s, &frame)) return;
  }
}

/* ---- the process ----------------------------------------------------------------------------- */

/* Ends this process, and those it has started, with the server. */
static void* end_with_server(void* lifeline) {
  char byte;
  int fd = *(const int*)lifeline;
  while (read(fd, &byte, 1) < 0 && errno == EINTR) continue;
  (void)kill(0, SIGKILL);
  return NULL;
}

static void close_others(int first, int second) {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == NULL) {
    for (int fd = 3; fd < MOST_DESCRIPTORS; fd++)
      if (fd != first && fd != second) close(fd);
    return;
  }
  for (struct dirent* entry; (entry = readdir(folder)) != NULL;) {
    int fd = atoi(entry->d_name);
    if (fd > 2 && fd != first && fd != second && fd != dirfd(folder)) close(fd);
  }
  closedir(folder);
}

static void die_first(void) {
  static const char SCORE[] = "1000";
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (write(fd, SCORE, sizeof SCORE - 1) < 0) errno = 0; /* then it is as likely as others */
  close(fd);
}

static bool become_session(const rpc_session_options* options) {
  static int lifeline;
  sigset_t none;
  pthread_t thread;
  struct rlimit no_core = {0, 0};
  (void)setpgid(0, 0);
  close_others(options->lifeline, options->socket);
  (void)fcntl(options->socket, F_SETFD, FD_CLOEXEC); /* for what this process starts */
  (void)fcntl(options->lifeline, F_SETFD, FD_CLOEXEC);
  signal(SIGTERM, SIG_DFL);
  signal(SIGINT, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  (void)setrlimit(RLIMIT_CORE, &no_core);
  die_first();
  rpc_set_blocking(options->socket, true);
  lifeline = options->lifeline;
  return pthread_create(&thread, NULL, end_with_server, &lifeline) == 0;
}

int rpc_session_main(const rpc_session_options* options) {
  static rpc_session session;
  rpc_error error;
  if (!become_session(options)) return 1;
  session = (rpc_session){.call_seconds = options->call_seconds,
                          .shared = options->shared,
                          .memory = options->memory,
                          .arrays = {.what = "array"},
                          .models = {.what = "model"},
                          .modules = {.what = "module"}};
  session.piece = malloc(RPC_PIECE_BYTES);
  if (session.piece == NULL ||
      !rpc_channel_open(&session.channel, options->socket, options->keys, options->shared))
    return 1;
  if (!rpc_files_open(&session.files, options->root, options->folder, options->quota, &error)) {
    rpc_log(RPC_LOG_ERROR, "%s", error.problem);
    return 1;
  }
  serve(&session, options->number);
  rpc_files_close(&session.files);
#if defined(__SANITIZE_ADDRESS__)
  if (__lsan_do_recoverable_leak_check() != 0) return 23; /* _exit leaves that out */
#endif
  return 0;
}
