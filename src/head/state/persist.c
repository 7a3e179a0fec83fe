/* persist.c - what a daemon keeps in its journal, and takes out of it again */
#include "head/state/persist.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/name.h"
#include "base/proto.h"
#include "head/clusters/clusters.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/kv/kv.h"
#include "head/kv/kv_ask.h"
#include "head/nodes/node.h"
#include "head/place/kept_groups.h"
#include "head/place/place.h"
#include "head/rendezvous/rendezvous.h"
#include "head/shards/shards.h"
#include "head/state/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "state.db"

enum {
    SPACE_KV = 1,
    SPACE_GROUP = 2,
    SPACE_STORE = 3,
    SPACE_CLUSTER = 4,
    SPACE_NODE = 5,
    /* jobs/ has those from here on: they stay when the head ends in order */
    FIRST_LASTING = MS_PERSIST_JOB,
};

void ms_persist_put(struct ms_journal *j,
                    uint32_t space,
                    const char *key,
                    const ProtobufCMessage *m)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};

    if (ms_proto_pack(m, &packed) == 0)
        ms_journal_put(j, space, key, packed.data, packed.len);
}

/* ---- the key-value store --------------------------------------------------------- */

static void put_entry(struct ms_journal *j, const struct ms_kv_entry *e)
{
    Muster__KeptEntry m = MUSTER__KEPT_ENTRY__INIT;

    m.value = (ProtobufCBinaryData){e->value->len, e->value->data};
    m.codec = e->value->codec;
    m.owner_kind = e->owner.kind;
    m.owner = e->owner.id;
    m.revision = e->revision;
    ms_persist_put(j, SPACE_KV, e->key, &m.base);
}

static void put_entries(const struct ms_head *h, struct ms_journal *d)
{
    for (size_t i = 0; i < h->kv.store.count; i++)
        put_entry(d, h->kv.store.entries[i]);
}

void ms_persist_kv(struct ms_head *h)
{
    const struct ms_kv_entry *c, *now;
    uint64_t at = h->persist.kv_revision;

    if (!h->persist.journal)
        return;
    if (!ms_kv_has_changes(&h->kv.store, at)) { /* more at once than are remembered */
        put_entries(h, h->persist.journal);
        at = h->kv.store.revision - h->kv.store.change_count;
    }
    while ((c = ms_kv_next_change(&h->kv.store, "", at))) {
        at = c->revision;
        now = ms_kv_find(&h->kv.store, c->key);
        if (now)
            put_entry(h->persist.journal, now);
        else
            ms_journal_delete(h->persist.journal, SPACE_KV, c->key);
    }
    h->persist.kv_revision = h->kv.store.revision;
}

static void
take_entry(struct ms_head *h, const char *key, const uint8_t *data, size_t len)
{
    Muster__KeptEntry *m = data ? muster__kept_entry__unpack(NULL, len, data) : NULL;

    if (!data)
        ms_kv_delete(&h->kv.store, key);
    if (!m)
        return;
    ms_kv_restore(
        &h->kv.store,
        &(struct ms_kv_put){.key = key,
                            .value = m->value.data,
                            .len = m->value.len,
                            .codec = m->codec,
                            .owner = {(enum ms_kv_kind)m->owner_kind, m->owner}},
        m->revision);
    muster__kept_entry__free_unpacked(m, NULL);
}

static bool is_known(const struct ms_head *h, struct ms_kv_owner owner)
{
    const struct ms_slot *slot;

    switch (owner.kind) {
    case MS_KV_DRIVER:
        return ms_driver_find(h, owner.id) != NULL;
    case MS_KV_WORKER:
        slot = ms_registry_find_uid(&h->registry, owner.id);
        return slot && ms_slot_is_live(slot);
    default:
        return true;
    }
}

/* ---- placement groups ------------------------------------------------------------ */

static void put_group(struct ms_journal *d, const struct ms_kept_group *k)
{
    char key[24];

    snprintf(key, sizeof key, "%" PRIu64, k->message->status->id);
    ms_persist_put(d, SPACE_GROUP, key, &k->message->base);
}

void ms_persist_group(struct ms_head *h,
                      const Muster__PlaceGroup *group,
                      const Muster__GroupStatus *status)
{
    const struct ms_kept_group *k;

    if (!h->persist.journal || !status->detached)
        return;
    k = ms_kept_group_put(&h->persist.groups, group, status);
    if (k)
        put_group(h->persist.journal, k);
}

void ms_persist_forget_group(struct ms_head *h, uint64_t id)
{
    struct ms_kept_group *k = ms_kept_group_find(&h->persist.groups, id);
    char key[24];

    if (!k)
        return;
    ms_kept_group_destroy(k);
    snprintf(key, sizeof key, "%" PRIu64, id);
    ms_journal_delete(h->persist.journal, SPACE_GROUP, key);
}

void ms_persist_restore_groups(struct ms_head *h)
{
    ms_list_each (k, &h->persist.groups, struct ms_kept_group, link) {
        const Muster__RestoreGroup *m = k->message;
        int rc = k->is_open ? ms_place_restore(h, m, m->status->driver, NULL) : 0;

        if (rc == 0 || rc == -EEXIST) /* its driver may have been first */
            k->is_open = false;
    }
}

/* ---- nodes ----------------------------------------------------------------------- */

/* A node of the head before that has not come back. */
struct expected {
    struct ms_list link; /* head->persist.nodes */
    char name[MS_NAME_MAX + 1];
};

static struct expected *find_expected(const struct ms_head *h, const char *name)
{
    ms_list_each (e, &h->persist.nodes, struct expected, link)
        if (strcmp(e->name, name) == 0)
            return e;
    return NULL;
}

static void forget_expected(struct expected *e)
{
    if (!e)
        return;
    ms_list_remove(&e->link);
    free(e);
}

static void expect_node(struct ms_head *h, const char *name)
{
    struct expected *e = ms_name_check(name, "node", NULL) < 0 || find_expected(h, name)
                             ? NULL
                             : calloc(1, sizeof *e);

    if (!e)
        return;
    strcpy(e->name, name);
    ms_list_add_tail(&h->persist.nodes, &e->link);
}

static void put_node(struct ms_journal *d, const char *name)
{
    ms_journal_put(d, SPACE_NODE, name, (const uint8_t *)"", 0);
}

void ms_persist_node(struct ms_head *h, const char *name)
{
    forget_expected(find_expected(h, name));
    put_node(h->persist.journal, name);
}

void ms_persist_forget_node(struct ms_head *h, const char *name)
{
    ms_journal_delete(h->persist.journal, SPACE_NODE, name);
}

int64_t ms_persist_left_ns(const struct ms_head *h)
{
    int64_t left_ns = h->started_ns + MS_RECOVERY_NS - ms_now_ns();

    return ms_list_is_empty(&h->persist.nodes) || left_ns < 0 ? 0 : left_ns;
}

static void forget_missing(struct ms_head *h)
{
    ms_list_each (e, &h->persist.nodes, struct expected, link) {
        char name[sizeof e->name];

        memcpy(name, e->name, sizeof name);
        forget_expected(e); /* first, as in `lose` of dialled.c */
        ms_persist_forget_node(h, name);
    }
}

/* ---- clusters -------------------------------------------------------------------- */

/* A slot as it is kept, and what only that has. */
struct slot {
    Muster__KeptSlot kept;
    Muster__WorkerStarted process;
    uint64_t former[MS_FORMER_MAX];
};

static void fill_process(Muster__WorkerStarted *m, const struct ms_slot *s)
{
    muster__worker_started__init(m);
    m->uid = s->now.uid;
    m->pid = s->now.pid;
    m->address = s->now.address;
    m->log_path = ms_field_text(s->now.log_path);
}

/* Of one that nobody has reported yet, as the head before kept it. It borrows. */
static void fill_slot(struct slot *out, const struct ms_slot *s)
{
    Muster__KeptSlot *m = &out->kept;

    muster__kept_slot__init(m);
    m->started = s->now.uid ? NULL : s->expected_process;
    if (s->now.address)
        fill_process(m->started = &out->process, s);
    m->uid = s->now.uid ? s->now.uid : s->expected_uid;
    m->incarnation = s->now.uid ? s->now.incarnation : s->expected_incarnation;
    m->former = out->former;
    for (unsigned i = 0; i < MS_FORMER_MAX; i++) {
        uint64_t uid = s->former[(s->former_next + i) % MS_FORMER_MAX];

        if (uid)
            m->former[m->n_former++] = uid;
    }
}

static void put_spec(struct ms_journal *d, const struct ms_cluster *c)
{
    Muster__KeptCluster m = MUSTER__KEPT_CLUSTER__INIT;
    MS_CLEANUP(ms_cleanup_free)
    struct slot *slots = calloc(c->count + 1, sizeof *slots);
    MS_CLEANUP(ms_cleanup_free)
    Muster__KeptSlot **list = calloc(c->count + 1, sizeof(Muster__KeptSlot *));

    if (!slots || !list)
        return;
    for (size_t i = 0; i < c->count; i++) {
        fill_slot(&slots[i], &c->slots[i]);
        list[i] = &slots[i].kept;
    }
    m.spec = c->spec;
    m.placed = c->placed;
    m.master = c->master;
    if (c->port_owner)
        m.port_owner = c->port_owner;
    m.driver = c->driver;
    m.objects = c->objects;
    m.slots = list;
    m.n_slots = c->count;
    ms_persist_put(d, SPACE_CLUSTER, c->name, &m.base);
}

void ms_persist_cluster(struct ms_head *h, const struct ms_cluster *c)
{
    if (h->persist.journal && c->spec && c->is_made)
        put_spec(h->persist.journal, c);
}

void ms_persist_forget_cluster(struct ms_head *h, const char *cluster)
{
    ms_journal_delete(h->persist.journal, SPACE_CLUSTER, cluster);
}

/* It stands in the registry, and its agents will tell who of it lives. */
static void fill_cluster(struct ms_head *h, const char *name, Muster__KeptCluster *m)
{
    struct ms_cluster *c = ms_registry_expect(&h->registry, name, m->n_slots);

    if (!c)
        return;
    c->driver = m->driver;
    c->detached = m->spec->detached;
    c->objects = m->objects;
    if (m->port_owner[0])
        c->port_owner = strdup(m->port_owner);
    c->spec = MS_TAKE(m->spec);
    c->placed = MS_TAKE(m->placed);
    c->master = MS_TAKE(m->master);
    for (size_t i = 0; i < c->count; i++) {
        c->slots[i].expected_uid = m->slots[i]->uid;
        c->slots[i].expected_incarnation = m->slots[i]->incarnation;
        c->slots[i].expected_process = MS_TAKE(m->slots[i]->started);
        for (size_t k = 0; k < m->slots[i]->n_former; k++)
            ms_slot_remember(&h->registry, &c->slots[i], m->slots[i]->former[k]);
    }
}

static void
take_cluster(struct ms_head *h, const char *name, const uint8_t *data, size_t len)
{
    struct ms_cluster *old = ms_registry_find(&h->registry, name);
    Muster__KeptCluster *m =
        data ? muster__kept_cluster__unpack(NULL, len, data) : NULL;

    if (old)
        ms_registry_remove(&h->registry, old);
    if (m && m->spec && m->placed && m->n_slots > 0)
        fill_cluster(h, name, m);
    muster__kept_cluster__free_unpacked(m, NULL);
}

static char unreported[] = "nobody has reported it since the head was started again";

/* Nobody has reported any worker of this cluster. */
static void forget_lost(struct ms_head *h, struct ms_cluster *c)
{
    for (size_t i = 0; i < c->count; i++) {
        Muster__Exit exit = MUSTER__EXIT__INIT;

        exit.code = -1;
        exit.detail = unreported;
        if (c->slots[i].expected_uid)
            ms_head_answer_deaths(h, c->slots[i].expected_uid, &exit);
    }
    ms_head_cluster_forget(h, c);
}

/* Nobody has reported this worker: it has ended, with its agent or before. */
static void lose(struct ms_head *h, const struct ms_slot *slot)
{
    Muster__WorkerSpec spec = MUSTER__WORKER_SPEC__INIT;
    Muster__WorkerReport report = MUSTER__WORKER_REPORT__INIT;
    Muster__Exit exit = MUSTER__EXIT__INIT;
    const Muster__Piece *piece = slot->cluster->placed->ranks[slot->rank]->pieces[0];
    struct ms_slot *found = NULL;

    spec.uid = slot->expected_uid;
    spec.cluster = slot->cluster->name;
    spec.rank = slot->rank;
    spec.incarnation = slot->expected_incarnation;
    spec.world_size = (uint32_t)slot->cluster->count;
    spec.driver = slot->cluster->driver;
    spec.devices = piece->devices;
    spec.n_devices = piece->n_devices;
    report.spec = &spec;
    report.started = slot->expected_process;
    exit.code = -1;
    exit.node = piece->node;
    exit.detail = unreported;
    if (ms_registry_adopt(
            &h->registry, piece->node, &report, ms_now_ns(), &found, NULL) == 0)
        ms_head_worker_exited(h, spec.uid, &exit);
}

/* Those whose cluster lives on without them can be restarted then. */
static void lose_of(struct ms_head *h, struct ms_cluster *c)
{
    ms_place_recover(h, c);
    for (size_t i = 0; c->spec && c->placed && i < c->count; i++)
        if (!c->slots[i].now.uid && c->slots[i].expected_uid)
            lose(h, &c->slots[i]);
}

static void lose_unreported(struct ms_head *h)
{
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        lose_of(h, c);
}

void ms_persist_settle(struct ms_head *h, const char *cluster)
{
    struct ms_cluster *c = ms_registry_find(&h->registry, cluster);

    if (c && c->unknown == c->count)
        forget_lost(h, c);
    else if (c)
        lose_of(h, c);
}

/* Nobody has reported any of its workers. */
static struct ms_cluster *find_lost(const struct ms_head *h)
{
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        if (c->unknown == c->count)
            return c;
    return NULL;
}

/* ---- the file -------------------------------------------------------------------- */

/* Who has not come back by now will not: what was its goes. */
static void on_grace(void *arg)
{
    struct ms_head *h = arg;
    struct ms_cluster *lost;
    size_t i = 0;
    bool has_changed = false;

    h->persist.is_expecting = false;
    while ((lost = find_lost(h)))
        forget_lost(h, lost);
    lose_unreported(h);
    ms_head_deaths_settle(h);
    while (i < h->kv.store.count) {
        struct ms_kv_owner owner = h->kv.store.entries[i]->owner;

        if (is_known(h, owner))
            i++;
        else
            has_changed = ms_kv_drop(&h->kv.store, owner) > 0 || has_changed;
    }
    if (has_changed)
        ms_head_kv_changed(h);
    ms_head_rendezvous_recover(h);
    ms_head_shards_recover(h);
    ms_list_each (k, &h->persist.groups, struct ms_kept_group, link)
        if (k->is_open)
            ms_persist_forget_group(h, k->message->status->id);
    forget_missing(h);
}

static void
take_group(struct ms_head *h, const char *key, const uint8_t *data, size_t len)
{
    struct ms_list *all = &h->persist.groups;
    Muster__RestoreGroup *m =
        data ? muster__restore_group__unpack(NULL, len, data) : NULL;
    struct ms_kept_group *k = NULL;

    if (!data)
        ms_kept_group_destroy(ms_kept_group_find(all, strtoull(key, NULL, 10)));
    if (m && m->group && m->status)
        k = ms_kept_group_put(all, m->group, m->status);
    if (k)
        k->is_open = true;
    muster__restore_group__free_unpacked(m, NULL);
}

static void take_id(struct ms_head *h, const char *key, const uint8_t *data, size_t len)
{
    (void)key;
    if (data && len == sizeof h->kv.store.id)
        memcpy(&h->kv.store.id, data, len); /* who watches goes on */
}

static void
take_node(struct ms_head *h, const char *key, const uint8_t *data, size_t len)
{
    (void)len;
    if (data)
        expect_node(h, key);
    else
        forget_expected(find_expected(h, key));
}

static void
on_record(void *arg, uint32_t space, const char *key, const uint8_t *data, size_t len)
{
    static void (*const take[])(
        struct ms_head * h, const char *key, const uint8_t *data, size_t len) = {
        [SPACE_KV] = take_entry,
        [SPACE_GROUP] = take_group,
        [SPACE_STORE] = take_id,
        [SPACE_CLUSTER] = take_cluster,
        [SPACE_NODE] = take_node,
        [MS_PERSIST_RENDEZVOUS] = ms_head_rendezvous_take,
        [MS_PERSIST_SHARDS] = ms_head_shards_take,
    };

    if (space < MS_COUNT(take) && take[space])
        take[space](arg, key, data, len);
}

static void put_id(const struct ms_head *h, struct ms_journal *d)
{
    ms_journal_put(
        d, SPACE_STORE, "id", (const uint8_t *)&h->kv.store.id, sizeof h->kv.store.id);
}

static void on_rewrite(void *arg, struct ms_journal *d)
{
    struct ms_head *h = arg;

    put_id(h, d);
    put_entries(h, d);
    ms_list_each (k, &h->persist.groups, struct ms_kept_group, link)
        put_group(d, k);
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        if (c->spec && c->is_made)
            put_spec(d, c);
    ms_list_each (n, &h->nodes, struct ms_node, link)
        put_node(d, n->name);
    ms_list_each (e, &h->persist.nodes, struct expected, link)
        put_node(d, e->name);
    ms_head_rendezvous_put_all(h, d);
    ms_head_shards_put_all(h, d);
}

int ms_persist_open(struct ms_head *h, struct ms_error *err)
{
    static const struct ms_journal_ops ops = {on_record, on_rewrite};
    int rc;

    if (!h->is_daemon || h->is_of_job)
        return 0;
    rc = ms_journal_open(&h->persist.journal,
                         h->session.dir,
                         FILE_NAME,
                         h->session.was_left,
                         FIRST_LASTING,
                         &ops,
                         h,
                         err);
    if (rc == 0)
        rc = ms_timer_init(&h->persist.timer, h->loop, on_grace, h);
    if (rc < 0)
        return rc;
    if (h->session.was_left)
        ms_kv_restored(&h->kv.store, h->kv.store.id);
    put_id(h, h->persist.journal);
    h->persist.kv_revision = h->kv.store.revision;
    ms_list_each (k, &h->persist.groups, struct ms_kept_group, link)
        for (size_t i = 0; i < k->message->status->n_pieces; i++)
            expect_node(h, k->message->status->pieces[i]->node);
    h->persist.is_expecting = h->session.was_left;
    if (h->session.was_left)
        ms_timer_set(&h->persist.timer, h->link_grace_ns);
    return 0;
}

void ms_persist_close(struct ms_head *h)
{
    ms_timer_finish(&h->persist.timer);
    ms_kept_groups_finish(&h->persist.groups);
    ms_list_each (e, &h->persist.nodes, struct expected, link)
        forget_expected(e);
    ms_journal_close(MS_TAKE(h->persist.journal));
}
