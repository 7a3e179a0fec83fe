/* timeline.c - lines of what happened when */
#include "io/session/timeline.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void ms_timeline_init(struct ms_timeline *t)
{
    *t = (struct ms_timeline){.fd = -1};
    pthread_mutex_init(&t->lock, NULL);
}

void ms_timeline_finish(struct ms_timeline *t)
{
    ms_timeline_stop(t);
    pthread_mutex_destroy(&t->lock);
}

/* With the lock held: one line. */
static int write_line(struct ms_timeline *t, json_t *line)
{
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;
    size_t len;
    ssize_t n;

    text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    if (!text)
        return -ENOMEM;
    len = strlen(text);
    text[len++] = '\n'; /* in the place of the end */
    if (t->fd < 0 || t->size + len > MS_TIMELINE_SIZE_MAX)
        return 0;
    n = write(t->fd, text, len);
    if (n < 0)
        return -errno;
    t->size += (uint64_t)n;
    return 0;
}

/* Takes the descriptor of a file of that size. */
static int begin(struct ms_timeline *t, int fd, uint64_t size)
{
    ms_timeline_stop(t);
    MS_LOCK(&t->lock);
    t->fd = fd;
    t->size = size;
    t->is_on = true;
    return write_line(t,
                      MS_JSON({"timeline", json_integer(1)},
                              {"unix_ns", json_integer(ms_wall_ns())},
                              {"now_ns", json_integer(ms_now_ns())}));
}

int ms_timeline_start(struct ms_timeline *t, const char *path, struct ms_error *err)
{
    struct stat st = {0};
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int rc = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;

    if (rc == 0)
        rc = begin(t, fd, (uint64_t)st.st_size);
    else if (fd >= 0)
        close(fd);
    return rc == 0
               ? 0
               : ms_error_set(
                     err, rc, "cannot write a timeline to %s: %s", path, strerror(-rc));
}

void ms_timeline_stop(struct ms_timeline *t)
{
    MS_LOCK(&t->lock);

    t->is_on = false;
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}

void ms_timeline_forget(struct ms_timeline *t)
{
    pthread_mutex_init(&t->lock, NULL); /* a thread that is gone may have held it */
    ms_timeline_stop(t);
}

static json_t *line_of(const struct ms_timeline_event *e, json_t *args)
{
    json_t *line = MS_JSON(
        {"track", ms_json_string(e->track)},
        {"name", ms_json_string(e->name)},
        {e->kind == MS_TIMELINE_SPAN ? "begin" : "at", json_integer(e->begin_ns)});
    bool is_span = e->kind == MS_TIMELINE_SPAN;

    if (is_span)
        json_object_set_new(line, "end", json_integer(e->end_ns));
    if (is_span && e->nests)
        json_object_set_new(line, "nests", json_true());
    if (e->flow)
        json_object_set_new(line, "flow", json_integer((json_int_t)e->flow));
    if (e->kind == MS_TIMELINE_COUNT)
        json_object_set_new(line, "value", json_real(e->value));
    if (args)
        json_object_set(line, "args", args);
    return line;
}

int ms_timeline_add(struct ms_timeline *t, const struct ms_timeline_event *e)
{
    json_t *args = NULL, *line;
    int rc = 0;

    if (!ms_timeline_is_on(t))
        return 0;
    if (e->args) { /* json_is_object looks at its argument twice */
        args = json_loads(e->args, 0, NULL);
        rc = json_is_object(args) ? 0 : -EINVAL;
    }
    line = rc < 0 ? NULL : line_of(e, args);
    json_decref(args);
    if (rc < 0)
        return rc;
    MS_LOCK(&t->lock);
    return write_line(t, line);
}
