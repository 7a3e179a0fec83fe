/* message.c - what goes between the simulated backend and its controller, late or lost */
#include "base/cleanup.h"
#include "orchestrator/sim/backend_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_silent(const struct ms_sim *s)
{
    return s->clock.now_ns < s->silent_until_ns;
}

/* ---- telling ----------------------------------------------------------------------- */

/* A message on its way to the controller: a reply, or news of a piece. */
struct message {
    struct ms_sim *sim;
    uint32_t listener; /* it is for this one */
    uint64_t request;  /* 0: news */
    int rc;
    struct ms_error why;
    char key[MS_ORCH_KEY_MAX + 1];
    struct ms_lent_piece piece;
    uint32_t devices[];
};

void ms_sim_deliver(void *arg)
{
    MS_CLEANUP(ms_cleanup_free) struct message *m = arg;
    struct ms_sim *s = m->sim;

    if (m->listener != s->listeners || is_silent(s))
        return;
    if (m->request && s->listener.on_reply)
        s->listener.on_reply(s->listener.arg, m->request, m->rc, &m->why);
    else if (!m->request && s->listener.on_news)
        s->listener.on_news(s->listener.arg, m->key, &m->piece);
}

static void send_message(struct ms_sim *s, struct message *m, int64_t delay_ns)
{
    if (!ms_sim_clock_add(&s->clock, delay_ns, ms_sim_deliver, m))
        free(m); /* lost */
}

void ms_sim_reply(struct ms_sim *s,
                  uint64_t request,
                  int rc,
                  const struct ms_error *why)
{
    struct message *m = calloc(1, sizeof *m);

    if (!m)
        return;
    *m = (struct message){
        .sim = s, .listener = s->listeners, .request = request, .rc = rc};
    if (rc < 0 && why)
        m->why = *why;
    send_message(s, m, MS_SIM_LATENCY_NS);
}

static struct message *news_of(struct ms_sim *s, const struct instance *i)
{
    size_t devices = i->piece.device_count * sizeof(uint32_t);
    struct message *m = calloc(1, sizeof *m + devices);

    if (!m)
        return NULL;
    m->sim = s;
    m->listener = s->listeners;
    memcpy(m->key, i->gang->key, sizeof m->key);
    m->piece = i->piece;
    if (devices > 0)
        memcpy(m->devices, i->piece.devices, devices);
    m->piece.devices = m->devices;
    return m;
}

/* By the fault plan: not at all, late, twice. */
void ms_sim_tell(struct ms_sim *s, const struct instance *i)
{
    struct message *m;

    if (!s->listener.on_news || ms_sim_chance(s, s->faults.lose))
        return;
    for (int times = ms_sim_chance(s, s->faults.repeat) ? 2 : 1; times > 0; times--) {
        int64_t late =
            ms_sim_chance(s, s->faults.delay) ? ms_sim_up_to(s, s->faults.delay_ns) : 0;

        m = news_of(s, i);
        if (m)
            send_message(s, m, MS_SIM_LATENCY_NS + late);
    }
}

/* ---- requests ---------------------------------------------------------------------- */

/* On their way to the backend: they arrive unless it is silent then. */
struct request {
    struct ms_sim *sim;
    void (*carry_out)(struct request *r);
    uint64_t number;
    char key[MS_ORCH_KEY_MAX + 1]; /* or the name of a node */
    struct gang *gang;             /* launch: what is wanted, in no list */
    uint32_t *numbers;
    size_t count;
};

void ms_sim_request_free(struct request *r)
{
    if (r->gang)
        ms_sim_gang_remove(r->gang);
    free(r->numbers);
    free(r);
}

void ms_sim_arrive(void *arg)
{
    struct request *r = arg;

    if (!is_silent(r->sim))
        r->carry_out(r);
    ms_sim_request_free(r);
}

static struct request *request_create(struct ms_sim *s,
                                      uint64_t number,
                                      const char *key,
                                      void (*carry_out)(struct request *r))
{
    struct request *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->sim = s;
    r->number = number;
    r->carry_out = carry_out;
    snprintf(r->key, sizeof r->key, "%s", key);
    return r;
}

static int request_send(struct request *r)
{
    if (r && ms_sim_clock_add(&r->sim->clock, MS_SIM_LATENCY_NS, ms_sim_arrive, r))
        return 0;
    if (r)
        ms_sim_request_free(r);
    return -ENOMEM;
}

static void do_launch(struct request *r)
{
    struct ms_sim *s = r->sim;
    struct gang *g = ms_sim_gang_find(s, r->key, r->gang->first);
    struct ms_error why = {0};
    int rc = 0;

    if (!g) {
        g = MS_TAKE(r->gang);
        ms_list_add_tail(&s->gangs, &g->link);
    }
    g->request = r->number;
    if (!g->instances)
        rc = ms_sim_gang_place(g, &why);
    if (rc == -ENOSPC || rc == -EAGAIN)
        rc = -EBUSY; /* a backend does not know what others will give back */
    ms_sim_reply(s, r->number, rc, &why);
    if (rc < 0 && rc != -EBUSY)
        ms_sim_gang_remove(g);
}

int ms_sim_launch(struct ms_sim *s,
                  uint64_t request,
                  const char *key,
                  uint32_t first,
                  const struct ms_place_request *pieces,
                  uint64_t mark)
{
    struct request *r = request_create(s, request, key, do_launch);

    if (!r)
        return -ENOMEM;
    r->gang = ms_sim_gang_create(s, key, pieces);
    if (!r->gang) {
        ms_sim_request_free(r);
        return -ENOMEM;
    }
    r->gang->first = first;
    r->gang->mark = mark;
    return request_send(r);
}

static void stop_one(struct ms_sim *s, const char *key, uint32_t number)
{
    struct gang *g = ms_sim_gang_find(s, key, number);
    struct instance *i = g && g->instances ? &g->instances[number - g->first] : NULL;

    if (g && !i)
        ms_sim_gang_remove(g); /* it waits: all or none of it */
    if (!i || i->is_released)
        return;
    ms_sim_piece_end(i, MS_CAUSE_RELEASED, 0);
    i->is_released = true;
    if (--g->left == 0)
        ms_sim_gang_remove(g);
}

static void do_stop(struct request *r)
{
    for (size_t i = 0; i < r->count; i++)
        stop_one(r->sim, r->key, r->numbers[i]);
    if (r->count == 0)
        ms_list_each (g, &r->sim->gangs, struct gang, link)
            if (strcmp(g->key, r->key) == 0)
                ms_sim_gang_remove(g);
    ms_sim_retry_waiting(r->sim);
    ms_sim_reply(r->sim, r->number, 0, NULL);
}

int ms_sim_stop(struct ms_sim *s,
                uint64_t request,
                const char *key,
                const uint32_t *numbers,
                size_t count)
{
    struct request *r = request_create(s, request, key, do_stop);

    if (r && count > 0) {
        r->numbers = calloc(count, sizeof *numbers);
        if (!r->numbers) {
            ms_sim_request_free(r);
            return -ENOMEM;
        }
        memcpy(r->numbers, numbers, count * sizeof *numbers);
        r->count = count;
    }
    return request_send(r);
}

static void do_ask_all(struct request *r)
{
    ms_sim_reply(r->sim, r->number, 0, NULL);
}

int ms_sim_ask_all(struct ms_sim *s, uint64_t request)
{
    return request_send(request_create(s, request, "", do_ask_all));
}

static void do_cordon(struct request *r)
{
    struct ms_stock_node *n = ms_stock_find(&r->sim->stock, r->key);
    struct ms_error why = {0};

    if (n)
        n->is_gone = true; /* for what is placed from now on */
    else
        ms_error_set(&why, -ENOENT, "there is no node '%s'", r->key);
    ms_sim_reply(r->sim, r->number, why.code, &why);
}

int ms_sim_cordon(struct ms_sim *s, uint64_t request, const char *node)
{
    return request_send(request_create(s, request, node, do_cordon));
}

void ms_sim_each(const struct ms_sim *s,
                 void (*fn)(void *arg,
                            const char *key,
                            uint64_t mark,
                            const struct ms_lent_piece *piece),
                 void *arg)
{
    ms_list_each (g, &s->gangs, struct gang, link)
        for (size_t i = 0; i < g->pieces.count; i++) {
            struct ms_lent_piece waiting = {.number = g->first + (uint32_t)i,
                                            .incarnation = 1};

            if (!g->instances)
                fn(arg, g->key, g->mark, &waiting);
            else if (!g->instances[i].is_released)
                fn(arg, g->key, g->mark, &g->instances[i].piece);
        }
}
