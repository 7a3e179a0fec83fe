#include "head_object.h"

#include "base/clock.h"

#include <string.h>

enum { LOG_LINES_MAX = 20000 }; /* waiting for the terminal; later ones are dropped */

struct log_line {
    struct ms_list link;
    char *cluster, *node, *text;
    size_t len;
    uint32_t rank;
    bool is_stderr;
};

static void line_free(struct log_line *l)
{
    ms_list_remove(&l->link);
    free(l->cluster);
    free(l->node);
    free(l->text);
    free(l);
}

static struct log_line *line_create(const Muster__LogLine *from, const char *node)
{
    struct log_line *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    ms_list_init(&l->link);
    l->rank = from->rank;
    l->is_stderr = from->is_stderr;
    l->len = from->text.len;
    l->cluster = strdup(from->cluster);
    l->node = strdup(node);
    l->text = malloc(l->len ? l->len : 1);
    if (!l->cluster || !l->node || !l->text) {
        line_free(l);
        return NULL;
    }
    if (l->len)
        memcpy(l->text, from->text.data, l->len);
    return l;
}

static void line_add(struct head *h, struct log_line *l)
{
    if (h->log_count == LOG_LINES_MAX) {
        line_free(l);
        h->log_dropped++;
        return;
    }
    ms_list_add_tail(&h->logs, &l->link);
    h->log_count++;
}

void head_on_log(void *arg, const Muster__LogLines *lines)
{
    struct head *h = arg;

    pthread_mutex_lock(&h->lock);
    h->log_dropped += lines->dropped;
    for (size_t i = 0; i < lines->n_lines; i++) {
        struct log_line *l = line_create(lines->lines[i], lines->node);

        if (l)
            line_add(h, l);
        else
            h->log_dropped++;
    }
    pthread_cond_broadcast(&h->logged);
    pthread_mutex_unlock(&h->lock);
}

void head_logs_free(struct head *h)
{
    ms_list_each (l, &h->logs, struct log_line, link)
        line_free(l);
    ms_list_init(&h->logs);
}

/* Wait for lines without the interpreter's lock; they are moved to `out`. False: there
 * will be no more. */
static bool
take_logs(struct head *h, int64_t until_ns, struct ms_list *out, size_t *lost)
{
    struct timespec at = {.tv_sec = until_ns / MS_NS_PER_S,
                          .tv_nsec = until_ns % MS_NS_PER_S};
    bool more;
    int rc = 0;

    pthread_mutex_lock(&h->lock);
    while (rc == 0 && ms_list_is_empty(&h->logs) && !h->stopped)
        rc = until_ns == MS_NEVER ? pthread_cond_wait(&h->logged, &h->lock)
                                  : pthread_cond_timedwait(&h->logged, &h->lock, &at);
    ms_list_splice(out, &h->logs);
    h->log_count = 0;
    *lost = h->log_dropped;
    h->log_dropped = 0;
    more = !h->stopped;
    pthread_mutex_unlock(&h->lock);
    return more;
}

static int append_line(PyObject *list, const struct log_line *l)
{
    PyObject *item =
        Py_BuildValue("sIsNN",
                      l->cluster,
                      (unsigned)l->rank,
                      l->node,
                      PyBool_FromLong(l->is_stderr),
                      PyUnicode_DecodeUTF8(l->text, (Py_ssize_t)l->len, "replace"));
    int rc = item ? PyList_Append(list, item) : -1;

    Py_XDECREF(item);
    return rc;
}

static int append_dropped(PyObject *list, size_t lost)
{
    PyObject *item;
    int rc;

    if (lost == 0)
        return 0;
    item = Py_BuildValue("sIsNN",
                         "muster",
                         0u,
                         "",
                         PyBool_FromLong(1),
                         PyUnicode_FromFormat("%zu lines were not shown: the terminal "
                                              "is slower than the workers; the log "
                                              "files have them all",
                                              lost));
    rc = item ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return rc;
}

PyObject *head_next_logs(PyObject *self, PyObject *timeout)
{
    struct head *h = (struct head *)self;
    struct ms_list lines;
    PyObject *list;
    int64_t until_ns;
    size_t lost;
    bool more;

    if (core_deadline(timeout, MS_NEVER, &until_ns) < 0)
        return NULL;
    ms_list_init(&lines);
    Py_BEGIN_ALLOW_THREADS;
    more = take_logs(h, until_ns, &lines, &lost);
    Py_END_ALLOW_THREADS;
    if (!more && ms_list_is_empty(&lines))
        Py_RETURN_NONE;
    list = PyList_New(0);
    if (list && append_dropped(list, lost) < 0)
        Py_CLEAR(list);
    ms_list_each (l, &lines, struct log_line, link) {
        if (list && append_line(list, l) < 0)
            Py_CLEAR(list);
        line_free(l);
    }
    return list;
}
