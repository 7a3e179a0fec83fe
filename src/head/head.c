/* head.c - the start and the end of a head */
#include "head/head.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "head/clusters/ports.h"
#include "head/daemon/control.h"
#include "head/drivers/driver.h"
#include "head/drivers/uplink.h"
#include "head/fleet/fleet.h"
#include "head/forked.h"
#include "head/head_impl.h"
#include "head/jobs/jobs.h"
#include "head/kv/barrier.h"
#include "head/kv/kv.h"
#include "head/nodes/child_agent.h"
#include "head/nodes/local_nodes.h"
#include "head/nodes/node.h"
#include "head/nodes/orphan.h"
#include "head/ops/op.h"
#include "head/place/place.h"
#include "head/rendezvous/rendezvous.h"
#include "head/rest/rest.h"
#include "head/shards/shards.h"
#include "head/state/persist.h"
#include "head/stop.h"
#include "io/session/node_dir.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>

enum {
    SPIN_PAGE_SIZE = 4096,
    DESCRIPTORS_NEEDED = 24, /* to start an agent */
    DESCRIPTORS_NODE = 4,    /* for each more */
    EMBEDDED_GRACE_NS = 1,   /* its end is the end; 0 would mean the default */
};

/* ---- the end --------------------------------------------------------------------- */

/* Nobody else runs on the loop now. */
static void fail_open_ops(struct ms_head *h)
{
    while (!ms_list_is_empty(&h->ops))
        ms_head_op_fail(ms_list_first(&h->ops, struct ms_head_op, link),
                        -ESHUTDOWN,
                        "the head was stopped");
}

static void close_session(struct ms_head *h)
{
    if (h->lock_fd < 0)
        return;
    if (h->is_daemon && !h->is_of_job)
        ms_session_close(&h->session);
    else
        ms_session_remove(h->session.dir);
    if (h->is_daemon)
        ms_node_dirs_sweep(
            h->session.name);   /* agents that were killed have left theirs */
    flock(h->lock_fd, LOCK_UN); /* also for a forked child that has a copy of it */
    ms_fd_close(&h->lock_fd);
}

static void head_destroy(struct ms_head *h)
{
    ms_jobs_quit(h->jobs);
    fail_open_ops(h);
    if (h->loop) {
        ms_jobs_destroy(MS_TAKE(h->jobs));
        ms_fleet_destroy(MS_TAKE(h->fleet));
        ms_rest_close(MS_TAKE(h->rest));
        ms_head_control_close(h);
        ms_orphans_finish(&h->orphans);
        ms_list_each (n, &h->nodes, struct ms_node, link)
            ms_node_destroy(n);
        ms_drivers_finish(h);
        ms_handshakes_finish(h);
        ms_uplink_destroy(h->uplink);
        ms_head_rendezvous_finish(h);
        ms_head_shards_finish(h);
        ms_persist_close(h);
        ms_timer_finish(&h->stopping.timer);
        ms_watch_finish(&h->marker);
    }
    ms_place_finish(h);
    ms_fd_close(&h->marker_fd);
    ms_head_ports_finish(h);
    ms_head_barriers_finish(h);
    ms_kv_finish(&h->kv.store);
    for (size_t i = 0; h->addresses && h->addresses[i]; i++)
        free(h->addresses[i]);
    free(h->addresses);
    muster__head_to_agent__free_unpacked(h->config, NULL);
    ms_registry_finish(&h->registry);
    ms_loop_destroy(h->loop);
    close_session(h);
    pthread_mutex_destroy(&h->lock);
    explicit_bzero(h->session.secret, sizeof h->session.secret);
    free(h);
}

static void on_stop_timer(void *arg)
{
    ms_head_stop_step(arg);
}

bool ms_head_is_forgotten(const struct ms_head *h)
{
    return h->forgotten || getpid() != h->session.driver_pid;
}

void ms_head_fail(struct ms_head *h)
{
    h->has_failed = true;
}

void ms_head_stop(struct ms_head *h, int64_t grace_ns)
{
    struct ms_head_op *op;

    if (!h || ms_head_is_forgotten(h))
        return;
    op = h->has_thread ? ms_head_op_create(h) : NULL;
    if (op) {
        op->run = h->uplink ? ms_uplink_stop_run : ms_head_stop_run;
        op->grace_ns = grace_ns > 0 ? grace_ns : 0;
        ms_head_op_wait(ms_head_op_submit(op), MS_NEVER);
    }
    if (h->has_thread) {
        ms_loop_stop(h->loop);
        pthread_join(h->thread, NULL);
    }
    head_destroy(h);
    ms_head_op_unref(op);
}

void ms_head_crash(struct ms_head *h)
{
    ms_loop_stop(h->loop);
    pthread_join(h->thread, NULL);
    ms_fd_close(&h->lock_fd); /* the folder stays as it is */
    ms_drivers_cut(h);
    head_destroy(h);
}

void ms_head_forget(struct ms_head *h)
{
    if (!h || h->forgotten)
        return;
    h->forgotten = true;
    if (h->marker_fd >= 0)
        ms_forked_close(h->marker_fd);
    h->marker_fd = -1;
    ms_fd_close(&h->lock_fd);
}

/* ---- the start ------------------------------------------------------------------- */

static int set_node(struct ms_head *h, const char *name, struct ms_error *err)
{
    char host[256] = {0};

    if (name && ms_name_check(name, "node", err) < 0)
        return -EINVAL;
    if (!name && gethostname(host, sizeof host - 1) == 0) {
        host[MS_NAME_MAX] = 0;
        name = ms_name_check(host, "node", NULL) == 0 ? host : NULL;
    }
    strcpy(h->node, name ? name : "localhost");
    return 0;
}

struct ms_head *ms_head_create(const struct ms_head_options *o, struct ms_error *err)
{
    struct ms_head *h = calloc(1, sizeof *h);

    if (!h) {
        ms_error_sys(err, -ENOMEM, "cannot make the head");
        return NULL;
    }
    h->lock_fd = h->marker_fd = -1;
    h->started_ns = ms_now_ns();
    h->start_ns = o->timeout_ns > 0 ? o->timeout_ns : MS_AGENT_START_NS;
    h->on_log = o->on_log;
    h->on_exit = o->on_exit;
    h->on_agent_lost = o->on_agent_lost;
    h->on_node = o->on_node;
    h->tls = o->tls;
    h->on_successor = o->on_successor;
    h->arg = o->arg;
    h->session.driver_pid = getpid();
    pthread_mutex_init(&h->lock, NULL);
    ms_list_init(&h->ops);
    ms_list_init(&h->destroying);
    ms_list_init(&h->bringups);
    ms_list_init(&h->creating);
    ms_list_init(&h->waiting.for_nodes);
    ms_list_init(&h->waiting.for_deaths);
    ms_list_init(&h->successor_waits);
    ms_list_init(&h->status.watching);
    ms_list_init(&h->kv.waiting);
    ms_list_init(&h->barriers);
    ms_list_init(&h->rendezvous);
    ms_list_init(&h->shards);
    ms_list_init(&h->shards_unkept.held);
    ms_list_init(&h->nodes);
    ms_list_init(&h->ports);
    ms_list_init(&h->handshakes);
    ms_list_init(&h->persist.nodes);
    ms_list_init(&h->persist.groups);
    ms_map_init(&h->drivers);
    h->link_grace_ns = MS_LINK_GRACE_NS;
    h->head_grace_ns = MS_HEAD_GRACE_NS;
    h->id = ms_random_id();
    ms_registry_init(&h->registry);
    ms_list_init(&h->place.waits);
    pthread_mutex_init(&h->place.lock, NULL);
    ms_books_init(&h->place.books);
    ms_kv_init(&h->kv.store, h->id);
    return h;
}

/* The page of spin leases: zeros. */
static int make_spin_page(const char *session_dir)
{
    static const char zeros[SPIN_PAGE_SIZE];
    MS_CLEANUP(ms_cleanup_fd) int dir = ms_tree_open(AT_FDCWD, session_dir);

    return dir < 0 ? dir : ms_tree_write(dir, "spin", zeros, sizeof zeros);
}

static int open_session(struct ms_head *h, const uint8_t *secret, struct ms_error *err)
{
    int rc = ms_session_create(&h->session, secret, &h->lock_fd, err);

    if (rc < 0)
        return rc;
    snprintf(h->log_path, sizeof h->log_path, "%s/logs/agent.log", h->session.dir);
    rc = make_spin_page(h->session.dir);
    return rc < 0 ? ms_error_sys(err, rc, "cannot make the page of spin leases") : 0;
}

/* The libraries below us end the process when they find no descriptor left, so look
 * before they do. */
static int check_descriptors(const struct ms_head_options *o, struct ms_error *err)
{
    size_t nodes = o->shape_count ? o->shape_count : o->num_nodes;
    int needed =
        DESCRIPTORS_NEEDED +
        (int)(nodes < MS_NODES_HERE_MAX ? nodes : MS_NODES_HERE_MAX) * DESCRIPTORS_NODE;
    int fds[DESCRIPTORS_NEEDED + MS_NODES_HERE_MAX * DESCRIPTORS_NODE], count = 0;

    while (count < needed &&
           (fds[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    for (int i = 0; i < count; i++)
        close(fds[i]);
    if (count == needed)
        return 0;
    return ms_error_set(
        err,
        -EMFILE,
        "only %d more files can be opened, %d are needed: raise the limit "
        "(ulimit -n)",
        count,
        needed);
}

static void on_marker(void *arg, unsigned events)
{
    (void)arg;
    (void)events;
}

static int open_marker(struct ms_head *h)
{
    h->marker_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->marker_fd < 0)
        return -errno;
    return ms_watch_init(&h->marker, h->loop, h->marker_fd, MS_READ, on_marker, h);
}

/* The nodes of this machine, unless they are lent. */
static int add_nodes(struct ms_head *h,
                     const struct ms_head_options *o,
                     const struct ms_local_nodes *d,
                     struct ms_error *err)
{
    for (size_t i = 0; !o->lender && i < d->count; i++)
        if (ms_child_agent_init(h, o, ms_local_nodes_config(d, i, &h->session, o)) < 0)
            return ms_error_set(err, -ENOMEM, "cannot make the head: out of memory");
    h->config = ms_local_nodes_config(d, 0, &h->session, o);
    return 0;
}

/* The loop and what lives on it. */
int ms_head_build(struct ms_head *h, struct ms_error *err)
{
    h->loop = ms_loop_create();
    if (!h->loop || ms_orphans_init(&h->orphans, h) < 0 ||
        ms_timer_init(&h->stopping.timer, h->loop, on_stop_timer, h) < 0 ||
        ms_place_init(h) < 0 || open_marker(h) < 0)
        return ms_error_set(err, -ENOMEM, "cannot make the head: out of memory");
    return 0;
}

/* It has the nodes that would be our own, unless they are elsewhere. */
static int open_fleet(struct ms_head *h,
                      const struct ms_head_options *o,
                      const struct ms_local_nodes *d,
                      struct ms_error *err)
{
    struct ms_head_lender lender = *o->lender;

    lender.agent_path = o->agent_path;
    lender.nodes = (const Muster__NodeShape *const *)d->shapes;
    lender.node_count = d->count;
    return ms_fleet_open(h, &lender, err);
}

static int
build(struct ms_head *h, const struct ms_head_options *o, struct ms_error *err)
{
    MS_CLEANUP(ms_local_nodes_finish) struct ms_local_nodes d = {0};
    int rc = ms_head_build(h, err);

    if (rc == 0)
        rc = ms_local_nodes_init(&d, o, h->node, err);
    if (rc == 0)
        rc = add_nodes(h, o, &d, err);
    if (rc == 0 && o->lender && !o->listen)
        rc = ms_error_set(err, -EINVAL, "lent nodes need an address to dial");
    if (rc == 0 && o->http)
        rc = ms_rest_open(h, o->http, o->http_open_metrics, err);
    if (rc == 0)
        rc = ms_head_control_open(h, err);
    if (rc == 0 && o->listen)
        rc = ms_head_control_listen(h, o->listen, err);
    return rc == 0 && o->lender ? open_fleet(h, o, &d, err) : rc;
}

static void *head_main(void *arg)
{
    struct ms_head *h = arg;

    pthread_setname_np(pthread_self(), "muster-head");
    ms_loop_run(h->loop);
    return NULL;
}

/* Signals are the driver's: none is ever handled on this thread. */
int ms_head_start_thread(struct ms_head *h, struct ms_error *err)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&h->thread, NULL, head_main, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    h->has_thread = rc == 0;
    return rc ? ms_error_sys(err, -rc, "cannot start the head's thread") : 0;
}

struct ms_head *ms_head_start(const struct ms_head_options *o, struct ms_error *err)
{
    struct ms_head *h = ms_head_create(o, err);
    int rc;

    if (!h)
        return NULL;
    h->head_grace_ns = EMBEDDED_GRACE_NS;
    rc = o->agent_path ? set_node(h, o->node_name, err)
                       : ms_error_set(err, -EINVAL, "agent_path is needed");
    if (rc == 0)
        rc = check_descriptors(o, err);
    if (rc == 0)
        rc = open_session(h, o->secret, err);
    if (rc == 0)
        rc = build(h, o, err);
    if (rc == 0)
        rc = ms_head_start_thread(h, err);
    if (rc == 0 && !o->lender)
        rc = ms_head_op_call(h, ms_child_agent_run, MS_NEVER, err); /* has a deadline */
    if (rc == 0)
        return h;
    ms_head_stop(h, 0);
    return NULL;
}

uint64_t ms_head_changes(const struct ms_head *h)
{
    return atomic_load(&h->changes);
}

struct ms_loop *ms_head_loop(struct ms_head *h)
{
    return h->loop;
}

const char *const *ms_head_addresses(const struct ms_head *h)
{
    return (const char *const *)h->addresses;
}

const struct ms_session *ms_head_session(const struct ms_head *h)
{
    return &h->session;
}
