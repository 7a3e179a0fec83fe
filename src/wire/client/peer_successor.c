/* peer_successor.c - the worker that takes a dead one's place */
#include "base/clock.h"
#include "base/name.h"
#include "wire/client/client_impl.h"

#include <string.h>

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
static int become_successor(struct ms_peer *p)
{
    int rc = ms_random_bytes(p->session, sizeof p->session);

    if (rc < 0)
        return rc;
    ms_dial_finish(&p->dial);
    p->dial = p->successor_dial;
    p->successor_dial = (struct ms_dial){0};
    atomic_store(&p->uid, p->successor_uid);
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
    if (!p->successor_uid || p->conn || p->state != PEER_SEEKING)
        return;
    if (become_successor(p) == 0 && p->open_count)
        ms_peer_connect(p);
    ms_dial_finish(&p->successor_dial);
    p->successor_uid = 0;
}

/* It goes on as it was: dead. */
static void be_alone(struct ms_peer *p)
{
    if (p->state != PEER_SEEKING || p->successor_uid)
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
    struct ms_dial dial;

    if (!worker || !worker->uid || ms_dial_init(&dial, worker->address, NULL) < 0) {
        be_alone(p);
        return;
    }
    be_replaced(p);
    ms_dial_finish(&p->successor_dial);
    p->successor_dial = dial;
    p->successor_uid = worker->uid;
    p->state = PEER_SEEKING;
    ms_peer_succeed(p); /* or when the old connection's reader has let go of it */
}
