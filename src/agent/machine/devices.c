/* devices.c - the devices of this machine in order, named as its variables name them */
#include "agent/machine/devices.h"
#include "base/cleanup.h"
#include "resource/shape.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* ---- names that a variable has --------------------------------------------------- */

/* The i-th name of "0,1, GPU-12": false if there are not so many. */
static bool name_at(const char *list, size_t i, char out[MS_DEVICE_TEXT_MAX])
{
    for (;;) {
        size_t len = strcspn(list, ","), from = strspn(list, " \t");
        size_t to = len;

        if (from > len)
            from = len;
        while (to > from && isspace((unsigned char)list[to - 1]))
            to--;
        if (to > from && i-- == 0) {
            snprintf(out, MS_DEVICE_TEXT_MAX, "%.*s", (int)(to - from), list + from);
            return true;
        }
        if (!list[len])
            return false;
        list += len + 1;
    }
}

static size_t name_count(const char *list)
{
    char name[MS_DEVICE_TEXT_MAX];
    size_t count = 0;

    while (name_at(list, count, name))
        count++;
    return count;
}

static bool is_name_of(const struct ms_found_device *d, const char *name)
{
    size_t len = strlen(name);

    if (strcmp(d->id, name) == 0)
        return true;
    /* the beginning of the long name is enough */
    return !isdigit((unsigned char)name[0]) && len >= 4 && d->uuid[0] &&
           strncmp(d->uuid, name, len) == 0;
}

/* Is it ours? One that is named otherwise keeps that name. */
static bool is_visible(struct ms_found_device *d, const char *list)
{
    char name[MS_DEVICE_TEXT_MAX];

    if (!list)
        return true;
    for (size_t i = 0; name_at(list, i, name); i++)
        if (is_name_of(d, name)) {
            snprintf(d->id, sizeof d->id, "%s", name);
            return true;
        }
    return false;
}

/* ---- in order -------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const struct ms_found_device *x = a, *y = b;
    int vendor = strcmp(x->vendor, y->vendor);

    if (vendor)
        return vendor;
    if (x->place.order != y->place.order)
        return x->place.order < y->place.order ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Those with links of their own are a domain, else those below one PCIe root. */
static bool is_near(const struct ms_found_device *a, const struct ms_found_device *b)
{
    if (strcmp(a->vendor, b->vendor) != 0 || a->links != b->links)
        return false;
    return a->links || a->place.root == b->place.root;
}

/* Domains are numbered as they come. */
static uint32_t domain_of(const struct ms_found *f, const uint32_t *domains, size_t i)
{
    uint32_t next = 0;

    for (size_t k = 0; k < i; k++) {
        if (is_near(&f->at[k], &f->at[i]))
            return domains[k];
        if (domains[k] >= next)
            next = domains[k] + 1;
    }
    return next;
}

static int add(Muster__NodeShape *s,
               struct ms_found_device *d,
               uint32_t domain,
               struct ms_error *err)
{
    Muster__Device like = MUSTER__DEVICE__INIT;

    like.kind = (char *)(uintptr_t)d->kind;
    like.vendor = (char *)(uintptr_t)d->vendor;
    like.id = d->id;
    like.pci = d->pci;
    like.model = d->model;
    like.memory = d->memory;
    like.numa = d->place.numa;
    like.domain = domain;
    return ms_shape_add_device(s, &like, err);
}

int ms_devices_add(Muster__NodeShape *s,
                   struct ms_found *found,
                   struct hwloc_topology *topology,
                   const char *(*visible)(const char *variable),
                   struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free)
    uint32_t *domains = calloc(found->count + 1, sizeof *domains);
    int rc = 0;

    if (!domains)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < found->count && topology; i++)
        ms_topology_find(topology, found->at[i].pci, &found->at[i].place);
    if (found->count)
        qsort(found->at, found->count, sizeof *found->at, by_place);
    for (size_t i = 0; i < found->count && rc == 0; i++) {
        struct ms_found_device *d = &found->at[i];

        domains[i] = domain_of(found, domains, i);
        if (is_visible(d, visible(ms_device_variable(d->kind, d->vendor))))
            rc = add(s, d, domains[i], err);
    }
    return rc;
}

const char *ms_devices_own_variable(const char *name)
{
    return getenv(name);
}

int ms_devices_find(Muster__NodeShape *s, struct ms_error *err)
{
    MS_CLEANUP(ms_found_finish) struct ms_found found = {0};
    struct hwloc_topology *topology = NULL;
    int rc = ms_devices_look("", &found);

    if (rc < 0)
        return ms_error_set(err, rc, "out of memory");
    for (size_t i = 0; i < found.count && !topology; i++)
        if (found.at[i].pci[0])
            topology = ms_topology_open(NULL);
    rc = ms_devices_add(s, &found, topology, ms_devices_own_variable, err);
    ms_topology_close(topology);
    return rc;
}

/* ---- described ones -------------------------------------------------------------- */

static size_t count_of(const Muster__NodeShape *s, const char *variable)
{
    size_t count = 0;

    for (size_t i = 0; i < s->n_devices; i++)
        count += strcmp(s->devices[i]->variable, variable) == 0;
    return count;
}

int ms_devices_rename(Muster__NodeShape *s,
                      const char *(*visible)(const char *variable))
{
    for (size_t i = 0; i < s->n_devices; i++) {
        Muster__Device *d = s->devices[i];
        const char *list = visible(d->variable);
        char name[MS_DEVICE_TEXT_MAX], *copy;
        size_t before = 0;

        if (!list || name_count(list) != count_of(s, d->variable))
            continue;
        for (size_t k = 0; k < i; k++)
            before += strcmp(s->devices[k]->variable, d->variable) == 0;
        name_at(list, before, name);
        copy = strdup(name);
        if (!copy)
            return -ENOMEM;
        free(d->id);
        d->id = copy;
    }
    return 0;
}
