/* fake_bridge.c - a bridge for tests: the verbs of doc/orchestrators.md on a simulated backend */
#include "orchestrator/ray/fake_bridge.h"

#include "base/clock.h"
#include "base/json.h"
#include "orchestrator/sim/sim.h"
#include "orchestrator/test_conformance.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REQUESTS_MAX = 1024, PIECES_MAX = 64, STEP_MS = 5 };

/* It takes its time to notice that a node is dead: that is skipped. */
#define NOTICE_NS (16 * MS_NS_PER_S)

/* One that was asked; those that have made something are kept. */
struct request {
    json_int_t id;
    char key[80];
    struct ms_orch_op *op; /* NULL: it has ended */
};

static struct {
    struct ms_sim *sim;
    struct ms_orchestrator *o;
    int64_t begun_ns;
    struct request requests[REQUESTS_MAX];
    size_t count;
} it;

/* ---- telling ------------------------------------------------------------------------- */

static void tell(json_t *o)
{
    char *line = json_dumps(o, JSON_COMPACT);

    puts(line);
    fflush(stdout);
    free(line);
    json_decref(o);
}

static void answer_lent(json_int_t id, int rc, const char *why, uint32_t first)
{
    tell(json_pack("{s:I, s:i, s:s*, s:I}",
                   "id",
                   id,
                   "rc",
                   rc,
                   "why",
                   why,
                   "first",
                   (json_int_t)first));
}

static void answer(json_int_t id, int rc, const char *why)
{
    answer_lent(id, rc, why, 0);
}

static void tell_piece(const char *key, const struct ms_lent_piece *p)
{
    tell(MS_JSON({"event", json_string("piece")},
                 {"key", json_string(key)},
                 {"number", json_integer(p->number)},
                 {"incarnation", json_integer(p->incarnation)},
                 {"phase", json_string(ms_phase_name(p->phase))},
                 {"cause", json_string(ms_cause_name(p->cause))},
                 {"code", json_integer(p->code)},
                 {"node", ms_json_string(p->node)}));
}

static void write_number(const char *name, size_t number)
{
    FILE *f = fopen(name, "w");

    if (!f)
        exit(3);
    fprintf(f, "%zu\n", number);
    fclose(f);
}

/* Seldom: who reads it may find it half written. */
static void write_held(void)
{
    static size_t known;

    if (ms_sim_held(it.sim) != known)
        write_number("held", known = ms_sim_held(it.sim));
}

static void on_event(void *arg, int rc, const struct ms_orch_event *e)
{
    (void)arg;
    if (rc < 0)
        exit(4);
    if (e->gone)
        tell(MS_JSON({"event", json_string("gone")},
                     {"key", json_string(e->key)},
                     {"number", json_integer(e->piece->number)}));
    else
        tell_piece(e->key, e->piece);
}

/* What a verb did comes before its answer. */
static void
on_done(void *arg, int rc, const struct ms_error *why, const struct ms_orch_answer *a)
{
    struct request *r = arg;

    for (size_t i = 0; rc == 0 && i < a->count; i++)
        for (size_t p = 0; p < a->reservations[i].count; p++)
            tell_piece(a->reservations[i].key, a->reservations[i].pieces[p]);
    write_held();
    r->op = NULL;
    answer_lent(r->id, rc, rc < 0 ? why->text : NULL, rc < 0 ? 0 : a->first);
}

/* ---- verbs --------------------------------------------------------------------------- */

static const char *text_of(const json_t *m, const char *name)
{
    return json_string_value(json_object_get(m, name));
}

static struct ms_orch_op *launch(const json_t *m, bool is_more, struct request *r)
{
    const json_t *pieces = json_object_get(m, "pieces"), *one;
    double timeout_s = json_number_value(json_object_get(m, "timeout_s"));
    struct ms_bundle bundles[PIECES_MAX] = {0};
    struct ms_reserve asked = {
        .key = r->key,
        .is_more = is_more,
        .pieces = {.bundles = bundles, .count = json_array_size(pieces)},
        .timeout_ns = (int64_t)(timeout_s * 1e9)};
    size_t i;

    if (!(timeout_s > 0 && timeout_s <= 30.0 * 24 * 3600)) { /* as the bridge has it */
        answer(r->id, -EINVAL, "that is no timeout");
        return NULL;
    }
    json_array_foreach(pieces, i, one) bundles[i].cpu_milli =
        (uint64_t)(1000 * json_number_value(json_object_get(one, "cpus")));
    return it.o->ops->reserve(it.o, &asked, on_done, r);
}

static struct ms_orch_op *release(const json_t *numbers, struct request *r)
{
    uint32_t all[PIECES_MAX];
    size_t count = json_array_size(numbers);

    for (size_t i = 0; i < count; i++)
        all[i] = (uint32_t)json_integer_value(json_array_get(numbers, i));
    return it.o->ops->release(it.o, r->key, all, count, on_done, r);
}

/* What is asked next finds it done. It takes some milliseconds of simulated time. */
static void wait_for(const struct request *r)
{
    while (r->op && ms_sim_step(it.sim, MS_NEVER))
        ;
}

/* What it has made meanwhile goes too, if that is asked for. */
static void cancel(const json_t *m, struct request *r)
{
    json_int_t of = json_integer_value(json_object_get(m, "of"));

    for (size_t i = 0; i < it.count; i++) {
        struct request *other = &it.requests[i];

        if (other->id != of)
            continue;
        if (other->op) {
            it.o->ops->cancel(other->op);
            wait_for(other);
        } else if (json_is_true(json_object_get(m, "undo"))) {
            memcpy(r->key, other->key, sizeof r->key);
            r->op = release(NULL, r);
            wait_for(r);
            return;
        }
    }
    answer(r->id, 0, NULL);
}

static void hear(const json_t *m)
{
    const char *verb = text_of(m, "verb"), *key = text_of(m, "key"),
               *node = text_of(m, "node");
    struct request *r = &it.requests[it.count++];

    if (it.count == REQUESTS_MAX)
        exit(5);
    r->id = json_integer_value(json_object_get(m, "id"));
    snprintf(r->key, sizeof r->key, "%s", key ? key : "");
    if (strcmp(verb, "reserve") == 0 || strcmp(verb, "grow") == 0) {
        r->op = launch(m, strcmp(verb, "grow") == 0, r);
    } else if (strcmp(verb, "release") == 0) {
        r->op = release(json_object_get(m, "pieces"), r);
        wait_for(r);
    } else if (strcmp(verb, "list") == 0) {
        r->op = it.o->ops->list(it.o, NULL, on_done, r);
        wait_for(r);
    } else if (strcmp(verb, "cancel") == 0) {
        cancel(m, r);
    } else if (strcmp(verb, "avoid") == 0) {
        r->op = it.o->ops->avoid(it.o, node, text_of(m, "reason"), on_done, r);
    } else if (strcmp(verb, "end") == 0) {
        write_number("held", 0);
        answer(r->id, 0, NULL);
        _exit(0); /* its message is not freed */
    } else if (strcmp(verb, "test_exit") == 0) {
        fprintf(stderr, "the bridge has fallen\n");
        exit(9);
    } else if (strcmp(verb, "test_kill") == 0) {
        ms_sim_kill_node(it.sim, node);
        it.begun_ns -= NOTICE_NS;
    } else if (strcmp(verb, "test_end") == 0) {
        ms_sim_end_piece(it.sim,
                         key,
                         (uint32_t)json_integer_value(json_object_get(m, "number")),
                         MS_CAUSE_EXITED,
                         (int)json_integer_value(json_object_get(m, "code")));
    }
}

/* ---- the whole ----------------------------------------------------------------------- */

/* Its time is ours. */
static void go_on(void)
{
    while (ms_sim_step(it.sim, ms_now_ns() - it.begun_ns))
        ;
    write_held();
}

static void start(void)
{
    it.begun_ns = ms_now_ns();
    it.sim = ms_sim_create(&(struct ms_sim_options){.nodes = MS_RIG_NODES,
                                                    .cpu_milli = MS_RIG_CPUS * 1000});
    it.o = it.sim ? ms_orchestrator_sim(it.sim) : NULL;
    if (!it.o || !it.o->ops->watch(it.o, UINT64_C(1) << 32, on_event, NULL))
        exit(2);
    write_number("pid", (size_t)getpid());
    write_number("held", 0);
    tell(json_pack("{s:s}", "event", "hello"));
}

int ms_fake_bridge_run(void)
{
    static char rest[1 << 20];
    size_t len = 0;
    ssize_t got = 1;

    start();
    while (got > 0) {
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
        char *newline;

        go_on();
        if (poll(&in, 1, STEP_MS) <= 0)
            continue;
        got = read(STDIN_FILENO, rest + len, sizeof rest - len);
        len += got > 0 ? (size_t)got : 0;
        while ((newline = memchr(rest, '\n', len))) {
            size_t used = (size_t)(newline + 1 - rest);
            json_t *m = json_loadb(rest, used, 0, NULL);

            if (m)
                hear(m);
            json_decref(m);
            memmove(rest, rest + used, len - used);
            len -= used;
        }
    }
    write_number("held", 0);
    unlink("pid");
    return 0;
}
