#include "orchestrator/ray/stand_in.h"

#include "base/clock.h"
#include "orchestrator/conformance.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GANGS_MAX = 64, PIECES_MAX = 64 };

struct piece {
    uint32_t number, node;
    double cpus;
    bool is_held;
    const char *cause;
    int code;
};

struct gang {
    char key[80];
    char *request; /* what was asked for */
    struct piece pieces[PIECES_MAX];
    size_t count;
    uint32_t next;
    json_int_t made_by; /* the id of its reserve */
};

struct waiting {
    json_t *m;
    int64_t until_ns;
};

static struct {
    double free[MS_RIG_NODES];
    bool is_avoided[MS_RIG_NODES];
    struct gang *gangs[GANGS_MAX];
    struct waiting waiting[GANGS_MAX];
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

static void answer(const json_t *m, int rc, const char *why)
{
    json_t *id = json_object_get(m, "id");

    tell(rc < 0 ? json_pack("{s:O, s:i, s:s}", "id", id, "rc", rc, "why", why)
                : json_pack("{s:O, s:i}", "id", id, "rc", 0));
}

static void tell_piece(const struct gang *g, const struct piece *p)
{
    tell(json_pack("{s:s, s:s, s:i, s:i, s:s, s:s, s:i, s:o}",
                   "event",
                   "piece",
                   "key",
                   g->key,
                   "number",
                   (int)p->number,
                   "incarnation",
                   1,
                   "phase",
                   p->is_held ? "running" : "ended",
                   "cause",
                   p->cause,
                   "code",
                   p->code,
                   "node",
                   json_sprintf("n%u", p->node)));
}

static void write_number(const char *name, size_t number)
{
    FILE *f = fopen(name, "w");

    if (!f)
        exit(3);
    fprintf(f, "%zu\n", number);
    fclose(f);
}

static void write_held(void)
{
    size_t held = 0;

    for (size_t i = 0; i < GANGS_MAX; i++)
        for (size_t p = 0; it.gangs[i] && p < it.gangs[i]->count; p++)
            held += it.gangs[i]->pieces[p].is_held;
    write_number("held", held);
}

/* ---- gangs --------------------------------------------------------------------------- */

static struct gang **find(const char *key)
{
    for (size_t i = 0; i < GANGS_MAX; i++)
        if (it.gangs[i] && strcmp(it.gangs[i]->key, key) == 0)
            return &it.gangs[i];
    return NULL;
}

static struct gang *make(const char *key)
{
    for (size_t i = 0; i < GANGS_MAX; i++)
        if (!it.gangs[i]) {
            it.gangs[i] = calloc(1, sizeof(struct gang));
            snprintf(it.gangs[i]->key, sizeof it.gangs[i]->key, "%s", key);
            return it.gangs[i];
        }
    exit(4);
}

static void end_piece(struct gang *g, struct piece *p, const char *cause, int code)
{
    if (!p->is_held)
        return;
    it.free[p->node] += p->cpus;
    p->is_held = false;
    p->cause = cause;
    p->code = code;
    tell_piece(g, p);
}

static void forget(struct gang **at)
{
    for (size_t i = 0; i < (*at)->count; i++)
        end_piece(*at, &(*at)->pieces[i], "released", 0);
    tell(json_pack("{s:s, s:s}", "event", "gone", "key", (*at)->key));
    free((*at)->request);
    free(*at);
    *at = NULL;
}

/* All or none. */
static bool place(const json_t *pieces, uint32_t *nodes)
{
    double left[MS_RIG_NODES];

    memcpy(left, it.free, sizeof left);
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        double cpus =
            json_number_value(json_object_get(json_array_get(pieces, i), "cpus"));
        uint32_t n = 0;

        while (n < MS_RIG_NODES && (it.is_avoided[n] || left[n] < cpus))
            n++;
        if (n == MS_RIG_NODES)
            return false;
        left[n] -= cpus;
        nodes[i] = n;
    }
    memcpy(it.free, left, sizeof left);
    return true;
}

/* True: it is answered. */
static bool launch(const json_t *m)
{
    const char *key = json_string_value(json_object_get(m, "key"));
    const json_t *pieces = json_object_get(m, "pieces");
    bool grows = strcmp(json_string_value(json_object_get(m, "verb")), "grow") == 0;
    char *request = json_dumps(pieces, JSON_SORT_KEYS);
    struct gang **at = find(key), *g = at ? *at : NULL;
    uint32_t nodes[PIECES_MAX];

    if (grows != (g != NULL)) {
        if (grows)
            answer(m, -ENOENT, "there is none");
        else
            answer(m, strcmp(g->request, request) == 0 ? 0 : -EEXIST, "another has it");
        free(request);
        return true;
    }
    if (!place(pieces, nodes)) {
        free(request);
        return false;
    }
    if (!g) {
        g = make(key);
        g->made_by = json_integer_value(json_object_get(m, "id"));
    }
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        struct piece *p = &g->pieces[g->count++];

        *p = (struct piece){.number = g->next++,
                            .node = nodes[i],
                            .cause = "none",
                            .cpus = json_number_value(
                                json_object_get(json_array_get(pieces, i), "cpus")),
                            .is_held = true};
        tell_piece(g, p);
    }
    if (g->request)
        free(request);
    else
        g->request = request;
    write_held();
    answer(m, 0, NULL);
    return true;
}

static void wait_for_room(json_t *m)
{
    double timeout_s = json_number_value(json_object_get(m, "timeout_s"));

    for (size_t i = 0; i < GANGS_MAX; i++)
        if (!it.waiting[i].m) {
            it.waiting[i].m = json_incref(m);
            it.waiting[i].until_ns = ms_now_ns() + (int64_t)(timeout_s * 1e9);
            return;
        }
    exit(5);
}

static void stop_waiting(struct waiting *w, int rc, const char *what)
{
    char why[160];

    if (rc < 0) {
        snprintf(why,
                 sizeof why,
                 "%s: %s",
                 json_string_value(json_object_get(w->m, "key")),
                 what);
        answer(w->m, rc, why);
    }
    json_decref(w->m);
    w->m = NULL;
}

static int look_at_waiting(void)
{
    int64_t next_ms = -1;

    for (size_t i = 0; i < GANGS_MAX; i++) {
        struct waiting *w = &it.waiting[i];
        int64_t left_ms = (w->until_ns - ms_now_ns()) / MS_NS_PER_MS + 1;

        if (!w->m)
            continue;
        if (launch(w->m))
            stop_waiting(w, 0, NULL);
        else if (w->until_ns <= ms_now_ns())
            stop_waiting(w, -ETIMEDOUT, "not lent in time: the nodes are full");
        else if (next_ms < 0 || left_ms < next_ms)
            next_ms = left_ms;
    }
    return (int)next_ms;
}

/* ---- verbs --------------------------------------------------------------------------- */

static void release(const json_t *m)
{
    struct gang **at = find(json_string_value(json_object_get(m, "key")));
    const json_t *numbers = json_object_get(m, "pieces");

    for (size_t n = 0; at && n < json_array_size(numbers); n++)
        for (size_t i = 0; i < (*at)->count; i++) {
            struct piece *p = &(*at)->pieces[i];

            if ((json_int_t)p->number ==
                    json_integer_value(json_array_get(numbers, n)) &&
                p->is_held) {
                end_piece(*at, p, "released", 0);
                tell(json_pack("{s:s, s:s, s:i}",
                               "event",
                               "gone",
                               "key",
                               (*at)->key,
                               "number",
                               (int)p->number));
            }
        }
    if (at && !numbers)
        forget(at);
    write_held();
    answer(m, 0, NULL);
}

static void list(const json_t *m)
{
    for (size_t i = 0; i < GANGS_MAX; i++)
        for (size_t p = 0; it.gangs[i] && p < it.gangs[i]->count; p++)
            if (strcmp(it.gangs[i]->pieces[p].cause, "released") != 0)
                tell_piece(it.gangs[i], &it.gangs[i]->pieces[p]);
    answer(m, 0, NULL);
}

static void cancel(const json_t *m)
{
    json_int_t of = json_integer_value(json_object_get(m, "of"));

    for (size_t i = 0; i < GANGS_MAX; i++)
        if (it.waiting[i].m &&
            json_integer_value(json_object_get(it.waiting[i].m, "id")) == of)
            stop_waiting(&it.waiting[i], -ECANCELED, "cancelled");
    for (size_t i = 0; i < GANGS_MAX; i++)
        if (it.gangs[i] && it.gangs[i]->made_by == of &&
            json_is_true(json_object_get(m, "undo")))
            forget(&it.gangs[i]);
    write_held();
    answer(m, 0, NULL);
}

static uint32_t node_of(const json_t *m)
{
    return (uint32_t)atoi(json_string_value(json_object_get(m, "node")) + 1);
}

static void test_verb(const json_t *m, const char *verb)
{
    for (size_t i = 0; i < GANGS_MAX; i++)
        for (size_t p = 0; it.gangs[i] && p < it.gangs[i]->count; p++) {
            struct gang *g = it.gangs[i];
            const char *key = json_string_value(json_object_get(m, "key"));

            if (strcmp(verb, "test_kill") == 0 && g->pieces[p].node == node_of(m))
                end_piece(g, &g->pieces[p], "node lost", 0);
            if (strcmp(verb, "test_end") == 0 && strcmp(g->key, key) == 0 &&
                (json_int_t)g->pieces[p].number ==
                    json_integer_value(json_object_get(m, "number")))
                end_piece(g,
                          &g->pieces[p],
                          "exited",
                          (int)json_integer_value(json_object_get(m, "code")));
        }
    write_held();
}

/* As the bridge has it. */
static bool is_timeout(const json_t *timeout_s)
{
    return json_number_value(timeout_s) > 0 &&
           json_number_value(timeout_s) <= 30.0 * 24 * 3600;
}

static void hear(json_t *m)
{
    const char *verb = json_string_value(json_object_get(m, "verb"));

    if (strcmp(verb, "reserve") == 0 || strcmp(verb, "grow") == 0) {
        if (!is_timeout(json_object_get(m, "timeout_s")))
            answer(m, -EINVAL, "that is no timeout");
        else if (!launch(m))
            wait_for_room(m);
    } else if (strcmp(verb, "release") == 0) {
        release(m);
    } else if (strcmp(verb, "list") == 0) {
        list(m);
    } else if (strcmp(verb, "cancel") == 0) {
        cancel(m);
    } else if (strcmp(verb, "avoid") == 0) {
        it.is_avoided[node_of(m)] = true;
        answer(m, 0, NULL);
    } else if (strcmp(verb, "end") == 0) {
        write_number("held", 0);
        answer(m, 0, NULL);
        exit(0);
    } else if (strcmp(verb, "test_exit") == 0) {
        fprintf(stderr, "the bridge has fallen\n");
        exit(9);
    } else {
        test_verb(m, verb);
    }
}

int ms_stand_in_run(void)
{
    static char rest[1 << 20];
    size_t len = 0;
    ssize_t got = 1;

    for (int i = 0; i < MS_RIG_NODES; i++)
        it.free[i] = MS_RIG_CPUS;
    write_number("pid", (size_t)getpid());
    write_held();
    tell(json_pack("{s:s, s:s, s:s, s:[]}",
                   "event",
                   "hello",
                   "ray",
                   "2.57.0",
                   "python",
                   "3.11.7",
                   "nodes"));
    while (got > 0) {
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
        char *newline;

        if (poll(&in, 1, look_at_waiting()) <= 0)
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
