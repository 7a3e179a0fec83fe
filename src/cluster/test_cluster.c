/* test_cluster.c - a registry with a cluster in it, for the tests of plans */
#include "cluster/test_cluster.h"
#include "base/proto.h"
#include "wire/frame.h"

#include <stdio.h>

enum { RANKS_MAX = 64 };

uint64_t test_next_uid(void)
{
    static uint64_t last = 1000;

    return ++last;
}

Muster__RankPlace *test_place(const char *node)
{
    Muster__Piece piece = MUSTER__PIECE__INIT, *pieces[] = {&piece};
    Muster__RankPlace place = MUSTER__RANK_PLACE__INIT;

    piece.node = ms_field_text(node);
    place.pieces = pieces;
    place.n_pieces = 1;
    return (Muster__RankPlace *)ms_proto_copy(&place.base);
}

static Muster__ClusterSpec *spec_create(void)
{
    static char name[] = "actor", engine[] = "default";
    static uint8_t text[] = "x";
    ProtobufCBinaryData argument = {1, text};
    Muster__Step step = MUSTER__STEP__INIT, *steps[] = {&step};
    Muster__ClusterSpec spec = MUSTER__CLUSTER_SPEC__INIT;
    Muster__WorkerSpec worker = MUSTER__WORKER_SPEC__INIT;
    Muster__PlaceCluster place = MUSTER__PLACE_CLUSTER__INIT;

    step.op = MS_OP_CREATE_ENGINE;
    step.engine = engine;
    step.arguments = &argument;
    step.n_arguments = 1;
    spec.name = name;
    spec.worker = &worker;
    spec.place = &place;
    spec.can_resize = true;
    spec.steps = steps;
    spec.n_steps = 1;
    return (Muster__ClusterSpec *)ms_proto_copy(&spec.base);
}

struct ms_cluster *test_cluster_add(struct ms_registry *r, uint32_t count)
{
    struct ms_slot_spec slots[RANKS_MAX] = {{0}};
    char nodes[RANKS_MAX][16];
    struct ms_error err = {0};
    struct ms_cluster *c = NULL;

    assert_true(count <= RANKS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(nodes[i], sizeof nodes[i], "n%u", i / 2);
        slots[i] = (struct ms_slot_spec){.uid = test_next_uid(), .node = nodes[i]};
    }
    if (ms_registry_add(r, "actor", slots, count, &c, &err) < 0)
        fail_msg("%s", err.text);
    c->spec = spec_create();
    c->placed =
        (Muster__ClusterPlaced *)ms_proto_create(&muster__cluster_placed__descriptor);
    for (uint32_t i = 0; i < count; i++)
        assert_true(ms_proto_append(
            &c->placed->ranks, &c->placed->n_ranks, test_place(nodes[i])));
    return c;
}

void test_worker_start(struct ms_registry *r, uint64_t uid)
{
    char address[] = "/s/w/a.sock", log_path[] = "/s/logs/a-0.log";
    Muster__WorkerStarted s = MUSTER__WORKER_STARTED__INIT;

    s.uid = uid;
    s.pid = (int)uid;
    s.address = address;
    s.log_path = log_path;
    assert_int_equal(ms_registry_started(r, &s, 1), 0);
}

void test_worker_exit(struct ms_registry *r, uint64_t uid)
{
    Muster__Exit e = MUSTER__EXIT__INIT;

    assert_non_null(ms_registry_exited(r, uid, &e));
}

void test_cluster_start(struct ms_registry *r, struct ms_cluster *c)
{
    ms_changing_each (s, c)
        test_worker_start(r, s->now.uid);
}

struct ms_cluster *test_cluster_made(struct ms_registry *r, uint32_t count)
{
    struct ms_cluster *c = test_cluster_add(r, count);

    ms_cluster_set_changing(c, 0);
    test_cluster_start(r, c);
    ms_cluster_set_changing(c, c->count);
    c->is_made = true;
    c->master = (Muster__PortHeld *)ms_proto_create(&muster__port_held__descriptor);
    c->master->port = 29500;
    return c;
}
