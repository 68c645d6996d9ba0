/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses and sockets. */
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 512

/* ---- addresses ------------------------------------------------------------------------------- */

static bool not_an_address(const char* text, rpc_error* error) {
  rpc_fail_as(error, "UsageError", "'%.100s' is no address", text);
  return rpc_hint(error, "write host:port, as in 127.0.0.1:9190");
}

static bool parse_port(const char* text, uint16_t* port) {
  char* end;
  if (strspn(text, "0123456789") != strlen(text) || strlen(text) > 5) return false;
  unsigned long number = strtoul(text, &end, 10);
  *port = (uint16_t)number;
  return end != text && number > 0 && number < 65536;
}

bool rpc_parse_address(const char* text, uint16_t port, rpc_address* address, rpc_error* error) {
  const char* colon = strrchr(text, ':');
  size_t length = strlen(text);
  if (length > 0 && text[length - 1] == ']') colon = NULL;
  address->port = port;
  if (colon != NULL) {
    if (!parse_port(colon + 1, &address->port)) return not_an_address(text, error);
    length = (size_t)(colon - text);
  }
  if (length > 0 && text[0] == '[') text++, length--;
  if (length > 0 && text[length - 1] == ']') length--;
  if (length == 0 || length >= sizeof address->host) return not_an_address(text, error);
  memcpy(address->host, text, length);
  address->host[length] = '\0';
  return true;
}

bool rpc_is_loopback(const char* host) {
  struct in_addr four;
  struct in6_addr six;
  if (strcmp(host, "localhost") == 0) return true;
  if (inet_pton(AF_INET, host, &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

/* Resolves a name; the caller frees what is found. */
static struct addrinfo* resolve(const char* host, uint16_t port, int flags, rpc_error* error) {
  char number[8];
  struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *found = NULL;
  snprintf(number, sizeof number, "%u", (unsigned)port);
  int code = getaddrinfo(host, number, &wanted, &found);
  if (code == 0) return found;
  rpc_fail(error, "%.200s is not known: %s", host, gai_strerror(code));
  return NULL;
}

/* ---- sockets --------------------------------------------------------------------------------- */

static int open_socket(const struct addrinfo* at) {
  int fd = socket(at->ai_family, SOCK_STREAM, 0);
  if (fd >= 0) (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

void rpc_set_blocking(int fd, bool is_blocking) {
  int flags = fcntl(fd, F_GETFL);
  (void)fcntl(fd, F_SETFL, is_blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

static void set_option(int fd, int level, int name, int value) {
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

void rpc_tune_socket(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#if defined(TCP_KEEPIDLE)
  /* A machine that has vanished is noticed after 25 seconds. */
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
#endif
}

static bool name_of(int fd, rpc_address* bound) {
  struct sockaddr_storage name;
  socklen_t size = sizeof name;
  char number[8];
  if (getsockname(fd, (struct sockaddr*)&name, &size) != 0 ||
      getnameinfo((struct sockaddr*)&name, size, bound->host, sizeof bound->host, number,
                  sizeof number, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return false;
  return parse_port(number, &bound->port);
}

static int listen_on(const char* host, uint16_t port, rpc_address* bound, rpc_error* error) {
  struct addrinfo* found = resolve(host, port, AI_PASSIVE, error);
  if (found == NULL) return -1;
  int fd = open_socket(found);
  if (fd >= 0) set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  bool ok = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 &&
            listen(fd, BACKLOG) == 0 && name_of(fd, bound);
  if (!ok) rpc_fail(error, "%s", strerror(errno));
  freeaddrinfo(found);
  if (ok || fd < 0) return fd;
  close(fd);
  return -1;
}

int rpc_listen(const char* host, uint16_t port, uint16_t port_end, rpc_address* bound,
               rpc_error* error) {
  unsigned last = port_end > port ? port_end : port;
  for (unsigned number = port; number <= last; number++) {
    int fd = listen_on(host, (uint16_t)number, bound, error);
    if (fd >= 0) {
      rpc_set_blocking(fd, false);
      return fd;
    }
  }
  rpc_error cause = *error;
  rpc_fail_as(error, "UsageError", "no port from %u to %u of %.200s can be used: %.300s",
              (unsigned)port, last, host, cause.problem);
  rpc_hint(error, "name others with --port and --port-end");
  return -1;
}

int rpc_connect_begin(const rpc_address* address, rpc_error* error) {
  struct addrinfo* found = resolve(address->host, address->port, 0, error);
  if (found == NULL) return -1;
  int fd = open_socket(found);
  if (fd >= 0) {
    rpc_set_blocking(fd, false);
    rpc_tune_socket(fd);
  }
  bool ok = fd >= 0 && (connect(fd, found->ai_addr, found->ai_addrlen) == 0 ||
                        errno == EINPROGRESS);
  if (!ok) rpc_fail(error, "%s", strerror(errno));
  freeaddrinfo(found);
  if (ok || fd < 0) return fd;
  close(fd);
  return -1;
}

bool rpc_connect_end(int fd, rpc_error* error) {
  int code = 0;
  socklen_t size = sizeof code;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) != 0) code = errno;
  return code == 0 || rpc_fail(error, "%s", strerror(code));
}

static bool is_not_yet(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

long rpc_send_some(int fd, const void* data, size_t size) {
  ssize_t sent = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && is_not_yet()) return 0;
  return (long)sent;
}

long rpc_receive_some(int fd, void* data, size_t size) {
  ssize_t got = recv(fd, data, size, MSG_DONTWAIT);
  if (got < 0 && is_not_yet()) return 0;
  return got == 0 ? -1 : (long)got;
}
