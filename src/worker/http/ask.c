/* ask.c - what a worker's HTTP asks the store for, by a thread of its own, and what waits meanwhile */
#include "base/clock.h"
#include "base/limits.h"
#include "worker/http/store_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define AGAIN_NS (50 * MS_NS_PER_MS) /* until a full store is asked again */

static void ask_free(struct ms_http_ask *a)
{
    ms_held_unref(a->held);
    ms_http_pieces_finish(&a->pieces);
    free(a);
}

static void ask_run(struct ms_work_job *job)
{
    struct ms_http_ask *a = MS_CONTAINER(job, struct ms_http_ask, job);
    struct ms_store_client *c;

    a->err = (struct ms_error){0};
    c = ms_http_store_client(a->store, &a->err);
    if (c && a->run(a, c) < 0 && !a->err.code)
        ms_error_set(&a->err, -ENOMEM, "out of memory");
}

static struct ms_http_ask *first_waiting(const struct ms_http_store *s)
{
    /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    return ms_list_is_empty(&s->waiting)
               ? NULL
               : ms_list_first(&s->waiting, struct ms_http_ask, job.link);
}

static bool may_start(const struct ms_http_store *s)
{
    return s->busy + s->asked < s->busy_max;
}

/* What others of this node let go of is not heard of: the store is asked again. */
static void set_timer(struct ms_http_store *s)
{
    const struct ms_http_ask *first = first_waiting(s);

    if (first)
        ms_timer_set(&s->timer,
                     may_start(s) ? AGAIN_NS : first->expiry_ns - ms_now_ns());
}

/* Before those that are younger. */
static void ask_wait(struct ms_http_ask *a)
{
    struct ms_http_store *s = a->store;
    struct ms_list *behind = s->waiting.prev;

    while (behind != &s->waiting &&
           MS_CONTAINER(behind, struct ms_http_ask, job.link)->expiry_ns > a->expiry_ns)
        behind = behind->prev;
    a->is_waiting = true;
    ms_list_add_head(behind, &a->job.link);
    set_timer(s);
}

static void wait_no_more(struct ms_http_ask *a)
{
    ms_list_remove(&a->job.link);
    a->is_waiting = false;
}

static int ask_start(struct ms_http_ask *a)
{
    int rc = ms_work_add(a->store->work, &a->job);

    if (rc == 0 && a->is_piece)
        a->store->asked++;
    return rc;
}

/* Those that can begin; without memory they wait on. */
static void start_waiting(struct ms_http_store *s)
{
    struct ms_http_ask *a;

    while (may_start(s) && (a = first_waiting(s))) {
        wait_no_more(a);
        if (ask_start(a) < 0) {
            ask_wait(a);
            return;
        }
    }
}

void ms_http_store_leave(struct ms_http_store *s)
{
    assert(s->busy > 0);
    s->busy--;
    start_waiting(s);
}

/* The store was full. Room comes when a busy piece is left; if there is none, it may be others that
 * have the store for a moment. */
static bool may_wait(const struct ms_http_ask *a)
{
    int64_t left_ns = a->expiry_ns - ms_now_ns();

    return a->is_piece && a->on_done && a->err.code == -ENOSPC &&
           left_ns > (a->store->busy ? 0 : MS_HTTP_ROOM_NS - MS_HTTP_FULL_NS);
}

static void answer(struct ms_http_ask *a)
{
    struct ms_http_store *s = a->store;
    bool is_busy = a->is_piece && !a->err.code, is_left;

    s->busy += is_busy;
    if (a->on_done)
        a->on_done(a->arg, a);
    is_left = is_busy && a->held;
    ask_free(a);
    if (is_left)
        ms_http_store_leave(s);
    else
        start_waiting(s);
}

static void ask_done(struct ms_work_job *job, bool was_dropped)
{
    struct ms_http_ask *a = MS_CONTAINER(job, struct ms_http_ask, job);

    a->store->asked -= a->is_piece;
    if (was_dropped)
        ask_free(a);
    else if (may_wait(a))
        ask_wait(a);
    else
        answer(a);
}

void ms_http_store_on_time(void *arg)
{
    struct ms_http_store *s = arg;
    struct ms_http_ask *a;

    while ((a = first_waiting(s)) && a->expiry_ns <= ms_now_ns()) {
        wait_no_more(a);
        answer(a);
    }
    start_waiting(s);
    set_timer(s);
}

struct ms_http_ask *ms_http_ask_begin(struct ms_http_store *s,
                                      const struct ms_http_ask *with)
{
    struct ms_http_ask *a = malloc(sizeof *a);

    if (!a)
        return NULL;
    *a = *with;
    a->store = s;
    a->expiry_ns = ms_now_ns() + MS_HTTP_ROOM_NS;
    a->job = (struct ms_work_job){.run = ask_run, .done = ask_done};
    ms_list_init(&a->job.link);
    if (a->is_piece && !may_start(s)) {
        ms_error_set(&a->err,
                     -ENOSPC,
                     "as many pieces of other tensors are sent and received as may be "
                     "at a time (%u)",
                     s->busy_max);
        ask_wait(a);
    } else if (ask_start(a) < 0) {
        free(a);
        return NULL;
    }
    return a;
}

void ms_http_ask_drop(struct ms_http_ask *a)
{
    if (!a)
        return;
    a->on_done = NULL;
    if (!a->is_waiting)
        return;
    wait_no_more(a);
    ask_free(a);
}

static int run_make(struct ms_http_ask *a, struct ms_store_client *c)
{
    a->held = ms_http_piece_make(c, a->len, &a->err);
    return a->err.code;
}

struct ms_http_ask *ms_http_ask_make(struct ms_http_store *s,
                                     uint64_t len,
                                     void (*on_done)(void *arg, struct ms_http_ask *a),
                                     void *arg)
{
    const struct ms_http_ask with = {
        .run = run_make, .on_done = on_done, .arg = arg, .is_piece = true, .len = len};

    return ms_http_ask_begin(s, &with);
}

/* a->held is a reference without bytes until then. */
static int run_bring(struct ms_http_ask *a, struct ms_store_client *c)
{
    struct ms_held *reads = ms_http_piece_attach(c, a->held, false, &a->err);

    if (!reads)
        return a->err.code;
    ms_held_unref(a->held);
    a->held = reads;
    return 0;
}

struct ms_http_ask *ms_http_ask_bring(struct ms_http_store *s,
                                      struct ms_held *held,
                                      void (*on_done)(void *arg, struct ms_http_ask *a),
                                      void *arg)
{
    const struct ms_http_ask with = {.run = run_bring,
                                     .on_done = on_done,
                                     .arg = arg,
                                     .is_piece = true,
                                     .held = ms_held_ref(held)};
    struct ms_http_ask *a = ms_http_ask_begin(s, &with);

    if (!a)
        ms_held_unref(held);
    return a;
}

struct ms_held *ms_http_store_read(struct ms_http_store *s, struct ms_held *held)
{
    struct ms_held *reads = ms_held_read(held);

    s->busy += reads != NULL;
    return reads;
}
