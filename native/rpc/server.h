/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's process: who may come, the one session there can be, the link to the tracker.
 *
 * It has one thread and waits for all of them at once; it runs nothing of a client's. Times are
 * those of td_now_ns.
 */
#ifndef TREADLE_RPC_SERVER_H_
#define TREADLE_RPC_SERVER_H_

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "net.h"

#define RPC_SECOND INT64_C(1000000000)
#define RPC_NAME_BYTES 804 /* 200 characters */
#define RPC_TOKEN_BYTES 64

/* ---- log.c ----------------------------------------------------------------------------------- */

typedef enum { RPC_LOG_INFO, RPC_LOG_WARNING, RPC_LOG_ERROR } rpc_level;

/* What is below the level is not written. */
void rpc_log_from(rpc_level level);
void rpc_log(rpc_level level, const char* format, ...) TD_PRINTF(2, 3);

/* ---- options --------------------------------------------------------------------------------- */

typedef struct {
  rpc_key key;                           /* size 0: none */
  double session_seconds, call_seconds;  /* 0: any */
  int64_t quota;                         /* bytes of a session's files */
  int64_t most_failures;                 /* of an address at once */
  char folder[3072];                     /* the work folder, without links */
  bool is_lent;                          /* only clients of a tracker may come */
  rpc_address tracker, reported;         /* reported.host "": the one the tracker sees */
  char device_key[RPC_NAME_BYTES];
} rpc_options;

/* ---- gate.c: connections that have no session ------------------------------------------------ */

typedef enum { RPC_AT_HELLO, RPC_AT_PROOF, RPC_AT_HEADER, RPC_AT_PAYLOAD, RPC_AT_DOOR } rpc_stage;

/* A connection on its way to a session. */
typedef struct {
  int fd;
  rpc_stage stage;
  uint8_t peer[16]; /* its address, as IPv6 */
  int64_t end;      /* of the time it has for this stage */
  uint8_t transcript[2 * RPC_OPENING_BYTES];
  uint8_t bytes[RPC_OPENING_BYTES]; /* the message of fixed size that is being read */
  uint8_t* payload;                 /* of the first frame */
  size_t room;                      /* bytes of `payload` */
  size_t have, want;
  rpc_header header;
  rpc_keys keys;
  rpc_seal in;
} rpc_connection;

typedef struct rpc_gate rpc_gate;
typedef struct rpc_server rpc_server;

/* A `listener` of -1 is none: `rpc_gate_take` brings the connections. */
rpc_gate* rpc_gate_open(int listener, const rpc_options* options);
void rpc_gate_close(rpc_gate* gate);
/* Takes over a connected socket of a client with the address `peer`; closes it where there is no
 * place. */
bool rpc_gate_take(rpc_gate* gate, int fd, const uint8_t peer[16]);
bool rpc_gate_is_empty(const rpc_gate* gate);
/* How many places in a poll the gate needs at most; fills them and returns how many it took. */
size_t rpc_gate_most(void);
size_t rpc_gate_watch(rpc_gate* gate, struct pollfd* places);
/* Does what the places say can be done. */
void rpc_gate_serve(rpc_gate* gate, const struct pollfd* places, size_t count,
                    rpc_server* server);
/* When it has to be served at the latest; INT64_MAX: whenever. */
int64_t rpc_gate_due(const rpc_gate* gate);

/* ---- session_parent.c: the process of the session -------------------------------------------- */

/* What a session's process tells the server, in memory of both. */
typedef struct {
  _Atomic int64_t deadline; /* when the current call must have ended; 0 between calls */
  _Atomic uint32_t is_sending; /* while a frame is being sent nothing else may be */
} rpc_shared;

/* What a client asks for when it opens a session. */
typedef struct {
  uint8_t token[RPC_TOKEN_BYTES];
  size_t token_size;
  char client[RPC_NAME_BYTES];
  double session_seconds, call_seconds;
} rpc_wishes;

typedef enum { RPC_FREE, RPC_LEASED, RPC_BUSY } rpc_state;

struct rpc_server {
  const rpc_options* options;
  rpc_state state;
  char client[RPC_NAME_BYTES];
  char last_error[RPC_NAME_BYTES];
  bool has_changed; /* since the tracker was told */
  uint8_t token[RPC_TOKEN_BYTES];
  size_t token_size;
  int64_t token_end;
  /* The session. */
  pid_t process; /* 0: none */
  int socket;
  uint8_t to_client[RPC_KEY_BYTES];
  int64_t session_end;
  double session_seconds, call_seconds;
  char folder[4096];
  rpc_shared* shared;
  int lifeline[2]; /* a pipe whose writing end the server alone has */
};

bool rpc_server_open(rpc_server* server, const rpc_options* options, rpc_error* error);
/* Ends the session, if there is one. */
void rpc_server_close(rpc_server* server);
/* The place of a lease for a token; the device must be free. */
bool rpc_server_grant(rpc_server* server, rpc_text token, rpc_error* error);
void rpc_server_revoke(rpc_server* server, rpc_text token);
const char* rpc_state_name(rpc_state state);
/* Whether a client may have the device now; it has it then. */
bool rpc_server_admit(rpc_server* server, const rpc_wishes* wishes, rpc_error* error);
/* Starts the session of an admitted client; takes over the socket of `connection`. */
void rpc_server_start(rpc_server* server, const rpc_connection* connection, uint32_t number,
                      const rpc_wishes* wishes);
/* Notices what has ended, and ends what has to. */
void rpc_server_watch(rpc_server* server);
int64_t rpc_server_due(const rpc_server* server);

/* ---- stdio.c: a client at standard input and output ------------------------------------------ */

/* Starts a process that connects both with a socket, and leaves this one without them. The client
 * is gone when the process is. */
bool rpc_stdio_open(int* connection, pid_t* process, rpc_error* error);

/* ---- tracker.c: the link to the tracker ------------------------------------------------------ */

typedef struct rpc_link rpc_link;

rpc_link* rpc_link_open(const rpc_options* options);
void rpc_link_close(rpc_link* link);
/* Fills a place in a poll; false where there is nothing to wait for. */
bool rpc_link_watch(const rpc_link* link, struct pollfd* place);
/* Does what can be done and what has become due. */
void rpc_link_serve(rpc_link* link, short events, rpc_server* server);
int64_t rpc_link_due(const rpc_link* link);

/* ---- folders.c: the folders of the server ---------------------------------------------------- */

#define RPC_PARTIAL "partial"

/* Makes the work folder where it is not there and removes what other servers have left in it;
 * `resolved` is its path without links. */
bool rpc_prepare_folder(const char* path, char* resolved, size_t size, rpc_error* error);
/* Makes a folder for a session, which nobody but this user may enter. */
bool rpc_session_folder(const char* root, char* path, size_t size, rpc_error* error);
/* Removes a folder with all that is in it; links in it are not followed. */
void rpc_remove_folder(const char* path);

/* ---- session.c: the session's process -------------------------------------------------------- */

typedef struct {
  int socket, lifeline;
  const rpc_keys* keys; /* NULL: there is no key */
  uint32_t number;      /* of the call that opened the session */
  const char *root, *folder;
  int64_t quota, memory;
  double call_seconds;
  rpc_shared* shared;
} rpc_session_options;

/* Makes a forked process ready and answers the client until it goes; returns the exit code. */
int rpc_session_main(const rpc_session_options* options);

#endif /* TREADLE_RPC_SERVER_H_ */
