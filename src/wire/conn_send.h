/* conn_send.h - the sending half of a connection
 *
 * Messages wait in two lists: `fresh` (first piece not yet sent, in order of sending)
 * and `begun` (big ones under way, in turn). A frame is taken from `fresh` first, so
 * that a small message passes a big one but first pieces keep their order; after
 * MS_FRESH_IN_ROW of those one piece of a begun message goes out, so that it never
 * starves. Frames that were built but not wholly written wait in a short ring, in which
 * no piece of a big message stands behind MS_SEND_RING_BIG others: that much, and what
 * the socket holds, is what a small message may have to wait for.
 *
 * Two messages of one sequence never pass each other: the items and the reply of one
 * call, and all control messages.
 */
#ifndef MS_WIRE_CONN_SEND_H
#define MS_WIRE_CONN_SEND_H

#include "base/list.h"
#include "wire/frame.h"
#include "wire/transport/transport.h"

enum { MS_SEND_RING = 16, MS_SEND_RING_BIG = 4, MS_FRESH_IN_ROW = 64 };

struct ms_out_message;

/* A body that is not copied: it is read until on_sent, which comes once: when all of it was
 * given to the transport, or the connection goes. */
struct ms_loan {
    const uint8_t *data;
    size_t len;
    int fd; /* the same bytes in a file, at `at`; -1: in none */
    uint64_t at;
    void (*on_sent)(void *arg);
    void *arg;
};

struct ms_out_frame {
    uint8_t head[MS_FRAME_SIZE];
    struct ms_out_message *message;
    size_t offset, len;
    size_t written; /* of head and body together */
};

struct ms_sender {
    struct ms_list fresh, begun;
    struct ms_out_frame ring[MS_SEND_RING];
    unsigned ring_at, ring_count;
    unsigned fresh_in_row;
    size_t queued; /* bytes, heads not counted */
    bool has_sent; /* the first byte of the first message went out */
};

void ms_sender_init(struct ms_sender *s);
void ms_sender_finish(struct ms_sender *s);
bool ms_sender_is_empty(const struct ms_sender *s);

/* Copy the message, of head->total bytes, into the queue. Of a message of one frame `written`
 * bytes (its head included) may have gone out already, if nothing else is queued. 0, -ENOMEM,
 * or -ENOBUFS at MS_SEND_QUEUE_MAX. */
int ms_sender_add(struct ms_sender *s,
                  const struct ms_frame *head,
                  const struct iovec *iov,
                  int count,
                  size_t written);

/* The message as it is; DATA only. 0, -ENOMEM or -ENOBUFS: on_sent does not come. */
int ms_sender_add_loan(struct ms_sender *s,
                       const struct ms_frame *head,
                       const struct ms_loan *loan);

/* Write as much as the transport takes. 0 or a negative errno (never -EAGAIN). */
int ms_sender_pump(struct ms_sender *s, struct ms_transport *t);

#endif
