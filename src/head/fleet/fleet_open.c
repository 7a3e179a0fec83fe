/* fleet_open.c - which orchestrator lends, and the life of a fleet */
#include "base/buf.h"
#include "base/cleanup.h"
#include "head/fleet/fleet_impl.h"
#include "head/head_impl.h"
#include "orchestrator/local/local.h"
#include "orchestrator/ray/ray.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- which orchestrators there are ------------------------------------------------- */

static struct ms_orchestrator *
open_local(struct ms_fleet *f, const struct ms_head_lender *l, struct ms_error *err)
{
    char log_dir[PATH_MAX];

    snprintf(log_dir, sizeof log_dir, "%s/logs", f->head->session.dir);
    return ms_orchestrator_local(
        &(struct ms_local_options){
            .loop = f->head->loop,
            .agent_path = l->agent_path,
            .nodes = (const Muster__NodeShape *const *)f->whole.shapes,
            .node_count = f->whole.count,
            .prefixes = l->prefixes,
            .log_dir = log_dir},
        err);
}

static struct ms_orchestrator *
open_ray(struct ms_fleet *f, const struct ms_head_lender *l, struct ms_error *err)
{
    return ms_ray_create(&(struct ms_ray_options){.loop = f->head->loop,
                                                  .site = {.address = l->address,
                                                           .muster = l->agent_path},
                                                  .name = f->head->session.name},
                         err);
}

static const struct {
    const char *name;
    struct ms_orchestrator *(*open)(struct ms_fleet *f,
                                    const struct ms_head_lender *l,
                                    struct ms_error *err);
    bool is_here; /* its nodes are on this machine */
} table[] = {
    {"local", open_local, true},
    {"ray", open_ray, false},
};

enum { TABLE_COUNT = sizeof table / sizeof table[0] };

static int find(const char *name, size_t *out, struct ms_error *err)
{
    for (size_t i = 0; i < TABLE_COUNT; i++)
        if (strcmp(table[i].name, name) == 0) {
            *out = i;
            return 0;
        }
    return ms_error_set(err, -EINVAL, "orchestrator '%.32s': there is none", name);
}

/* ---- life -------------------------------------------------------------------------- */

void ms_fleet_destroy(struct ms_fleet *f)
{
    if (!f)
        return;
    ms_fleet_asks_finish(f);
    if (f->o)
        f->o->ops->destroy(f->o);
    ms_list_each (l, &f->leases, struct ms_lease, link)
        ms_lease_destroy(l);
    ms_timer_finish(&f->again);
    ms_whole_nodes_finish(&f->whole);
    free(f->address);
    free(f);
}

/* All of ours: an agent takes the first one that answers. */
static char *address_of(const struct ms_head *h)
{
    struct ms_buf text;
    char *out = NULL;
    int rc = 0;

    ms_buf_init(&text);
    for (size_t i = 0; rc == 0 && h->addresses && h->addresses[i]; i++)
        rc = ms_buf_printf(&text, "%s%s", i ? "," : "", h->addresses[i]);
    if (rc == 0 && ms_buf_str(&text))
        out = strdup(ms_buf_str(&text));
    ms_buf_finish(&text);
    return out;
}

int ms_fleet_open(struct ms_head *h,
                  const struct ms_head_lender *l,
                  struct ms_error *err)
{
    struct ms_fleet *f = h->fleet = calloc(1, sizeof *f);
    size_t at = 0;
    int rc = f ? find(l->name, &at, err) : ms_error_set(err, -ENOMEM, "out of memory");

    if (!f)
        return rc;
    f->head = h;
    f->on_piece = l->on_piece;
    f->arg = l->arg;
    ms_list_init(&f->leases);
    ms_list_init(&f->asks);
    snprintf(f->secret_file, sizeof f->secret_file, "%s/secret", h->session.dir);
    if (rc == 0)
        rc = ms_whole_nodes_init(
            &f->whole, l->nodes, l->node_count, table[at].is_here, err);
    if (rc == 0 && ms_timer_init(&f->again, h->loop, ms_fleet_again, f) < 0)
        rc = ms_error_set(err, -ENOMEM, "out of memory");
    if (rc < 0)
        return rc;
    f->address = address_of(h);
    if (!f->address)
        return ms_error_set(err, -ENOMEM, "out of memory");
    f->o = table[at].open(f, l, err);
    return f->o ? 0 : -EIO;
}
