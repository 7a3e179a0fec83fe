/* merge.c - the lines of one log or of several, in the order of their times */
#include "cli/logs/merge.h"
#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

/* The longest line that is kept until its end comes; the agent cuts them sooner. */
enum { PART_MAX = 1 << 20 };

/* ---- one ------------------------------------------------------------------------- */

int ms_logtext_add(struct ms_logtext *t, const char *data, size_t len)
{
    ms_buf_consume(&t->bytes, t->at);
    t->at = 0;
    if (ms_buf_append(&t->bytes, data, len) < 0)
        return -ENOMEM;
    return ms_buf_str(&t->bytes) ? 0 : -ENOMEM; /* sanitizers let regexec want a NUL */
}

static void take(struct ms_logtext *t, size_t len, struct ms_logline *line)
{
    *line = (struct ms_logline){.text = (char *)t->bytes.data + t->at, .len = len};
    if (ms_logline_take_time(line))
        t->time_ns = line->time_ns;
    line->time_ns = t->time_ns;
    t->at += len;
}

bool ms_logtext_rest(struct ms_logtext *t, struct ms_logline *line)
{
    size_t len = t->bytes.len - t->at;

    if (len)
        take(t, len, line);
    return len > 0;
}

bool ms_logtext_next(struct ms_logtext *t, struct ms_logline *line)
{
    const char *from = (char *)t->bytes.data + t->at;
    size_t len = t->bytes.len - t->at;
    const char *newline = len ? memchr(from, '\n', len) : NULL;

    if (!newline)
        return len > PART_MAX && ms_logtext_rest(t, line);
    take(t, (size_t)(newline - from), line);
    t->at++;
    return true;
}

/* ---- several --------------------------------------------------------------------- */

struct merge {
    const struct ms_logmerge_ops *ops;
    void *arg;
    struct ms_logline *next; /* of each log */
    size_t *heap, count;     /* logs with a line, the one with the oldest on top */
};

/* 1: there is a next line; 0: there is none now; or a negative errno. */
static int fetch(struct merge *m, size_t i)
{
    struct ms_logtext *t = m->ops->log(m->arg, i);
    int rc = 1;

    while (rc > 0 && !ms_logtext_next(t, &m->next[i]))
        rc = m->ops->more(m->arg, i);
    return rc < 0 ? rc : rc > 0;
}

static bool is_before(const struct merge *m, size_t a, size_t b)
{
    int64_t x = m->next[a].time_ns, y = m->next[b].time_ns;

    return x < y || (x == y && a < b);
}

static void sift_down(struct merge *m, size_t at)
{
    for (;;) {
        size_t least = at, log = m->heap[at];

        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < m->count;
             child++)
            if (is_before(m, m->heap[child], m->heap[least]))
                least = child;
        if (least == at)
            return;
        m->heap[at] = m->heap[least];
        m->heap[least] = log;
        at = least;
    }
}

static int give_all(struct merge *m)
{
    int rc = 0;

    for (size_t i = m->count / 2; i-- > 0;)
        sift_down(m, i);
    while (m->count && rc >= 0) {
        size_t i = m->heap[0];

        rc = m->ops->on_line(m->arg, i, &m->next[i]);
        if (rc >= 0)
            rc = fetch(m, i);
        if (rc == 0)
            m->heap[0] = m->heap[--m->count];
        sift_down(m, 0);
    }
    return rc < 0 ? rc : 0;
}

int ms_logmerge(const struct ms_logmerge_ops *ops, void *arg, size_t count)
{
    MS_CLEANUP(ms_cleanup_free)
    struct ms_logline *next = calloc(count + 1, sizeof *next);
    MS_CLEANUP(ms_cleanup_free) size_t *heap = calloc(count + 1, sizeof *heap);
    struct merge m = {.ops = ops, .arg = arg, .next = next, .heap = heap};

    if (!next || !heap)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        int rc = fetch(&m, i);

        if (rc < 0)
            return rc;
        if (rc > 0)
            heap[m.count++] = i;
    }
    return give_all(&m);
}
