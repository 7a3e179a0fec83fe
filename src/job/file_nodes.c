/* file_nodes.c - the key `nodes` of a job */
#include "base/cleanup.h"
#include "base/name.h"
#include "job/file_impl.h"
#include "job/hosts.h"
#include "resource/shape.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* ---- one entry of the list ------------------------------------------------------- */

struct entry {
    char *name, *netns;
    uint32_t cpus;
    uint64_t memory;
    struct ms_shape_devices gpus;
    struct ms_job_range range;
    struct ms_yaml_at name_at, netns_at, gpus_at, devices, resources, labels;
};

static const struct ms_yaml_field device_fields[] = {
    {"count", ms_yaml_to_count, offsetof(struct ms_shape_devices, count), true},
    {"kind", ms_yaml_to_text, offsetof(struct ms_shape_devices, kind), false},
    {"vendor", ms_yaml_to_text, offsetof(struct ms_shape_devices, vendor), false},
    {"memory", ms_yaml_to_size, offsetof(struct ms_shape_devices, memory), false},
    {"domain", ms_yaml_to_count, offsetof(struct ms_shape_devices, domain), false},
    {"per_domain",
     ms_yaml_to_count,
     offsetof(struct ms_shape_devices, per_domain),
     false},
    {0},
};

static const struct ms_yaml_field node_fields[] = {
    {"name", ms_yaml_to_at, offsetof(struct entry, name_at), true},
    {"count", ms_job_read_range, offsetof(struct entry, range), false},
    {"cpus", ms_yaml_to_count, offsetof(struct entry, cpus), false},
    {"memory", ms_yaml_to_size, offsetof(struct entry, memory), false},
    {"gpus", ms_yaml_to_at, offsetof(struct entry, gpus_at), false},
    {"gpu_memory", ms_yaml_to_size, offsetof(struct entry, gpus.memory), false},
    {"gpus_per_domain",
     ms_yaml_to_count,
     offsetof(struct entry, gpus.per_domain),
     false},
    {"kind", ms_yaml_to_text, offsetof(struct entry, gpus.kind), false},
    {"vendor", ms_yaml_to_text, offsetof(struct entry, gpus.vendor), false},
    {"devices", ms_yaml_to_at, offsetof(struct entry, devices), false},
    {"resources", ms_yaml_to_at, offsetof(struct entry, resources), false},
    {"labels", ms_yaml_to_at, offsetof(struct entry, labels), false},
    {"netns", ms_yaml_to_at, offsetof(struct entry, netns_at), false},
    {0},
};

static void devices_finish(struct ms_shape_devices *d)
{
    free((char *)(uintptr_t)d->kind);
    free((char *)(uintptr_t)d->vendor);
}

static void entry_finish(struct entry *e)
{
    free(e->name);
    free(e->netns);
    devices_finish(&e->gpus);
}

static int
add_device_list(Muster__NodeShape *s, struct ms_yaml_at list, struct ms_error *err)
{
    int rc = 0;

    if (!ms_yaml_is_list(list))
        return ms_yaml_fail(list, err, "'devices' must be a list");
    for (size_t i = 0; i < ms_yaml_count(list) && rc == 0; i++) {
        MS_CLEANUP(devices_finish) struct ms_shape_devices d = {0};
        struct ms_yaml_at item = ms_yaml_item(list, i);

        rc = ms_yaml_map(item, "an element of 'devices'", device_fields, &d, err);
        if (rc == 0)
            rc = ms_yaml_blame(item, ms_shape_add_devices(s, &d, err), err);
    }
    return rc;
}

static int
add_resources(Muster__NodeShape *s, struct ms_yaml_at map, struct ms_error *err)
{
    int rc = 0;

    if (!ms_yaml_is_map(map))
        return ms_yaml_fail(map, err, "'resources' must be a map of names and numbers");
    for (size_t i = 0; i < ms_yaml_count(map) && rc == 0; i++) {
        const char *name = ms_yaml_text(ms_yaml_key(map, i));
        uint64_t amount;

        rc = ms_yaml_to_amount(ms_yaml_value(map, i), &amount, err);
        if (rc == 0)
            rc = ms_yaml_blame(ms_yaml_key(map, i),
                               ms_shape_add_resource(s, name ? name : "", amount, err),
                               err);
    }
    return rc;
}

static int add_labels(Muster__NodeShape *s, struct ms_yaml_at map, struct ms_error *err)
{
    int rc = 0;

    if (!ms_yaml_is_map(map))
        return ms_yaml_fail(map, err, "'labels' must be a map of names and values");
    for (size_t i = 0; i < ms_yaml_count(map) && rc == 0; i++) {
        const char *name = ms_yaml_text(ms_yaml_key(map, i));
        const char *value = ms_yaml_text(ms_yaml_value(map, i));

        rc = ms_shape_add_label(s, name ? name : "", value ? value : "", err);
        ms_yaml_blame(ms_yaml_key(map, i), rc, err);
    }
    return rc;
}

/* What all nodes of an entry have. */
static int fill(Muster__NodeShape *s, struct entry *e, struct ms_error *err)
{
    int rc = 0;

    s->cpus = e->cpus == UINT32_MAX ? -1 : (int32_t)e->cpus;
    s->memory = e->memory;
    if (e->gpus_at.yaml)
        rc = ms_yaml_to_count(e->gpus_at, &e->gpus.count, err);
    if (rc == 0 && e->gpus_at.yaml)
        rc = ms_yaml_blame(e->gpus_at, ms_shape_add_devices(s, &e->gpus, err), err);
    if (rc == 0 && e->devices.yaml)
        rc = add_device_list(s, e->devices, err);
    if (rc == 0 && e->resources.yaml)
        rc = add_resources(s, e->resources, err);
    if (rc == 0 && e->labels.yaml)
        rc = add_labels(s, e->labels, err);
    return rc;
}

/* ---- all ------------------------------------------------------------------------- */

static int reserve(struct ms_job *job, size_t more, struct ms_error *err)
{
    size_t wanted = job->node_count + more, capacity = 2 * wanted;
    Muster__NodeShape **nodes;
    char **netns;

    if (wanted <= job->node_capacity)
        return 0;
    if (wanted > MS_JOB_NODES_MAX)
        return ms_error_set(err, -E2BIG, "more than %zu nodes", MS_JOB_NODES_MAX);
    nodes = realloc(job->nodes, capacity * sizeof(Muster__NodeShape *));
    if (nodes)
        job->nodes = nodes;
    netns = realloc(job->netns, capacity * sizeof(char *));
    if (netns)
        job->netns = netns;
    if (!nodes || !netns)
        return ms_error_set(err, -ENOMEM, "out of memory");
    job->node_capacity = capacity;
    return 0;
}

/* Copies of the entry's node under each of its names. */
static int add_copies(struct ms_job *job,
                      const Muster__NodeShape *like,
                      const char *netns,
                      char **names,
                      size_t count,
                      struct ms_error *err)
{
    int rc = reserve(job, count, err);

    for (size_t i = 0; i < count && rc == 0; i++) {
        Muster__NodeShape *s = ms_shape_copy(like);
        char *in = netns ? strdup(netns) : NULL;

        if (!s) {
            free(in);
            return ms_error_set(err, -ENOMEM, "out of memory");
        }
        job->netns[job->node_count] = in;
        job->nodes[job->node_count++] = s;
        if ((netns && !in) || ms_shape_set_name(s, names[i]) < 0)
            rc = ms_error_set(err, -ENOMEM, "out of memory");
    }
    return rc;
}

/* With `count`: a name without brackets is a prefix. */
static int
expand(const struct entry *e, char ***names, size_t *count, struct ms_error *err)
{
    char text[2 * MS_NAME_MAX + 32];

    if (!e->range.max || strchr(e->name, '['))
        return ms_hosts_expand(e->name, names, count, err);
    snprintf(text,
             sizeof text,
             "%.*s[0-%u]",
             (int)(2 * MS_NAME_MAX),
             e->name,
             e->range.max - 1);
    return ms_hosts_expand(text, names, count, err);
}

/* Of as many nodes as the entry has names. */
static int add_range(struct ms_job *job,
                     const struct ms_job_range *r,
                     size_t first,
                     size_t names,
                     struct ms_error *err)
{
    struct ms_job_node_range *more;

    if (!r->max)
        return 0;
    if (names != r->max)
        return ms_error_set(err,
                            -EINVAL,
                            "'name' has %zu nodes, and 'count' wants up to %u",
                            names,
                            r->max);
    more = realloc(job->node_ranges, (job->node_range_count + 1) * sizeof *more);
    if (!more)
        return ms_error_set(err, -ENOMEM, "out of memory");
    job->node_ranges = more;
    more[job->node_range_count++] = (struct ms_job_node_range){first, *r};
    return 0;
}

static int read_entry(struct ms_job *job, struct ms_yaml_at at, struct ms_error *err)
{
    MS_CLEANUP(entry_finish) struct entry e = {.cpus = UINT32_MAX};
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *like = ms_shape_create("");
    char **names = NULL;
    size_t count = 0, first = job->node_count;
    int rc = like ? ms_yaml_map(at, "a node", node_fields, &e, err)
                  : ms_error_set(err, -ENOMEM, "out of memory");

    if (rc == 0)
        rc = ms_yaml_to_text(e.name_at, &e.name, err);
    if (rc == 0 && e.netns_at.yaml)
        rc = ms_yaml_to_text(e.netns_at, &e.netns, err);
    if (rc == 0 && e.netns)
        rc = ms_yaml_blame(
            e.netns_at, ms_name_check(e.netns, "network namespace", err), err);
    if (rc == 0 && e.cpus != UINT32_MAX && e.cpus > INT32_MAX / 1000)
        rc = ms_yaml_fail(at, err, "%u CPUs are too many", e.cpus);
    if (rc == 0)
        rc = fill(like, &e, err);
    if (rc < 0)
        return rc;
    rc = expand(&e, &names, &count, err);
    if (rc == 0)
        rc = add_range(job, &e.range, first, count, err);
    if (rc == 0)
        rc = add_copies(job, like, e.netns, names, count, err);
    ms_hosts_free(names, count);
    return ms_yaml_blame(e.name_at, rc, err);
}

static int by_name(const void *a, const void *b)
{
    const Muster__NodeShape *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* No two nodes have the same name. */
static int
check_names(const struct ms_job *job, struct ms_yaml_at at, struct ms_error *err)
{
    size_t size = job->node_count * sizeof(Muster__NodeShape *);
    MS_CLEANUP(ms_cleanup_free) Muster__NodeShape **sorted = malloc(size ? size : 1);

    if (!sorted)
        return ms_error_set(err, -ENOMEM, "out of memory");
    if (size)
        memcpy(sorted, job->nodes, size);
    qsort(sorted, job->node_count, sizeof(Muster__NodeShape *), by_name);
    for (size_t i = 1; i < job->node_count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            return ms_yaml_fail(at, err, "two nodes are called '%s'", sorted[i]->name);
    return 0;
}

int ms_job_read_nodes(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job *job = out;
    int rc = 0;

    job->has_nodes = true;
    job->nodes_at = ms_yaml_mark(at);
    if (!ms_yaml_is_list(at))
        return ms_yaml_fail(at, err, "'nodes' must be a list");
    if (ms_yaml_count(at) == 0)
        return ms_yaml_fail(at, err, "'nodes' has no nodes");
    for (size_t i = 0; i < ms_yaml_count(at) && rc == 0; i++)
        rc = read_entry(job, ms_yaml_item(at, i), err);
    return rc == 0 ? check_names(job, at, err) : rc;
}
