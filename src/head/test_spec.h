/* test_spec.h - for tests: the specs of clusters
 *
 * A spec is filled in place, because it points into itself:
 *
 *     struct spec s;
 *     spec_init(&s, "actor", 2);
 *     spec_add_node(&s, "a");
 *     spec_add_step(&s, "load", "7b");
 *     op = spec_create(h, &s);
 */
#ifndef MS_HEAD_TEST_SPEC_H
#define MS_HEAD_TEST_SPEC_H

#include "head/head.h"

enum { SPEC_NODES_MAX = 4, SPEC_DEVICES_MAX = 8, SPEC_STEPS_MAX = 4 };

struct spec {
    Muster__ClusterSpec message;
    Muster__PlaceCluster place;
    Muster__WorkerSpec worker;
    Muster__Scope scope;
    char *nodes[SPEC_NODES_MAX];
    uint32_t devices[SPEC_DEVICES_MAX];
    Muster__Step steps[SPEC_STEPS_MAX], *step_list[SPEC_STEPS_MAX];
    ProtobufCBinaryData arguments[SPEC_STEPS_MAX];
    char *command[3];
};

/* That many ranks without devices, on any nodes, that can be resized. Texts are borrowed. */
void spec_init(struct spec *s, const char *name, uint32_t ranks);
/* Only on the nodes that are added. */
void spec_add_node(struct spec *s, const char *node);
/* By its global id; each rank has as many as place.devices_per_worker says, which is 1. */
void spec_add_device(struct spec *s, uint32_t id);
/* Each rank takes so many thousandths of a CPU. */
void spec_set_cpus(struct spec *s, uint32_t cpu_milli);
/* Each rank runs /bin/sh -c `script`. */
void spec_set_script(struct spec *s, const char *script);
/* A call of engine "default" with these bytes. */
void spec_add_step(struct spec *s, const char *method, const char *argument);

struct ms_head_op *spec_create(struct ms_head *h, const struct spec *s);

/* A step of its own, for ms_head_add_step; borrows all three. */
void step_init(Muster__Step *step,
               ProtobufCBinaryData *argument,
               const char *method,
               const char *text);

#endif
