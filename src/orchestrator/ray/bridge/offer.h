/* offer.h - a secret that a controller and its bridge have, and nobody else
 *
 * The controller offers: a fresh public key (X25519), and where it can be dialled. That
 * goes to the bridge in the environment of its job, where all users of Ray's
 * dashboard can read it. The bridge answers with a fresh public key of its own, and where
 * it listens, by one line in its job's log, which only the job writes and which they
 * can read as well. Both derive the same 32 bytes from their own private key and the
 * other's public one; who only reads cannot. Those are the secret of Muster's wire
 * between the two (wire/transport/tls.h, wire/handshake.h), for this job alone.
 *
 * Pure, but for the random numbers of new keys.
 */
#ifndef MS_ORCHESTRATOR_RAY_BRIDGE_OFFER_H
#define MS_ORCHESTRATOR_RAY_BRIDGE_OFFER_H

#include "base/error.h"
#include "base/limits.h"

#include <stdint.h>

enum { MS_OFFER_KEY = 32 };

#define MS_OFFER_ENV    "MUSTER_BRIDGE_OFFER"
#define MS_OFFER_ANSWER "MUSTER_BRIDGE_ANSWER"

struct ms_offer_keys {
    uint8_t private_key[MS_OFFER_KEY], public_key[MS_OFFER_KEY];
};

/* What one side tells the other. */
struct ms_offer {
    uint8_t public_key[MS_OFFER_KEY];
    char addresses[MS_ADDR_LIST_MAX + 1]; /* a list as in io/addr.h; "": none */
};

/* 0, or -EIO: the TLS library cannot. */
int ms_offer_keys_make(struct ms_offer_keys *k);
/* Forget them. */
void ms_offer_keys_wipe(struct ms_offer_keys *k);

/* "1 KEY ADDRESSES"; malloc'd, NULL: out of memory. */
char *ms_offer_print(const uint8_t public_key[MS_OFFER_KEY], const char *addresses);
/* 0, or -EINVAL with the reason. */
int ms_offer_parse(const char *text, struct ms_offer *out, struct ms_error *err);
/* The bridge's answer, somewhere in its log; -ENOENT: it is not there (yet). */
int ms_offer_find(const char *log, struct ms_offer *out);

/* The same on both sides. -EPROTO: the other's key is none. */
int ms_offer_secret(const struct ms_offer_keys *ours,
                    const uint8_t theirs[MS_OFFER_KEY],
                    uint8_t secret[MS_OFFER_KEY]);

#endif
