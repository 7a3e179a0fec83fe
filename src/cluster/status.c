#include "cluster/status.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "cluster/spec.h"

#include <errno.h>
#include <string.h>

/* An absent text is the message's own empty one, which is never freed. */
static int set_text(char **field, const char *text)
{
    char *copy;

    if (!text || !text[0])
        return 0;
    copy = strdup(text);
    if (!copy)
        return -ENOMEM;
    *field = copy;
    return 0;
}

static int set_devices(Muster__WorkerStatus *w, const struct ms_slot *slot)
{
    if (slot->device_count == 0)
        return 0;
    w->devices = calloc(slot->device_count, sizeof *w->devices);
    if (!w->devices)
        return -ENOMEM;
    memcpy(w->devices, slot->devices, slot->device_count * sizeof *w->devices);
    w->n_devices = slot->device_count;
    return 0;
}

static int set_exit(Muster__WorkerStatus *w, const struct ms_slot *slot)
{
    if (!slot->now.exit)
        return 0;
    w->exit = (Muster__Exit *)ms_proto_copy(&slot->now.exit->base);
    return w->exit ? 0 : -ENOMEM;
}

static void cleanup_worker(Muster__WorkerStatus **w)
{
    muster__worker_status__free_unpacked(*w, NULL);
}

Muster__WorkerStatus *ms_slot_status(const struct ms_slot *slot)
{
    MS_CLEANUP(cleanup_worker) Muster__WorkerStatus *w = malloc(sizeof *w);

    if (!w)
        return NULL;
    muster__worker_status__init(w);
    w->uid = slot->now.uid;
    w->rank = slot->rank;
    w->pid = slot->now.pid;
    w->state = slot->now.state;
    w->memory = slot->memory;
    w->cpu_milli = slot->cpu_milli;
    w->incarnation = slot->now.incarnation;
    if (set_text(&w->node, slot->node) < 0 ||
        set_text(&w->address, slot->now.address) < 0 ||
        set_text(&w->log_path, slot->now.log_path) < 0 || set_devices(w, slot) < 0 ||
        set_exit(w, slot) < 0)
        return NULL;
    return MS_TAKE(w);
}

static void cleanup_status(Muster__ClusterStatus **s)
{
    muster__cluster_status__free_unpacked(*s, NULL);
}

Muster__ClusterStatus *ms_cluster_status(const struct ms_cluster *c)
{
    MS_CLEANUP(cleanup_status) Muster__ClusterStatus *s = malloc(sizeof *s);

    if (!s)
        return NULL;
    muster__cluster_status__init(s);
    s->driver = c->driver;
    s->detached = c->detached;
    s->is_native = c->spec && ms_cluster_spec_is_native(c->spec);
    s->workers = calloc(c->count, sizeof(Muster__WorkerStatus *));
    if (!s->workers || set_text(&s->name, c->name) < 0)
        return NULL;
    for (size_t i = 0; i < c->count; i++) {
        s->workers[i] = ms_slot_status(&c->slots[i]);
        if (!s->workers[i])
            return NULL;
        s->n_workers++;
    }
    return MS_TAKE(s);
}

int ms_cluster_status_add_meta(Muster__ClusterStatus *s, const struct ms_cluster *c)
{
    const ProtobufCBinaryData *meta = c->spec ? &c->spec->meta : NULL;

    if (!meta || meta->len == 0)
        return 0;
    s->meta.data = ms_bytes_copy(meta->data, meta->len);
    if (!s->meta.data)
        return -ENOMEM;
    s->meta.len = meta->len;
    return 0;
}
