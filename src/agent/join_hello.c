/* join_hello.c - what an agent says to a head: hello with workers, ends and ports; messages, and
 * lines that are held while the link is away */
#include "agent/join_impl.h"
#include "agent/worker.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "wire/frame.h"

#include <errno.h>
#include <string.h>

struct ended {
    struct ms_list link; /* oldest first */
    int64_t at_ns;
    Muster__WorkerReport *report;
};

/* ---- those that have ended ------------------------------------------------------- */

static void ended_free(struct ms_join *j, struct ended *e)
{
    ms_list_remove(&e->link);
    j->ended_count--;
    muster__worker_report__free_unpacked(e->report, NULL);
    free(e);
}

void ms_join_forget_ended(struct ms_join *j, int64_t before_ns)
{
    ms_list_each (e, &j->ended, struct ended, link)
        if (e->at_ns < before_ns || j->ended_count > MS_EXITS_KEPT)
            ended_free(j, e);
}

/* All that a head needs, without what may be long or is private (environment, steps). `exit`
 * NULL: the worker lives. NULL: out of memory. */
static Muster__WorkerReport *make_report(const struct ms_worker *w, Muster__Exit *exit)
{
    Muster__WorkerReport report = MUSTER__WORKER_REPORT__INIT;
    Muster__WorkerSpec spec = *w->spec;
    Muster__WorkerStarted started;

    spec.n_env = spec.n_command = 0;
    spec.zygote = NULL;
    spec.steps = NULL;
    spec.working_dir = (char *)(uintptr_t)protobuf_c_empty_string;
    ms_worker_describe(w, &started);
    report.spec = &spec;
    report.started = &started;
    report.exit = exit;
    return (Muster__WorkerReport *)ms_proto_copy(&report.base);
}

/* Only the newest keep their last lines: a hello has its limit. */
static void drop_old_lines(struct ms_join *j)
{
    unsigned age = 0;

    for (struct ms_list *at = j->ended.prev; at != &j->ended; at = at->prev) {
        Muster__Exit *exit = ms_list_entry(at, struct ended, link)->report->exit;

        if (++age <= MS_EXITS_LINES_KEPT)
            continue;
        if (!exit->n_last_lines)
            return; /* those before have none either */
        for (size_t i = 0; i < exit->n_last_lines; i++)
            free(exit->last_lines[i]);
        exit->n_last_lines = 0;
    }
}

void ms_join_ended(struct ms_join *j,
                   const struct ms_worker *w,
                   const Muster__WorkerExited *x)
{
    struct ended *e = calloc(1, sizeof *e);

    if (!e || !(e->report = make_report(w, x->exit))) {
        free(e);
        return;
    }
    e->at_ns = ms_now_ns();
    ms_list_add_tail(&j->ended, &e->link);
    j->ended_count++;
    drop_old_lines(j);
    if (!j->lost_ns)
        ms_join_forget_ended(j, e->at_ns - 2 * j->link_grace_ns);
}

void ms_join_tell_ended(struct ms_join *j, int64_t since_ns)
{
    ms_list_each (e, &j->ended, struct ended, link) {
        Muster__WorkerExited exited = MUSTER__WORKER_EXITED__INIT;

        exited.uid = e->report->spec->uid;
        exited.exit = e->report->exit;
        if (e->at_ns >= since_ns)
            ms_agent_send(j->agent, 0, MUSTER__AGENT_TO_HEAD__BODY_EXITED, &exited);
    }
}

/* ---- hello ----------------------------------------------------------------------- */

/* All that lives here, and all that has ended. False: out of memory. */
static bool add_workers(Muster__AgentHello *hello, const struct ms_join *j)
{
    struct ms_worker *w;
    size_t at = 0;
    bool ok = true;

    while (ok && (w = ms_map_next(&j->agent->by_uid, &at)))
        if (w->pid > 0 && !w->has_ended && !w->is_private)
            ok = ms_proto_append(
                &hello->workers, &hello->n_workers, make_report(w, NULL));
    ms_list_each (e, &j->ended, struct ended, link)
        ok = ok && ms_proto_append(&hello->workers,
                                   &hello->n_workers,
                                   ms_proto_copy(&e->report->base));
    return ok;
}

static bool add_ports(Muster__AgentHello *hello, const struct ms_ports *ports)
{
    bool ok = true;

    ms_list_each (h, &ports->held, struct ms_held_port, link) {
        Muster__PortReport report = MUSTER__PORT_REPORT__INIT;
        Muster__PortHeld port = MUSTER__PORT_HELD__INIT;

        port.host = h->host;
        port.port = h->port;
        report.owner = h->owner;
        report.port = &port;
        ok = ok && ms_proto_append(
                       &hello->ports, &hello->n_ports, ms_proto_copy(&report.base));
    }
    return ok;
}

int ms_join_hello(struct ms_join *j, struct ms_link *link)
{
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;
    Muster__LinkHello hello = MUSTER__LINK_HELLO__INIT;
    Muster__AgentHello *agent =
        (Muster__AgentHello *)ms_proto_create(&muster__agent_hello__descriptor);
    Muster__AgentReady ready;
    char *hosts[MS_LISTEN_HOSTS_MAX], version[] = MS_VERSION;
    int rc = -ENOMEM;

    if (agent && add_workers(agent, j) && add_ports(agent, &j->agent->ports)) {
        ms_agent_describe(j->agent, &ready, hosts);
        agent->agent = j->id;
        agent->head = j->replies.asker;
        agent->ready = &ready;
        agent->session = j->agent->config ? j->agent->config->session : agent->session;
        hello.version = version;
        hello.protocol = MS_FRAME_VERSION;
        hello.who_case = MUSTER__LINK_HELLO__WHO_AGENT;
        hello.agent = agent;
        m.body_case = MUSTER__AGENT_TO_HEAD__BODY_HELLO;
        m.hello = &hello;
        rc = ms_link_send(link, &m.base);
        agent->ready = NULL; /* borrowed, as the name of the session */
        agent->session = (char *)(uintptr_t)protobuf_c_empty_string;
    }
    muster__agent_hello__free_unpacked(agent, NULL);
    return rc;
}

/* ---- messages -------------------------------------------------------------------- */

/* Log lines while no link is up. logs/batch.c stops at its limit: it asks how much is queued. */
static void hold(struct ms_join *j, const Muster__AgentToHead *m)
{
    uint32_t len = (uint32_t)muster__agent_to_head__get_packed_size(m);

    if (ms_buf_reserve(&j->held, sizeof len + len) < 0)
        return;
    ms_buf_append(&j->held, &len, sizeof len);
    muster__agent_to_head__pack(m, j->held.data + j->held.len);
    j->held.len += len;
}

void ms_join_send_held(struct ms_join *j)
{
    size_t at = 0;

    while (at < j->held.len) {
        uint32_t len;

        memcpy(&len, j->held.data + at, sizeof len);
        at += sizeof len;
        ms_link_send_packed(j->agent->link, j->held.data + at, len);
        at += len;
    }
    ms_buf_finish(&j->held);
}

void ms_join_send(struct ms_join *j, uint64_t request, Muster__AgentToHead *m)
{
    const struct ms_reply *kept = NULL;
    struct ms_link *link = j->agent->link;
    bool can_send = link && !ms_link_is_suspect(link);

    if (request) {
        m->request = ms_replies_number(&j->replies, request);
        if (!m->request)
            return; /* who asked is gone */
        kept = ms_replies_keep(&j->replies, m->request, &m->base);
    } else if (m->body_case == MUSTER__AGENT_TO_HEAD__BODY_LOG && !can_send) {
        hold(j, m);
        return;
    }
    if (link && kept)
        ms_link_send_packed(link, kept->data, kept->len);
    else if (link)
        ms_link_send(link, &m->base);
}
