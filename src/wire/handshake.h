/* handshake.h - both sides prove the secret before anything else is parsed
 *
 * Three fixed-size messages; whoever sees a byte out of place closes.
 *
 *   client -> server  "MSTR" version lane zero zero | nonce_c[32] | session[16]
 *   server -> client  "MSTR" version status zero zero | nonce_s[32] | identity u64
 *                     | HMAC(secret, "server" | client hello | nonce_s | identity)
 *   client -> server  HMAC(secret, "client" | server hello | nonce_c)
 *
 * HMAC is HMAC-SHA-256. Nonces are fresh, so that a recorded exchange proves nothing.
 * After its proof the client may send frames at once. A server of another version says
 * so in `status` and closes. Pure: bytes in, bytes out; the randomness is passed in.
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
    MS_HANDSHAKE_VERSION = 1,
    MS_HELLO_CLIENT_SIZE = 8 + 32 + 16,
    MS_HELLO_SERVER_SIZE = 8 + 32 + 8 + 32,
    MS_PROOF_SIZE = 32,
};

/* Which thread of a worker serves a connection. */
enum ms_lane {
    MS_LANE_CALL = 0,   /* the engine's, while it is idle */
    MS_LANE_CONTROL = 1 /* always the I/O thread's */
};

struct ms_handshake {
    bool is_server, done;
    uint8_t lane;
    uint8_t secret[MS_SECRET_SIZE];
    uint8_t nonce[32];
    uint8_t session[MS_SESSION_SIZE];
    uint64_t identity;          /* of the server: told by it, or set on our side */
    uint64_t expected_identity; /* client: refuse another server; 0: any */
    uint8_t hello_client[MS_HELLO_CLIENT_SIZE];
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

/* What the client sends first (MS_HELLO_CLIENT_SIZE bytes). */
const uint8_t *ms_handshake_hello(struct ms_handshake *h);

/* How many bytes the next step needs; 0: done. */
size_t ms_handshake_need(const struct ms_handshake *h);

/* Feed exactly ms_handshake_need() bytes. `out` has room for MS_HELLO_SERVER_SIZE; what
 * must be sent is *out_len bytes, also on failure. 0; -EACCES (the proof is wrong),
 * -EPROTONOSUPPORT, -EPROTO, -ESTALE (another server than expected answered). */
int ms_handshake_step(struct ms_handshake *h,
                      const uint8_t *in,
                      uint8_t *out,
                      size_t *out_len,
                      struct ms_error *err);

#endif
