/* redial.c - dials a head until it answers, and again when its link breaks or falls silent */
#include "wire/link/redial.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>

#define RETRY_FIRST_NS (10 * MS_NS_PER_MS)

static struct ms_redial_line *other_of(struct ms_redial_line *line)
{
    return line == line->redial->lines ? line + 1 : line->redial->lines;
}

/* The line that is being dialled, or waits for the answer to its hello; NULL: there is none. */
static struct ms_redial_line *find_trying(struct ms_redial *r)
{
    for (size_t i = 0; i < MS_COUNT(r->lines); i++)
        if (r->lines[i].link && &r->lines[i] != r->up)
            return &r->lines[i];
    return NULL;
}

/* The head shall not take it for our end: another line is there, or follows. */
static void drop(struct ms_redial_line *line)
{
    if (line->redial->up == line)
        line->redial->up = NULL;
    line->is_hello_sent = false;
    ms_link_abandon(MS_TAKE(line->link));
}

static void dial_soon(struct ms_redial *r)
{
    int64_t left_ns = r->dial.deadline_ns - ms_now_ns();

    if (r->is_stopped || find_trying(r))
        return;
    r->backoff_ns = r->backoff_ns ? 2 * r->backoff_ns : RETRY_FIRST_NS;
    if (r->backoff_ns > MS_REDIAL_MAX_NS)
        r->backoff_ns = MS_REDIAL_MAX_NS;
    if (left_ns > r->backoff_ns)
        left_ns = r->backoff_ns;
    ms_timer_set(&r->retry, left_ns > 0 ? left_ns : 0);
}

static void attempt_failed(struct ms_redial *r, const struct ms_error *why)
{
    if (!r->is_stopped && r->ops->on_failed(r->arg, why))
        dial_soon(r);
}

/* What was heard of the line that is up is bad. */
static void lost(struct ms_redial *r, int64_t since_ns, const struct ms_error *why)
{
    if (r->ops->on_lost(r->arg, since_ns, why))
        dial_soon(r);
}

/* ---- what a line hears ------------------------------------------------------------- */

static void on_open(void *arg)
{
    struct ms_redial_line *line = arg;
    struct ms_redial *r = line->redial;

    line->hello_ns = ms_now_ns();
    line->is_hello_sent = r->ops->on_open(r->arg, line->link) == 0;
    ms_timer_set(&r->retry, MS_HANDSHAKE_NS);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_redial_line *line = arg;
    struct ms_redial *r = line->redial;
    struct ms_error why = {-EPROTO, "it sent what is no message"};

    if (line != r->up) {
        r->ops->on_greeting(r->arg, line, body, len);
        return;
    }
    if (r->ops->on_body(r->arg, body, len))
        return;
    drop(line);
    lost(r, ms_now_ns(), &why);
}

static void on_closed(void *arg, const struct ms_error *closed_why)
{
    struct ms_redial_line *line = arg;
    struct ms_redial *r = line->redial;
    struct ms_error why = *closed_why; /* it is the link's */
    int64_t heard_ns = ms_link_heard_ns(line->link);
    bool was_up = line == r->up;

    drop(line);
    if (was_up)
        lost(r, ms_link_has_ended(&why) ? ms_now_ns() : heard_ns, &why);
    else
        attempt_failed(r, &why);
}

/* A link that was cut may take long to notice that it is healed: a new one does not. */
static void on_suspect(void *arg, bool is_suspect)
{
    struct ms_redial_line *line = arg;
    struct ms_redial *r = line->redial;
    struct ms_error silent = {-ETIMEDOUT, "nothing is heard of it"};

    if (line != r->up)
        return; /* there is a limit of time for its answer */
    if (is_suspect) {
        lost(r, ms_link_heard_ns(line->link), &silent);
        return;
    }
    if (other_of(line)->is_hello_sent)
        return; /* the head goes on with that one */
    ms_redial_welcome(line);
    r->ops->on_back(r->arg);
}

/* ---- dialling ---------------------------------------------------------------------- */

static void dial(struct ms_redial *r)
{
    static const struct ms_link_ops ops = {.on_body = on_body,
                                           .on_closed = on_closed,
                                           .on_open = on_open,
                                           .on_suspect = on_suspect};
    struct ms_redial_line *line = r->lines[0].link ? &r->lines[1] : &r->lines[0];
    int64_t until_ns = ms_now_ns() + MS_HANDSHAKE_NS;
    struct ms_link_dial d = r->dial;
    struct ms_error err = {0};

    if (until_ns < d.deadline_ns)
        d.deadline_ns = until_ns;
    line->link = ms_link_dial(r->loop, &d, &ops, line, &err);
    if (!line->link)
        attempt_failed(r, &err);
}

static void on_retry(void *arg)
{
    struct ms_redial *r = arg;
    struct ms_redial_line *line = find_trying(r);
    struct ms_error why = {-ETIMEDOUT, "it took the connection and said nothing"};

    if (!line) {
        dial(r);
        return;
    }
    drop(line);
    attempt_failed(r, &why);
}

/* ---- for the owner ------------------------------------------------------------------- */

int ms_redial_init(struct ms_redial *r,
                   struct ms_loop *loop,
                   const struct ms_link_dial *d,
                   const struct ms_redial_ops *ops,
                   void *arg)
{
    *r = (struct ms_redial){.loop = loop, .dial = *d, .ops = ops, .arg = arg};
    r->lines[0].redial = r->lines[1].redial = r;
    return ms_timer_init(&r->retry, loop, on_retry, r);
}

void ms_redial_start(struct ms_redial *r)
{
    dial(r);
}

void ms_redial_stop(struct ms_redial *r)
{
    r->is_stopped = true;
    ms_timer_cancel(&r->retry);
}

void ms_redial_close(struct ms_redial *r)
{
    ms_redial_stop(r);
    r->up = NULL;
    for (size_t i = 0; i < MS_COUNT(r->lines); i++)
        ms_link_destroy(MS_TAKE(r->lines[i].link));
}

void ms_redial_finish(struct ms_redial *r)
{
    ms_redial_close(r);
    ms_timer_finish(&r->retry);
}

void ms_redial_welcome(struct ms_redial_line *line)
{
    struct ms_redial *r = line->redial;

    r->up = line;
    r->backoff_ns = 0;
    drop(other_of(line));
    ms_timer_cancel(&r->retry);
}

void ms_redial_refuse(struct ms_redial_line *line)
{
    drop(line);
    dial_soon(line->redial);
}

struct ms_link *ms_redial_link(const struct ms_redial *r)
{
    return r->up ? r->up->link : NULL;
}
