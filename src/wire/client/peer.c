/* peer.c - a peer: life, names of methods, starting calls */
#include "base/buf.h"
#include "base/clock.h"
#include "base/name.h"
#include "wire/client/client_impl.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------ */

static void peer_free(struct ms_peer *p)
{
    assert(p->calls.count == 0); /* each holds a reference */
    ms_peer_drop_conn(p);
    for (size_t i = 0; i < p->method_count; i++)
        free(p->methods[i].iov_base);
    free(p->methods);
    ms_map_finish(&p->calls);
    pthread_mutex_destroy(&p->lock);
    free(p->failure);
    ms_dial_finish(&p->successor_dial);
    ms_dial_finish(&p->dial);
    free(p);
}

static struct ms_peer *peer_alloc(struct ms_client *c, uint64_t uid, const char *label)
{
    struct ms_peer *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->probe_fd = -1;
    p->refs = 1;
    p->client = c;
    p->uid = uid;
    p->pair = ms_random_id();
    p->expire_ns = MS_NEVER;
    snprintf(p->label, sizeof p->label, "%s", label);
    ms_list_init(&p->link);
    ms_list_init(&p->waiters);
    ms_list_init(&p->garbage);
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

static int add_peer(struct ms_client *c, struct ms_peer *p, struct ms_error *err)
{
    int rc;
    MS_LOCK(&c->lock);

    if (c->closed)
        return ms_error_set(err, -ESHUTDOWN, "the client is closed");
    p->id = ++c->next_id;
    rc = ms_map_add(&c->by_id, p->id, p);
    if (rc < 0)
        return ms_error_set(err, rc, "out of memory");
    ms_list_add_tail(&c->peers, &p->link);
    atomic_fetch_add(&c->refs, 1);
    return 0;
}

struct ms_peer *ms_peer_create(struct ms_client *c,
                               const char *addresses,
                               uint64_t uid,
                               const char *label,
                               struct ms_error *err)
{
    struct ms_peer *p = peer_alloc(c, uid, label);
    int rc;

    if (!p) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    rc = ms_dial_init(&p->dial, addresses, err);
    if (rc == 0 && (rc = ms_random_bytes(p->session, sizeof p->session)) < 0)
        ms_error_sys(err, rc, "no random bytes");
    if (rc == 0)
        rc = add_peer(c, p, err);
    if (rc == 0)
        return p;
    peer_free(p);
    return NULL;
}

struct ms_peer *ms_peer_ref(struct ms_peer *p)
{
    atomic_fetch_add(&p->refs, 1);
    return p;
}

/* Not the last one: no lock. */
static bool unref_quickly(struct ms_peer *p)
{
    unsigned refs = atomic_load(&p->refs);

    while (refs > 1)
        if (atomic_compare_exchange_weak(&p->refs, &refs, refs - 1))
            return true;
    return false;
}

void ms_peer_unref(struct ms_peer *p)
{
    struct ms_client *c;

    if (!p || unref_quickly(p))
        return;
    c = p->client;
    pthread_mutex_lock(&c->lock); /* nobody finds it by id from here on */
    if (atomic_fetch_sub(&p->refs, 1) != 1) {
        pthread_mutex_unlock(&c->lock);
        return;
    }
    ms_map_remove(&c->by_id, p->id);
    ms_list_remove(&p->link);
    pthread_mutex_unlock(&c->lock);
    peer_free(p);
    ms_client_unref(c);
}

uint64_t ms_peer_uid(const struct ms_peer *p)
{
    return atomic_load(&p->uid);
}

const char *ms_peer_label(const struct ms_peer *p)
{
    return p->label;
}

struct ms_call *ms_peer_take_call(struct ms_peer *p, uint64_t id)
{
    struct ms_call *c = ms_map_remove(&p->calls, id);

    if (c && !c->given_up)
        p->open_count--;
    return c;
}

void ms_peer_drop_call(struct ms_peer *p, struct ms_call *c)
{
    ms_list_add_tail(&p->garbage, &c->link);
}

void ms_peer_unlock(struct ms_peer *p)
{
    _Atomic uint32_t *wake = MS_TAKE(p->wake);
    struct ms_inbox *told = MS_TAKE(p->told);
    struct ms_list garbage;
    struct ms_call *c;

    ms_list_init(&garbage);
    ms_list_splice(&garbage, &p->garbage);
    pthread_mutex_unlock(&p->lock);
    if (told)
        ms_inbox_tell(told);
    if (wake)
        ms_waiter_wake_at(wake);
    while ((c = ms_list_take(&garbage, struct ms_call, link)))
        ms_call_unref(c);
}

/* ---- methods --------------------------------------------------------------------- */

static int method_find(const struct ms_peer *p,
                       const char *engine,
                       size_t engine_len,
                       const char *method)
{
    for (size_t i = 0; i < p->method_count; i++) {
        const char *known = p->methods[i].iov_base;

        if (strcmp(known, engine) == 0 && strcmp(known + engine_len + 1, method) == 0)
            return (int)(MS_OP_METHOD + i);
    }
    return -ENOENT;
}

static int
method_add(struct ms_peer *p, const char *engine, size_t engine_len, const char *method)
{
    size_t len = engine_len + 1 + strlen(method);
    char *text;

    if (len > MS_METHOD_NAME_MAX || !*method)
        return -ENAMETOOLONG;
    if (ms_title_check(method, strlen(method), MS_METHOD_NAME_MAX, "method", NULL) <
            0 ||
        (engine_len &&
         ms_title_check(engine, engine_len, MS_METHOD_NAME_MAX, "engine", NULL) < 0))
        return -EILSEQ;
    if (p->method_count == MS_METHODS_MAX)
        return -ENOSPC;
    if (ms_array_reserve(
            &p->methods, &p->method_room, p->method_count + 1, sizeof *p->methods) <
            0 ||
        asprintf(&text, "%s%c%s", engine, 0, method) < 0)
        return -ENOMEM;
    p->methods[p->method_count++] = (struct iovec){text, len};
    if (p->conn && ms_peer_send_method(p, p->method_count - 1) < 0) {
        p->method_count--;
        free(text);
        return -ENOMEM;
    }
    return (int)(MS_OP_METHOD + p->method_count - 1);
}

int ms_peer_method(struct ms_peer *p, const char *engine, const char *method)
{
    size_t engine_len = strlen(engine);
    int op;
    MS_PEER_LOCK(p);

    op = method_find(p, engine, engine_len, method);
    return op == -ENOENT ? method_add(p, engine, engine_len, method) : op;
}

/* ---- starting a call ------------------------------------------------------------- */

enum { CALL_IOV_MAX = 64 };

/* The payload with the chain before it. */
static int call_iov(const struct ms_call_spec *spec,
                    uint8_t *chain,
                    struct iovec iov[CALL_IOV_MAX])
{
    int n = 0;

    if (spec->chain_count) {
        uint16_t count = htole16((uint16_t)spec->chain_count);

        memcpy(chain, &count, sizeof count);
        for (uint32_t i = 0; i < spec->chain_count; i++) {
            uint64_t uid = htole64(spec->chain[i]);

            memcpy(chain + sizeof count + i * sizeof uid, &uid, sizeof uid);
        }
        iov[n++] =
            (struct iovec){chain, sizeof count + spec->chain_count * sizeof(uint64_t)};
    }
    for (int i = 0; i < spec->count; i++)
        iov[n++] = spec->iov[i];
    return n;
}

/* What may have to be sent (again) later. 0, or -ENOMEM. */
static int keep_request(struct ms_call *c, const struct iovec *iov, int count)
{
    /* it cannot be sent now */
    bool needed =
        !c->peer->conn || c->peer->is_broken || c->peer->state == PEER_SEEKING;
    size_t len = ms_iov_len(iov, count);

    if (len > MS_RESEND_MAX && !needed)
        return 0;
    c->request = malloc(len ? len : 1);
    if (!c->request)
        return needed ? -ENOMEM : 0;
    ms_iov_copy(c->request, iov, count);
    c->request_len = len;
    return 0;
}

/* Poll for the answer? Only with a lease, and not after polls that were in vain; and leases
 * are of this host alone. */
static bool take_lease(struct ms_peer *p, int64_t now_ns)
{
    return p->client->o.spin && !p->is_remote &&
           atomic_load(&p->client->outstanding) == 1 && now_ns >= p->spin_again_ns &&
           ms_spin_take(p->client->o.spin, p->pair, now_ns);
}

static int call_send(struct ms_peer *p,
                     struct ms_call *c,
                     const struct ms_call_spec *spec,
                     const struct iovec *iov,
                     int count)
{
    int64_t now_ns = c->begun_ns;
    struct ms_frame head = ms_call_frame(c, now_ns);

    if (spec->waits && !spec->is_of_many && take_lease(p, now_ns)) {
        head.flags |= MS_FRAME_SPIN;
        head.core = (uint32_t)sched_getcpu() + 1;
        c->spin = head.core != p->worker_core;
    }
    c->just_sent = spec->waits;
    c->yields = spec->waits && spec->is_of_many && p->client->o.spin && !p->is_remote;
    if (p->ack_count)
        head.ack = p->acks[--p->ack_count];
    if (p->is_network)
        ms_peer_expect(p, now_ns);
    return ms_peer_send(p, &head, iov, count);
}

/* Put the call on its way, or complete it with the reason why not. */
static void
call_start(struct ms_peer *p, struct ms_call *c, const struct ms_call_spec *spec)
{
    uint8_t chain[2 + MS_CHAIN_MAX * sizeof(uint64_t)];
    struct iovec iov[CALL_IOV_MAX];
    int count = call_iov(spec, chain, iov), rc;

    c->id = ++p->next_call;
    c->begun_ns = ms_now_ns();
    c->asked_ns = spec->asked_ns ? spec->asked_ns : c->begun_ns;
    c->flow = spec->flow;
    c->flags = (uint16_t)((spec->stream ? MS_FRAME_STREAM : 0) |
                          (spec->chain_count ? MS_FRAME_CHAIN : 0));
    if (!p->conn && p->state == PEER_IDLE)
        ms_peer_connect(p);
    rc = keep_request(c, iov, count);
    if (rc == 0)
        rc = ms_map_add(&p->calls, c->id, c);
    if (rc < 0) {
        ms_call_fail(c, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
        return;
    }
    ms_call_ref(c);
    if (p->open_count++ == 0)
        p->is_noticed = false;
    if (c->deadline_ns < p->expire_ns)
        p->expire_ns = c->deadline_ns;
    if (p->state == PEER_SEEKING)
        return;     /* sent to who has its place */
    if (!p->conn) { /* sent when there is a connection */
        if (p->state == PEER_IDLE)
            ms_peer_give_up(p, "%s", p->problem);
        return;
    }
    rc = call_send(p, c, spec, iov, count);
    if (rc < 0 && ms_peer_take_call(p, c->id)) {
        if (rc == -EMSGSIZE)
            ms_call_fail(c,
                         MUSTER__FAILURE__KIND__REFUSED,
                         "the arguments are too big to be sent");
        else
            ms_call_fail(
                c, MUSTER__FAILURE__KIND__NO_MEMORY, "no memory to send the call");
        ms_peer_drop_call(p, c);
        return;
    }
    if (spec->waits)
        return;
    if (c->begun_ns - p->begun_ns < MS_BURST_NS && !p->is_noticed)
        p->burst_until_ns = c->begun_ns + MS_BURST_NS;
    p->begun_ns = c->begun_ns;
    if (p->inbox_until_ns) /* as with the calls before it */
        p->inbox_until_ns = c->begun_ns + MS_INBOX_READS_NS;
    ms_peer_hand_over(p);
}

static struct ms_call *call_create(struct ms_peer *p, const struct ms_call_spec *spec)
{
    struct ms_call *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->refs = 1;
    c->peer = ms_peer_ref(p);
    c->op = spec->op;
    c->codec = spec->codec;
    c->deadline_ns = spec->deadline_ns;
    c->on_end = spec->on_end;
    c->end_arg = spec->end_arg;
    ms_list_init(&c->link);
    ms_list_init(&c->items);
    ms_list_init(&c->notices);
    return c;
}

static void fail_dead(struct ms_peer *p, struct ms_call *c)
{
    uint8_t *copy = ms_bytes_copy(p->failure, p->failure_len);

    ms_call_complete(c, MS_KIND_ERROR, MS_CODEC_PROTO, copy, copy ? p->failure_len : 0);
}

struct ms_call *ms_peer_call(struct ms_peer *p, const struct ms_call_spec *spec)
{
    struct ms_call *c = call_create(p, spec);

    if (!c)
        return NULL;
    atomic_fetch_add(&p->client->outstanding, 1);
    MS_PEER_LOCK(p);
    if (p->state == PEER_DEAD && p->may_have_successor)
        ms_peer_seek_successor(p);
    if (p->state == PEER_DEAD)
        fail_dead(p, c);
    else if (spec->count + 1 > CALL_IOV_MAX || spec->chain_count > MS_CHAIN_MAX)
        ms_call_fail(c, MUSTER__FAILURE__KIND__REFUSED, "too many pieces in one call");
    else
        call_start(p, c, spec);
    if (!c->done && !spec->waits)
        ms_client_wake_at(p->client, c->deadline_ns);
    return c;
}
