/* Placement groups. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proto.h"
#include "capi/capi.h"

#include <errno.h>
#include <string.h>

struct muster_group {
    struct muster_session *session;
    Muster__GroupStatus *told; /* the last that the head has said */
};

/* ---- what is asked --------------------------------------------------------------- */

/* One bundle as a message, which borrows the texts but for `own`. */
struct bundle {
    Muster__BundleSpec message;
    Muster__NamedAmount *resources, **resource_list;
    Muster__LabelCondition *labels, **label_list;
    char **own; /* names, cut off their texts; NULL-terminated */
};

static void bundle_finish(struct bundle *b)
{
    for (size_t i = 0; b->own && b->own[i]; i++)
        free(b->own[i]);
    free(b->own);
    free(b->resources);
    free(b->resource_list);
    free(b->labels);
    free(b->label_list);
}

static size_t count_texts(const char *const *texts)
{
    size_t n = 0;

    while (texts && texts[n])
        n++;
    return n;
}

/* The name before '='; *value is what is behind it. NULL: there is none, or no memory. */
static char *cut_name(struct bundle *b, const char *text, size_t at, const char **value)
{
    const char *equals = strchr(text, '=');

    if (!equals)
        return NULL;
    *value = equals + 1;
    b->own[at] = strndup(text, (size_t)(equals - text));
    return b->own[at];
}

static int add_parts(struct bundle *b, const struct muster_bundle *from)
{
    size_t resources = count_texts(from->resources), labels = count_texts(from->labels);
    const char *value = NULL;

    b->own = calloc(resources + labels + 1, sizeof(char *));
    b->resources = calloc(resources + 1, sizeof *b->resources);
    b->resource_list = calloc(resources + 1, sizeof(Muster__NamedAmount *));
    b->labels = calloc(labels + 1, sizeof *b->labels);
    b->label_list = calloc(labels + 1, sizeof(Muster__LabelCondition *));
    if (!b->own || !b->resources || !b->resource_list || !b->labels || !b->label_list)
        return -ENOMEM;
    for (size_t i = 0; i < resources; i++) {
        char *end = NULL;

        muster__named_amount__init(&b->resources[i]);
        b->resources[i].name = cut_name(b, from->resources[i], i, &value);
        if (!b->resources[i].name)
            return -EINVAL;
        b->resources[i].amount = strtoull(value, &end, 10);
        if (!*value || *end)
            return -EINVAL;
        b->resource_list[i] = &b->resources[i];
    }
    for (size_t i = 0; i < labels; i++) {
        muster__label_condition__init(&b->labels[i]);
        b->labels[i].name = cut_name(b, from->labels[i], resources + i, &value);
        if (!b->labels[i].name)
            return -EINVAL;
        b->labels[i].condition = (char *)(uintptr_t)value;
        b->label_list[i] = &b->labels[i];
    }
    b->message.resources = b->resource_list;
    b->message.n_resources = resources;
    b->message.labels = b->label_list;
    b->message.n_labels = labels;
    return 0;
}

static int bundle_fill(struct bundle *b, const struct muster_bundle *from)
{
    Muster__BundleSpec *m = &b->message;
    bool is_share = from->gpus > 0 && from->gpus < 1;

    muster__bundle_spec__init(m);
    if (!(from->cpus >= 0 && from->cpus < 1e9) ||
        !(from->gpus >= 0 && from->gpus < 1e6) ||
        (!is_share && (double)(uint32_t)from->gpus != from->gpus))
        return -EINVAL;
    m->count = from->count;
    m->cpu_milli = (uint64_t)(from->cpus * 1000 + 0.5);
    m->memory = from->memory;
    m->devices = is_share ? 0 : (uint32_t)from->gpus;
    m->share_milli = is_share ? (uint32_t)(from->gpus * 1000 + 0.5) : 0;
    m->device_memory = from->gpu_memory;
    m->one_domain = from->one_domain;
    if (from->kind)
        m->kind = (char *)(uintptr_t)from->kind;
    return from->resources || from->labels ? add_parts(b, from) : 0;
}

static char *text_or_empty(const char *text)
{
    return (char *)(uintptr_t)(text ? text : "");
}

/* ---- life ------------------------------------------------------------------------ */

static struct muster_group *
group_create(struct muster_session *s, struct ms_head_op *op, struct muster_error *err)
{
    struct muster_group *g = op ? calloc(1, sizeof *g) : NULL;

    if (!op)
        return NULL;
    if (g)
        g->told = (Muster__GroupStatus *)ms_proto_copy(ms_head_op_message(op));
    ms_head_op_unref(op);
    if (!g || !g->told) {
        free(g);
        muster_error_set(err, -ENOMEM, NULL, "out of memory");
        return NULL;
    }
    g->session = ms_capi_session_ref(s);
    return g;
}

void muster_group_close(struct muster_group *g)
{
    if (!g)
        return;
    muster__group_status__free_unpacked(g->told, NULL);
    ms_capi_session_unref(g->session);
    free(g);
}

static struct ms_head_op *ask(struct muster_session *s,
                              Muster__DriverToHead__BodyCase body,
                              uint64_t id,
                              const char *name,
                              int64_t timeout_ns,
                              struct muster_error *err)
{
    Muster__GroupRef ref = MUSTER__GROUP_REF__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    ref.id = id;
    ref.name = text_or_empty(name);
    m.body_case = body;
    m.find_group = &ref; /* the same place for all */
    return ms_capi_place(s, &m, timeout_ns, err);
}

static int
renew(struct muster_group *g, struct ms_head_op *op, struct muster_error *err)
{
    Muster__GroupStatus *told;

    if (!op)
        return err && err->code ? err->code : -EIO;
    told = (Muster__GroupStatus *)ms_proto_copy(ms_head_op_message(op));
    ms_head_op_unref(op);
    if (!told)
        return muster_error_set(err, -ENOMEM, NULL, "out of memory");
    muster__group_status__free_unpacked(g->told, NULL);
    g->told = told;
    return 0;
}

int muster_group_wait(struct muster_group *g,
                      int64_t timeout_ns,
                      struct muster_error *err)
{
    struct muster_error why = {0};
    int rc = 0;

    if (!g)
        return ms_capi_missing("a group", err);
    if (g->told->state == MUSTER__GROUP_STATE__GROUP_WAITING)
        rc = renew(g,
                   ask(g->session,
                       MUSTER__DRIVER_TO_HEAD__BODY_WAIT_GROUP,
                       g->told->id,
                       NULL,
                       timeout_ns,
                       &why),
                   &why);
    if (rc == 0 && g->told->state == MUSTER__GROUP_STATE__GROUP_FAILED) {
        rc = muster_error_set(
            &why, -ETIMEDOUT, NULL, "%s\n%s", g->told->why, g->told->table);
        why.kind = MUSTER_ERROR_PLACEMENT;
    }
    if (rc < 0 && err)
        *err = why;
    return rc;
}

/* Ask with the bundles of the options. */
static struct ms_head_op *place(struct muster_session *s,
                                Muster__PlaceGroup *group,
                                const struct muster_group_options *o,
                                struct muster_error *err)
{
    struct bundle *own = calloc(o->count + 1, sizeof *own);
    MS_CLEANUP(ms_cleanup_free)
    Muster__BundleSpec **list = calloc(o->count + 1, sizeof(Muster__BundleSpec *));
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    struct ms_head_op *op = NULL;
    int rc = own && list ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < o->count; i++) {
        rc = bundle_fill(&own[i], &o->bundles[i]);
        list[i] = &own[i].message;
    }
    if (rc < 0) {
        muster_error_set(err,
                         rc,
                         NULL,
                         rc == -ENOMEM
                             ? "out of memory"
                             : "a bundle that makes no sense: amounts are not "
                               "negative, resources are \"name=2\", labels "
                               "\"name=condition\"");
    } else {
        group->bundles = list;
        group->n_bundles = o->count;
        m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_PLACE_GROUP;
        m.place_group = group;
        op = ms_capi_place(s, &m, MS_ANSWER_NS, err);
    }
    for (size_t i = 0; own && i < o->count; i++)
        bundle_finish(&own[i]);
    free(own);
    return op;
}

struct muster_group *muster_group_create(struct muster_session *session,
                                         const struct muster_group_options *options,
                                         struct muster_error *err)
{
    struct muster_group_options o = MUSTER_GROUP_OPTIONS;
    Muster__PlaceGroup group = MUSTER__PLACE_GROUP__INIT;
    struct muster_group *g;
    Muster__Scope scope;

    if (!session || !options) {
        ms_capi_missing(session ? "options" : "a session", err);
        return NULL;
    }
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (o.count && !o.bundles) {
        ms_capi_missing("the array of bundles", err);
        return NULL;
    }
    if (ms_capi_is_stopped(session)) {
        muster_error_set(err, -ESHUTDOWN, NULL, "this session has ended");
        return NULL;
    }
    group.name = text_or_empty(o.name);
    group.strategy = text_or_empty(o.strategy);
    group.same = text_or_empty(o.same);
    group.timeout_ns = o.timeout_ns > 0 ? (uint64_t)o.timeout_ns : 0;
    group.detached = o.detached;
    if (o.resources) {
        ms_capi_scope(o.resources, &scope);
        group.scope = &scope;
    }
    g = group_create(session, place(session, &group, &o, err), err);
    if (g && !o.no_wait && o.timeout_ns > 0 &&
        muster_group_wait(g, MS_NEVER, err) < 0) {
        muster_group_remove(g, NULL);
        g = NULL;
    }
    return g;
}

struct muster_group *muster_group_open(struct muster_session *session,
                                       const char *name,
                                       struct muster_error *err)
{
    struct ms_head_op *op;

    if (!session || !name) {
        ms_capi_missing(session ? "a name" : "a session", err);
        return NULL;
    }
    op = ask(session,
             MUSTER__DRIVER_TO_HEAD__BODY_FIND_GROUP,
             0,
             name,
             MS_ANSWER_NS,
             err);
    return group_create(session, op, err);
}

int muster_group_remove(struct muster_group *g, struct muster_error *err)
{
    struct muster_error why = {0};
    struct ms_head_op *op;

    if (!g)
        return ms_capi_missing("a group", err);
    op = ask(g->session,
             MUSTER__DRIVER_TO_HEAD__BODY_REMOVE_GROUP,
             g->told->id,
             NULL,
             MS_ANSWER_NS,
             &why);
    ms_head_op_unref(op);
    if (!op && why.code != -ENOENT) {
        if (err)
            *err = why;
        return why.code;
    }
    muster_group_close(g);
    return 0;
}

/* ---- what it is ------------------------------------------------------------------ */

uint64_t ms_capi_group_id(const struct muster_group *g)
{
    return g->told->id;
}

const char *muster_group_name(const struct muster_group *g)
{
    return g->told->name;
}

enum muster_group_state muster_group_state(struct muster_group *g)
{
    struct muster_error why = {0};
    struct ms_head_op *op = ask(g->session,
                                MUSTER__DRIVER_TO_HEAD__BODY_FIND_GROUP,
                                g->told->id,
                                NULL,
                                MS_ANSWER_NS,
                                &why);

    if (renew(g, op, &why) == 0)
        return (enum muster_group_state)g->told->state;
    return why.code == -ENOENT ? MUSTER_GROUP_REMOVED
                               : (enum muster_group_state)g->told->state;
}

uint32_t muster_group_bundles(const struct muster_group *g)
{
    return g->told->bundles;
}

const char *muster_group_node(const struct muster_group *g, uint32_t bundle)
{
    return bundle < g->told->n_pieces ? g->told->pieces[bundle]->node : NULL;
}

const uint32_t *
muster_group_devices(const struct muster_group *g, uint32_t bundle, size_t *count)
{
    const Muster__Piece *p =
        bundle < g->told->n_pieces ? g->told->pieces[bundle] : NULL;

    *count = p ? p->n_devices : 0;
    return p ? p->devices : NULL;
}
