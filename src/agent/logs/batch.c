/* batch.c - collects lines and sends them to the head together */
#include "agent/logs/batch.h"
#include "base/cleanup.h"
#include "base/limits.h"

enum { LINES_MAX = 4096 };

struct entry {
    const struct ms_log_source *from;
    bool is_stderr;
    size_t at, len; /* in `text` */
};

static void on_time(void *arg)
{
    struct ms_log_batch *b = arg;

    b->timer_set = false;
    ms_log_batch_flush(b);
}

int ms_log_batch_init(struct ms_log_batch *b,
                      struct ms_loop *loop,
                      const struct ms_log_batch_ops *ops,
                      void *arg)
{
    *b = (struct ms_log_batch){.ops = ops, .arg = arg};
    return ms_timer_init(&b->timer, loop, on_time, b);
}

void ms_log_batch_finish(struct ms_log_batch *b)
{
    ms_timer_finish(&b->timer);
    ms_buf_finish(&b->text);
    ms_buf_finish(&b->entries);
}

static size_t count_of(const struct ms_log_batch *b)
{
    return b->entries.len / sizeof(struct entry);
}

static void set_timer(struct ms_log_batch *b, int64_t delay_ns)
{
    if (!b->timer_set)
        b->timer_set = ms_timer_set(&b->timer, delay_ns) == 0;
}

static bool is_behind(const struct ms_log_batch *b)
{
    return b->ops->queued(b->arg) > MS_LOG_BACKLOG_MAX;
}

void ms_log_batch_add(struct ms_log_batch *b,
                      const struct ms_log_source *from,
                      bool is_stderr,
                      const char *text,
                      size_t len)
{
    struct entry e = {.from = from, .is_stderr = is_stderr, .len = len};

    if (!b->ops || (from->is_wanted && !*from->is_wanted))
        return;
    if (b->text.len + len > MS_LOG_BATCH_MAX || count_of(b) >= LINES_MAX)
        ms_log_batch_flush(b);
    set_timer(b, MS_LOG_BATCH_NS);
    e.at = b->text.len;
    if (is_behind(b) || ms_buf_append(&b->text, text, len) < 0) {
        b->dropped++;
        return;
    }
    if (ms_buf_append(&b->entries, &e, sizeof e) < 0) {
        b->text.len -= len;
        b->dropped++;
    }
}

static void
fill(const struct ms_log_batch *b, Muster__LogLine *line, Muster__LogLine **at)
{
    const struct entry *e = (const struct entry *)(const void *)b->entries.data;

    for (size_t i = 0; i < count_of(b); i++, e++) {
        at[i] = &line[i];
        muster__log_line__init(at[i]);
        at[i]->uid = e->from->uid;
        at[i]->cluster = (char *)(uintptr_t)e->from->cluster;
        at[i]->rank = e->from->rank;
        at[i]->is_stderr = e->is_stderr;
        at[i]->driver = e->from->driver;
        at[i]->text.data = b->text.data + e->at;
        at[i]->text.len = e->len;
    }
}

static void send_lines(struct ms_log_batch *b)
{
    size_t count = count_of(b);
    MS_CLEANUP(ms_cleanup_free) Muster__LogLine *line = calloc(count + 1, sizeof *line);
    MS_CLEANUP(ms_cleanup_free) Muster__LogLine **at = calloc(count + 1, sizeof *at);
    Muster__LogLines lines = MUSTER__LOG_LINES__INIT;

    if (!line || !at) {
        b->dropped += count;
        return;
    }
    fill(b, line, at);
    lines.n_lines = count;
    lines.lines = at;
    lines.dropped = b->dropped;
    b->dropped = 0;
    b->ops->send(b->arg, &lines);
}

void ms_log_buf_reset(struct ms_buf *b)
{
    b->len = 0;
    if (b->capacity > MS_LOG_LINE_MAX)
        ms_buf_finish(b);
}

void ms_log_batch_flush(struct ms_log_batch *b)
{
    if (!b->ops || (!b->entries.len && !b->dropped))
        return;
    if (!b->entries.len && is_behind(b)) {
        /* only a count to tell: it can wait until the head reads again */
        set_timer(b, MS_NS_PER_S);
        return;
    }
    ms_timer_cancel(&b->timer);
    b->timer_set = false;
    send_lines(b);
    ms_log_buf_reset(&b->text);
    ms_log_buf_reset(&b->entries);
}
