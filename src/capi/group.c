/* group.c - placement groups */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proto.h"
#include "capi/capi.h"

#include <errno.h>
#include <string.h>

struct muster_group {
    struct muster_session *session;
    Muster__GroupStatus *status; /* the last that the head has said */
};

/* ---- what is asked --------------------------------------------------------------- */

/* "name=value": a copy of the name, and what is behind the sign. */
static int split(const char *text, char **name, const char **value)
{
    const char *equals = strchr(text, '=');

    if (!equals)
        return -EINVAL;
    *value = equals + 1;
    *name = strndup(text, (size_t)(equals - text));
    return *name ? 0 : -ENOMEM;
}

static int add_resource(Muster__BundleSpec *m, const char *text)
{
    Muster__NamedAmount *a = malloc(sizeof *a);
    const char *value = "";
    char *end = NULL;
    int rc;

    if (!a)
        return -ENOMEM;
    muster__named_amount__init(a);
    m->resources[m->n_resources++] = a;
    rc = split(text, &a->name, &value);
    a->amount = strtoull(value, &end, 10);
    return rc ? rc : !*value || *end ? -EINVAL : 0;
}

static int add_label(Muster__BundleSpec *m, const char *text)
{
    Muster__LabelCondition *c = malloc(sizeof *c);
    const char *value = "";
    int rc;

    if (!c)
        return -ENOMEM;
    muster__label_condition__init(c);
    m->labels[m->n_labels++] = c;
    rc = split(text, &c->name, &value);
    if (rc == 0 && *value)
        rc = (c->condition = strdup(value)) ? 0 : -ENOMEM;
    return rc;
}

static int add_parts(Muster__BundleSpec *m, const struct muster_bundle *from)
{
    size_t resources = ms_capi_count(from->resources);
    size_t labels = ms_capi_count(from->labels);
    int rc = 0;

    m->resources = calloc(resources + 1, sizeof(Muster__NamedAmount *));
    m->labels = calloc(labels + 1, sizeof(Muster__LabelCondition *));
    if (!m->resources || !m->labels)
        return -ENOMEM;
    for (size_t i = 0; rc == 0 && i < resources; i++)
        rc = add_resource(m, from->resources[i]);
    for (size_t i = 0; rc == 0 && i < labels; i++)
        rc = add_label(m, from->labels[i]);
    return rc;
}

/* To be freed with muster__bundle_spec__free_unpacked, also after a failure. */
static int bundle_fill(Muster__BundleSpec *m, const struct muster_bundle *from)
{
    bool is_share = from->gpus > 0 && from->gpus < 1;

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
    if (from->kind && !(m->kind = strdup(from->kind)))
        return -ENOMEM;
    return add_parts(m, from);
}

/* ---- life ------------------------------------------------------------------------ */

static struct muster_group *
group_create(struct muster_session *s, struct ms_head_op *op, struct muster_error *err)
{
    struct muster_group *g = op ? calloc(1, sizeof *g) : NULL;

    if (!op)
        return NULL;
    if (g)
        g->status = (Muster__GroupStatus *)ms_proto_copy(ms_head_op_message(op));
    ms_head_op_unref(op);
    if (!g || !g->status) {
        free(g);
        return ms_capi_no_memory(err), NULL;
    }
    g->session = ms_capi_session_ref(s);
    return g;
}

void muster_group_close(struct muster_group *g)
{
    if (!g)
        return;
    muster__group_status__free_unpacked(g->status, NULL);
    ms_capi_session_unref(g->session);
    free(g);
}

/* FIND_GROUP, WAIT_GROUP or REMOVE_GROUP. */
static struct ms_head_op *ask(struct muster_session *s,
                              Muster__DriverToHead__BodyCase body,
                              Muster__GroupRef *group,
                              int64_t timeout_ns,
                              struct muster_error *err)
{
    return ms_capi_done(ms_head_request(s->head, body, group), timeout_ns, err);
}

static struct ms_head_op *ask_by_id(const struct muster_group *g,
                                    Muster__DriverToHead__BodyCase body,
                                    int64_t timeout_ns,
                                    struct muster_error *err)
{
    Muster__GroupRef ref = MUSTER__GROUP_REF__INIT;

    ref.id = g->status->id;
    return ask(g->session, body, &ref, timeout_ns, err);
}

/* Ask, and keep the status that it answers. `err` is needed. */
static int renew(struct muster_group *g,
                 Muster__DriverToHead__BodyCase body,
                 int64_t timeout_ns,
                 struct muster_error *err)
{
    struct ms_head_op *op = ask_by_id(g, body, timeout_ns, err);
    Muster__GroupStatus *status;

    if (!op)
        return err->code ? err->code : -EIO;
    status = (Muster__GroupStatus *)ms_proto_copy(ms_head_op_message(op));
    ms_head_op_unref(op);
    if (!status)
        return ms_capi_no_memory(err);
    muster__group_status__free_unpacked(g->status, NULL);
    g->status = status;
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
    if (g->status->state == MUSTER__GROUP_STATE__GROUP_WAITING)
        rc = renew(g, MUSTER__DRIVER_TO_HEAD__BODY_WAIT_GROUP, timeout_ns, &why);
    if (rc == 0 && g->status->state == MUSTER__GROUP_STATE__GROUP_FAILED) {
        rc = muster_error_set(
            &why, -ETIMEDOUT, NULL, "%s\n%s", g->status->why, g->status->table);
        why.kind = MUSTER_ERROR_PLACEMENT;
    }
    if (rc < 0 && err)
        *err = why;
    return rc;
}

/* Their number grows with what is there, so that all of it can be freed. */
static int add_bundles(Muster__PlaceGroup *group, const struct muster_group_options *o)
{
    int rc = 0;

    group->bundles = calloc(o->count + 1, sizeof(Muster__BundleSpec *));
    if (!group->bundles)
        return -ENOMEM;
    for (size_t i = 0; rc == 0 && i < o->count; i++) {
        Muster__BundleSpec *m = malloc(sizeof *m);

        if (!m)
            return -ENOMEM;
        muster__bundle_spec__init(m);
        group->bundles[group->n_bundles++] = m;
        rc = bundle_fill(m, &o->bundles[i]);
    }
    return rc;
}

/* Ask with the bundles of the options. */
static struct ms_head_op *place(struct muster_session *s,
                                Muster__PlaceGroup *group,
                                const struct muster_group_options *o,
                                struct muster_error *err)
{
    struct ms_head_op *op = NULL;
    int rc = add_bundles(group, o);

    if (rc == 0)
        op = ms_capi_done(
            ms_head_request(s->head, MUSTER__DRIVER_TO_HEAD__BODY_PLACE_GROUP, group),
            MS_ANSWER_NS,
            err);
    else if (rc == -ENOMEM)
        ms_capi_no_memory(err);
    else
        muster_error_set(err,
                         rc,
                         NULL,
                         "a bundle that makes no sense: amounts are not negative, "
                         "resources are \"name=2\", labels \"name=condition\"");
    for (size_t i = 0; i < group->n_bundles; i++)
        muster__bundle_spec__free_unpacked(group->bundles[i], NULL);
    free(group->bundles);
    return op;
}

struct muster_group *ms_capi_group_create(struct muster_session *session,
                                          const struct muster_group_options *options,
                                          bool ends_with_cluster,
                                          struct muster_error *err)
{
    struct muster_group_options o = MUSTER_GROUP_OPTIONS;
    Muster__PlaceGroup group = MUSTER__PLACE_GROUP__INIT;
    struct muster_group *g;
    Muster__Scope scope;

    if (!session || !options)
        return ms_capi_missing(session ? "options" : "a session", err), NULL;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (o.count && !o.bundles)
        return ms_capi_missing("the array of bundles", err), NULL;
    if (ms_capi_check_open(session, err) < 0)
        return NULL;
    group.name = ms_capi_text(o.name);
    group.strategy = ms_capi_text(o.strategy);
    group.same = ms_capi_text(o.same);
    group.timeout_ns = o.timeout_ns > 0 ? (uint64_t)o.timeout_ns : 0;
    group.detached = o.detached;
    group.ends_with_cluster = ends_with_cluster;
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

struct muster_group *muster_group_create(struct muster_session *session,
                                         const struct muster_group_options *options,
                                         struct muster_error *err)
{
    return ms_capi_group_create(session, options, false, err);
}

struct muster_group *muster_group_open(struct muster_session *session,
                                       const char *name,
                                       struct muster_error *err)
{
    Muster__GroupRef ref = MUSTER__GROUP_REF__INIT;

    if (!session || !name)
        return ms_capi_missing(session ? "a name" : "a session", err), NULL;
    ref.name = ms_capi_text(name);
    return group_create(
        session,
        ask(session, MUSTER__DRIVER_TO_HEAD__BODY_FIND_GROUP, &ref, MS_ANSWER_NS, err),
        err);
}

int muster_group_remove(struct muster_group *g, struct muster_error *err)
{
    struct muster_error why = {0};
    struct ms_head_op *op;

    if (!g)
        return ms_capi_missing("a group", err);
    op = ask_by_id(g, MUSTER__DRIVER_TO_HEAD__BODY_REMOVE_GROUP, MS_ANSWER_NS, &why);
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
    return g->status->id;
}

const char *muster_group_name(const struct muster_group *g)
{
    return g->status->name;
}

enum muster_group_state muster_group_state(struct muster_group *g)
{
    struct muster_error why = {0};

    renew(g, MUSTER__DRIVER_TO_HEAD__BODY_FIND_GROUP, MS_ANSWER_NS, &why);
    return why.code == -ENOENT ? MUSTER_GROUP_REMOVED
                               : (enum muster_group_state)g->status->state;
}

uint32_t muster_group_bundles(const struct muster_group *g)
{
    return g->status->bundles;
}

const char *muster_group_node(const struct muster_group *g, uint32_t bundle)
{
    return bundle < g->status->n_pieces ? g->status->pieces[bundle]->node : NULL;
}

const uint32_t *
muster_group_devices(const struct muster_group *g, uint32_t bundle, size_t *count)
{
    const Muster__Piece *p =
        bundle < g->status->n_pieces ? g->status->pieces[bundle] : NULL;

    *count = p ? p->n_devices : 0;
    return p ? p->devices : NULL;
}
