/* file_bundles.c - the key `bundle` of a role, roles that share one, and what heads are told */
#include "base/nearest.h"
#include "base/proto.h"
#include "job/file_impl.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- bundles --------------------------------------------------------------------- */

int ms_job_read_strategy(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    const char *text = ms_yaml_text(at);

    return ms_yaml_blame(at, ms_strategy_parse(text ? text : "", out, err), err);
}

static int read_resources(struct ms_yaml_at map, void *out, struct ms_error *err)
{
    struct ms_bundle *b = &((struct ms_job_role *)out)->bundle;
    struct ms_extra_need *extras;
    int rc = 0;

    if (!ms_yaml_is_map(map))
        return ms_yaml_fail(map, err, "'resources' must be a map of names and numbers");
    b->extras = extras = calloc(ms_yaml_count(map) + 1, sizeof *extras);
    if (!extras)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < ms_yaml_count(map) && rc == 0; i++) {
        const char *name = ms_yaml_text(ms_yaml_key(map, i));
        struct ms_extra_need *need = &extras[i];

        rc = ms_yaml_to_amount(ms_yaml_value(map, i), &need->amount, err);
        name = name ? name : "";
        if (rc == 0)
            rc = ms_yaml_blame(ms_yaml_key(map, i),
                               ms_label_check(name, "name of a resource", err),
                               err);
        if (rc == 0 && !(need->name = strdup(name)))
            rc = ms_error_set(err, -ENOMEM, "out of memory");
        b->extra_count += rc == 0;
    }
    return rc;
}

static int read_labels(struct ms_yaml_at map, void *out, struct ms_error *err)
{
    struct ms_job_role *r = out;
    int rc = 0;

    if (!ms_yaml_is_map(map))
        return ms_yaml_fail(map, err, "'labels' must be a map of names and conditions");
    for (size_t i = 0; i < ms_yaml_count(map) && rc == 0; i++) {
        const char *name = ms_yaml_text(ms_yaml_key(map, i));
        const char *condition = ms_yaml_text(ms_yaml_value(map, i));

        rc = ms_selector_add(
            &r->selector, name ? name : "", condition ? condition : "", err);
        ms_yaml_blame(ms_yaml_value(map, i), rc, err);
    }
    return rc;
}

#define ROLE(field) offsetof(struct ms_job_role, field)

/* By Ray's keys or by ours. */
static const struct ms_yaml_field bundle_fields[] = {
    {"gpus", ms_yaml_to_milli, ROLE(gpu_milli), false},
    {"GPU", ms_yaml_to_milli, ROLE(gpu_milli), false},
    {"cpus", ms_yaml_to_milli, ROLE(bundle.cpu_milli), false},
    {"CPU", ms_yaml_to_milli, ROLE(bundle.cpu_milli), false},
    {"memory", ms_yaml_to_size, ROLE(bundle.memory), false},
    {"gpu_memory", ms_yaml_to_size, ROLE(bundle.device_memory), false},
    {"kind", ms_yaml_to_text, ROLE(kind), false},
    {"one_domain", ms_yaml_to_bool, ROLE(bundle.one_domain), false},
    {"resources", read_resources, 0, false},
    {"labels", read_labels, 0, false},
    {0},
};

/* A map, or the name of the role in whose bundles its ranks stand. */
int ms_job_read_bundle(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job_role *r = out;
    bool is_name = !ms_yaml_is_map(at) && ms_yaml_text(at);
    int rc = is_name ? ms_yaml_to_text(at, &r->shares, err)
                     : ms_yaml_map(at, "a bundle", bundle_fields, r, err);

    r->has_bundle = true;
    if (rc == 0 && r->gpu_milli > MS_WHOLE_MILLI && r->gpu_milli % MS_WHOLE_MILLI)
        rc = ms_yaml_fail(at, err, "a bundle has whole devices or a share of one");
    r->bundle.devices = (uint32_t)(r->gpu_milli / MS_WHOLE_MILLI);
    r->bundle.share_milli = (uint32_t)(r->gpu_milli % MS_WHOLE_MILLI);
    r->bundle.selector = r->selector.count ? &r->selector : NULL;
    return rc;
}

/* ---- roles that share bundles ------------------------------------------------------ */

/* Where the key of the role stands. */
static bool find_key(struct ms_yaml_at map, const char *key, struct ms_yaml_at *out)
{
    for (size_t i = 0; i < ms_yaml_count(map); i++) {
        const char *text = ms_yaml_text(ms_yaml_key(map, i));

        *out = ms_yaml_value(map, i);
        if (text && strcmp(text, key) == 0)
            return true;
    }
    return false;
}

static const struct ms_job_role *
find(const struct ms_job *job, const char *name, struct ms_nearest *near)
{
    for (size_t i = 0; i < job->role_count; i++) {
        if (strcmp(job->roles[i].name, name) == 0)
            return &job->roles[i];
        ms_nearest_consider(near, job->roles[i].name);
    }
    return NULL;
}

/* Why the ranks of `r` cannot stand in the bundles of `of`; NULL: they can. */
static const char *why_not(const struct ms_job_role *r, const struct ms_job_role *of)
{
    if (r == of || !of->has_bundle || of->shares)
        return "that role has no bundles of its own";
    if (ms_job_role_is_ours(r) != ms_job_role_is_ours(of))
        return "the controller creates one of the two, and the driver the other: give "
               "both a 'worker_cls' or a 'command', or none";
    if (r->size.max > r->size.min || of->size.max > of->size.min)
        return "roles that share bundles have one size each";
    if (r->policy.memory_growth_milli > 1000 || of->policy.memory_growth_milli > 1000)
        return "the memory of shared bundles does not grow: leave out 'memory_growth'";
    if (ms_job_role_ranks(r) > ms_job_role_ranks(of))
        return "it has more ranks than there are bundles";
    return NULL;
}

int ms_job_share_bundles(struct ms_job *job,
                         struct ms_job_role *r,
                         struct ms_yaml_at at,
                         struct ms_error *err)
{
    struct ms_nearest near = {.word = r->shares};
    const struct ms_job_role *of = r->shares ? find(job, r->shares, &near) : r;
    struct ms_yaml_at key = at;
    const char *why;

    if (r->has_bundle)
        r->place = of;
    if (!r->shares)
        return 0;
    if (find_key(at, "strategy", &key) || find_key(at, "same", &key))
        return ms_yaml_fail(key,
                            err,
                            "role '%s': 'strategy' and 'same' are for the role whose "
                            "bundles it shares",
                            r->name);
    find_key(at, "bundle", &key);
    if (!of)
        return ms_yaml_fail(
            key,
            err,
            "role '%s': there is no role '%.40s' whose bundles it could "
            "share%s%s%s",
            r->name,
            r->shares,
            near.best ? "; did you mean '" : "",
            near.best ? near.best : "",
            near.best ? "'?" : "");
    if (!r->world_size)
        r->world_size = ms_job_role_ranks(of);
    why = why_not(r, of);
    if (why)
        return ms_yaml_fail(
            key, err, "role '%s' in the bundles of '%s': %s", r->name, of->name, why);
    if (json_object_set_new(r->told, "world_size", json_integer(r->world_size)) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return 0;
}

uint32_t ms_job_role_bundles(const struct ms_job_role *r)
{
    return r->size.max > r->size.min ? 0 : ms_job_role_ranks(r);
}

/* ---- as a head is asked for them --------------------------------------------------- */

/* Of a bundle; the message borrows from both. */
struct parts {
    Muster__NamedAmount *amounts, **amount_list;
    Muster__LabelCondition *labels, **label_list;
};

static void parts_finish(struct parts *p)
{
    free(p->amounts);
    free(p->amount_list);
    free(p->labels);
    free(p->label_list);
}

static int set_parts(Muster__BundleSpec *m, const struct ms_bundle *b, struct parts *p)
{
    size_t labels = b->selector ? b->selector->count : 0;

    p->amounts = calloc(b->extra_count + 1, sizeof *p->amounts);
    p->amount_list = calloc(b->extra_count + 1, sizeof(Muster__NamedAmount *));
    p->labels = calloc(labels + 1, sizeof *p->labels);
    p->label_list = calloc(labels + 1, sizeof(Muster__LabelCondition *));
    if (!p->amounts || !p->amount_list || !p->labels || !p->label_list)
        return -ENOMEM;
    for (size_t i = 0; i < b->extra_count; i++) {
        muster__named_amount__init(&p->amounts[i]);
        p->amounts[i].name = ms_field_text(b->extras[i].name);
        p->amounts[i].amount = b->extras[i].amount;
        p->amount_list[i] = &p->amounts[i];
    }
    for (size_t i = 0; i < labels; i++) {
        muster__label_condition__init(&p->labels[i]);
        p->labels[i].name = b->selector->conditions[i].name;
        p->labels[i].condition = b->selector->conditions[i].text;
        p->label_list[i] = &p->labels[i];
    }
    m->resources = p->amount_list;
    m->n_resources = b->extra_count;
    m->labels = p->label_list;
    m->n_labels = labels;
    return 0;
}

Muster__PlaceGroup *
ms_job_role_group(const struct ms_job_role *r, const char *before, uint64_t memory)
{
    const struct ms_job_role *of = r->place;
    const struct ms_bundle *b = &of->bundle;
    Muster__BundleSpec bundle = MUSTER__BUNDLE_SPEC__INIT, *list[] = {&bundle};
    Muster__PlaceGroup m = MUSTER__PLACE_GROUP__INIT, *made = NULL;
    struct parts parts = {0};
    char name[2 * MS_NAME_MAX + 2];

    snprintf(name, sizeof name, "%s%s", before, of->name);
    bundle.cpu_milli = b->cpu_milli;
    bundle.memory = memory;
    bundle.devices = b->devices;
    bundle.share_milli = b->share_milli;
    bundle.device_memory = b->device_memory;
    bundle.one_domain = b->one_domain;
    bundle.count = ms_job_role_bundles(of);
    if (of->kind)
        bundle.kind = of->kind;
    m.name = name;
    m.bundles = list;
    m.n_bundles = 1;
    m.strategy = ms_field_text(ms_strategy_name(of->strategy));
    if (of->same)
        m.same = of->same;
    if (set_parts(&bundle, b, &parts) == 0)
        made = (Muster__PlaceGroup *)ms_proto_copy(&m.base);
    parts_finish(&parts);
    return made;
}
