/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client without a port: it speaks through standard input and output, as those of a command that
 * ssh runs.
 *
 * A process of its own copies bytes between these and a pair of sockets, whose other end the gate
 * takes for a connection. So nothing else of the server knows of it, a kernel that prints changes
 * no frame, and the end of the input is seen also while a kernel runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server.h"

#define PIECE_BYTES 65536
#define LAST_WORDS_MS 2000 /* for what is on its way to a client that sends no more */

static bool write_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    ssize_t written = write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    size -= (size_t)written;
  }
  return true;
}

/* Copies what can be read now; false at the end of the source, or where nobody takes it. */
static bool copy_some(int from, int to) {
  static char piece[PIECE_BYTES];
  ssize_t got = read(from, piece, sizeof piece);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  return got > 0 && write_all(to, piece, (size_t)got);
}

/* Until the server has closed its end, or a while after the client has closed its own. */
static void relay(int socket) {
  struct pollfd places[] = {{socket, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
  for (;;) {
    bool is_ending = places[1].fd < 0;
    int ready = poll(places, 2, is_ending ? LAST_WORDS_MS : -1);
    if (ready < 0 && errno != EINTR) return;
    if (ready == 0 && is_ending) return;
    if (ready <= 0) continue;
    if (places[0].revents != 0 && !copy_some(socket, STDOUT_FILENO)) return;
    if (places[1].revents == 0 || copy_some(STDIN_FILENO, socket)) continue;
    (void)shutdown(socket, SHUT_WR);
    places[1] = (struct pollfd){-1, 0, 0};
  }
}

/* Whatever writes to standard output from now on, it does not reach the client. */
static bool leave_to_relay(void) {
  int nowhere = open("/dev/null", O_RDWR);
  bool ok = nowhere >= 0 && dup2(nowhere, STDIN_FILENO) >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0;
  if (nowhere > STDERR_FILENO) close(nowhere);
  return ok;
}

bool rpc_stdio_open(int* connection, pid_t* process, rpc_error* error) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    return rpc_fail(error, "no pair of sockets: %s", strerror(errno));
  *process = fork();
  if (*process == 0) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* the server's end is its end */
    close(ends[0]);
    relay(ends[1]);
    _exit(0);
  }
  close(ends[1]);
  (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  *connection = ends[0];
  if (*process > 0 && leave_to_relay()) return true;
  close(ends[0]);
  return rpc_fail(error, "standard input and output cannot be used: %s", strerror(errno));
}
