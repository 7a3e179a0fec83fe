/* head_object.h - the Head object, shared by the files that give it its methods
 *
 * head.c        stop, what it is
 * head_start.c  start: the driver's session (src/session) from its options
 * operation.c   any request, and what has not been answered yet
 * head_events.c the lines that workers print, changes of nodes
 * timeline.c    what happened when, into a file
 */
#ifndef MS_PYTHON_HEAD_OBJECT_H
#define MS_PYTHON_HEAD_OBJECT_H

#include "core.h"

#include "base/list.h"
#include "head/head.h"
#include "session/session.h"

#include <pthread.h>

/* What the head tells, until Python takes it. */
struct head_queue {
    struct ms_list events;
    size_t lines, dropped; /* of logs: those that wait, and those that had no room */
};

struct head {
    PyObject_HEAD struct ms_driver_session *driver;
    struct ms_head *head;     /* its; NULL: not started, or stopped */
    struct ms_client *client; /* likewise */
    PyObject *session, *session_dir;
    pthread_mutex_t lock; /* over the queues and `stopped` */
    pthread_cond_t changed;
    struct head_queue logs, nodes;
    bool stopped;
    bool closing; /* nobody begins anything; set with the interpreter's lock */
};

/* 1, or 0 with an exception set. */
int head_is_running(struct head *h);

int head_init(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *head_ask(PyObject *self, PyObject *args);
PyObject *head_request(PyObject *self, PyObject *args);
PyObject *head_status(PyObject *self, PyObject *timeout);
PyObject *head_next_nodes(PyObject *self, PyObject *timeout);
PyObject *head_next_logs(PyObject *self, PyObject *timeout);
PyObject *head_record(PyObject *self, PyObject *path);
PyObject *head_record_end(PyObject *self, PyObject *unused);
PyObject *head_is_recording(PyObject *self, void *unused);
PyObject *head_add_span(PyObject *self, PyObject *args);
PyObject *head_add_mark(PyObject *self, PyObject *args);
PyObject *head_add_count(PyObject *self, PyObject *args);

/* On the head's thread. */
void head_on_log(void *arg, const Muster__LogLines *lines);
void head_on_node(void *arg, const Muster__NodeStatus *node);
void head_events_free(struct head *h);

#endif
