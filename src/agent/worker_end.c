/* worker_end.c - the end of a worker, described and told to all who want to know */
#include "agent/worker.h"
#include "base/proto.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static void add_last_lines(struct ms_worker *w, Muster__Exit *exit)
{
    struct ms_tail *tail = ms_log_tail(w->log);
    const char *line;

    exit->last_lines = calloc(MS_LAST_LINES, sizeof *exit->last_lines);
    for (unsigned i = 0; exit->last_lines && (line = ms_tail_get(tail, i)); i++)
        if ((exit->last_lines[exit->n_last_lines] = strdup(line)))
            exit->n_last_lines++;
}

/* The kernel killed it at a limit: that of its own group, or of ours where it had none.
 */
static void look_for_memory(struct ms_worker *w, Muster__Exit *exit)
{
    bool is_killed = exit->signaled && exit->code == SIGKILL;

    if (w->cgroup.dir[0]) {
        if (ms_cgroup_kill_count(&w->cgroup) <= 0)
            return;
        exit->out_of_memory = is_killed;
        if (!is_killed)
            ms_proto_set_text(&exit->detail,
                              "the memory limit had killed a process of it before");
    } else if (is_killed && !w->is_requested) {
        exit->out_of_memory = ms_cgroups_killed_here(&w->agent->cgroups);
        if (exit->out_of_memory)
            ms_proto_set_text(&exit->detail,
                              "the machine or its container ran out of memory");
    }
}

static Muster__WorkerExited *
describe(struct ms_worker *w, int status, const char *detail)
{
    Muster__WorkerExited *x =
        (Muster__WorkerExited *)ms_proto_create(&muster__worker_exited__descriptor);
    Muster__Exit *exit = (Muster__Exit *)ms_proto_create(&muster__exit__descriptor);

    if (!x || !exit) {
        free(x);
        free(exit);
        return NULL;
    }
    x->uid = w->uid;
    x->exit = exit;
    exit->signaled = WIFSIGNALED(status);
    exit->code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    exit->requested = w->is_requested;
    exit->pid = w->pid;
    ms_proto_set_text(&exit->node, w->agent->node);
    ms_proto_set_text(&exit->log_path, ms_log_path(w->log));
    if (w->is_detached && !w->is_requested && exit->signaled && exit->code == SIGKILL)
        detail = "it was ended because it had closed its link to the agent: all "
                 "descriptors were closed, or another program was executed";
    if (detail)
        ms_proto_set_text(&exit->detail, detail);
    else
        look_for_memory(w, exit);
    add_last_lines(w, exit);
    return x;
}

static void tell_askers(struct ms_agent *a, const Muster__WorkerExited *x)
{
    uint64_t asker;

    while ((asker = ms_exits_take_asker(&a->exits, x->uid)))
        ms_worker_send(
            ms_map_find(&a->by_uid, asker), MUSTER__AGENT_TO_WORKER__BODY_DIED, x);
}

void ms_worker_tell_end(struct ms_worker *w)
{
    Muster__WorkerExited *x = MS_TAKE(w->exited);

    if (!x)
        return;
    if (w->agent->join && !w->is_private)
        ms_join_ended(w->agent->join, w, x);
    if (!w->is_private)
        ms_agent_send(w->agent, 0, MUSTER__AGENT_TO_HEAD__BODY_EXITED, x);
    if (w->beside)
        ms_worker_send(ms_map_find(&w->agent->by_uid, w->beside),
                       MUSTER__AGENT_TO_WORKER__BODY_CHILD,
                       x);
    ms_exits_add(&w->agent->exits, x);
    tell_askers(w->agent, x);
    muster__worker_exited__free_unpacked(x, NULL);
}

/* Its links and names; its log's tail has been taken. */
static void close_endpoints(struct ms_worker *w)
{
    struct ms_agent *a = w->agent;

    ms_exits_forget_asker(&a->exits, w->uid);
    ms_exits_forget_asker(&a->successor_asks, w->uid);
    ms_link_destroy(MS_TAKE(w->control));
    ms_timer_finish(&w->detached);
    ms_log_close(MS_TAKE(w->log));
    if (w->path)
        unlink(w->path);
}

void ms_worker_ended(struct ms_worker *w, int status, const char *detail)
{
    struct ms_agent *a = w->agent;

    if (w->has_ended)
        return;
    ms_worker_check_problem(w); /* it may have ended before we heard that it began */
    ms_map_remove(&a->by_pid, (uint64_t)w->pid);
    w->has_ended = true;
    ms_log_drain(w->log);
    ms_logs_flush(a->logs); /* what it printed comes before its end */
    w->exited = describe(w, status, detail);
    if (!w->start)
        ms_worker_tell_end(w);
    ms_cgroup_kill(&w->cgroup);
    ms_fork_parent_ended(w);
    close_endpoints(w);
    ms_activity_forget(w);
    ms_list_add_tail(&a->dead, &w->link);
    ms_sweep_soon(a);
}

void ms_worker_ask(struct ms_worker *w, uint64_t about)
{
    struct ms_agent *a = w->agent;
    const Muster__WorkerExited *known = ms_exits_find(&a->exits, about);
    struct ms_worker *other = ms_map_find(&a->by_uid, about);
    Muster__WorkerExited x = MUSTER__WORKER_EXITED__INIT;
    Muster__Exit exit = MUSTER__EXIT__INIT;
    char detail[] = "unknown: this agent does not know such a worker";

    if (known) {
        ms_worker_send(w, MUSTER__AGENT_TO_WORKER__BODY_DIED, known);
        return;
    }
    if (other && ms_exits_ask(&a->exits, w->uid, about) == 0)
        return;
    x.uid = about;
    x.exit = &exit;
    exit.node = (char *)(uintptr_t)a->node;
    exit.detail = detail;
    ms_worker_send(w, MUSTER__AGENT_TO_WORKER__BODY_DIED, &x);
}

/* The head knows; a question that is lost is asked again. */
void ms_worker_ask_successor(struct ms_worker *w, Muster__AskSuccessor *ask)
{
    if (ms_exits_ask(&w->agent->successor_asks, w->uid, ask->uid) == 0)
        ms_agent_send(w->agent, 0, MUSTER__AGENT_TO_HEAD__BODY_ASK_SUCCESSOR, ask);
}

void ms_worker_tell_successor(struct ms_agent *a, Muster__Successor *successor)
{
    uint64_t asker;

    while ((asker = ms_exits_take_asker(&a->successor_asks, successor->uid)))
        ms_worker_send(ms_map_find(&a->by_uid, asker),
                       MUSTER__AGENT_TO_WORKER__BODY_SUCCESSOR,
                       successor);
}
