/* fleet_ask.c - reserving, releasing and describing pieces */
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/drivers/driver.h"
#include "head/fleet/fleet_impl.h"
#include "head/head_impl.h"
#include "head/jobs/jobs.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/place/group_request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum kind { RESERVE, RELEASE, DESCRIBE };

/* One question to the orchestrator. */
struct ask {
    struct ms_list link; /* fleet->asks */
    struct ms_lease *lease;
    enum kind kind;
    struct ms_head_op *op;        /* NULL: nobody waits for the answer */
    struct ms_orch_op *under_way; /* NULL: the watch is not there yet */
    int64_t deadline_ns;
    bool is_answered; /* and is destroyed when that was told */
};

static struct ask *ask_create(struct ms_lease *l, enum kind kind, struct ms_head_op *op)
{
    struct ask *a = calloc(1, sizeof *a);

    if (!a)
        return NULL;
    *a = (struct ask){.lease = l, .kind = kind, .op = op, .deadline_ns = MS_NEVER};
    ms_list_add_tail(&l->fleet->asks, &a->link);
    l->asks++;
    return a;
}

/* Its lease is settled by who calls this. */
static struct ms_lease *ask_destroy(struct ask *a)
{
    struct ms_lease *l = a->lease;

    ms_list_remove(&a->link);
    free(a);
    l->asks--;
    return l;
}

bool ms_lease_is_asked(const struct ms_lease *l)
{
    ms_list_each (a, &l->fleet->asks, struct ask, link)
        if (a->lease == l && !a->is_answered)
            return true;
    return false;
}

void ms_fleet_asks_finish(struct ms_fleet *f)
{
    ms_list_each (a, &f->asks, struct ask, link)
        ask_destroy(a);
}

/* ---- answers ----------------------------------------------------------------------- */

static void fill_piece(Muster__LentPiece *m, const struct ms_lent_piece *p)
{
    muster__lent_piece__init(m);
    m->number = p->number;
    m->incarnation = p->incarnation;
    m->phase = ms_field_text(ms_phase_name(p->phase));
    m->cause =
        ms_field_text(p->cause == MS_CAUSE_NONE ? NULL : ms_cause_name(p->cause));
    m->code = p->code;
    m->node = ms_field_text(ms_fleet_node(p));
    m->machine = ms_field_text(p->node);
    m->detail = ms_field_text(p->detail);
    m->devices = (uint32_t *)(uintptr_t)p->devices;
    m->n_devices = p->device_count;
}

/* NULL: out of memory. */
static ProtobufCMessage *message_of(const struct ms_fleet *f,
                                    const struct ms_reservation *r)
{
    MS_CLEANUP(ms_cleanup_free)
    Muster__LentPiece *pieces = calloc(r->count + 1, sizeof *pieces);
    MS_CLEANUP(ms_cleanup_free)
    Muster__LentPiece **list = calloc(r->count + 1, sizeof *list);
    Muster__Reservation m = MUSTER__RESERVATION__INIT;

    if (!pieces || !list)
        return NULL;
    for (size_t i = 0; i < r->count; i++) {
        fill_piece(&pieces[i], r->pieces[i]);
        list[i] = &pieces[i];
    }
    m.key = ms_field_text(r->key);
    m.pieces = list;
    m.n_pieces = r->count;
    m.orchestrator = ms_field_text(f->o->ops->name);
    return ms_proto_copy(&m.base);
}

static void answer_with(struct ms_head_op *op,
                        const struct ms_fleet *f,
                        const struct ms_orch_answer *answer)
{
    if (answer->count > 0)
        ms_head_op_answer(op, message_of(f, &answer->reservations[0]));
    else
        ms_head_op_succeed(op, NULL);
}

/* Agents that were started and could not reach us look the same from here. */
static void fail_reserve(const struct ask *a, const struct ms_error *why)
{
    const struct ms_lease *l = a->lease;

    if (l->was_begun && (why->code == -ETIMEDOUT || why->code == -ECHILD))
        ms_head_op_fail(a->op,
                        why->code,
                        "%.380s (its agents dial the head at %.90s)",
                        why->text,
                        l->fleet->address);
    else
        ms_head_op_fail_with(a->op, why);
}

static void reserved(struct ask *a, const struct ms_orch_answer *answer)
{
    const Muster__Reserve *m = a->op->request->reserve;
    struct ms_lease *l = a->lease;

    l->is_held = true;
    for (size_t i = 0; answer->count > 0 && i < answer->reservations[0].count; i++)
        ms_lease_note(l, answer->reservations[0].pieces[i]);
    if (m->whole)
        ms_lease_assign(l, answer->first, m->nodes, m->n_nodes);
}

/* It cannot be asked now: it is tried again, unless all ends with the head. */
static void not_released(struct ms_lease *l)
{
    struct ms_fleet *f = l->fleet;

    if (f->head->stop_op)
        l->is_held = false;
    else if (l->is_ending)
        ms_timer_set(&f->again, MS_FLEET_AGAIN_NS);
}

static bool is_all(const struct ask *a)
{
    return !a->op || a->op->request->release_pieces->n_numbers == 0;
}

static void released(const struct ask *a)
{
    const Muster__ReleasePieces *some = a->op ? a->op->request->release_pieces : NULL;

    if (is_all(a))
        a->lease->is_held = false;
    ms_lease_given_back(
        a->lease, some ? some->numbers : NULL, some ? some->n_numbers : 0);
}

static void on_done(void *arg,
                    int rc,
                    const struct ms_error *why,
                    const struct ms_orch_answer *answer)
{
    struct ask *a = arg;
    struct ms_lease *l = a->lease;

    a->is_answered = true;
    if (a->kind == RESERVE && rc == 0)
        reserved(a, answer);
    if (a->kind == RELEASE && rc == 0)
        released(a);
    if (a->kind == RELEASE && rc < 0)
        not_released(l);
    if (rc < 0 && a->under_way)
        ms_fleet_probe(l->fleet);
    if (a->op && rc == 0)
        answer_with(a->op, l->fleet, answer);
    else if (a->op && a->kind == RESERVE)
        fail_reserve(a, why);
    else if (a->op)
        ms_head_op_fail_with(a->op, why);
    ms_lease_settle(ask_destroy(a));
}

/* Before it was asked. */
static void fail(struct ask *a, struct ms_error why)
{
    on_done(a, why.code, &why, NULL);
}

/* ---- asking ------------------------------------------------------------------------ */

/* Of all described nodes only those that are meant; `out` is to be freed. */
static int choose_nodes(struct ms_place_request *pieces,
                        const Muster__Reserve *m,
                        struct ms_bundle **out,
                        struct ms_error *err)
{
    *out = calloc(m->n_nodes, sizeof **out);
    if (!*out)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < m->n_nodes; i++) {
        if (m->nodes[i] >= pieces->count)
            return ms_error_set(err, -EINVAL, "there is no node %u", m->nodes[i]);
        (*out)[i] = pieces->bundles[m->nodes[i]];
    }
    pieces->bundles = *out;
    pieces->count = m->n_nodes;
    return 0;
}

static int begin_reserve(struct ask *a, struct ms_error *err)
{
    struct ms_fleet *f = a->lease->fleet;
    const Muster__Reserve *m = a->op->request->reserve;
    MS_CLEANUP(ms_group_request_finish) struct ms_group_request w = {0};
    MS_CLEANUP(ms_cleanup_free) struct ms_bundle *chosen = NULL;
    const struct ms_agent_start start = {.head = f->address,
                                         .secret_file = f->secret_file};
    struct ms_reserve r = {.key = a->lease->key,
                           .is_more = m->more,
                           .agent = &start,
                           .timeout_ns = a->deadline_ns - ms_now_ns()};
    int rc = ms_group_request_read(&w, NULL, m->pieces, err);

    if (rc < 0)
        return rc;
    r.pieces = m->whole ? f->whole.pieces : w.request;
    if (m->whole && m->n_nodes) {
        rc = choose_nodes(&r.pieces, m, &chosen, err);
        if (rc < 0)
            return rc;
    }
    r.pieces.name = r.key;
    if (r.timeout_ns <= 0)
        r.timeout_ns = 1;
    a->under_way = f->o->ops->reserve(f->o, &r, on_done, a);
    return 0;
}

static void begin(struct ask *a)
{
    struct ms_fleet *f = a->lease->fleet;
    const Muster__ReleasePieces *some =
        a->op && a->kind == RELEASE ? a->op->request->release_pieces : NULL;
    struct ms_error err = {-ENOMEM, "out of memory"};

    if (a->kind == RESERVE && begin_reserve(a, &err) < 0) {
        fail(a, err);
        return;
    }
    if (a->kind == RELEASE)
        a->under_way = f->o->ops->release(f->o,
                                          a->lease->key,
                                          some ? some->numbers : NULL,
                                          some ? some->n_numbers : 0,
                                          on_done,
                                          a);
    if (a->kind == DESCRIBE)
        a->under_way = f->o->ops->list(f->o, a->lease->key, on_done, a);
    if (!a->under_way)
        fail(a, err);
}

void ms_fleet_asks_go(struct ms_fleet *f, const struct ms_error *why)
{
    struct ms_error copy = why ? *why : (struct ms_error){0};

    ms_list_each (a, &f->asks, struct ask, link)
        if (!a->under_way) {
            if (why)
                fail(a, copy);
            else
                begin(a);
        }
}

static void go(struct ask *a)
{
    if (a->lease->fleet->watch)
        begin(a);
    else
        ms_fleet_listen(a->lease->fleet);
}

/* What it is reserving. */
static void cancel(struct ms_lease *l)
{
    struct ms_fleet *f = l->fleet;

    ms_list_each (a, &f->asks, struct ask, link)
        if (a->lease == l && a->kind == RESERVE && !a->is_answered) {
            if (a->under_way)
                f->o->ops->cancel(a->under_way);
            else
                fail(a, (struct ms_error){-ECANCELED, "it was given back meanwhile"});
        }
}

void ms_fleet_give_back(struct ms_lease *l)
{
    struct ask *a = ask_create(l, RELEASE, NULL);

    if (!a) {
        ms_timer_set(&l->fleet->again, MS_FLEET_AGAIN_NS);
        return;
    }
    cancel(l);
    go(a);
}

/* ---- requests ---------------------------------------------------------------------- */

/* The head's own, or that of the job whose reservation it is: that is for the head alone. */
static struct ms_fleet *fleet_of(const struct ms_head_op *op, const char *key)
{
    struct ms_fleet *f = op->asker == MS_ASKER_PROCESS && !op->driver
                             ? ms_jobs_fleet(op->head->jobs, key)
                             : NULL;

    return f ? f : op->head->fleet;
}

/* 0; the lease is NULL if nobody has that key. */
static int find_own(struct ms_head_op *op, const char *key, struct ms_lease **out)
{
    struct ms_fleet *f = fleet_of(op, key);
    struct ms_lease *l = f ? ms_lease_find(f, key) : NULL;

    *out = l;
    if (!f)
        return ms_error_set(&op->error,
                            -ENOTSUP,
                            "this head has no orchestrator that lends machines: "
                            "init(orchestrator=...), or `muster run`");
    if (op->head->stop_op)
        return ms_error_set(&op->error, -ESHUTDOWN, "the head is ending");
    if (!key[0] || strlen(key) > MS_ORCH_KEY_MAX)
        return ms_error_set(&op->error,
                            -EINVAL,
                            "a reservation's name has 1 to %zu bytes",
                            MS_ORCH_KEY_MAX);
    if (l && l->driver != ms_driver_id(op->driver))
        return ms_error_set(
            &op->error, -EEXIST, "reservation '%s' is another driver's", l->key);
    return 0;
}

static int no_reservation(struct ms_head_op *op, const char *key)
{
    return ms_error_set(&op->error, -ENOENT, "there is no reservation '%s'", key);
}

int ms_fleet_reserve_run(struct ms_head_op *op)
{
    const Muster__PlaceGroup *m = op->request->reserve->pieces;
    struct ms_lease *l = NULL;
    struct ask *a;
    int rc = m ? find_own(op, m->name, &l)
               : ms_error_set(&op->error, -EINVAL, "what is to be reserved?");

    if (rc < 0)
        return rc;
    if (op->request->reserve->more && !(l && l->is_held))
        return no_reservation(op, m->name);
    if (!l)
        l = ms_lease_create(fleet_of(op, m->name), m->name, ms_driver_id(op->driver));
    a = l ? ask_create(l, RESERVE, op) : NULL;
    if (l && !a)
        ms_lease_settle(l);
    if (!a)
        return -ENOMEM;
    l->is_ending = l->was_begun = false;
    a->deadline_ns = ms_deadline_ns(ms_now_ns(), ms_head_grace(m->timeout_ns));
    go(a);
    return 0;
}

/* Of a lease that is there. */
static int
ask_about(struct ms_head_op *op, struct ms_lease *l, enum kind kind, bool is_end)
{
    struct ask *a = ask_create(l, kind, op);

    if (!a)
        return -ENOMEM;
    if (is_end)
        cancel(l);
    go(a);
    return 0;
}

int ms_fleet_release_run(struct ms_head_op *op)
{
    const Muster__ReleasePieces *m = op->request->release_pieces;
    struct ms_lease *l;
    int rc = find_own(op, m->key, &l);

    if (rc < 0)
        return rc;
    /* of a job it may be what the head before had: the orchestrator knows */
    if (!l && fleet_of(op, m->key) != op->head->fleet &&
        !(l = ms_lease_create(fleet_of(op, m->key), m->key, ms_driver_id(op->driver))))
        return -ENOMEM;
    if (l) {
        rc = ask_about(op, l, RELEASE, m->n_numbers == 0);
        if (rc < 0)
            ms_lease_settle(l);
        return rc;
    }
    ms_head_op_succeed(op, NULL);
    return 0;
}

int ms_fleet_describe_run(struct ms_head_op *op)
{
    const char *key = op->request->reservation->key;
    struct ms_lease *l;
    int rc = find_own(op, key, &l);

    if (rc == 0 && !l)
        rc = no_reservation(op, key);
    return rc < 0 ? rc : ask_about(op, l, DESCRIBE, false);
}
