/* test_cluster.h - a registry with a cluster in it, for the tests of plans */
#ifndef MS_CLUSTER_TEST_CLUSTER_H
#define MS_CLUSTER_TEST_CLUSTER_H

#include "cluster/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A new cluster "actor" on nodes "n0", "n1", ..., two ranks on each, with a spec of one step
 * and places. None of its workers has been started. */
struct ms_cluster *test_cluster_add(struct ms_registry *r, uint32_t count);
/* The place of a rank on this node, owned. */
Muster__RankPlace *test_place(const char *node);
/* Its changing ranks run now, as processes of the numbers of their uids. */
void test_cluster_start(struct ms_registry *r, struct ms_cluster *c);
void test_worker_start(struct ms_registry *r, uint64_t uid);
void test_worker_exit(struct ms_registry *r, uint64_t uid);
/* Numbers that no worker has had. */
uint64_t test_next_uid(void);

/* A cluster as it is when its creation has succeeded: all of its ranks run, and a port is held
 * for it. */
struct ms_cluster *test_cluster_made(struct ms_registry *r, uint32_t count);

#endif
