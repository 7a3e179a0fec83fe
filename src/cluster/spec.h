/* spec.h - a cluster as a value: is it whole, and what has been done to it since
 *
 * A ClusterSpec says all that is needed to make a cluster and to make each of its workers
 * anew: what was asked of placement, how processes are started, and the steps that every new
 * worker does before its first caller. Steps grow while the cluster lives: what is done to
 * all of its workers is added, so that a worker that is replaced later does it too.
 *
 * Pure: no clock, no socket.
 */
#ifndef MS_CLUSTER_SPEC_H
#define MS_CLUSTER_SPEC_H

#include "base/error.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>

/* 0, or -EINVAL (a name, a variable or a step that is none), -E2BIG (a step of more than
 * MS_STEP_MAX bytes, a spec of more than MS_SPEC_MAX). */
int ms_cluster_spec_check(const Muster__ClusterSpec *spec, struct ms_error *err);

/* Its variables are the role's own: those that each rank has from its place are refused. */
int ms_role_env_check(char *const *env, size_t count, struct ms_error *err);

/* This was done to all workers; the step is copied. DESTROY_ENGINE takes out the step that
 * made the engine. Of CONFIGURE the last one counts, also for engines that came before it.
 * `meta` replaces what drivers tell each other, unless it is empty. 0, -EINVAL, -E2BIG,
 * -ENOMEM; nothing has then changed. */
int ms_cluster_spec_add(Muster__ClusterSpec *spec,
                        const Muster__Step *step,
                        const ProtobufCBinaryData *meta,
                        struct ms_error *err);

/* The steps of one rank as a message to its worker: each has one argument, and what objects
 * it refers to stays behind. `first`: without those before. Freed with
 * muster__run_steps__free_unpacked; NULL: out of memory. */
Muster__RunSteps *ms_cluster_spec_run(const Muster__ClusterSpec *spec,
                                      uint32_t rank,
                                      size_t first,
                                      uint64_t uid,
                                      uint64_t run);

/* "library.so:symbol", a class in a shared library. */
bool ms_class_is_native(const char *worker_cls);

/* Are its workers processes without Python? */
bool ms_cluster_spec_is_native(const Muster__ClusterSpec *spec);

#endif
