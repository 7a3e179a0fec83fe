/* join_hello.c - what an agent says when it comes (back) to a head: workers, ends, ports */
#include "agent/join_impl.h"
#include "agent/worker.h"
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

/* All that a head needs, without what may be long or nobody's business. */
static void fill_spec(const struct ms_worker *w, Muster__WorkerSpec *out)
{
    *out = *w->spec;
    out->n_env = out->n_command = 0;
    out->env = out->command = NULL;
    out->zygote = NULL;
    out->working_dir = (char *)(uintptr_t)protobuf_c_empty_string;
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
    Muster__WorkerReport report = MUSTER__WORKER_REPORT__INIT;
    Muster__WorkerSpec spec;
    Muster__WorkerStarted started;
    struct ended *e = calloc(1, sizeof *e);

    fill_spec(w, &spec);
    ms_worker_describe(w, &started);
    report.spec = &spec;
    report.started = &started;
    report.exit = x->exit;
    if (e)
        e->report = (Muster__WorkerReport *)ms_proto_copy(&report.base);
    if (!e || !e->report) {
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

struct hello {
    Muster__WorkerReport *reports, **report_at;
    Muster__WorkerSpec *specs;
    Muster__WorkerStarted *started;
    size_t report_count;
    Muster__PortReport *ports, **port_at;
    Muster__PortHeld *held;
    size_t port_count;
};

static void hello_finish(struct hello *h)
{
    free(h->reports);
    free(h->report_at);
    free(h->specs);
    free(h->started);
    free(h->ports);
    free(h->port_at);
    free(h->held);
}

static int hello_init(struct hello *h, const struct ms_join *j)
{
    size_t workers = j->agent->by_uid.count, all = workers + j->ended_count + 1,
           ports = j->agent->ports.count + 1;

    *h = (struct hello){.reports = calloc(workers + 1, sizeof *h->reports),
                        .report_at = calloc(all, sizeof *h->report_at),
                        .specs = calloc(workers + 1, sizeof *h->specs),
                        .started = calloc(workers + 1, sizeof *h->started),
                        .ports = calloc(ports, sizeof *h->ports),
                        .port_at = calloc(ports, sizeof *h->port_at),
                        .held = calloc(ports, sizeof *h->held)};
    if (h->reports && h->report_at && h->specs && h->started && h->ports &&
        h->port_at && h->held)
        return 0;
    return -ENOMEM;
}

static void add_workers(struct hello *h, const struct ms_join *j)
{
    struct ms_worker *w;
    size_t at = 0, i = 0;

    while ((w = ms_map_next(&j->agent->by_uid, &at))) {
        if (w->pid <= 0 || w->has_ended || w->is_private)
            continue;
        fill_spec(w, &h->specs[i]);
        ms_worker_describe(w, &h->started[i]);
        muster__worker_report__init(&h->reports[i]);
        h->reports[i].spec = &h->specs[i];
        h->reports[i].started = &h->started[i];
        h->report_at[h->report_count++] = &h->reports[i++];
    }
    ms_list_each (e, &j->ended, struct ended, link)
        h->report_at[h->report_count++] = e->report;
}

static void add_port(void *arg, const char *owner, const char *host, uint16_t port)
{
    struct hello *h = arg;
    size_t i = h->port_count++;

    muster__port_report__init(&h->ports[i]);
    muster__port_held__init(&h->held[i]);
    h->held[i].host = (char *)(uintptr_t)host;
    h->held[i].port = port;
    h->ports[i].owner = (char *)(uintptr_t)owner;
    h->ports[i].port = &h->held[i];
    h->port_at[i] = &h->ports[i];
}

static int say(struct ms_join *j, struct ms_link *link, struct hello *h)
{
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;
    Muster__LinkHello hello = MUSTER__LINK_HELLO__INIT;
    Muster__AgentHello agent = MUSTER__AGENT_HELLO__INIT;
    Muster__AgentReady ready;
    char *hosts[MS_LISTEN_HOSTS_MAX], version[] = MS_VERSION;

    add_workers(h, j);
    ms_ports_each(&j->agent->ports, add_port, h);
    ms_agent_describe(j->agent, &ready, hosts);
    agent.agent = j->id;
    agent.head = j->replies.asker;
    agent.ready = &ready;
    agent.n_workers = h->report_count;
    agent.workers = h->report_at;
    agent.n_ports = h->port_count;
    agent.ports = h->port_at;
    if (j->agent->config)
        agent.session = j->agent->config->session;
    hello.version = version;
    hello.protocol = MS_FRAME_VERSION;
    hello.who_case = MUSTER__LINK_HELLO__WHO_AGENT;
    hello.agent = &agent;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_HELLO;
    m.hello = &hello;
    return ms_link_send(link, &m.base);
}

int ms_join_hello(struct ms_join *j, struct ms_link *link)
{
    struct hello h;
    int rc = hello_init(&h, j);

    if (rc == 0)
        rc = say(j, link, &h);
    hello_finish(&h);
    return rc;
}
