/* Handshakes: whatever comes, both sides go on or refuse, and nobody who does not know the
 * secret gets through. Bit 3 of the first byte picks the side. */
#include "feed.h"
#include "wire/conn.h"

#include <assert.h>

static const uint8_t secret[MS_SECRET_SIZE] = {1}, nonce[32] = {2};
static const uint8_t session[MS_SESSION_SIZE] = {3};

static int on_message(void *arg, struct ms_message *m)
{
    (void)arg;
    (void)m;
    assert(0); /* nothing was proven */
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ms_conn_sink sink = {.on_message = on_message};
    struct ms_handshake h;
    struct ms_conn *c;
    struct feed f;
    int rc = 1;

    feed_init(&f, data, size);
    if (size && data[0] & 8) {
        ms_handshake_init_client(&h, secret, nonce, session, MS_LANE_CALL, 7);
        c = ms_conn_create(&f.transport, &h);
    } else {
        ms_handshake_init_server(&h, secret, nonce, 7);
        c = ms_conn_create(&f.transport, &h);
    }
    while (c && rc > 0)
        rc = ms_conn_read(c, &sink, NULL, NULL);
    assert(!c || !ms_conn_is_ready(c));
    ms_conn_destroy(c);
    return 0;
}
