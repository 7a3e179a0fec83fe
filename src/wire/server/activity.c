/* activity.c - what the engine does and has done, for those who look
 *
 * Calls are counted where the lock is held and the clock is read anyway: by the engine's
 * thread when it comes back for the next one. An asynchronous engine answers from elsewhere;
 * there each end reads the clock. */
#include "base/clock.h"
#include "base/proto.h"
#include "wire/server/server_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- counting -------------------------------------------------------------------- */

/* Where it counts; NULL: it is no call. */
static struct ms_method_calls *calls_of(const struct ms_request *r)
{
    if (r->method)
        return &r->server->methods[r->method->index]->calls;
    return r->op == MS_OP_HTTP_CALL ? &r->server->http_calls : NULL;
}

static void count(struct ms_method_calls *c, bool failed, int64_t took_ns)
{
    static const double times_ms[MS_CALL_TIMES - 1] = MS_CALL_TIMES_MS;
    double took_ms = (double)took_ns / (double)MS_NS_PER_MS;
    size_t i = 0;

    while (i < MS_CALL_TIMES - 1 && took_ms > times_ms[i])
        i++;
    c->took[i]++;
    c->total_ns += (uint64_t)took_ns;
    c->failed += failed;
}

void ms_activity_ended(struct ms_request *r, bool failed)
{
    struct ms_server *s = r->server;

    if (s->running == r) {
        s->running = NULL;
        s->ended = calls_of(r);
        s->ended_failed = failed;
        return;
    }
    s->idle_since_ns = ms_now_ns();
    if (calls_of(r))
        count(calls_of(r), failed, s->idle_since_ns - r->begun_ns);
}

void ms_activity_back(struct ms_server *s, int64_t now_ns)
{
    s->has_run = false;
    s->idle_since_ns = now_ns;
    if (s->ended)
        count(s->ended, s->ended_failed, now_ns - s->busy_since_ns);
    s->ended = NULL;
}

/* ---- telling --------------------------------------------------------------------- */

static const char *operation_of(uint16_t op)
{
    static const char *const names[] = {
        [MS_OP_CONFIGURE] = "configure",
        [MS_OP_SET_ENV] = "set_env",
        [MS_OP_CREATE_ENGINE] = "create_engine",
        [MS_OP_DESTROY_ENGINE] = "destroy_engine",
        [MS_OP_LOOK] = "look",
        [MS_OP_FINISH] = "finish",
        [MS_OP_HTTP_CONFIGURE] = "/configure",
        [MS_OP_HTTP_SET_ENV] = "/set_env",
        [MS_OP_HTTP_CREATE_ENGINE] = "/create_engine",
        [MS_OP_HTTP_CALL] = "/call",
    };

    return op < MS_COUNT(names) && names[op] ? names[op] : "operation";
}

static const char *name_of(const struct ms_request *r, char *out, size_t room)
{
    if (r->method)
        snprintf(out, room, "%s.%s", r->method->engine, r->method->name);
    else
        snprintf(out, room, "%s", operation_of(r->op));
    return out;
}

/* The one that the engine has had for longest, and how many there are. */
static const struct ms_request *oldest(const struct ms_server *s, uint32_t *count)
{
    const struct ms_request *found = NULL;

    *count = 0;
    ms_list_each (r, &s->handed, struct ms_request, queue_link) {
        if (!ms_request_is_for_engine(r))
            continue;
        if (!found)
            found = r;
        ++*count;
    }
    return found;
}

static bool is_constructor(const struct ms_request *r)
{
    return r->op == MS_OP_CREATE_ENGINE || r->op == MS_OP_HTTP_CREATE_ENGINE;
}

static uint64_t number_of(const struct ms_method_calls *c)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < MS_CALL_TIMES; i++)
        sum += c->took[i];
    return sum;
}

/* Adds to the sums, and to the list those that were called. Without memory for one it is left
 * out. */
static void
add_calls(Muster__Activity *a, const char *name, const struct ms_method_calls *calls)
{
    struct ms_method_calls copy = *calls;
    Muster__MethodCalls c = MUSTER__METHOD_CALLS__INIT;

    c.method = ms_field_text(name);
    c.calls = number_of(calls);
    c.failed = calls->failed;
    c.total_ns = calls->total_ns;
    c.took = copy.took;
    c.n_took = MS_CALL_TIMES;
    a->calls_done += c.calls;
    a->calls_failed += c.failed;
    if (c.calls)
        ms_proto_append(&a->methods, &a->n_methods, ms_proto_copy(&c.base));
}

static int by_calls(const void *a, const void *b)
{
    uint64_t x = (*(Muster__MethodCalls *const *)a)->calls;
    uint64_t y = (*(Muster__MethodCalls *const *)b)->calls;

    return (x < y) - (x > y);
}

/* The most called first; of the others the sums alone are told. */
static void add_methods(const struct ms_server *s, Muster__Activity *a)
{
    char name[MS_METHOD_NAME_MAX + 2];

    for (size_t i = 0; i < s->method_count; i++) {
        snprintf(
            name, sizeof name, "%s.%s", s->methods[i]->engine, s->methods[i]->name);
        add_calls(a, name, &s->methods[i]->calls);
    }
    add_calls(a, operation_of(MS_OP_HTTP_CALL), &s->http_calls);
    if (a->n_methods)
        qsort(a->methods, a->n_methods, sizeof *a->methods, by_calls);
    while (a->n_methods > MS_METHODS_TOLD)
        muster__method_calls__free_unpacked(a->methods[--a->n_methods], NULL);
}

Muster__Activity *ms_server_activity(struct ms_server *s)
{
    char name[MS_METHOD_NAME_MAX + 2];
    Muster__Activity a = MUSTER__ACTIVITY__INIT, *out;
    const struct ms_request *r;
    int64_t now_ns = ms_now_ns(), since_ns;
    MS_LOCK(&s->lock);

    if (s->has_run && !s->running)
        ms_activity_back(s, now_ns); /* it has answered and will be back in a moment */
    r = oldest(s, &a.calls_running);
    since_ns = r ? r->begun_ns : s->idle_since_ns;
    a.doing = !r                  ? MUSTER__DOING__DOING_IDLE
              : is_constructor(r) ? MUSTER__DOING__DOING_CONSTRUCTING
                                  : MUSTER__DOING__DOING_CALL;
    a.for_ns = now_ns > since_ns ? (uint64_t)(now_ns - since_ns) : 0;
    a.calls_queued = atomic_load(&s->queued);
    if (a.doing == MUSTER__DOING__DOING_CALL)
        a.method = ms_field_text(name_of(r, name, sizeof name));
    out = (Muster__Activity *)ms_proto_copy(&a.base);
    if (out)
        add_methods(s, out);
    return out;
}

bool ms_server_engine_running(struct ms_server *s,
                              char *name,
                              size_t room,
                              int64_t *since_ns,
                              uint64_t *queued,
                              uint64_t *done)
{
    MS_LOCK(&s->lock);

    *since_ns = s->busy_since_ns;
    *queued = atomic_load(&s->queued);
    *done = s->calls_done;
    name[0] = 0;
    if (s->running)
        name_of(s->running, name, room);
    return s->running;
}
