/* peer_successor.c - the worker that takes a dead one's place */
#include "base/clock.h"
#include "base/name.h"
#include "wire/client/client_impl.h"

#include <string.h>

struct ms_successor {
    uint64_t uid;
    struct ms_dial dial;
};

void ms_successor_free(struct ms_successor *s)
{
    if (!s)
        return;
    ms_dial_finish(&s->dial);
    free(s);
}

static struct ms_successor *successor_create(const Muster__WorkerStatus *worker)
{
    struct ms_successor *s = worker && worker->uid ? calloc(1, sizeof *s) : NULL;

    if (!s)
        return NULL;
    s->uid = worker->uid;
    if (ms_dial_init(&s->dial, worker->address, NULL) == 0)
        return s;
    ms_successor_free(s);
    return NULL;
}

bool ms_call_can_go_on(const struct ms_call *c)
{
    return c->peer->may_have_successor && !c->sent && c->request;
}

void ms_peer_seek_successor(struct ms_peer *p)
{
    p->state = PEER_SEEKING;
    p->seek_ns = 0;
    ms_client_wake_at(p->client, ms_now_ns()); /* it is asked for from there */
}

/* Nothing of the old worker's is left but the names of methods and the calls that wait. */
static int become(struct ms_peer *p, struct ms_successor *s)
{
    int rc = ms_random_bytes(p->session, sizeof p->session);

    if (rc < 0)
        return rc;
    ms_dial_finish(&p->dial);
    p->dial = s->dial;
    s->dial = (struct ms_dial){0};
    atomic_store(&p->uid, s->uid);
    free(p->failure);
    p->failure = NULL;
    p->failure_len = 0;
    p->may_have_successor = p->was_known = p->is_working = false;
    p->wants_exit = p->asked = false;
    p->is_suspect = false;
    p->ack_count = p->attempts = 0;
    p->worker_core = 0;
    p->problem[0] = 0;
    p->exit_due_ns = MS_NEVER;
    p->state = PEER_IDLE;
    return 0;
}

void ms_peer_succeed(struct ms_peer *p)
{
    struct ms_successor *s = p->successor;

    if (!s || p->conn || p->state != PEER_SEEKING)
        return;
    p->successor = NULL;
    if (become(p, s) == 0 && p->open_count)
        ms_peer_connect(p);
    ms_successor_free(s);
}

/* It goes on as it was: dead. */
static void be_alone(struct ms_peer *p)
{
    if (p->state != PEER_SEEKING || p->successor)
        return;
    p->state = PEER_DEAD;
    ms_peer_end_calls(p, p->failure, p->failure_len, false);
}

static void be_replaced(struct ms_peer *p)
{
    if (p->state == PEER_DEAD || p->state == PEER_SEEKING)
        return;
    p->may_have_successor = true;
    ms_peer_die(p, MUSTER__FAILURE__KIND__WORKER_DIED, "it was replaced", NULL);
}

void ms_peer_set_successor(struct ms_peer *p, const Muster__WorkerStatus *worker)
{
    struct ms_successor *s = successor_create(worker);

    if (!s) {
        be_alone(p);
        return;
    }
    be_replaced(p);
    ms_successor_free(p->successor);
    p->successor = s;
    p->state = PEER_SEEKING;
    ms_peer_succeed(p); /* or when the old connection's reader has let go of it */
}
