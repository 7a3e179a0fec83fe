/* blocking_call.h - one call, blocking: for the command line */
#ifndef MS_WIRE_CLIENT_BLOCKING_CALL_H
#define MS_WIRE_CLIENT_BLOCKING_CALL_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Connect to one of the addresses of a list (io/addr.h), prove the secret, run one built-in
 * operation on the control lane and wait for its reply (malloc'd; the caller frees it). TLS
 * is used off loopback, and where the other side wants it. A negative errno with
 * the reason: -ECONNREFUSED and -ENOENT (nobody listens), -EACCES (the secret is
 * wrong), -ETIMEDOUT, -EREMOTEIO (it answered with a failure; `err` has its message, and its
 * code if it gave one, as a head does).
 */
int ms_blocking_call(const char *addresses,
                     const uint8_t secret[32],
                     uint16_t op,
                     const void *body,
                     size_t len,
                     int64_t timeout_ns,
                     uint8_t **reply,
                     size_t *reply_len,
                     struct ms_error *err);

#endif
