#include "base/name.h"
#include "orchestrator/ray/ray_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The old one has had the time to leave nothing behind. */
#define LINGER_NS (5 * MS_NS_PER_S)

int ms_ray_send(struct ray *r, json_t *request, uint64_t *id)
{
    char *line;
    int rc;

    if (json_object_set_new(request, "id", json_integer((json_int_t)r->next_id)) < 0 ||
        !(line = json_dumps(request, JSON_COMPACT)))
        return -ENOMEM;
    rc = r->carrier->ops->send(r->carrier, line, strlen(line));
    free(line);
    if (rc == 0)
        *id = r->next_id++;
    return rc;
}

void ms_ray_on_linger(void *arg)
{
    struct ray *r = arg;

    if (r->old)
        r->old->ops->destroy(r->old, false, ms_now_ns());
    r->old = NULL;
}

/* ---- what the carrier tells -------------------------------------------------------- */

static void on_line(void *arg, const char *line, size_t len)
{
    ms_ray_heard(arg, line, len);
}

static void on_silent(void *arg, const struct ms_error *why)
{
    struct ray *r = arg;

    r->is_silent = why != NULL;
    if (why)
        ms_error_set(&r->silence, -EAGAIN, "%s", why->text);
    ms_ray_turn_soon(r);
}

static void on_down(void *arg, const struct ms_error *why)
{
    struct ray *r = arg;
    bool was_up = r->tie == TIE_UP;
    struct ms_error said = *why;

    ms_ray_on_linger(r);
    r->old = MS_TAKE(r->carrier);
    ms_timer_set(&r->linger, LINGER_NS);
    r->tie = TIE_DOWN;
    r->life++;
    r->is_silent = r->is_ray_silent = false;
    ms_ray_set_hello(r, NULL);
    ms_ray_all_ended(r, &said);
    ms_ray_ops_down(r, was_up, &said);
}

int ms_ray_tie(struct ray *r, struct ms_error *err)
{
    static const struct ms_carrier_events events = {on_line, on_silent, on_down};

    if (r->carrier)
        return 0;
    /* ids are below 2^53, and no two controllers use the same */
    r->next_id = (ms_random_id() >> 12) | 1;
    r->carrier = r->open(&r->options, &events, r, err);
    if (!r->carrier)
        return err->code ? err->code : -ENOMEM;
    r->tie = TIE_STARTING;
    return 0;
}

/* Nobody needs what it holds any more, whatever its grace. */
static void say_end(struct ray *r)
{
    json_t *o = json_pack("{s:s}", "verb", "end");
    uint64_t id;

    if (o)
        ms_ray_send(r, o, &id);
    json_decref(o);
}

void ms_ray_untie(struct ray *r, bool keep)
{
    if (r->carrier && !keep && r->tie == TIE_UP)
        say_end(r);
    if (r->carrier)
        r->carrier->ops->destroy(r->carrier, keep, ms_now_ns() + MS_RAY_END_NS);
    if (r->old)
        r->old->ops->destroy(r->old, false, ms_now_ns() + LINGER_NS);
    r->carrier = r->old = NULL;
    ms_ray_set_hello(r, NULL);
}
