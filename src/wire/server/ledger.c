/* ledger.c - the sessions of a server, which outlive their connections */
#include "base/buf.h"
#include "base/clock.h"
#include "wire/server/server_impl.h"

#include <errno.h>
#include <string.h>

/* ---- attaching and losing -------------------------------------------------------- */

/* Sessions are random: their first bytes are as good as all of them. */
static uint64_t key_of(const uint8_t *session)
{
    uint64_t key;

    memcpy(&key, session, sizeof key);
    return key ? key : 1;
}

static struct ms_ledger *ledger_create(struct ms_server *s, const uint8_t *session)
{
    struct ms_ledger *l = calloc(1, sizeof *l);

    if (!l || ms_map_add(&s->by_session, key_of(session), l) < 0) {
        free(l);
        return NULL;
    }
    memcpy(l->session, session, MS_SESSION_SIZE);
    l->server = s;
    ms_list_init(&l->kept);
    ms_list_add_tail(&s->ledgers, &l->link);
    return l;
}

/* The client has given this connection up, whether we have noticed or not. */
static void replace(struct ms_ledger *l)
{
    struct ms_server_conn *old = l->conn;

    ms_ledger_detach(old);
    if (old->reading)
        ms_server_conn_break(old);
    else
        ms_server_conn_lost(old);
}

int ms_ledger_attach(struct ms_server_conn *sc)
{
    struct ms_server *s = sc->server;
    const uint8_t *session = ms_conn_handshake(sc->conn)->session;
    struct ms_ledger *l;

    if (sc->attached)
        return sc->ledger ? 0 : -EPIPE;
    l = ms_map_find(&s->by_session, key_of(session));
    if (l && memcmp(l->session, session, MS_SESSION_SIZE) != 0)
        return -EEXIST;
    if (l && l->conn)
        replace(l);
    /* a control session was ended by that */
    l = ms_map_find(&s->by_session, key_of(session));
    if (!l)
        l = ledger_create(s, session);
    if (!l)
        return -ENOMEM;
    sc->attached = true;
    sc->ledger = l;
    l->conn = sc;
    l->conns++;
    return 0;
}

void ms_ledger_detach(struct ms_server_conn *sc)
{
    struct ms_ledger *l = sc->ledger;
    struct ms_request *r;
    size_t at = 0;

    sc->ledger = NULL;
    if (!l)
        return;
    l->conn = NULL;
    if (ms_conn_handshake(sc->conn)->lane == MS_LANE_CONTROL) {
        ms_ledger_destroy(l);
        return;
    }
    while ((r = ms_map_next(&l->requests, &at)))
        ms_stream_detach(r);
    l->lost_ns = ms_now_ns();
    ms_server_wake_at(l->server, ms_deadline_ns(l->lost_ns, l->server->o.grace_ns));
}

void ms_ledger_destroy(struct ms_ledger *l)
{
    struct ms_server *s = l->server;
    struct ms_request *r;
    size_t at = 0;

    while ((r = ms_map_next(&l->requests, &at)))
        ms_request_drop(r);
    if (l->conn)
        l->conn->ledger = NULL;
    ms_map_remove(&s->by_session, key_of(l->session));
    ms_map_finish(&l->requests);
    ms_list_remove(&l->link);
    free(l->methods);
    free(l);
}

int64_t ms_ledger_sweep(struct ms_server *s, int64_t now_ns)
{
    int64_t next = MS_NEVER;

    ms_list_each (l, &s->ledgers, struct ms_ledger, link) {
        int64_t end = ms_deadline_ns(l->lost_ns, s->o.grace_ns);

        if (l->conn)
            continue;
        if (end <= now_ns)
            ms_ledger_destroy(l);
        else if (end < next)
            next = end;
    }
    return next;
}

/* ---- what a client says of its session ------------------------------------------- */

/* Nobody waits for `r`: as if it had been cancelled and acknowledged. */
static void forget(struct ms_ledger *l, struct ms_request *r)
{
    uint64_t id = r->call_id;

    ms_request_cancel(r);
    ms_request_acked(l, id);
}

int ms_ledger_keep_only(struct ms_ledger *l, const struct ms_message *m)
{
    uint64_t walk = ++l->server->walks, after, last = m->head.call_id;
    struct ms_request *r;
    size_t at = 0;

    if (m->len < sizeof after || m->len % sizeof after != 0)
        return -EPROTO;
    after = ms_le64_at(m->body, 0);
    for (size_t i = 1; i < m->len / sizeof after; i++)
        if ((r = ms_map_find(&l->requests, ms_le64_at(m->body, i))))
            r->walk = walk;
    if (l->conns == 1 && last > l->forgotten)
        l->forgotten = last; /* this client was here, and we know nothing of it */
    while ((r = ms_map_next(&l->requests, &at))) {
        if (r->walk == walk || r->call_id <= after || r->call_id > last)
            continue;
        if (r->state == MS_SERVE_RUNNING) {
            ms_request_cancel(r);
            continue;
        }
        forget(l, r);
        at = 0; /* the map has changed under us */
    }
    return 0;
}

void ms_ledger_leave(struct ms_ledger *l)
{
    struct ms_server *s = l->server;
    struct ms_request *r;

    l->is_left = true;
    while ((r = ms_list_take(&l->kept, struct ms_request, ledger_link))) {
        if (s->o.ops->on_unread && r->reply_kind == MS_KIND_REPLY && r->reply)
            s->o.ops->on_unread(s->o.arg, r);
        ms_request_acked(l, r->call_id);
    }
}

/* ---- methods --------------------------------------------------------------------- */

static struct ms_method *
method_create(size_t index, const char *engine, const char *name)
{
    struct ms_method *m = calloc(1, sizeof *m);

    if (!m)
        return NULL;
    m->index = (uint32_t)index;
    m->engine = strdup(engine);
    m->name = strdup(name);
    if (m->engine && m->name)
        return m;
    free(m->engine);
    free(m->name);
    free(m);
    return NULL;
}

struct ms_method *
ms_server_intern(struct ms_server *s, const char *engine, const char *name)
{
    struct ms_method *m;

    for (size_t i = 0; i < s->method_count; i++)
        if (strcmp(s->methods[i]->engine, engine) == 0 &&
            strcmp(s->methods[i]->name, name) == 0)
            return s->methods[i];
    if (s->method_count == MS_METHODS_MAX ||
        ms_array_reserve(&s->methods, &s->method_room, s->method_count + 1, sizeof m) <
            0)
        return NULL;
    m = method_create(s->method_count, engine, name);
    if (m)
        s->methods[s->method_count++] = m;
    return m;
}

/* Body: engine, NUL, method; both without NUL, the method not empty. */
int ms_ledger_method(struct ms_ledger *l, const struct ms_message *m)
{
    char text[MS_METHOD_NAME_MAX + 1];
    uint32_t i = (uint32_t)m->head.op - MS_OP_METHOD;
    const char *name;
    int rc;

    if (m->head.op < MS_OP_METHOD || i >= MS_METHODS_MAX ||
        m->len > MS_METHOD_NAME_MAX || m->len == 0)
        return -EPROTO;
    memcpy(text, m->body, m->len);
    text[m->len] = 0;
    name = memchr(text, 0, m->len);
    if (!name || !*++name || strlen(name) != m->len - (size_t)(name - text))
        return -EPROTO;
    rc = ms_array_reserve(&l->methods, &l->method_room, i + 1, sizeof *l->methods);
    if (rc == 0) /* one name too many stays unknown, and so do calls to it */
        l->methods[i] = ms_server_intern(l->server, text, name);
    return rc;
}
