/* rendezvous_kept.c - a rendezvous as a message, and back: what a head keeps of it */
#include "base/buf.h"
#include "base/proto.h"
#include "job/rendezvous.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- to a message ---------------------------------------------------------------- */

static Muster__KeptMember *member_message(const struct ms_rendezvous_member *m)
{
    Muster__KeptMember out = MUSTER__KEPT_MEMBER__INIT;

    out.key = m->key;
    out.owner = m->owner;
    out.data = (ProtobufCBinaryData){m->len, m->data};
    out.gone = m->is_gone;
    out.place = m->place;
    return (Muster__KeptMember *)ms_proto_copy(&out.base);
}

static bool add_members(Muster__KeptMember ***out,
                        size_t *count,
                        const struct ms_rendezvous_member *all,
                        size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!ms_proto_append(out, count, member_message(&all[i])))
            return false;
    return true;
}

Muster__KeptRendezvous *ms_rendezvous_encode(const struct ms_rendezvous *r)
{
    Muster__KeptRendezvous *m =
        (Muster__KeptRendezvous *)ms_proto_create(&muster__kept_rendezvous__descriptor);

    if (!m)
        return NULL;
    m->min = r->limits.min;
    m->max = r->limits.max;
    m->unit = r->limits.unit;
    m->last_call_ns = (uint64_t)r->limits.last_call_ns;
    m->join_ns = (uint64_t)r->limits.join_ns;
    m->round = r->round;
    m->closed = r->is_closed;
    m->of_cluster = r->is_of_cluster;
    if (add_members(&m->world, &m->n_world, r->world, r->world_count) &&
        add_members(&m->waiting, &m->n_waiting, r->waiting, r->waiting_count))
        return m;
    muster__kept_rendezvous__free_unpacked(m, NULL);
    return NULL;
}

/* ---- from a message -------------------------------------------------------------- */

static int take_members(struct ms_rendezvous_member **out,
                        size_t *count,
                        size_t *room,
                        Muster__KeptMember *const *all,
                        size_t n)
{
    if (n == 0)
        return 0;
    *out = calloc(n, sizeof **out);
    if (!*out)
        return -ENOMEM;
    *room = n;
    for (size_t i = 0; i < n; i++) {
        struct ms_rendezvous_member *m = &(*out)[i];

        for (size_t k = 0; k < i; k++)
            if (strcmp((*out)[k].key, all[i]->key) == 0)
                return -EINVAL;
        if (!all[i]->key[0] || strlen(all[i]->key) > MS_RENDEZVOUS_KEY_MAX ||
            all[i]->data.len > MS_RENDEZVOUS_DATA_MAX)
            return -EINVAL;
        m->key = strdup(all[i]->key);
        m->data = ms_bytes_copy(all[i]->data.data, all[i]->data.len);
        m->len = all[i]->data.len;
        m->owner = all[i]->owner;
        m->is_gone = all[i]->gone;
        m->place = all[i]->place;
        (*count)++;
        if (!m->key || !m->data)
            return -ENOMEM;
    }
    return 0;
}

static int check(const Muster__KeptRendezvous *m, struct ms_rendezvous_limits *l)
{
    if (m->last_call_ns > INT64_MAX || m->join_ns > INT64_MAX ||
        m->n_world > MS_RENDEZVOUS_MEMBERS_MAX ||
        m->n_waiting > 2 * MS_RENDEZVOUS_MEMBERS_MAX ||
        (m->n_world > 0) != (m->round > 0))
        return -EINVAL;
    *l = (struct ms_rendezvous_limits){.min = m->min,
                                       .max = m->max,
                                       .unit = m->unit,
                                       .last_call_ns = (int64_t)m->last_call_ns,
                                       .join_ns = (int64_t)m->join_ns};
    return ms_rendezvous_check(l, NULL);
}

int ms_rendezvous_decode(struct ms_rendezvous *r,
                         const Muster__KeptRendezvous *m,
                         int64_t now_ns)
{
    struct ms_rendezvous_limits limits;
    struct ms_rendezvous made;
    int rc = check(m, &limits);

    if (rc < 0)
        return rc;
    ms_rendezvous_init(&made, &limits);
    made.round = m->round;
    made.is_of_cluster = m->of_cluster;
    rc = take_members(
        &made.world, &made.world_count, &made.world_room, m->world, m->n_world);
    if (rc == 0)
        rc = take_members(&made.waiting,
                          &made.waiting_count,
                          &made.waiting_room,
                          m->waiting,
                          m->n_waiting);
    if (rc < 0) {
        ms_rendezvous_finish(&made);
        return rc;
    }
    if (m->closed)
        ms_rendezvous_close(&made);
    made.last_join_ns = now_ns;
    ms_rendezvous_settle(&made, now_ns);
    *r = made;
    return 0;
}
