#include "head_object.h"

#include "base/clock.h"

#include <string.h>

/* What has happened to a node, until Python takes it. */
struct event {
    struct ms_list link; /* head->node_events */
    size_t len;
    uint8_t body[]; /* a packed NodeStatus */
};

static void event_free(struct event *e)
{
    ms_list_remove(&e->link);
    free(e);
}

void head_on_node(void *arg, const Muster__NodeStatus *node)
{
    struct head *h = arg;
    size_t len = muster__node_status__get_packed_size(node);
    struct event *e = malloc(sizeof *e + len);

    if (!e)
        return;
    ms_list_init(&e->link);
    e->len = len;
    muster__node_status__pack(node, e->body);
    pthread_mutex_lock(&h->lock);
    ms_list_add_tail(&h->node_events, &e->link);
    pthread_cond_broadcast(&h->logged);
    pthread_mutex_unlock(&h->lock);
}

void head_node_events_free(struct head *h)
{
    ms_list_each (e, &h->node_events, struct event, link)
        event_free(e);
}

/* Without the interpreter's lock. False: there will be no more. */
static bool take(struct head *h, int64_t until_ns, struct ms_list *out)
{
    struct timespec at = {.tv_sec = until_ns / MS_NS_PER_S,
                          .tv_nsec = until_ns % MS_NS_PER_S};
    bool more;
    int rc = 0;

    pthread_mutex_lock(&h->lock);
    while (rc == 0 && ms_list_is_empty(&h->node_events) && !h->stopped)
        rc = until_ns == MS_NEVER ? pthread_cond_wait(&h->logged, &h->lock)
                                  : pthread_cond_timedwait(&h->logged, &h->lock, &at);
    ms_list_splice(out, &h->node_events);
    more = !h->stopped;
    pthread_mutex_unlock(&h->lock);
    return more;
}

static int append(PyObject *list, const struct event *e)
{
    Muster__NodeStatus *n = muster__node_status__unpack(NULL, e->len, e->body);
    PyObject *item = n ? head_node_tuple(n) : PyErr_NoMemory();
    int rc = item ? PyList_Append(list, item) : -1;

    if (n)
        muster__node_status__free_unpacked(n, NULL);
    Py_XDECREF(item);
    return rc;
}

PyObject *head_next_nodes(PyObject *self, PyObject *timeout)
{
    struct head *h = (struct head *)self;
    struct ms_list events;
    PyObject *list;
    int64_t until_ns;
    bool more;

    if (core_deadline(timeout, MS_NEVER, &until_ns) < 0)
        return NULL;
    ms_list_init(&events);
    Py_BEGIN_ALLOW_THREADS;
    more = take(h, until_ns, &events);
    Py_END_ALLOW_THREADS;
    if (!more && ms_list_is_empty(&events))
        Py_RETURN_NONE;
    list = PyList_New(0);
    ms_list_each (e, &events, struct event, link) {
        if (list && append(list, e) < 0)
            Py_CLEAR(list);
        event_free(e);
    }
    return list;
}
