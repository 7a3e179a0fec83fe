/* head.h - the controller, as a thread of its own
 *
 * Owns the session, the loop thread, the local agent, the registry of clusters, and the
 * control socket that the command line talks to. ms_head_start returns when the agent
 * has said that it is ready, or says why not. Everything else may be called from any
 * thread; requests return an operation that completes exactly once.
 *
 * With `listen` agents of other machines can join it: they are nodes as its own is, and end
 * with it.
 *
 * There are two more ways to have one. ms_head_join gives the same interface to a head
 * that runs elsewhere: requests travel there, what happens to workers comes back.
 * ms_head_serve makes that head: it has no agent of its own, agents and drivers dial.
 *
 * The head lives in the driver's process: it handles no signal, prints nothing,
 * never exits, and waits for no child but its agent.
 */
#ifndef MS_HEAD_HEAD_H
#define MS_HEAD_HEAD_H

#include "base/error.h"
#include "io/loop.h"
#include "io/session/session.h"
#include "proto/muster.pb-c.h"
#include "wire/transport/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_head;
struct ms_head_op;
struct ms_lent_piece;

/* Who lends nodes to a head: an orchestrator, which the head owns (fleet.h). Borrowed until
 * the start is over, but for `on_piece`. */
struct ms_head_lender {
    const char *name;       /* "local", "ray" */
    const char *address;    /* of the engine; NULL: the name says all */
    const char *agent_path; /* the muster executable */
    /* local: what there is (0: this machine); others: what a gang of "whole" pieces is */
    const Muster__NodeShape *const *nodes;
    size_t node_count;
    const char *const *const *prefixes; /* as ms_local_options has them; NULL: none */
    const char
        *agent_prefix; /* local: before the names that nodes have here; NULL: none */
    bool is_durable;   /* what is lent outlives this process */
    /* What a piece is now; on the head's thread. May be NULL. */
    void (*on_piece)(void *arg, const char *key, const struct ms_lent_piece *piece);
    /* The orchestrator cannot be asked, and why; NULL: it can (again). May be NULL. */
    void (*on_silence)(void *arg, const char *why);
    void *arg;
};

struct ms_head_options {
    const char
        *agent_path;       /* the muster executable, started as `muster agent --fd 3` */
    const char *node_name; /* NULL: the host's name */
    int num_gpus;          /* fake or real devices of each node; -1: look */
    int num_cpus;          /* of each; -1: look */
    /* Several on this machine: so many, called n0, n1, ... (0: one), or these, instead of
     * the four above; borrowed until the start is over. */
    uint32_t num_nodes;
    const Muster__NodeShape *const *shapes;
    size_t shape_count;
    bool log_to_driver; /* the agent sends lines */
    /* All nodes are lent, and none is there at first: those above are then described to
     * `lender`, whose own are not looked at. Needs `listen`. NULL: agents of our own. */
    const struct ms_head_lender *lender;
    const char *const *python; /* argv prefix of the interpreter, NULL-terminated */
    const char *const *sys_path;
    const char *const *preload; /* modules that all workers have; NULL: none */
    const char *const *env;     /* "NAME=value" of the driver, NULL-terminated */
    const char *working_dir;
    const char *script; /* what this process is, for people; may be NULL */
    uint64_t worker;    /* joins a head as a worker of it: its uid; else 0 */
    bool tool;          /* joins a head to ask it, as a command does: it is no driver */
    bool is_patient;    /* a head to be joined that is not there yet is waited for */
    int64_t timeout_ns; /* for the start */
    const char *http;   /* "HOST:PORT" of rest.h; NULL: none */
    bool http_open_metrics;
    const char *const *listen; /* "HOST:PORT" for agents, NULL-terminated; NULL: none */
    const uint8_t *secret;     /* MS_SESSION_SECRET_SIZE bytes; NULL: a fresh one */
    enum ms_tls_mode tls;
    const Muster__StoreConfig *store; /* of each node; NULL: its agent decides */

    /* On the head's thread, which must not stop the head. `lines` and `exit` are
     * borrowed. on_exit comes once for each worker of a cluster whose creation has
     * succeeded, and not before that; from a head that was joined perhaps again after its
     * link broke. */
    void (*on_log)(void *arg, const Muster__LogLines *lines);
    void (*on_exit)(void *arg, uint64_t uid, const Muster__Exit *exit);
    /* There is no node left; all workers get on_exit. */
    void (*on_agent_lost)(void *arg, const char *why);
    /* An agent on another machine has come, is suspect or no longer so, or has gone. */
    void (*on_node)(void *arg, const Muster__NodeStatus *node);
    /* Answers ms_head_ask_successor; NULL: nobody has that worker's place. */
    void (*on_successor)(void *arg, uint64_t uid, const Muster__WorkerStatus *worker);
    void *arg;
};

struct ms_head *ms_head_start(const struct ms_head_options *o, struct ms_error *err);

/* Where a head is, and how to prove oneself there. */
struct ms_head_address {
    const char *addresses; /* as io/addr.h has it: "HOST:PORT,...", "/path/head.sock" */
    const uint8_t *secret; /* MS_SESSION_SECRET_SIZE bytes */
    enum ms_tls_mode tls;
};

/* Join a head. A worker of that head joins it with its uid in `worker`: what it asks for is
 * its own, and it is no driver. Of the options, agent_path, node_name, num_gpus and num_cpus mean nothing.
 * Returns when the head has welcomed us.
 *
 * A link that breaks is dialled again for as long as the head said it would be missed
 * (head_grace); requests wait for that and are carried out once. A head that was started
 * again meanwhile is told what we want; a creation that was under way is begun anew. When
 * it is lost for good, or says goodbye, requests fail with -EPIPE, every worker gets
 * on_exit, and then on_agent_lost comes.
 *
 * ms_head_stop ends the clusters of this process, but not the detached ones, and waits for
 * that. on_exit also comes for a worker of another driver that was asked about with an
 * AskDeath, which completes when it is known how the worker ended. */
struct ms_head *ms_head_join(const struct ms_head_options *o,
                             const struct ms_head_address *a,
                             struct ms_error *err);

struct ms_head_serve_options {
    const char *name; /* of the session; NULL: "head" */
    bool is_of_job; /* the session is new, has no name but its own, and ends with it */
    const char *secret_file;   /* NULL: the session's own */
    const char *const *listen; /* "HOST:PORT", NULL-terminated; NULL: loopback */
    enum ms_tls_mode tls;
    const Muster__StoreConfig
        *store; /* of nodes that say nothing themselves; NULL: none */
    int64_t link_grace_ns, head_grace_ns; /* 0: the defaults */
    const char *http;                     /* "HOST:PORT" of rest.h; NULL: none */
    bool http_open_metrics;
    const struct ms_head_lender *lender; /* NULL: none */
    const char *agent_path; /* the muster executable, for jobs; NULL: it hosts none */
    const char *ray;        /* the address of Ray for jobs; NULL: it has none on Ray */
    /* A command has asked that the head ends too; on its thread. May be NULL: that is then
     * refused. */
    void (*on_stop_asked)(void *arg);
    /* On the head's thread, which must not wait in them; may be NULL. A node as in
     * ms_head_options. A driver has come (`gone` is NULL), or has gone, and why; `peer` is
     * the address that it dialled from, or empty. */
    void (*on_node)(void *arg, const Muster__NodeStatus *node);
    void (*on_driver)(void *arg,
                      const Muster__DriverStatus *driver,
                      const char *peer,
                      const char *gone);
    void *arg;
};

/* A head that others join. -EBUSY: one of that name runs here. Started again it has the
 * same secret, and learns from agents and drivers what runs. Requests of this process
 * itself (ms_head_status and so on) work as in an embedded head. ms_head_stop ends all. */
struct ms_head *ms_head_serve(const struct ms_head_serve_options *o,
                              struct ms_error *err);

/* Of ms_head_serve, and with `listen`: where it can be dialled, NULL-terminated, as long as the head. */
const char *const *ms_head_addresses(const struct ms_head *h);
/* Where it speaks HTTP; empty: nowhere. */
const char *ms_head_http_address(const struct ms_head *h);

/* End everything and join the thread: workers get SIGTERM, after grace_ns SIGKILL; when
 * this returns there is no process, socket or folder (but logs) of this session left.
 * Never takes longer than grace_ns + MS_STOP_GRACE_NS, and if nodes are lent
 * MS_FLEET_END_NS for them to be given back. */
void ms_head_stop(struct ms_head *h, int64_t grace_ns);

/* Before it: the driver has failed, and agents that have joined end with exit code 1. */
void ms_head_fail(struct ms_head *h);

/* In a forked child: close what was inherited (and everything else that is watched by
 * the head's loop), touch nothing of the session. All that is legal afterwards: this
 * again, ms_head_stop, which then does nothing, and requests, which fail. */
void ms_head_forget(struct ms_head *h);

struct ms_loop *ms_head_loop(struct ms_head *h);
const struct ms_session *ms_head_session(const struct ms_head *h);

/* ---- requests -----------------------------------------------------------------------
 *
 * None of these blocks and none gives NULL: what cannot be done is an operation that
 * has completed with an error. Arguments are borrowed until the call returns. Common
 * errors: -EPIPE (the agent is gone; the text says how), -ENOMEM, -EINVAL, -ESHUTDOWN
 * (the head was stopped meanwhile), -EPERM (this is a forked child of the driver, or
 * the agent refused), -EIO (the agent failed; the text is its own).
 */

/* Make a cluster of this spec (cluster/spec.h): places, a port, processes, steps, all or
 * none. The result is a ClusterStatus in which every worker has uid, pid, address and
 * log_path, with the answers of rank 0 to its steps. wait_ns: for room that others hold.
 * -EEXIST: the name is taken; the text says by whom. -ENOSPC: no room, with a table.
 * -EREMOTEIO, -ETIMEDOUT: workers said why (ms_head_op_failure). -ECANCELED: it was destroyed
 * meanwhile. */
struct ms_head_op *ms_head_create_cluster(struct ms_head *h,
                                          const Muster__ClusterSpec *spec,
                                          int64_t wait_ns);

/* Stop its workers (SIGTERM, after grace_ns SIGKILL); completes when all have been
 * reaped. One that is being created is stopped when it exists. -ENOENT: no such
 * cluster, or another one of that name. own: another driver has made it, for a creation that
 * was given up, which may have failed because the name was taken. uid, unless it is 0: rank 0
 * neither is nor was that worker. -ETIMEDOUT: some have not ended within
 * grace_ns + MS_STOP_GRACE_NS; the cluster stays until they have. */
struct ms_head_op *ms_head_destroy_cluster(
    struct ms_head *h, const char *name, bool own, uint64_t uid, int64_t grace_ns);

/* New incarnations of ranks of a cluster, together: the old ones end, the new ones start in
 * their places and do all steps of the spec. The result is a ClusterStatus. -ENOENT (no such
 * cluster), -EINVAL (no such rank), -EBUSY (it is being changed), -ENOTSUP (nobody knows how
 * it was made), -ETIMEDOUT (an old one does not end, or a new one is not made in time),
 * -ENOSPC (its node is gone, and there is no room elsewhere), -EREMOTEIO. */
struct ms_head_op *ms_head_restart(struct ms_head *h,
                                   const Muster__RestartWorkers *what);
/* Another number of ranks; the last ones go first. The result is a ClusterStatus. As
 * ms_head_restart; -ENOTSUP: its ranks have places in a mesh. */
struct ms_head_op *ms_head_resize(struct ms_head *h,
                                  const char *cluster,
                                  uint32_t world_size,
                                  int64_t grace_ns);
/* How many changes of clusters (resized, initialized) this process knows of: a handle looks
 * again when it has grown. Any thread. */
uint64_t ms_head_changes(const struct ms_head *h);
/* Who has the place of this worker, which is dead? on_successor answers, when that is
 * known. */
void ms_head_ask_successor(struct ms_head *h, uint64_t uid);

/* The result is a Status. */
struct ms_head_op *ms_head_status(struct ms_head *h);

/* The key under which `muster run` has what its file says of roles (job/file.h), for the
 * driver. */
#define MS_KV_JOB "muster/job"

/* Anything that a head can be asked (verbs.h): `body` is the message of that name in
 * DriverToHead (proto/muster.proto), borrowed until the call returns; the result is what
 * answers it there. In an embedded head requests about places (place_group, find_group,
 * remove_group, place_cluster, resources) have completed when this returns. Their errors are
 * -ENOSPC (not on these nodes), -EBUSY (held by others now) and -EAGAIN (no way was found),
 * each with a table; -EEXIST (the name), -ENOENT (no such group), -EBUSY of remove_group: a
 * cluster stands in it. */
struct ms_head_op *ms_head_request(struct ms_head *h,
                                   Muster__DriverToHead__BodyCase what,
                                   const void *body);

/* The same; on_done is called on the head's thread when it has completed. NULL: out of
 * memory, or a forked child, and it is never called. */
struct ms_head_op *ms_head_request_then(struct ms_head *h,
                                        Muster__DriverToHead__BodyCase what,
                                        const void *body,
                                        void (*on_done)(struct ms_head_op *op,
                                                        void *arg),
                                        void *arg);

/* Wait until it has completed: 0, or -ETIMEDOUT when deadline_ns (monotonic) comes
 * first; the operation then goes on. */
int ms_head_op_wait(struct ms_head_op *op, int64_t deadline_ns);

/* It has joined a head, and has no link to it now. */
bool ms_head_is_away(const struct ms_head *h);
/* Why one that was waited for has not completed, for people: whether the head is there. */
const char *ms_head_op_delay(const struct ms_head_op *op);
/* After completion: 0 or its negative errno with the reason in err. Before:
 * -EINPROGRESS. */
int ms_head_op_result(const struct ms_head_op *op, struct ms_error *err);
/* After a failure: the table that belongs to the text, or NULL. Borrowed until unref. */
const char *ms_head_op_table(const struct ms_head_op *op);
/* After a failure: what workers said, in `workers`; NULL: it was none of theirs. Borrowed until
 * unref. */
const Muster__Failure *ms_head_op_failure(const struct ms_head_op *op);
/* After success: the message named above, borrowed until unref; NULL if it has none. */
const ProtobufCMessage *ms_head_op_message(const struct ms_head_op *op);
/* Give it up (any time; an operation under way goes on without an observer). */
void ms_head_op_unref(struct ms_head_op *op);

#endif
