/* narrow.c - tensors of bfloat16 come as float32: pieces of the store that are written anew */
#include "base/cleanup.h"
#include "base/limits.h"
#include "plain/plain.h"
#include "worker/http/store_impl.h"

#include <assert.h>
#include <errno.h>

/* What is written: whole pieces, and the one that is being filled. */
struct narrowing {
    struct ms_store_client *client;
    struct ms_http_pieces done;
    struct ms_held *to;
    uint64_t filled, left; /* of `to`; to be written in all */
    struct ms_error *err;
};

static int next_piece(struct narrowing *n)
{
    struct ms_held *full = MS_TAKE(n->to);

    if (full && ms_http_pieces_add(&n->done, full, 0, n->filled) < 0)
        return -ENOMEM;
    n->filled = 0;
    if (!n->left)
        return 0;
    n->to = ms_http_piece_make(
        n->client, n->left < MS_HTTP_PIECE_MAX ? n->left : MS_HTTP_PIECE_MAX, n->err);
    return n->to ? 0 : n->err->code;
}

static int narrow_bytes(struct narrowing *n, const uint8_t *from, uint64_t len)
{
    while (len) {
        uint64_t some = n->to ? n->to->len - n->filled : 0;

        if (!some) {
            int rc = next_piece(n);

            if (rc < 0)
                return rc;
            assert(n->to); /* `left` is what all pieces have */
            some = n->to->len;
        }
        if (some > len / 2)
            some = len / 2;
        ms_bfloat16_narrow(from, some / 2, n->to->write + n->filled);
        n->filled += some;
        n->left -= some;
        from += 2 * some;
        len -= 2 * some;
    }
    return 0;
}

/* Each piece goes when it was read: no more memory is needed than for one. */
static int narrow_piece(struct narrowing *n, struct ms_http_piece *p)
{
    struct ms_held *held = ms_http_piece_attach(n->client, p->held, false, n->err);
    int rc;

    if (!held)
        return n->err->code;
    rc = narrow_bytes(n, held->read + p->offset, p->len);
    ms_held_unref(held);
    ms_http_piece_let_go(MS_TAKE(p->held));
    return rc;
}

static int run_narrow(struct ms_http_ask *a, struct ms_store_client *c)
{
    struct narrowing n = {.client = c, .err = &a->err};
    int rc = 0;

    for (size_t i = 0; i < a->pieces.count; i++)
        n.left += a->pieces.all[i].len / 2;
    for (size_t i = 0; i < a->pieces.count && rc == 0; i++)
        rc = narrow_piece(&n, &a->pieces.all[i]);
    if (rc == 0)
        rc = next_piece(&n);
    ms_held_unref(n.to);
    ms_http_pieces_finish(&a->pieces);
    a->pieces = n.done;
    return rc;
}

struct ms_http_ask *ms_http_ask_narrow(struct ms_http_store *s,
                                       struct ms_http_pieces *pieces,
                                       void (*on_done)(void *arg,
                                                       struct ms_http_ask *a),
                                       void *arg)
{
    const struct ms_http_ask with = {
        .run = run_narrow, .on_done = on_done, .arg = arg, .pieces = *pieces};
    struct ms_http_ask *a = ms_http_ask_begin(s, &with);

    if (a)
        *pieces = (struct ms_http_pieces){0};
    return a;
}
