/* test_site.h - for tests of links: a server on a loop, and ends that talk in numbers
 *
 * Everything is on one loop and one thread, over real sockets. The server takes each link
 * and sends back the numbers that it hears.
 */
#ifndef MS_WIRE_LINK_TEST_SITE_H
#define MS_WIRE_LINK_TEST_SITE_H

#include "base/clock.h"
#include "wire/link/link.h"
#include "wire/server/server.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define SITE_DEADLINE_NS (20 * MS_NS_PER_S)
#define SITE_HASTY_NS    (300 * MS_NS_PER_MS)
#define SITE_BUSY_NS     (10 * MS_NS_PER_S) /* what a busy machine may add to a time */

/* One end of a link, and what it has heard. */
struct site_end {
    struct ms_link *link;
    uint64_t sum;
    unsigned count, opened, closed, suspected, cleared;
    bool echo;
    struct ms_error why;
};

struct site {
    struct ms_loop *loop;
    struct ms_server *server;
    struct site_end there; /* the server's end of the last link */
    unsigned links, refused, http;
    struct ms_error refusal;
    char address[64];
    uint8_t secret[32];
    uint16_t port;
};

/* An end's callbacks; their argument is the `struct site_end`. */
extern const struct ms_link_ops site_link_ops;
void site_end_finish(struct site_end *e);

/* Without a host it listens nowhere yet. */
void site_start(struct site *s, const char *host, enum ms_tls_mode tls);
/* Handshakes have SITE_HASTY_NS: for those that never end. */
void site_start_hasty(struct site *s, const char *host, enum ms_tls_mode tls);
void site_stop(struct site *s);
void site_listen(struct site *s, const char *host);

/* Dial the site, or other addresses, with its secret or another. */
void site_dial(struct site *s, struct site_end *e, enum ms_tls_mode tls);
void site_dial_with(struct site *s,
                    struct site_end *e,
                    const char *addresses,
                    enum ms_tls_mode tls,
                    const uint8_t *secret,
                    int64_t within_ns);

/* Run the loop until `*count` is at least `least`. */
void site_run_until(struct site *s, const unsigned *count, unsigned least);
/* Numbers there and back, small ones and big ones. */
void site_talk(struct site *s, struct site_end *e);
/* One number, with so many bytes behind it. */
int site_send_number(struct ms_link *l, uint64_t number, size_t padding);

#endif
