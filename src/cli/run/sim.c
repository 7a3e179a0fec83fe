/* sim.c - `muster run --on sim`: how a reservation would go, in virtual time */
#include "orchestrator/sim/sim.h"
#include "base/clock.h"
#include "cli/out.h"
#include "cli/run/run.h"

/* A start takes up to this, and the reservation is given up after that. */
#define START_NS   (5 * MS_NS_PER_S)
#define RESERVE_NS (600 * MS_NS_PER_S)

struct dry {
    const struct ms_run_spec *run;
    struct ms_sim *backend;
    bool is_done;
    int rc;
    struct ms_error why;
    bool tells; /* what is there */
};

static void on_event(void *arg, int rc, const struct ms_orch_event *e)
{
    struct dry *d = arg;

    if (rc == 0 && !e->gone)
        ms_run_report_piece(d->run, e->piece, ms_sim_now_ns(d->backend));
}

static void on_done(void *arg,
                    int rc,
                    const struct ms_error *why,
                    const struct ms_orch_answer *answer)
{
    struct dry *d = arg;

    d->is_done = true;
    d->rc = rc;
    if (rc < 0)
        d->why = *why;
    else if (d->tells)
        ms_run_report_reserved(d->run, &answer->reservations[0]);
}

static bool wait(struct dry *d)
{
    while (!d->is_done && ms_sim_step(d->backend, MS_NEVER))
        ;
    return d->is_done && d->rc == 0;
}

static bool reserve(struct dry *d, struct ms_orchestrator *o)
{
    const struct ms_reserve request = {
        .key = d->run->key, .pieces = d->run->nodes->pieces, .timeout_ns = RESERVE_NS};

    /* the first controller of a backend begins to count there */
    if (!o->ops->watch(o, UINT64_C(1) << 32, on_event, d) ||
        !o->ops->reserve(o, &request, on_done, d) || !wait(d))
        return false;
    d->is_done = false; /* what the watch has still to hear comes before this */
    d->tells = true;
    return o->ops->list(o, d->run->key, on_done, d) && wait(d);
}

static bool release(struct dry *d, struct ms_orchestrator *o)
{
    d->is_done = d->tells = false;
    if (!o->ops->release(o, d->run->key, NULL, 0, on_done, d) || !wait(d))
        return false;
    while (ms_sim_held(d->backend) > 0 && ms_sim_step(d->backend, MS_NEVER))
        ;
    return ms_sim_held(d->backend) == 0;
}

enum ms_exit ms_run_sim(const struct ms_run_spec *r)
{
    struct dry d = {.run = r};
    struct ms_stock stock;
    struct ms_orchestrator *o;
    bool is_good;

    if (ms_whole_nodes_stock(r->nodes, &stock, &d.why) < 0)
        return ms_out_fail(r->cli, MS_EXIT_FAILED, "%s", d.why.text);
    d.backend = ms_sim_create(&(struct ms_sim_options){
        .seed = 1, .stock = &stock, .faults = {.start_ns = START_NS}});
    o = d.backend ? ms_orchestrator_sim(d.backend) : NULL;
    is_good = o && reserve(&d, o) && release(&d, o);
    if (is_good)
        ms_run_report(r,
                      MS_JSON({"event", json_string("released")},
                              {"at_ns", json_integer(ms_sim_now_ns(d.backend))}),
                      "%10.3f s  released; this was a simulation: nothing was started, "
                      "and the driver did not run",
                      (double)ms_sim_now_ns(d.backend) / MS_NS_PER_S);
    if (o)
        o->ops->destroy(o);
    ms_sim_destroy(d.backend);
    ms_stock_finish(&stock);
    if (is_good)
        return MS_EXIT_OK;
    return ms_out_fail(
        r->cli, MS_EXIT_FAILED, "%s", d.why.code ? d.why.text : "out of memory");
}
