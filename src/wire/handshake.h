/* handshake.h - both sides prove the secret before anything else is parsed
 *
 * Three fixed-size messages; a side that sees a wrong byte closes the connection.
 *
 *   client -> server  "MSTR" major lane minor ignored | nonce_c[32] | session[16]
 *   server -> client  "MSTR" major status minor ignored | nonce_s[32] | identity u64
 *                     | HMAC(secret, "server" | client hello | nonce_s | identity)
 *   client -> server  HMAC(secret, "client" | server hello | nonce_c)
 *
 * HMAC is HMAC-SHA-256. Nonces are fresh, so that a recorded exchange proves nothing.
 * After its proof the client may send frames at once. A server of another major version
 * says so in `status` and closes; a newer minor one is understood, and what is new in it is
 * not used. Pure: bytes in, bytes out; the randomness is passed in.
 */
#ifndef MS_WIRE_HANDSHAKE_H
#define MS_WIRE_HANDSHAKE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MS_SECRET_SIZE = 32,
    MS_SESSION_SIZE = 16,
    MS_HANDSHAKE_MAJOR = 1,
    MS_HANDSHAKE_VERSION = MS_HANDSHAKE_MAJOR,
    MS_HANDSHAKE_MINOR = 1,
    MS_HELLO_CLIENT_SIZE = 8 + 32 + 16,
    MS_HELLO_SERVER_SIZE = 8 + 32 + 8 + 32,
    MS_PROOF_SIZE = 32,
};

/* What a connection is for, and which thread of a worker serves it. */
enum ms_lane {
    MS_LANE_CALL = 0,    /* calls; the engine's thread, while it is idle */
    MS_LANE_CONTROL = 1, /* calls; always the I/O thread */
    MS_LANE_LINK = 2     /* control messages between two of our processes (link.h) */
};

struct ms_handshake {
    bool is_server, done;
    uint8_t lane;
    uint8_t minor;      /* of the other side */
    bool refuses_plain; /* server: this connection should have been TLS */
    uint8_t secret[MS_SECRET_SIZE];
    uint8_t nonce[32];
    uint8_t session[MS_SESSION_SIZE];
    uint64_t identity;          /* of the server: told by it, or set on our side */
    uint64_t expected_identity; /* client: refuse another server; 0: any */
    uint8_t hello_client[MS_HELLO_CLIENT_SIZE]; /* what the client sends first */
    uint8_t hello_server[MS_HELLO_SERVER_SIZE];
    uint8_t step;
};

/* `nonce` is 32 fresh random bytes. */
void ms_handshake_init_client(struct ms_handshake *h,
                              const uint8_t secret[MS_SECRET_SIZE],
                              const uint8_t nonce[32],
                              const uint8_t session[MS_SESSION_SIZE],
                              uint8_t lane,
                              uint64_t expected_identity);
void ms_handshake_init_server(struct ms_handshake *h,
                              const uint8_t secret[MS_SECRET_SIZE],
                              const uint8_t nonce[32],
                              uint64_t identity);

/* Wipe the secret. */
void ms_handshake_finish(struct ms_handshake *h);

/* How many bytes the next step needs; 0: done. */
size_t ms_handshake_need(const struct ms_handshake *h);

/* Feed exactly ms_handshake_need() bytes. `out` has room for MS_HELLO_SERVER_SIZE; what
 * must be sent is *out_len bytes, also on failure. 0; -EACCES (the proof is wrong),
 * -EPROTONOSUPPORT (another version), -EPROTO, -ESTALE (another server than expected
 * answered), -ENOKEY (TLS is due). */
int ms_handshake_step(struct ms_handshake *h,
                      const uint8_t *in,
                      uint8_t *out,
                      size_t *out_len,
                      struct ms_error *err);

#endif
