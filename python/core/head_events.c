/* head_events.c - what a head tells without being asked: lines of workers, changes of nodes
 *
 * The head's thread adds messages to a queue; threads of Python wait for them there,
 * without the interpreter's lock.
 */
#include "head_object.h"
#include "message.h"

#include "base/clock.h"
#include "base/proto.h"

#include <string.h>

enum { LOG_LINES_MAX = 20000 }; /* waiting for the terminal; later ones are dropped */

struct event {
    struct ms_list link; /* of a queue */
    ProtobufCMessage *message;
};

/* ---- on the head's thread -------------------------------------------------------- */

/* With the lock held. False: out of memory. */
static bool add(struct head *h, struct head_queue *q, const ProtobufCMessage *m)
{
    struct event *e = malloc(sizeof *e);

    if (e)
        e->message = ms_proto_copy(m);
    if (!e || !e->message) {
        free(e);
        return false;
    }
    ms_list_init(&e->link);
    ms_list_add_tail(&q->events, &e->link);
    pthread_cond_broadcast(&h->changed);
    return true;
}

void head_on_node(void *arg, const Muster__NodeStatus *node)
{
    struct head *h = arg;

    pthread_mutex_lock(&h->lock);
    add(h, &h->nodes, &node->base);
    pthread_mutex_unlock(&h->lock);
}

void head_on_log(void *arg, const Muster__LogLines *lines)
{
    Muster__LogLines kept = *lines;
    struct head *h = arg;

    pthread_mutex_lock(&h->lock);
    if (kept.n_lines > LOG_LINES_MAX - h->logs.lines)
        kept.n_lines = LOG_LINES_MAX - h->logs.lines;
    if (!add(h, &h->logs, &kept.base))
        kept.n_lines = 0;
    h->logs.lines += kept.n_lines;
    h->logs.dropped += lines->dropped + lines->n_lines - kept.n_lines;
    pthread_mutex_unlock(&h->lock);
}

/* ---- in Python's threads --------------------------------------------------------- */

/* Wait without the interpreter's lock; what there is goes to `out`. False: there will be no
 * more. */
static bool take(struct head *h,
                 struct head_queue *q,
                 int64_t until_ns,
                 struct ms_list *out,
                 size_t *dropped)
{
    struct timespec at = {.tv_sec = until_ns / MS_NS_PER_S,
                          .tv_nsec = until_ns % MS_NS_PER_S};
    bool more;
    int rc = 0;

    pthread_mutex_lock(&h->lock);
    while (rc == 0 && ms_list_is_empty(&q->events) && !h->stopped)
        rc = until_ns == MS_NEVER ? pthread_cond_wait(&h->changed, &h->lock)
                                  : pthread_cond_timedwait(&h->changed, &h->lock, &at);
    ms_list_splice(out, &q->events);
    *dropped = q->dropped;
    q->lines = q->dropped = 0;
    more = !h->stopped;
    pthread_mutex_unlock(&h->lock);
    return more;
}

static void events_free(struct ms_list *events)
{
    ms_list_each (e, events, struct event, link) {
        ms_list_remove(&e->link);
        protobuf_c_message_free_unpacked(e->message, NULL);
        free(e);
    }
}

void head_events_free(struct head *h)
{
    events_free(&h->logs.events);
    events_free(&h->nodes.events);
}

/* (cluster, rank, node, is_stderr, text) */
static PyObject *line_tuple(const char *cluster,
                            unsigned rank,
                            const char *node,
                            bool is_stderr,
                            PyObject *text)
{
    return Py_BuildValue(
        "sIsNN", cluster, rank, node, PyBool_FromLong(is_stderr), text);
}

static bool append_lines(PyObject *list, const Muster__LogLines *lines)
{
    for (size_t i = 0; i < lines->n_lines; i++) {
        const Muster__LogLine *l = lines->lines[i];
        PyObject *text = PyUnicode_DecodeUTF8(
            (const char *)l->text.data, (Py_ssize_t)l->text.len, "replace");

        if (!core_append(
                list, line_tuple(l->cluster, l->rank, lines->node, l->is_stderr, text)))
            return false;
    }
    return true;
}

static bool append(PyObject *list, const ProtobufCMessage *m)
{
    return m->descriptor == &muster__log_lines__descriptor
               ? append_lines(list, (const Muster__LogLines *)m)
               : core_append(list, core_message_dict(m));
}

/* A list of what has come, empty after the timeout, or None at the end. */
static PyObject *
next(struct head *h, struct head_queue *q, PyObject *timeout, size_t *dropped)
{
    struct ms_list events;
    PyObject *list;
    int64_t until_ns;
    bool more;

    if (core_deadline(timeout, MS_NEVER, &until_ns) < 0)
        return NULL;
    ms_list_init(&events);
    Py_BEGIN_ALLOW_THREADS;
    more = take(h, q, until_ns, &events, dropped);
    Py_END_ALLOW_THREADS;
    if (!more && ms_list_is_empty(&events))
        Py_RETURN_NONE;
    list = PyList_New(0);
    ms_list_each (e, &events, struct event, link)
        if (list && !append(list, e->message))
            Py_CLEAR(list);
    events_free(&events);
    return list;
}

PyObject *head_next_nodes(PyObject *self, PyObject *timeout)
{
    struct head *h = (struct head *)self;
    size_t dropped;

    return next(h, &h->nodes, timeout, &dropped);
}

PyObject *head_next_logs(PyObject *self, PyObject *timeout)
{
    struct head *h = (struct head *)self;
    MS_CLEANUP(core_unref) PyObject *line = NULL;
    size_t dropped = 0;
    PyObject *list = next(h, &h->logs, timeout, &dropped);

    if (!list || list == Py_None || dropped == 0)
        return list;
    line = line_tuple("muster",
                      0,
                      "",
                      true,
                      PyUnicode_FromFormat("%zu lines were not shown: the terminal is "
                                           "slower than the workers; the log files "
                                           "have them all",
                                           dropped));
    if (!line || PyList_Insert(list, 0, line) < 0)
        Py_CLEAR(list);
    return list;
}
