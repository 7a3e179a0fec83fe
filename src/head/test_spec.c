/* test_spec.c - for tests: the specs of clusters */
#include "head/test_spec.h"

#include <assert.h>
#include <string.h>

static char *borrow(const char *text)
{
    return (char *)(uintptr_t)text;
}

void spec_init(struct spec *s, const char *name, uint32_t ranks)
{
    memset(s, 0, sizeof *s);
    muster__cluster_spec__init(&s->message);
    muster__place_cluster__init(&s->place);
    muster__worker_spec__init(&s->worker);
    muster__scope__init(&s->scope);
    s->place.world_size = ranks;
    s->place.scope = &s->scope;
    s->place.devices = s->devices;
    s->scope.nodes = s->nodes;
    s->message.name = borrow(name);
    s->message.place = &s->place;
    s->message.worker = &s->worker;
    s->message.steps = s->step_list;
    s->message.can_resize = true;
}

void spec_add_node(struct spec *s, const char *node)
{
    assert(s->scope.n_nodes < SPEC_NODES_MAX);
    s->nodes[s->scope.n_nodes++] = borrow(node);
}

void spec_add_device(struct spec *s, uint32_t id)
{
    assert(s->place.n_devices < SPEC_DEVICES_MAX);
    s->devices[s->place.n_devices++] = id;
    if (s->place.devices_per_worker == 0)
        s->place.devices_per_worker = 1;
}

void spec_set_cpus(struct spec *s, uint32_t cpu_milli)
{
    s->place.cpu_milli = cpu_milli;
    s->worker.cpu_milli = cpu_milli;
}

void spec_set_script(struct spec *s, const char *script)
{
    static char shell[] = "/bin/sh", option[] = "-c";

    s->command[0] = shell;
    s->command[1] = option;
    s->command[2] = borrow(script);
    s->worker.start = MUSTER__START_KIND__START_COMMAND;
    s->worker.command = s->command;
    s->worker.n_command = 3;
}

void step_init(Muster__Step *step,
               ProtobufCBinaryData *argument,
               const char *method,
               const char *text)
{
    static char engine[] = "default";

    muster__step__init(step);
    argument->data = (uint8_t *)borrow(text);
    argument->len = strlen(text);
    step->engine = engine;
    step->method = borrow(method);
    step->arguments = argument;
    step->n_arguments = 1;
}

void spec_add_step(struct spec *s, const char *method, const char *argument)
{
    size_t i = s->message.n_steps;

    assert(i < SPEC_STEPS_MAX);
    step_init(&s->steps[i], &s->arguments[i], method, argument);
    s->step_list[i] = &s->steps[i];
    s->message.n_steps++;
}

struct ms_head_op *spec_create(struct ms_head *h, const struct spec *s)
{
    return ms_head_create_cluster(h, &s->message, 0);
}
