/* local_nodes.c - the nodes that options describe on this machine */
#include "head/nodes/local_nodes.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "base/proto.h"
#include "io/addr.h"
#include "resource/shape.h"
#include "wire/frame.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static int no_memory(struct ms_error *err)
{
    return ms_error_set(err, -ENOMEM, "out of memory");
}

void ms_local_nodes_finish(struct ms_local_nodes *d)
{
    for (size_t i = 0; i < d->count; i++)
        ms_shape_destroy(d->shapes[i]);
    free(d->shapes);
    *d = (struct ms_local_nodes){0};
}

static int check_name(const struct ms_local_nodes *d, size_t i, struct ms_error *err)
{
    const Muster__NodeShape *shape = d->shapes[i];
    int rc;

    assert(shape);
    rc = ms_name_check(shape->name, "node", err);
    for (size_t k = 0; k < i && rc == 0; k++)
        if (strcmp(d->shapes[k]->name, shape->name) == 0)
            rc = ms_error_set(err, -EEXIST, "two nodes are called '%s'", shape->name);
    return rc;
}

/* By numbers. */
static int make_shape(const struct ms_head_options *o,
                      const char *host,
                      size_t index,
                      Muster__NodeShape **out,
                      struct ms_error *err)
{
    bool is_alone = o->num_nodes <= 1;
    struct ms_shape_devices devices = {.count =
                                           o->num_gpus > 0 ? (uint32_t)o->num_gpus : 0};
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *s = NULL;
    char name[32];
    int rc;

    snprintf(name, sizeof name, "n%zu", index);
    s = ms_shape_create(is_alone ? host : name);
    if (!s)
        return no_memory(err);
    s->cpus = o->num_cpus;
    s->look_for_devices = is_alone && o->num_gpus < 0;
    rc = ms_shape_add_devices(s, &devices, err);
    *out = rc == 0 ? MS_TAKE(s) : NULL;
    return rc;
}

int ms_local_nodes_init(struct ms_local_nodes *d,
                        const struct ms_head_options *o,
                        const char *host,
                        struct ms_error *err)
{
    size_t count = o->shape_count ? o->shape_count : o->num_nodes ? o->num_nodes : 1;
    int rc = 0;

    *d = (struct ms_local_nodes){0};
    if (count > MS_NODES_HERE_MAX)
        return ms_error_set(
            err,
            -E2BIG,
            "%zu nodes are described for this machine; at most %d can be",
            count,
            MS_NODES_HERE_MAX);
    d->shapes = calloc(count, sizeof(Muster__NodeShape *));
    if (!d->shapes)
        return no_memory(err);
    while (rc == 0 && d->count < count) {
        Muster__NodeShape *s = NULL;

        if (o->shape_count)
            s = ms_shape_copy(o->shapes[d->count]);
        else
            rc = make_shape(o, host, d->count, &s, err);
        if (rc == 0 && !s)
            rc = no_memory(err);
        if (rc < 0)
            break;
        d->shapes[d->count++] = s;
        rc = check_name(d, d->count - 1, err);
    }
    if (rc < 0)
        ms_local_nodes_finish(d);
    return rc;
}

/* Workers here are reached where agents come: at that address, or at all of them. */
static size_t fill_bind(const char *const *listen, struct ms_addr *at, char **out)
{
    size_t count = 0;

    for (size_t i = 0; listen && listen[i] && count < MS_ADDRS_MAX; i++)
        if (ms_addr_parse_listen(listen[i], &at[count], NULL) == 0) {
            out[count] = at[count].name;
            count++;
        }
    return count;
}

void ms_local_nodes_context(Muster__DriverContext *c, const struct ms_head_options *o)
{
    c->n_python = ms_field_count(o->python);
    c->python = ms_field_strings(o->python);
    c->n_sys_path = ms_field_count(o->sys_path);
    c->sys_path = ms_field_strings(o->sys_path);
    c->n_preload = ms_field_count(o->preload);
    c->preload = ms_field_strings(o->preload);
    c->working_dir = ms_field_text(o->working_dir);
    c->n_env = ms_field_count(o->env);
    c->env = ms_field_strings(o->env);
    c->wants_logs = o->log_to_driver;
}

Muster__HeadToAgent *ms_local_nodes_config(const struct ms_local_nodes *d,
                                           size_t index,
                                           const struct ms_session *session,
                                           const struct ms_head_options *o)
{
    struct ms_addr at[MS_ADDRS_MAX];
    char *bind[MS_ADDRS_MAX];
    Muster__DriverContext context = MUSTER__DRIVER_CONTEXT__INIT;
    Muster__AgentConfig c = MUSTER__AGENT_CONFIG__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    c.secret = (ProtobufCBinaryData){sizeof session->secret,
                                     (uint8_t *)(uintptr_t)session->secret};
    c.session = ms_field_text(session->name);
    c.session_dir = ms_field_text(session->dir);
    c.node_name = d->shapes[index]->name;
    c.driver_pid = session->driver_pid;
    c.shape = d->shapes[index];
    c.nodes_here = (uint32_t)d->count;
    ms_local_nodes_context(&context, o);
    c.context = &context;
    c.protocol_version = MS_FRAME_VERSION;
    c.store = (Muster__StoreConfig *)(uintptr_t)o->store;
    c.tls = (Muster__TlsMode)o->tls;
    c.n_bind = fill_bind(o->listen, at, bind);
    c.bind = bind;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_CONFIG;
    m.config = &c;
    return (Muster__HeadToAgent *)ms_proto_copy(&m.base);
}
