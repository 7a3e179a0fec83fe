/* describe.c - what drivers say of their clusters, for others
 *
 * It is opaque to the head. A daemon keeps it in its folder too (`meta-<cluster>`), so that
 * a head that was started again still has it.
 */
#include "base/cleanup.h"
#include "cluster/status.h"
#include "head/clusters/clusters_impl.h"
#include "head/head_impl.h"
#include "head/op.h"
#include "head/waiting.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { FILE_NAME_MAX = MS_NAME_MAX + 16 };

static void print_name(char out[FILE_NAME_MAX], const char *cluster, const char *end)
{
    snprintf(out, FILE_NAME_MAX, "meta-%s%s", cluster, end);
}

void ms_head_meta_remove(const struct ms_head *h, const char *cluster)
{
    MS_CLEANUP(ms_cleanup_fd)
    int dir = h->is_daemon ? ms_tree_open(AT_FDCWD, h->session.dir) : -1;
    char name[FILE_NAME_MAX];

    print_name(name, cluster, "");
    if (dir >= 0)
        ms_tree_remove(dir, name);
}

/* What cannot be written costs those that look for it after a restart, nobody else. */
static void write_meta(const struct ms_head *h, const struct ms_cluster *c)
{
    MS_CLEANUP(ms_cleanup_fd)
    int dir = h->is_daemon ? ms_tree_open(AT_FDCWD, h->session.dir) : -1;
    char name[FILE_NAME_MAX], fresh[FILE_NAME_MAX];

    if (dir < 0)
        return;
    print_name(name, c->name, "");
    print_name(fresh, c->name, ".new");
    ms_tree_remove(dir, fresh);
    if (ms_tree_write(dir, fresh, c->meta, c->meta_len) == 0)
        renameat(dir, fresh, dir, name);
}

static void read_meta(const struct ms_head *h, struct ms_cluster *c)
{
    MS_CLEANUP(ms_cleanup_fd)
    int dir = h->is_daemon ? ms_tree_open(AT_FDCWD, h->session.dir) : -1;
    MS_CLEANUP(ms_cleanup_free) char *data = dir >= 0 ? malloc(MS_META_MAX + 1) : NULL;
    char name[FILE_NAME_MAX];
    int len;

    if (!data)
        return;
    print_name(name, c->name, "");
    len = ms_tree_read(dir, name, data, MS_META_MAX + 1);
    if (len > 0)
        (void)ms_cluster_set_meta(c, (const uint8_t *)data, (size_t)len);
}

void ms_head_describe_run(struct ms_head_op *op)
{
    const Muster__DescribeCluster *d = op->wanted->describe;
    struct ms_cluster *c = ms_registry_find(&op->head->registry, d->cluster);

    if (!c && ms_head_wait_for_nodes(op))
        return;
    if (!c) {
        ms_head_op_fail(op, -ENOENT, "there is no cluster '%.64s'", d->cluster);
    } else if (d->meta.len > MS_META_MAX) {
        ms_head_op_fail(
            op,
            -E2BIG,
            "the description of cluster '%s' has %zu bytes, at most %zu are "
            "possible",
            c->name,
            d->meta.len,
            MS_META_MAX);
    } else if (ms_cluster_set_meta(c, d->meta.data, d->meta.len) < 0) {
        ms_head_op_fail(op, -ENOMEM, "out of memory");
    } else {
        write_meta(op->head, c);
        ms_head_op_succeed(op, NULL);
    }
}

void ms_head_find_run(struct ms_head_op *op)
{
    const char *name = op->wanted->find->name;
    struct ms_cluster *c = ms_registry_find(&op->head->registry, name);
    Muster__ClusterStatus *s;

    if ((!c || c->unknown) && ms_head_wait_for_nodes(op))
        return;
    if (!c) {
        ms_head_op_fail(op, -ENOENT, "there is no cluster '%.64s'", name);
        return;
    }
    if (!c->meta)
        read_meta(op->head, c);
    s = ms_cluster_status(c);
    if (s && ms_cluster_status_add_meta(s, c) == 0) {
        ms_head_op_succeed(op, &s->base);
        return;
    }
    if (s)
        muster__cluster_status__free_unpacked(s, NULL);
    ms_head_op_fail(op, -ENOMEM, "out of memory");
}
