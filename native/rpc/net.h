/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses and sockets. */
#ifndef TREADLE_RPC_NET_H_
#define TREADLE_RPC_NET_H_

#include "wire.h"

#define RPC_HOST_BYTES 256

typedef struct {
  char host[RPC_HOST_BYTES];
  uint16_t port;
} rpc_address;

/* Reads "host:port", "[host]:port" or "host", which has the port that is given. */
bool rpc_parse_address(const char* text, uint16_t port, rpc_address* address, rpc_error* error);
/* Whether only this machine can reach an address. */
bool rpc_is_loopback(const char* host);
/* A socket that listens on the first free port from `port` to `port_end`, 0 for any; -1 with an
 * error. `bound` is where. */
int rpc_listen(const char* host, uint16_t port, uint16_t port_end, rpc_address* bound,
               rpc_error* error);
/* Lets small frames leave at once, and connections to vanished machines end. */
void rpc_tune_socket(int fd);
void rpc_set_blocking(int fd, bool is_blocking);
/* Begins to connect, without waiting; -1 with an error. */
int rpc_connect_begin(const rpc_address* address, rpc_error* error);
/* Whether the connection is there, once the socket can be written to. */
bool rpc_connect_end(int fd, rpc_error* error);
/* Sends as much as goes without waiting; -1 when the connection is broken. */
long rpc_send_some(int fd, const void* data, size_t size);
/* Receives what is there; 0 where nothing is yet, -1 at the end and when it is broken. */
long rpc_receive_some(int fd, void* data, size_t size);

#endif /* TREADLE_RPC_NET_H_ */
