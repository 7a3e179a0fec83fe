/* head_object.h - the Head object, shared by the files that give it its methods
 *
 * head.c       stop, what it is
 * head_start.c start: the driver's session (src/session) from its options
 * operation.c  any request, and what has not been answered yet
 * head_ops.c   the end of clusters, ports
 * head_view.c  what there is: nodes, clusters, daemons of this machine
 * head_nodes.c what happens to nodes
 * place.c      placement groups, and what there is
 * lent.c       machines that an orchestrator lends
 * head_kv.c    the key-value store, barriers
 * head_logs.c  the lines that workers print
 */
#ifndef MS_PYTHON_HEAD_OBJECT_H
#define MS_PYTHON_HEAD_OBJECT_H

#include "core.h"

#include "base/list.h"
#include "head/head.h"
#include "session/session.h"

#include <pthread.h>

struct head {
    PyObject_HEAD struct ms_driver_session *own;
    struct ms_head *head;     /* its; NULL: not started, or stopped */
    struct ms_client *client; /* likewise */
    PyObject *session, *session_dir;
    pthread_mutex_t lock; /* over what is told to Python's threads */
    pthread_cond_t logged;
    struct ms_list logs;
    size_t log_count, log_dropped;
    struct ms_list node_events;
    bool stopped;
    bool closing; /* nobody begins anything; set with the interpreter's lock */
};

/* An operation's waiting, with signals looked at: 0, or -1 with an exception set. */
int head_op_finish(struct ms_head_op *op, PyObject *timeout);
/* The same, but what the head refuses is a LookupError(text, table, errno): the caller
 * knows what it means. */
int head_op_finish_coded(struct ms_head_op *op, PyObject *timeout);
/* 1, or 0 with an exception set. */
int head_is_running(struct head *h);

/* bundles.c: a list of tuples as the bundles of a message, which borrows from both. Free
 * them in any case. */
struct bundle;
struct head_bundles {
    struct bundle *own;
    Muster__BundleSpec **list;
    size_t count;
};
int head_bundles_parse(PyObject *list, struct head_bundles *b, Muster__PlaceGroup *out);
void head_bundles_free(struct head_bundles *b);

int head_init(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *head_ask(PyObject *self, PyObject *args); /* operation.c */
PyObject *head_redirect(PyObject *self, PyObject *args);
PyObject *head_destroy_cluster(PyObject *self, PyObject *args);
PyObject *head_hold_port(PyObject *self, PyObject *args);
PyObject *head_drop_port(PyObject *self, PyObject *args);
PyObject *head_place_group(PyObject *self, PyObject *args);
PyObject *head_wait_group(PyObject *self, PyObject *args);
PyObject *head_find_group(PyObject *self, PyObject *args);
PyObject *head_remove_group(PyObject *self, PyObject *args);
PyObject *head_resources(PyObject *self, PyObject *args);
PyObject *head_reserve(PyObject *self, PyObject *args);
PyObject *head_release(PyObject *self, PyObject *args);
PyObject *head_reservation(PyObject *self, PyObject *args);
PyObject *head_node(PyObject *self, void *unused);
PyObject *head_nodes(PyObject *self, PyObject *timeout);
PyObject *head_store_place(PyObject *self, PyObject *timeout);
PyObject *head_clusters(PyObject *self, PyObject *timeout);

/* On the head's thread. */
void head_on_log(void *arg, const Muster__LogLines *lines);
PyObject *head_kv_put(PyObject *self, PyObject *args);
PyObject *head_kv_get(PyObject *self, PyObject *args);
PyObject *head_kv_delete(PyObject *self, PyObject *args);
PyObject *head_kv_keys(PyObject *self, PyObject *args);
PyObject *head_kv_watch(PyObject *self, PyObject *args);
PyObject *head_barrier(PyObject *self, PyObject *args);
PyObject *head_next_nodes(PyObject *self, PyObject *timeout);
PyObject *head_node_tuple(const Muster__NodeStatus *n);
void head_on_node(void *arg, const Muster__NodeStatus *node);
void head_node_events_free(struct head *h);
PyObject *head_next_logs(PyObject *self, PyObject *timeout);
void head_logs_free(struct head *h);

#endif
