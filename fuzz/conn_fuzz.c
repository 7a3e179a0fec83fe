/* The bytes of a peer that has proven itself: messages come out whole or not at all. */
#include "base/limits.h"
#include "feed.h"
#include "wire/conn.h"

#include <assert.h>
#include <stdlib.h>

static int on_begin(void *arg, const struct ms_frame *head)
{
    (void)arg;
    assert(head->kind == MS_KIND_CALL && head->length < head->total);
    return 0;
}

/* Read every byte, so that the sanitizer sees what is not ours; keep some of them. */
static int on_message(void *arg, struct ms_message *m)
{
    uint8_t *sum = arg;

    assert(m->len <= ms_frame_total_max(m->head.kind));
    for (size_t i = 0; i < m->len; i++)
        *sum = (uint8_t)(*sum + m->body[i]);
    if (m->head.call_id % 2)
        free(ms_message_take(m));
    return m->head.op == 13 ? -ECANCELED : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ms_conn_sink sink = {.on_begin = on_begin,
                                             .on_message = on_message};
    struct ms_conn *c;
    struct feed f;
    uint8_t sum = 0;
    int rc = 1;

    feed_init(&f, data, size);
    c = ms_conn_create(&f.transport, NULL);
    while (c && rc > 0)
        rc = ms_conn_read(c, &sink, &sum, NULL);
    ms_conn_destroy(c);
    return 0;
}
