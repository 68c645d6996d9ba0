/* SPDX-License-Identifier: Apache-2.0 */
/*
 * treadle-rpc-server: lets clients of treadle.rpc run models and kernels on this machine, without
 * Python. docs/how-to/rpc.md says how to use it, docs/design/rpc.md what it speaks.
 */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server.h"

#define FIRST_PORT 9090
#define LAST_PORT 9099
#define TRACKER_PORT 9190
#define FILES 8192
#define MOST_SECONDS 1e9

static const char USAGE[] =
    "usage: treadle-rpc-server server [OPTIONS]\n"
    "\n"
    "Lets clients run models and kernels on this machine, one at a time.\n"
    "\n"
    "  --host HOST             where to listen; another address than 127.0.0.1 needs --key-file\n"
    "                          (default: 127.0.0.1)\n"
    "  --port PORT             the port, or the first of those to try; 0 for any (default: 9090)\n"
    "  --port-end PORT         the last port to try (default: 9099)\n"
    "  --tracker HOST[:PORT]   where to register; without it, clients connect here\n"
    "  --key NAME              the kind of device, by which clients ask the tracker for one\n"
    "  --custom-addr HOST[:PORT]\n"
    "                          the address that the tracker tells clients\n"
    "                          (default: the one that it sees)\n"
    "  --key-file FILE         the key that all who talk to each other have; made by\n"
    "                          treadle rpc key\n"
    "  --work-dir FOLDER       where the files of sessions lie (default: a temporary folder)\n"
    "  --session-timeout SECONDS\n"
    "                          the longest session (default: any)\n"
    "  --call-timeout SECONDS  the longest call (default: 600)\n"
    "  --quota MB              the most that files of a session may take (default: 16384)\n"
    "  --most-failures N       how often an address may fail to show the key at once; then it may\n"
    "                          try once a second (default: 20)\n"
    "  --stdio                 serve one client, through standard input and output, and end with\n"
    "                          it: who may run this command may use the device, as over ssh\n"
    "  --silent                print errors only\n"
    "  --version               print the version and end\n";

typedef struct {
  const char *host, *tracker, *key, *custom_addr, *key_file, *work_dir;
  const char *port, *port_end, *session_timeout, *call_timeout, *quota, *most_failures;
  const char *tls_cert, *tls_key, *tls_ca;
  bool is_silent, is_stdio;
} arguments;

/* ---- reading the command line ---------------------------------------------------------------- */

static const char** option_place(arguments* given, const char* name, size_t length) {
  const struct {
    const char* name;
    const char** place;
  } options[] = {
      {"--host", &given->host},
      {"--port", &given->port},
      {"--port-end", &given->port_end},
      {"--tracker", &given->tracker},
      {"--key", &given->key},
      {"--custom-addr", &given->custom_addr},
      {"--key-file", &given->key_file},
      {"--work-dir", &given->work_dir},
      {"--session-timeout", &given->session_timeout},
      {"--call-timeout", &given->call_timeout},
      {"--quota", &given->quota},
      {"--most-failures", &given->most_failures},
      {"--tls-cert", &given->tls_cert},
      {"--tls-key", &given->tls_key},
      {"--tls-ca", &given->tls_ca},
  };
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (strlen(options[i].name) == length && strncmp(options[i].name, name, length) == 0)
      return options[i].place;
  return NULL;
}

static bool usage_error(rpc_error* error, const char* format, const char* what) {
  char problem[512];
  snprintf(problem, sizeof problem, format, what);
  rpc_fail_as(error, "UsageError", "%s", problem);
  return rpc_hint(error, "treadle-rpc-server --help lists the options");
}

static bool* flag_place(arguments* given, const char* word) {
  if (strcmp(word, "--silent") == 0) return &given->is_silent;
  return strcmp(word, "--stdio") == 0 ? &given->is_stdio : NULL;
}

/* Reads "--name value", "--name=value" and flags. */
static bool read_arguments(int count, char** words, arguments* given, rpc_error* error) {
  for (int i = 0; i < count; i++) {
    bool* flag = flag_place(given, words[i]);
    if (flag != NULL) {
      *flag = true;
      continue;
    }
    size_t length = strcspn(words[i], "=");
    const char** place = option_place(given, words[i], length);
    if (place == NULL) return usage_error(error, "there is no option %.100s", words[i]);
    bool is_joined = words[i][length] == '=';
    if (!is_joined && i + 1 == count)
      return usage_error(error, "option %.100s has no value", words[i]);
    *place = is_joined ? words[i] + length + 1 : words[++i];
  }
  return true;
}

static bool read_count(const char* text, int64_t fallback, int64_t most, int64_t* value,
                       rpc_error* error) {
  char* end;
  *value = fallback;
  if (text == NULL) return true;
  errno = 0;
  long long found = strtoll(text, &end, 10);
  bool is_plain = *text != '\0' && strspn(text, "0123456789") == strlen(text) && errno == 0;
  *value = found;
  return (is_plain && found <= most) || usage_error(error, "'%.100s' is no number for this", text);
}

static bool read_port(const char* text, uint16_t fallback, uint16_t* port, rpc_error* error) {
  int64_t value;
  if (!read_count(text, fallback, 65535, &value, error)) return false;
  *port = (uint16_t)value;
  return true;
}

static bool read_seconds(const char* text, double fallback, double* seconds, rpc_error* error) {
  char* end;
  *seconds = fallback;
  if (text == NULL) return true;
  *seconds = strtod(text, &end);
  if (end != text && *end == '\0' && *seconds >= 0 && *seconds <= MOST_SECONDS) return true;
  return usage_error(error, "'%.100s' is no number of seconds", text);
}

static bool check_arguments(const arguments* given, rpc_error* error) {
  if (given->tls_cert != NULL || given->tls_key != NULL || given->tls_ca != NULL) {
    rpc_fail_as(error, "UsageError", "this server does not speak TLS: it has no libraries");
    return rpc_hint(error, "lead the port through ssh (ssh -L), or use treadle rpc server; the key "
                    "keeps strangers out in any case");
  }
  if (given->is_stdio && (given->host != NULL || given->port != NULL || given->port_end != NULL ||
                          given->tracker != NULL))
    return usage_error(error, "--stdio opens no port: leave out --host, --port and --tracker%s",
                       "");
  if ((given->tracker == NULL) != (given->key == NULL)) {
    rpc_fail_as(error, "UsageError",
                "--tracker and --key are given together: where to register, and as what");
    return rpc_hint(error, "treadle-rpc-server server --tracker 127.0.0.1:9190 --key rk3399");
  }
  if (given->custom_addr != NULL && given->tracker == NULL)
    return usage_error(error, "--custom-addr is what a tracker is told: --tracker is missing%s",
                       "");
  return true;
}

/* What the tracker is told; where this server listens says what it may leave out. */
static bool read_registration(const arguments* given, const char* host, uint16_t port,
                              rpc_options* options, rpc_error* error) {
  options->is_lent = true;
  if (!rpc_parse_address(given->tracker, TRACKER_PORT, &options->tracker, error)) return false;
  if (snprintf(options->device_key, sizeof options->device_key, "%s", given->key) >=
      (int)sizeof options->device_key)
    return usage_error(error, "the key %.40s... is too long", given->key);
  if (given->custom_addr != NULL)
    return rpc_parse_address(given->custom_addr, port, &options->reported, error);
  bool is_any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
  const char* told = strcmp(host, "localhost") == 0 ? "127.0.0.1" : is_any ? "" : host;
  snprintf(options->reported.host, sizeof options->reported.host, "%s", told);
  options->reported.port = port;
  return true;
}

static bool read_options(const arguments* given, rpc_options* options, rpc_error* error) {
  int64_t megabytes;
  if (!check_arguments(given, error) ||
      !read_seconds(given->session_timeout, 0, &options->session_seconds, error) ||
      !read_seconds(given->call_timeout, 600, &options->call_seconds, error) ||
      !read_count(given->quota, 16384, INT64_MAX >> 20, &megabytes, error) ||
      !read_count(given->most_failures, 20, INT64_MAX >> 20, &options->most_failures, error))
    return false;
  options->quota = megabytes << 20;
  return given->key_file == NULL || rpc_read_key(given->key_file, &options->key, error);
}

/* ---- serving --------------------------------------------------------------------------------- */

static volatile sig_atomic_t is_asked_to_end = 0;

static void ask_to_end(int number) {
  (void)number;
  is_asked_to_end = 1;
}

static void wake_up(int number) { (void)number; }

/* Signals come while the server waits, and at no other time: `waiting` is the mask for that. */
static void watch_signals(sigset_t* waiting) {
  sigset_t blocked;
  struct sigaction action = {.sa_handler = ask_to_end};
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigaddset(&blocked, SIGINT);
  sigaddset(&blocked, SIGCHLD);
  sigprocmask(SIG_BLOCK, &blocked, waiting);
  sigdelset(waiting, SIGTERM);
  sigdelset(waiting, SIGINT);
  sigdelset(waiting, SIGCHLD);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  action.sa_handler = wake_up;
  sigaction(SIGCHLD, &action, NULL);
  signal(SIGPIPE, SIG_IGN);
}

static int64_t earliest(const rpc_gate* gate, const rpc_server* server, const rpc_link* link) {
  int64_t due = rpc_gate_due(gate), other = rpc_server_due(server);
  if (other < due) due = other;
  other = link != NULL ? rpc_link_due(link) : INT64_MAX;
  return other < due ? other : due;
}

static void wait_for(struct pollfd* places, size_t count, int64_t due, const sigset_t* waiting) {
  int64_t now = td_now_ns(), left = due > now ? due - now : 0;
  struct timespec time = {(time_t)(left / RPC_SECOND), (long)(left % RPC_SECOND)};
  if (ppoll(places, (nfds_t)count, due == INT64_MAX ? NULL : &time, waiting) >= 0) return;
  for (size_t i = 0; i < count; i++) places[i].revents = 0; /* a signal: nothing was looked at */
}

/* Where clients come from. */
typedef struct {
  int listener; /* -1: the client at standard input and output is the only one */
  int connection;
  pid_t relay;
} origin;

/* Whether the only client has gone, or its session has ended. */
static bool has_left(const origin* from, const rpc_gate* gate, const rpc_server* server) {
  int status;
  if (from->listener >= 0) return false;
  if (rpc_gate_is_empty(gate) && server->process == 0) return true;
  return waitpid(from->relay, &status, WNOHANG) == from->relay;
}

static void serve(const origin* from, rpc_gate* gate, rpc_server* server, rpc_link* link,
                  struct pollfd* places, const sigset_t* waiting) {
  while (!is_asked_to_end && !has_left(from, gate, server)) {
    size_t count = rpc_gate_watch(gate, places);
    struct pollfd* of_link = &places[count];
    *of_link = (struct pollfd){-1, 0, 0};
    if (link != NULL) (void)rpc_link_watch(link, of_link);
    wait_for(places, count + 1, earliest(gate, server, link), waiting);
    rpc_server_watch(server);
    rpc_gate_serve(gate, places, count, server);
    if (link != NULL) rpc_link_serve(link, of_link->revents, server);
  }
}

static bool serve_from(const origin* from, const rpc_options* options, rpc_error* error) {
  static const uint8_t NOWHERE[16];
  sigset_t waiting;
  rpc_server server;
  rpc_gate* gate = rpc_gate_open(from->listener, options);
  rpc_link* link = options->is_lent ? rpc_link_open(options) : NULL;
  struct pollfd* places = calloc(rpc_gate_most() + 1, sizeof *places);
  bool ok = gate != NULL && places != NULL && (link != NULL || !options->is_lent);
  if (!ok) rpc_fail(error, "there is not enough memory");
  ok = ok && rpc_server_open(&server, options, error);
  if (ok) {
    watch_signals(&waiting);
    if (from->listener < 0) (void)rpc_gate_take(gate, from->connection, NOWHERE);
    serve(from, gate, &server, link, places, &waiting);
    rpc_server_close(&server);
  }
  rpc_link_close(link);
  rpc_gate_close(gate);
  free(places);
  return ok;
}

static bool serve_stdio(const rpc_options* options, rpc_error* error) {
  origin from = {.listener = -1};
  return rpc_stdio_open(&from.connection, &from.relay, error) && serve_from(&from, options, error);
}

/* Lets the process have as many connections as the gate allows, if the system does. */
static void allow_many_files(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= FILES) return;
  limit.rlim_cur = limit.rlim_max < FILES ? limit.rlim_max : FILES;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static bool listen_and_serve(const arguments* given, rpc_options* options, rpc_error* error) {
  const char* host = given->host != NULL ? given->host : "127.0.0.1";
  uint16_t port, port_end;
  rpc_address bound;
  if (!read_port(given->port, FIRST_PORT, &port, error) ||
      !read_port(given->port_end, LAST_PORT, &port_end, error))
    return false;
  if (options->key.size == 0 && !rpc_is_loopback(host)) {
    rpc_fail_as(error, "UsageError", "%.200s can be reached by other machines, and there is no key",
                host);
    return rpc_hint(error, "give --key-file (treadle rpc key FILE makes one), or use --host "
                    "127.0.0.1");
  }
  allow_many_files();
  int listener = rpc_listen(host, port, port == 0 ? 0 : port_end, &bound, error);
  if (listener < 0) return false;
  rpc_log(RPC_LOG_INFO, "bind to %s:%u", bound.host, (unsigned)bound.port);
  if (given->tracker != NULL && !read_registration(given, host, bound.port, options, error)) {
    close(listener);
    return false;
  }
  origin from = {.listener = listener};
  return serve_from(&from, options, error);
}

static bool run(int count, char** words, rpc_error* error) {
  static rpc_options options;
  arguments given = {0};
  char temporary[3072] = "";
  if (!read_arguments(count, words, &given, error) || !read_options(&given, &options, error))
    return false;
  rpc_log_from(given.is_silent ? RPC_LOG_ERROR : RPC_LOG_INFO);
  if (given.work_dir == NULL) {
    const char* parent = getenv("TMPDIR");
    snprintf(temporary, sizeof temporary, "%.3000s/treadle-rpc-XXXXXX",
             parent != NULL && *parent != '\0' ? parent : "/tmp");
    if (mkdtemp(temporary) == NULL)
      return rpc_fail(error, "no temporary folder can be made: %s; give --work-dir",
                      strerror(errno));
  }
  bool ok = rpc_prepare_folder(given.work_dir != NULL ? given.work_dir : temporary, options.folder,
                               sizeof options.folder, error) &&
            (given.is_stdio ? serve_stdio(&options, error)
                            : listen_and_serve(&given, &options, error));
  if (temporary[0] != '\0') rpc_remove_folder(temporary);
  return ok;
}

int main(int count, char** words) {
  rpc_error error;
  bool has_verb = count > 1 && strcmp(words[1], "server") == 0;
  for (int i = 1; i < count; i++) {
    if (strcmp(words[i], "--help") == 0 || strcmp(words[i], "-h") == 0) {
      fputs(USAGE, stdout);
      return 0;
    }
    if (strcmp(words[i], "--version") == 0) {
      printf("treadle-rpc-server %s\n", td_version());
      return 0;
    }
  }
  if (!has_verb) {
    fputs(USAGE, stderr);
    return 2;
  }
  if (run(count - 2, words + 2, &error)) return 0;
  fprintf(stderr, "error: %s\n", error.problem);
  if (error.at[0] != '\0') fprintf(stderr, "at: %s\n", error.at);
  if (error.hint[0] != '\0') fprintf(stderr, "hint: %s\n", error.hint);
  return 1;
}
