/* debug.c - text and lines between a debugger in the engine and its client */
#include "worker/debug.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/proto.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

struct ms_debug {
    pid_t main_tid;
    int typed; /* an eventfd: a line is there */
    struct ms_timer timer;

    pthread_mutex_t lock; /* guards all that follows */
    bool is_open;
    char where[MS_DEBUG_WHERE_MAX];
    struct ms_buf
        output;          /* that no client has confirmed; at most MS_DEBUG_OUTPUT_MAX */
    uint64_t output_end; /* of all that was written */
    uint64_t prompt;     /* counts them */
    bool is_reading;     /* the last one has no line yet */
    char *prompt_text, *line;
    uint64_t client; /* 0: none */
    char who[MS_DEBUG_WHERE_MAX];
    int64_t seen_ns; /* when it last asked, or was answered */
    struct ms_request *held;
};

static void on_time(void *arg);

struct ms_debug *ms_debug_create(struct ms_loop *loop, pid_t main_tid)
{
    struct ms_debug *d = calloc(1, sizeof *d);

    if (!d)
        return NULL;
    d->main_tid = main_tid;
    d->typed = -1;
    pthread_mutex_init(&d->lock, NULL);
    if (ms_timer_init(&d->timer, loop, on_time, d) < 0) {
        free(d);
        return NULL;
    }
    return d;
}

/* ---- answers, with the lock held ------------------------------------------------- */

static bool has_client(const struct ms_debug *d)
{
    return d->client && (d->held || ms_now_ns() - d->seen_ns < MS_DEBUG_LEASE_NS);
}

/* To the client, or to one who only looks (`is_client` false). */
static void answer(struct ms_debug *d, struct ms_request *r, bool is_client)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf body = {0};
    Muster__DebugState m = MUSTER__DEBUG_STATE__INIT;

    m.is_open = d->is_open;
    m.where = d->where;
    if (!is_client && has_client(d))
        m.client = d->who;
    if (is_client) {
        m.output = (ProtobufCBinaryData){d->output.len, d->output.data};
        m.output_end = d->output_end;
        m.prompt = d->is_reading ? d->prompt : 0;
        m.prompt_text = d->is_reading ? d->prompt_text : m.prompt_text;
        d->seen_ns = ms_now_ns();
        if (!d->is_open)
            d->client = 0; /* it leaves when it hears that */
    }
    if (ms_proto_pack(&m.base, &body) < 0)
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
    else
        ms_request_reply(r, MS_CODEC_PROTO, &(struct iovec){body.data, body.len}, 1);
}

static void answer_held(struct ms_debug *d)
{
    struct ms_request *r = d->held;

    d->held = NULL;
    if (r)
        answer(d, r, true);
}

void ms_debug_destroy(struct ms_debug *d)
{
    answer_held(d);
    ms_timer_finish(&d->timer);
    ms_fd_close(&d->typed);
    ms_buf_finish(&d->output);
    pthread_mutex_destroy(&d->lock);
    free(d->prompt_text);
    free(d->line);
    free(d);
}

/* ---- the thread that has stopped ------------------------------------------------- */

bool ms_debug_open(struct ms_debug *d, const char *where)
{
    MS_LOCK(&d->lock);

    if (!has_client(d)) /* what one before has not seen is of no use to the next */
        d->output.len = 0;
    d->is_open = true;
    snprintf(d->where, sizeof d->where, "%s", where);
    return has_client(d);
}

void ms_debug_close(struct ms_debug *d)
{
    MS_LOCK(&d->lock);

    d->is_open = d->is_reading = false;
    answer_held(d);
}

void ms_debug_write(struct ms_debug *d, const char *text, size_t len)
{
    MS_LOCK(&d->lock);

    if (ms_buf_append(&d->output, text, len) < 0)
        return;
    d->output_end += len;
    if (d->output.len > MS_DEBUG_OUTPUT_MAX)
        ms_buf_consume(&d->output, d->output.len - MS_DEBUG_OUTPUT_MAX);
    answer_held(d);
}

void ms_debug_prompt(struct ms_debug *d, const char *text)
{
    MS_LOCK(&d->lock);

    if (d->typed < 0)
        d->typed = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    free(d->prompt_text);
    d->prompt_text = strdup(text);
    free(d->line);
    d->line = NULL;
    d->prompt++;
    d->is_reading = d->prompt_text != NULL;
    answer_held(d);
}

int ms_debug_read(struct ms_debug *d, char **line)
{
    struct pollfd p = {.fd = d->typed, .events = POLLIN};
    uint64_t count;

    if (d->typed < 0)
        return -EMFILE;
    if (poll(&p, 1, -1) < 0)
        return -errno;
    pthread_mutex_lock(&d->lock);
    if (read(d->typed, &count, sizeof count) < 0)
        count = 0;
    *line = MS_TAKE(d->line);
    pthread_mutex_unlock(&d->lock);
    return *line ? 0 : -EINTR;
}

/* ---- clients, on the loop's thread ------------------------------------------------- */

/* Nothing has happened while a request was held. */
static void on_time(void *arg)
{
    struct ms_debug *d = arg;
    MS_LOCK(&d->lock);

    answer_held(d);
}

static void take_line(struct ms_debug *d, const Muster__Debug *ask)
{
    uint64_t one = 1;

    if (!d->is_reading || ask->prompt != d->prompt)
        return; /* of a prompt that is no more */
    d->line = strndup((const char *)ask->line.data, ask->line.len);
    d->is_reading = !d->line || write(d->typed, &one, sizeof one) < 0;
}

/* What it has got is dropped; all of it is kept for who comes next, if it has nothing. */
static void confirm(struct ms_debug *d, uint64_t seen)
{
    uint64_t begin = d->output_end - d->output.len;

    if (seen > begin && seen <= d->output_end)
        ms_buf_consume(&d->output, seen - begin);
}

static void
serve_client(struct ms_debug *d, const Muster__Debug *ask, struct ms_request *r)
{
    if (d->client != ask->client)
        snprintf(d->who, sizeof d->who, "%s", ask->who);
    d->client = ask->client;
    answer_held(d); /* its own */
    confirm(d, ask->seen);
    if (ask->has_line)
        take_line(d, ask);
    if (ask->interrupt && d->is_open && !d->is_reading)
        syscall(SYS_tgkill, getpid(), d->main_tid, SIGINT);
    if (ask->wait_ns && d->is_open && !d->output.len &&
        (d->is_reading ? d->prompt : 0) == (ask->has_line ? 0 : ask->prompt)) {
        d->held = r;
        ms_timer_set(&d->timer,
                     ask->wait_ns < MS_DEBUG_HOLD_NS ? (int64_t)ask->wait_ns
                                                     : MS_DEBUG_HOLD_NS);
        return;
    }
    answer(d, r, true);
    if (ask->detach)
        d->client = 0;
}

void ms_debug_ask(struct ms_debug *d, struct ms_request *r)
{
    Muster__Debug *ask = muster__debug__unpack(NULL, r->len, r->body);
    MS_LOCK(&d->lock);

    if (!ask)
        ms_request_fail_text(
            r, MUSTER__FAILURE__KIND__BAD_ARGUMENT, "not a Debug message");
    else if (!ask->client || !d->is_open || (ask->client != d->client && has_client(d)))
        answer(d, r, ask->client && ask->client == d->client);
    else
        serve_client(d, ask, r);
    muster__debug__free_unpacked(ask, NULL);
}
