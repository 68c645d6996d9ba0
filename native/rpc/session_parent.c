/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one session there can be, as the server sees it: a process that is started for a client,
 * ended when its time is over, and whose end is explained to the client and to the tracker.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server.h"

#define LEASE_TIME (10 * RPC_SECOND) /* how long a device waits for the client it was lent to */
#define WATCH_TIME (RPC_SECOND / 20) /* how late an end may be */

static void become(rpc_server* server, rpc_state state, const char* client) {
  server->state = state;
  snprintf(server->client, sizeof server->client, "%s", client);
  server->has_changed = true;
}

const char* rpc_state_name(rpc_state state) {
  static const char* const NAMES[] = {"free", "leased", "busy"};
  return NAMES[state];
}

bool rpc_server_open(rpc_server* server, const rpc_options* options, rpc_error* error) {
  *server = (rpc_server){.options = options, .socket = -1, .has_changed = true};
  if (pipe(server->lifeline) != 0) return rpc_fail(error, "no pipe: %s", strerror(errno));
  server->shared = mmap(NULL, sizeof *server->shared, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (server->shared == MAP_FAILED) return rpc_fail(error, "no memory to share");
  return true;
}

/* ---- leases ---------------------------------------------------------------------------------- */

bool rpc_server_grant(rpc_server* server, rpc_text token, rpc_error* error) {
  if (server->state != RPC_FREE)
    return rpc_fail(error, "the device is %s", rpc_state_name(server->state));
  memcpy(server->token, token.data, token.size);
  server->token_size = token.size;
  server->token_end = td_now_ns() + LEASE_TIME;
  become(server, RPC_LEASED, "");
  return true;
}

static bool is_token(const rpc_server* server, const void* token, size_t size) {
  return size == server->token_size && rpc_is_equal(token, server->token, size);
}

void rpc_server_revoke(rpc_server* server, rpc_text token) {
  if (server->state == RPC_LEASED && is_token(server, token.data, token.size))
    become(server, RPC_FREE, "");
}

bool rpc_server_admit(rpc_server* server, const rpc_wishes* wishes, rpc_error* error) {
  if (server->state == RPC_BUSY) {
    rpc_fail(error, "the device is busy with %.800s",
             server->client[0] != '\0' ? server->client : "another client");
    return rpc_hint(error, "wait until it is free; a tracker keeps a queue");
  }
  bool is_due = server->state == RPC_LEASED && is_token(server, wishes->token, wishes->token_size);
  if (server->options->is_lent && !is_due) {
    rpc_fail(error, "the device is lent by a tracker, and not to this client");
    return rpc_hint(error, "ask the tracker: treadle.rpc.connect_tracker(...).request(...)");
  }
  server->token_size = 0;
  become(server, RPC_BUSY, wishes->client);
  return true;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* The smaller of two limits, of which 0 is none. */
static double least(double a, double b) { return a > 0 && b > 0 ? fmin(a, b) : fmax(a, b); }

static void end_session(rpc_server* server, const char* reason) {
  if (server->socket >= 0) close(server->socket);
  server->socket = -1;
  server->process = 0;
  if (server->folder[0] != '\0') rpc_remove_folder(server->folder);
  server->folder[0] = '\0';
  if (reason[0] != '\0') snprintf(server->last_error, sizeof server->last_error, "%s", reason);
  become(server, RPC_FREE, "");
  rpc_log(RPC_LOG_INFO, "the session ends%s%s", reason[0] != '\0' ? ": " : "", reason);
}

static pid_t start_process(rpc_server* server, const rpc_connection* c, uint32_t number) {
  pid_t process = fork();
  if (process != 0) {
    if (process > 0) (void)setpgid(process, process); /* so does the process: whoever is first */
    return process;
  }
  rpc_session_options options = {
      .socket = c->fd,
      .lifeline = server->lifeline[0],
      .keys = server->options->key.size > 0 ? &c->keys : NULL,
      .number = number,
      .root = server->options->folder,
      .folder = server->folder,
      .quota = server->options->quota,
      .memory = (int64_t)(td_physical_memory() < INT64_MAX ? td_physical_memory() : INT64_MAX),
      .call_seconds = server->call_seconds,
      .shared = server->shared,
  };
  _exit(rpc_session_main(&options)); /* what the server has open is not this process's to flush */
}

void rpc_server_start(rpc_server* server, const rpc_connection* c, uint32_t number,
                      const rpc_wishes* wishes) {
  rpc_error error = {.problem = ""};
  server->session_seconds = least(server->options->session_seconds, wishes->session_seconds);
  server->call_seconds = least(server->options->call_seconds, wishes->call_seconds);
  server->session_end = INT64_MAX;
  if (server->session_seconds > 0)
    server->session_end = td_now_ns() + (int64_t)(server->session_seconds * 1e9);
  memcpy(server->to_client, c->keys.to_client, RPC_KEY_BYTES);
  atomic_store(&server->shared->deadline, 0);
  atomic_store(&server->shared->is_sending, 0);
  server->socket = c->fd;
  rpc_log(RPC_LOG_INFO, "a session for %s begins", wishes->client);
  if (!rpc_session_folder(server->options->folder, server->folder, sizeof server->folder, &error)) {
    end_session(server, error.problem);
    return;
  }
  server->process = start_process(server, c, number);
  if (server->process > 0) return;
  rpc_fail(&error, "the session cannot be started: %s", strerror(errno));
  end_session(server, error.problem);
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* Ends the session's process and those it has started. */
static void kill_process(const rpc_server* server) {
  int status;
  (void)kill(-server->process, SIGKILL);
  (void)kill(server->process, SIGKILL); /* it may not have its group yet */
  while (waitpid(server->process, &status, 0) < 0 && errno == EINTR) continue;
}

/* Tells the client why its session was ended, unless it waits for the rest of a frame. */
static void say_last_word(const rpc_server* server, const char* reason) {
  rpc_error error;
  rpc_out out = {0};
  rpc_seal seal;
  uint8_t code[RPC_CODE_BYTES];
  if (atomic_load(&server->shared->is_sending)) return;
  rpc_fail(&error, "%s", reason);
  rpc_seal_start(&seal, server->options->key.size > 0 ? server->to_client : NULL, 0);
  if (rpc_write_error_frame(&out, RPC_CLOSE, 0, &error)) {
    rpc_part part = {out.data, out.size};
    rpc_seal_code(&seal, RPC_CLOSE, &part, 1, code);
    rpc_put(&out, code, rpc_seal_size(&seal));
    (void)rpc_send_some(server->socket, out.data, out.size);
  }
  rpc_out_free(&out);
}

/* What a process died of; "" where it ended well. */
static void describe_end(int status, char* text, size_t size) {
  text[0] = '\0';
  if (WIFSIGNALED(status)) {
    const char* name = strsignal(WTERMSIG(status));
    snprintf(text, size, "the session's process crashed: %s", name != NULL ? name : "a signal");
  } else if (WEXITSTATUS(status) != 0) {
    snprintf(text, size, "the session's process ended with exit code %d", WEXITSTATUS(status));
  }
}

/* Whether the session is over; `reason` says why, where its client did not end it. */
static bool is_over(rpc_server* server, char* reason, size_t size) {
  int status;
  int64_t now = td_now_ns(), deadline = atomic_load(&server->shared->deadline);
  if (waitpid(server->process, &status, WNOHANG) == server->process) {
    describe_end(status, reason, size);
    (void)kill(-server->process, SIGKILL); /* what it has started */
    return true;
  }
  if (now > server->session_end) {
    snprintf(reason, size, "the session's time limit of %g s has passed", server->session_seconds);
  } else if (deadline != 0 && now > deadline) {
    snprintf(reason, size, "a call took longer than its time limit of %g s",
             server->call_seconds);
  } else {
    return false;
  }
  kill_process(server);
  return true;
}

void rpc_server_watch(rpc_server* server) {
  char reason[256] = "";
  if (server->state == RPC_LEASED && td_now_ns() > server->token_end) {
    snprintf(server->last_error, sizeof server->last_error,
             "a client that was given the device did not come");
    become(server, RPC_FREE, "");
  }
  if (server->process == 0 || !is_over(server, reason, sizeof reason)) return;
  if (reason[0] != '\0') say_last_word(server, reason);
  end_session(server, reason);
}

int64_t rpc_server_due(const rpc_server* server) {
  if (server->process != 0) return td_now_ns() + WATCH_TIME;
  return server->state == RPC_LEASED ? server->token_end : INT64_MAX;
}

void rpc_server_close(rpc_server* server) {
  if (server->process != 0) {
    kill_process(server);
    end_session(server, "");
  }
  close(server->lifeline[0]);
  close(server->lifeline[1]);
  munmap(server->shared, sizeof *server->shared);
}
