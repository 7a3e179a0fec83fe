/* join.c - an agent that dials its head: welcomed, refused, lost, dialling again */
#include "agent/join_impl.h"
#include "agent/machine/machine.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "io/addr.h"
#include "io/tcp.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* ---- what goes wrong ------------------------------------------------------------- */

/* Each reason once: an agent may wait for its head for days. */
static void complain(struct ms_join *j, const char *why)
{
    if (!strcmp(j->said, why))
        return;
    snprintf(j->said, sizeof j->said, "%s", why);
    ms_agent_log_event(
        json_pack("{s:s, s:s}", "event", "lost", "head", j->options->head),
        "%s at %s: %s",
        j->agent->config ? "has lost its head" : "has not joined the head",
        j->options->head,
        why);
}

static void give_up(struct ms_join *j, const char *why)
{
    j->agent->exit_code = 1;
    ms_agent_end(j->agent, 0, why);
}

static void set_grace(struct ms_join *j)
{
    int64_t grace_ns = j->has_head_ended ? j->head_grace_ns : j->link_grace_ns;
    int64_t left_ns = ms_deadline_ns(j->lost_ns, grace_ns) - ms_now_ns();

    ms_timer_set(&j->grace, left_ns > 0 ? left_ns : 0);
}

static void on_grace(void *arg)
{
    struct ms_join *j = arg;

    if (!j->agent->config)
        give_up(j, "the head was not joined in time");
    else if (j->has_head_ended)
        give_up(j, "the head has ended and did not come back in time");
    else
        give_up(j, "nothing was heard of the head for too long");
}

static void head_is_heard(struct ms_join *j)
{
    j->lost_ns = 0;
    j->said[0] = 0;
    ms_timer_cancel(&j->grace);
    ms_join_send_held(j);
}

/* ---- welcome --------------------------------------------------------------------- */

static int check_session(const struct ms_join *j,
                         const Muster__LinkWelcome *welcome,
                         struct ms_error *err)
{
    const char *ours = j->agent->config->session;

    if (!strcmp(ours, welcome->session))
        return 0;
    return ms_error_set(err,
                        -ESTALE,
                        "another head answers there: it is %s, ours was %s",
                        welcome->session,
                        ours);
}

static void say_joined(const struct ms_join *j, const char *session)
{
    const struct ms_agent *a = j->agent;
    char peer[MS_ADDR_TEXT_MAX];
    json_t *hosts = json_array();

    for (size_t i = 0; i < a->listen.host_count; i++)
        json_array_append_new(hosts, ms_json_string(a->listen.hosts[i]));
    ms_link_peer(j->agent->link, peer, sizeof peer);
    ms_agent_log_event(
        MS_JSON({"event", json_string("joined")},
                {"node", json_string(j->node)},
                {"session", json_string(session)},
                {"head", json_string(peer)},
                {"cpus", json_integer(a->shape->cpus)},
                {"devices", json_integer((json_int_t)a->shape->n_devices)},
                {"addresses", hosts},
                {"dir", json_string(j->dir.dir)}),
        "node %s has joined %s at %s: %d CPUs, %zu devices, reached at %s, logs in "
        "%s/logs",
        j->node,
        session,
        peer,
        a->shape->cpus,
        a->shape->n_devices,
        a->listen.hosts[0],
        j->dir.dir);
}

/* To the process that started this one. */
static void tell_ready(struct ms_join *j)
{
    if (j->ready_fd < 0)
        return;
    if (write(j->ready_fd, "1", 1) < 0)
        ms_agent_log("nobody waits any more until it has joined");
    ms_fd_close(&j->ready_fd);
}

static void line_is_up(struct ms_join *j,
                       struct ms_redial_line *line,
                       const Muster__LinkWelcome *welcome)
{
    bool is_new = j->replies.asker && j->replies.asker != welcome->head;

    ms_redial_welcome(line);
    j->agent->link = line->link;
    ms_replies_set_asker(&j->replies, welcome->head); /* first: they have its numbers */
    if (is_new)
        ms_starts_cancel(j->agent, "the head was started again");
    ms_join_tell_ended(j, line->hello_ns);
    j->link_grace_ns =
        welcome->link_grace_ns ? (int64_t)welcome->link_grace_ns : MS_LINK_GRACE_NS;
    j->head_grace_ns =
        welcome->head_grace_ns ? (int64_t)welcome->head_grace_ns : MS_HEAD_GRACE_NS;
    j->refused_ns = 0;
    head_is_heard(j);
}

static void
on_welcome(struct ms_join *j, struct ms_redial_line *line, Muster__LinkWelcome *welcome)
{
    struct ms_error err = {0};
    bool is_first = !j->agent->config;
    int rc = is_first ? ms_join_configure(j, welcome, &err)
                      : check_session(j, welcome, &err);

    if (rc < 0) {
        complain(j, err.text);
        give_up(j, err.text);
        return;
    }
    line_is_up(j, line, welcome);
    if (is_first) {
        ms_agent_send_ready(j->agent,
                            0); /* where its folder is: drivers here want it */
        ms_agent_warm_up(j->agent, ms_contexts_find(&j->agent->contexts, 0));
    }
    say_joined(j, welcome->session);
    tell_ready(j);
}

/* The head refuses this agent. A dead node of the same name, of which the head does not know
 * yet, is found out within the grace; what lasts longer is another node's name. */
static void on_refusal(struct ms_join *j,
                       struct ms_redial_line *line,
                       const Muster__Failure *failure)
{
    complain(j, failure->message);
    if (!j->refused_ns)
        j->refused_ns = ms_now_ns();
    if (!j->agent->config && ms_now_ns() - j->refused_ns > MS_LINK_GRACE_NS)
        give_up(j, "the head refuses it");
    else
        ms_redial_refuse(line);
}

/* ---- lines ----------------------------------------------------------------------- */

/* Inside the agent a request goes by its id (wire/link/requests.h). */
static void read_request(struct ms_join *j, Muster__HeadToAgent *m)
{
    const struct ms_reply *kept = NULL;
    int rc = 1;

    ms_replies_settle(&j->replies, m->answered, m->arrived, m->n_arrived);
    if (m->request)
        rc = ms_replies_begin(&j->replies, m->request, &m->request, &kept);
    if (kept)
        ms_link_send_packed(j->agent->link, kept->data, kept->len);
    if (rc == 1)
        ms_agent_read(j->agent, m);
    else
        muster__head_to_agent__free_unpacked(m, NULL);
}

static void
on_greeting(void *arg, struct ms_redial_line *line, const uint8_t *body, size_t len)
{
    struct ms_join *j = arg;
    Muster__HeadToAgent *m = muster__head_to_agent__unpack(NULL, len, body);

    if (m && m->body_case == MUSTER__HEAD_TO_AGENT__BODY_WELCOME && !j->agent->is_over)
        on_welcome(j, line, m->welcome);
    if (m && m->body_case == MUSTER__HEAD_TO_AGENT__BODY_FAILURE && !j->agent->is_over)
        on_refusal(j, line, m->failure);
    muster__head_to_agent__free_unpacked(m, NULL);
}

static bool on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_join *j = arg;
    Muster__HeadToAgent *m = NULL;

    if (!j->agent->is_over)
        m = muster__head_to_agent__unpack(NULL, len, body);
    if (m)
        read_request(j, m);
    return true;
}

static bool on_lost(void *arg, int64_t since_ns, const struct ms_error *why)
{
    struct ms_join *j = arg;

    j->agent->link = ms_redial_link(&j->redial);
    complain(j, why->text);
    if (j->agent->is_over)
        return false;
    if (!j->lost_ns)
        j->lost_ns = since_ns;
    j->has_head_ended = ms_link_has_ended(why);
    set_grace(j);
    return true;
}

static void on_back(void *arg)
{
    struct ms_join *j = arg;

    ms_agent_log_event(json_pack("{s:s}", "event", "back"), "hears of its head again");
    head_is_heard(j);
}

/* Before the first welcome there is nothing here that is worth another attempt. */
static bool is_final(const struct ms_join *j, int code)
{
    return !j->agent->config && (code == -EACCES || code == -EPROTONOSUPPORT ||
                                 code == -EINVAL || code == -ENOMEM);
}

static bool on_failed(void *arg, const struct ms_error *why)
{
    struct ms_join *j = arg;

    complain(j, why->text);
    if (is_final(j, why->code)) {
        give_up(j, why->text);
        return false;
    }
    /* its machine answers, and it is not there */
    if (!j->agent->link && j->lost_ns && why->code == -ECONNREFUSED &&
        !j->has_head_ended) {
        j->has_head_ended = true;
        set_grace(j);
    }
    return true;
}

/* The address by which we reach the head: others may reach us there, too. */
static void prefer_own_host(struct ms_join *j, const struct ms_link *link)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;
    char host[INET6_ADDRSTRLEN];

    if (getsockname(ms_link_fd(link), (struct sockaddr *)&sa, &len) < 0)
        return;
    ms_sockaddr_host(&sa, host);
    ms_listen_prefer(&j->agent->listen, host);
}

static int on_open(void *arg, struct ms_link *link)
{
    struct ms_join *j = arg;

    if (!j->agent->config)
        prefer_own_host(j, link);
    return ms_join_hello(j, link);
}

static const struct ms_redial_ops redial_ops = {.on_open = on_open,
                                                .on_greeting = on_greeting,
                                                .on_body = on_body,
                                                .on_lost = on_lost,
                                                .on_back = on_back,
                                                .on_failed = on_failed};

/* ---- life ------------------------------------------------------------------------ */

/* The host's name, with what a name may not have written as a dash. */
static int make_node_name(struct ms_join *j, struct ms_error *err)
{
    if (j->options->node_name) {
        snprintf(j->node, sizeof j->node, "%s", j->options->node_name);
        return ms_name_check(j->options->node_name, "node", err);
    }
    if (gethostname(j->node, sizeof j->node - 1) < 0)
        return ms_error_sys(err, -errno, "cannot learn the host's name");
    for (char *c = j->node; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_.-", *c))
            *c = '-';
    return ms_name_check(j->node, "node", err);
}

static int join_init(struct ms_join *j, struct ms_agent *a, struct ms_error *err)
{
    static const char *const any[] = {"*"};
    const struct ms_join_options *o = j->options;
    const struct ms_link_dial dial = {.addresses = o->head,
                                      .secret = o->secret,
                                      .tls = o->tls,
                                      .deadline_ns = MS_NEVER};
    int rc = make_node_name(j, err);

    if (rc < 0)
        return rc;
    j->id = ms_random_id();
    a->join = j;
    a->node = j->node;
    a->shape = ms_machine_shape(a->node, o->shape, err);
    if (!a->shape)
        return err->code;
    ms_cgroups_init(&a->cgroups, "");
    rc = ms_listen_init(&a->listen,
                        o->bind_count ? o->bind : any,
                        o->bind_count ? o->bind_count : 1,
                        err);
    if (rc == 0 && (ms_redial_init(&j->redial, a->loop, &dial, &redial_ops, j) < 0 ||
                    ms_timer_init(&j->grace, a->loop, on_grace, j) < 0))
        rc = ms_error_set(err, -ENOMEM, "out of memory");
    if (rc == 0 && o->join_within_ns > 0)
        ms_timer_set(&j->grace, o->join_within_ns);
    if (rc == 0 && ms_agent_watch_process(a, o->end_with_pid) < 0)
        rc = ms_error_set(
            err, -ESRCH, "there is no process %d to end with", (int)o->end_with_pid);
    return rc;
}

static void join_finish(struct ms_join *j)
{
    ms_redial_finish(&j->redial);
    j->agent->link = NULL;
    ms_timer_finish(&j->grace);
    ms_replies_finish(&j->replies);
    ms_buf_finish(&j->held);
    ms_join_forget_ended(j, MS_NEVER);
    ms_fd_close(&j->ready_fd);
    ms_node_dir_close(&j->dir);
}

int ms_agent_join(const struct ms_join_options *o)
{
    struct ms_agent a;
    struct ms_join j = {.agent = &a,
                        .options = o,
                        .dir = {.lock_fd = -1},
                        .ready_fd = o->ready_fd > 2 ? o->ready_fd : -1,
                        .link_grace_ns = MS_LINK_GRACE_NS,
                        .head_grace_ns = MS_HEAD_GRACE_NS};
    struct ms_error err = {0};
    int rc = ms_agent_init(&a, -1, -1, o->ready_fd > 2 ? o->ready_fd : -1);

    if (rc == 0)
        rc = ms_agent_watch_supervisor(&a, o->supervisor_pid);
    ms_agent_log_to_terminal(o->json);
    ms_list_init(&j.ended);
    ms_replies_init(&j.replies);
    if (rc < 0)
        ms_error_sys(&err, rc, "cannot begin");
    else
        rc = join_init(&j, &a, &err);
    if (rc < 0)
        ms_agent_log("%s", err.text);
    else
        ms_redial_start(&j.redial);
    if (rc == 0 && !a.is_over)
        rc = ms_loop_run(a.loop);
    join_finish(&j);
    ms_agent_finish(&a);
    return rc < 0 ? 1 : a.exit_code;
}
