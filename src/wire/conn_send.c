/* conn_send.c - the sending half of a connection: queues, and frames in turn */
#include "wire/conn_send.h"
#include "base/limits.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct ms_out_message {
    struct ms_list link;
    struct ms_frame head;
    size_t len;
    size_t framed;   /* bytes that were put into frames */
    unsigned frames; /* in the ring */
    bool is_loan;
    struct ms_loan loan;
    const uint8_t *body; /* `data`, or what is lent */
    uint8_t data[];
};

static void message_free(struct ms_out_message *m)
{
    if (m->is_loan)
        m->loan.on_sent(m->loan.arg);
    free(m);
}

void ms_sender_init(struct ms_sender *s)
{
    *s = (struct ms_sender){0};
    ms_list_init(&s->fresh);
    ms_list_init(&s->begun);
}

static bool is_framed(const struct ms_out_message *m)
{
    return m->framed == m->len;
}

void ms_sender_finish(struct ms_sender *s)
{
    for (unsigned i = 0; i < s->ring_count; i++) {
        struct ms_out_message *m = s->ring[(s->ring_at + i) % MS_SEND_RING].message;

        if (--m->frames == 0 && ms_list_is_empty(&m->link))
            message_free(m); /* in no list: wholly framed */
    }
    ms_list_each (m, &s->fresh, struct ms_out_message, link)
        message_free(m);
    ms_list_each (m, &s->begun, struct ms_out_message, link)
        message_free(m);
    ms_sender_init(s);
}

bool ms_sender_is_empty(const struct ms_sender *s)
{
    return s->ring_count == 0 && ms_list_is_empty(&s->fresh) &&
           ms_list_is_empty(&s->begun);
}

/* A message of head->total bytes, `copied` of which will be copied behind it; in the queue.
 * 0, -ENOMEM or -ENOBUFS. */
static int add(struct ms_sender *s,
               const struct ms_frame *head,
               size_t copied,
               struct ms_out_message **out)
{
    struct ms_out_message *m;

    if (head->total > MS_SEND_QUEUE_MAX - s->queued)
        return -ENOBUFS;
    m = malloc(sizeof *m + copied);
    if (!m)
        return -ENOMEM;
    *m = (struct ms_out_message){.head = *head, .len = head->total, .body = m->data};
    ms_list_add_tail(&s->fresh, &m->link);
    s->queued += m->len;
    *out = m;
    return 0;
}

int ms_sender_add_loan(struct ms_sender *s,
                       const struct ms_frame *head,
                       const struct ms_loan *loan)
{
    struct ms_out_message *m;
    int rc = add(s, head, 0, &m);

    assert(head->kind == MS_KIND_DATA && loan->len <= MS_DATA_MAX);
    if (rc < 0)
        return rc;
    m->is_loan = true;
    m->loan = *loan;
    m->body = loan->data;
    return 0;
}

/* Build the next frame of `m` at the end of the ring. */
static void frame_push(struct ms_sender *s, struct ms_out_message *m)
{
    struct ms_out_frame *f = &s->ring[(s->ring_at + s->ring_count++) % MS_SEND_RING];
    struct ms_frame head = m->head;
    size_t rest = m->len - m->framed, most = ms_frame_length_max(m->head.kind);

    f->message = m;
    f->offset = m->framed;
    f->len = rest < most ? rest : most;
    f->written = 0;
    head.length = (uint32_t)f->len;
    if (m->framed) {
        head.flags |= MS_FRAME_MORE_OF;
        head.total = m->framed;
        head.ack = 0;
    } else {
        head.total = m->len;
    }
    ms_frame_encode(&head, f->head);
    m->framed += f->len;
    m->frames++;
}

static bool is_control(const struct ms_out_message *m)
{
    return m->head.kind == MS_KIND_CONTROL;
}

static bool is_of_stream(const struct ms_out_message *m)
{
    return m->head.kind == MS_KIND_ITEM || m->head.kind == MS_KIND_REPLY ||
           m->head.kind == MS_KIND_ERROR;
}

/* May `m` begin before all of `begun` has gone out? */
static bool may_pass(const struct ms_sender *s, const struct ms_out_message *m)
{
    ms_list_each (b, &s->begun, struct ms_out_message, link) {
        if (is_control(m) && is_control(b))
            return false;
        if (is_of_stream(m) && is_of_stream(b) && m->head.call_id == b->head.call_id)
            return false;
    }
    return true;
}

static struct ms_out_message *first_fresh(const struct ms_sender *s)
{
    ms_list_each (m, &s->fresh, struct ms_out_message, link)
        if (may_pass(s, m))
            return m;
    return NULL;
}

/* The message whose frame goes out next, out of its list; NULL: none. */
static struct ms_out_message *pick(struct ms_sender *s)
{
    struct ms_out_message *m = NULL;

    if (s->fresh_in_row < MS_FRESH_IN_ROW || ms_list_is_empty(&s->begun))
        m = first_fresh(s);
    if (m) {
        s->fresh_in_row++;
    } else if (!ms_list_is_empty(&s->begun) && s->ring_count < MS_SEND_RING_BIG) {
        s->fresh_in_row = 0;
        m = ms_list_first(&s->begun, struct ms_out_message, link);
    }
    if (m)
        ms_list_remove(&m->link);
    return m;
}

static void fill_ring(struct ms_sender *s)
{
    while (s->ring_count < MS_SEND_RING) {
        struct ms_out_message *m = pick(s);

        if (!m)
            return;
        frame_push(s, m);
        if (!is_framed(m))
            ms_list_add_tail(&s->begun, &m->link);
    }
}

int ms_sender_add(struct ms_sender *s,
                  const struct ms_frame *head,
                  const struct iovec *iov,
                  int count,
                  size_t written)
{
    struct ms_out_message *m;
    int rc = add(s, head, head->total, &m);

    if (rc < 0)
        return rc;
    ms_iov_copy(m->data, iov, count);
    if (written) {
        assert(s->ring_count == 0 && m->len <= MS_CHUNK_MAX);
        fill_ring(s);
        s->ring[s->ring_at].written = written;
    }
    return 0;
}

static bool is_file(const struct ms_out_frame *f)
{
    return f->message->is_loan && f->message->loan.fd >= 0;
}

/* What is to be written of the ring, up to the first frame of a file unless those are read
 * as memory. */
static int
ring_iov(struct ms_sender *s, struct iovec iov[2 * MS_SEND_RING], bool with_files)
{
    int n = 0;

    for (unsigned i = 0; i < s->ring_count; i++) {
        struct ms_out_frame *f = &s->ring[(s->ring_at + i) % MS_SEND_RING];
        size_t skip = f->written;

        if (is_file(f) && !with_files)
            break;
        if (skip < MS_FRAME_SIZE) {
            iov[n++] = (struct iovec){f->head + skip, MS_FRAME_SIZE - skip};
            skip = MS_FRAME_SIZE;
        }
        skip -= MS_FRAME_SIZE;
        if (f->len > skip)
            iov[n++] = (struct iovec){(uint8_t *)(uintptr_t)f->message->body +
                                          f->offset + skip,
                                      f->len - skip};
    }
    return n;
}

static ssize_t write_file(const struct ms_out_frame *f, struct ms_transport *t)
{
    size_t skip = f->written < MS_FRAME_SIZE ? f->written : MS_FRAME_SIZE;
    size_t done = f->written - skip; /* of the body */
    struct iovec head = {(uint8_t *)(uintptr_t)f->head + skip, MS_FRAME_SIZE - skip};

    return t->ops->send_file(
        t, &head, f->message->loan.fd, f->message->loan.at + done, f->len - done);
}

static ssize_t write_ring(struct ms_sender *s, struct ms_transport *t)
{
    struct iovec iov[2 * MS_SEND_RING];
    const struct ms_out_frame *first = &s->ring[s->ring_at];

    if (is_file(first) && t->ops->send_file)
        return write_file(first, t);
    return t->ops->write(t, iov, ring_iov(s, iov, !t->ops->send_file));
}

static void ring_written(struct ms_sender *s, size_t n)
{
    while (s->ring_count) {
        struct ms_out_frame *f = &s->ring[s->ring_at];
        size_t rest = MS_FRAME_SIZE + f->len - f->written;

        if (n < rest) {
            f->written += n;
            return;
        }
        n -= rest;
        s->queued -= f->len;
        s->ring_at = (s->ring_at + 1) % MS_SEND_RING;
        s->ring_count--;
        if (--f->message->frames == 0 && is_framed(f->message))
            message_free(f->message);
    }
}

int ms_sender_pump(struct ms_sender *s, struct ms_transport *t)
{
    for (;;) {
        ssize_t n;

        fill_ring(s);
        if (s->ring_count == 0)
            return 0;
        n = write_ring(s, t);
        if (n == -EAGAIN)
            return 0;
        if (n < 0)
            return (int)n;
        s->has_sent = true;
        ring_written(s, (size_t)n);
    }
}
