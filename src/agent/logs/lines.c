/* lines.c - cuts what a worker prints into lines, and keeps the last ones */
#include "agent/logs/lines.h"
#include "base/cleanup.h"

#include <string.h>

void ms_lines_init(struct ms_lines *l)
{
    *l = (struct ms_lines){.shown_ns = INT64_MIN / 2};
}

void ms_lines_finish(struct ms_lines *l)
{
    ms_buf_finish(&l->part);
}

/* Where to cut a line that is too long: not inside a UTF-8 character. */
static size_t cut_at(const char *text, size_t len)
{
    size_t at = len;

    for (int back = 0; back < 4 && at > 0; back++) {
        unsigned char c = (unsigned char)text[at];

        if ((c & 0xC0) != 0x80)
            return at;
        at--;
    }
    return len;
}

static void give(struct ms_lines *l, ms_line_fn *on_line, void *arg)
{
    on_line(arg, (const char *)l->part.data, l->part.len);
    l->part.len = 0;
}

/* More of the line that has not ended; what is too long goes out in pieces. */
static void
extend(struct ms_lines *l, const char *data, size_t len, ms_line_fn *on_line, void *arg)
{
    if (ms_buf_append(&l->part, data, len) < 0) {
        l->part.len = 0;
        return;
    }
    while (l->part.len > MS_LOG_LINE_MAX) {
        size_t at = cut_at((const char *)l->part.data, MS_LOG_LINE_MAX);

        on_line(arg, (const char *)l->part.data, at);
        ms_buf_consume(&l->part, at);
    }
}

/* A whole line that begins and ends in `data` needs no copy. */
static void
whole(struct ms_lines *l, const char *data, size_t len, ms_line_fn *on_line, void *arg)
{
    if (l->part.len == 0 && len <= MS_LOG_LINE_MAX) {
        on_line(arg, data, len);
        return;
    }
    extend(l, data, len, on_line, arg);
    give(l, on_line, arg);
}

/* A carriage return that was not the first half of "\r\n": the line starts anew. */
static void
overwrite(struct ms_lines *l, int64_t now_ns, ms_line_fn *on_line, void *arg)
{
    if (l->part.len && now_ns - l->shown_ns >= MS_LOG_PROGRESS_NS) {
        l->shown_ns = now_ns;
        give(l, on_line, arg);
    }
    l->part.len = 0;
}

static const char *find_break(const char *at, const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    const char *stop = newline ? newline : end;
    const char *back = memchr(at, '\r', (size_t)(stop - at));

    return back ? back : stop;
}

void ms_lines_feed(struct ms_lines *l,
                   const char *data,
                   size_t len,
                   int64_t now_ns,
                   ms_line_fn *on_line,
                   void *arg)
{
    const char *end = data + len;

    while (data < end) {
        const char *stop = find_break(data, end);

        if (l->returned && *data != '\n')
            overwrite(l, now_ns, on_line, arg);
        l->returned = false;
        if (stop == end) {
            extend(l, data, (size_t)(stop - data), on_line, arg);
            break;
        }
        if (*stop == '\n') {
            whole(l, data, (size_t)(stop - data), on_line, arg);
        } else {
            extend(l, data, (size_t)(stop - data), on_line, arg);
            l->returned = true;
        }
        data = stop + 1;
    }
    if (l->part.len == 0 && l->part.capacity > MS_LAST_LINE_MAX)
        ms_buf_finish(&l->part);
}

void ms_lines_end(struct ms_lines *l, ms_line_fn *on_line, void *arg)
{
    if (l->part.len)
        give(l, on_line, arg);
    l->returned = false;
}

void ms_tail_finish(struct ms_tail *t)
{
    for (unsigned i = 0; i < MS_LAST_LINES; i++)
        ms_buf_finish(&t->line[i]);
    t->count = t->oldest = 0;
}

static bool starts_with(const char *text, size_t len, const char *prefix)
{
    size_t n = strlen(prefix);

    return len >= n && !memcmp(text, prefix, n);
}

/* What faulthandler prints when the process crashes: its innermost calls come first. */
static bool is_crash_line(const char *text, size_t len)
{
    static const char *const prefixes[] = {
        "Current thread 0x", "  File \"", "  ...", "Extension modules: "};
    bool is_one = len == 0;

    for (size_t i = 0; i < MS_COUNT(prefixes); i++)
        is_one = is_one || starts_with(text, len, prefixes[i]);
    return is_one;
}

/* A crash begins: all but the last few lines before it make room. */
static void begin_crash(struct ms_tail *t)
{
    while (t->count > MS_LAST_BEFORE_CRASH) {
        t->oldest = (t->oldest + 1) % MS_LAST_LINES;
        t->count--;
    }
    t->is_crash = true;
}

void ms_tail_add(struct ms_tail *t, const char *text, size_t len)
{
    struct ms_buf *line;

    if (starts_with(text, len, "Fatal Python error: "))
        begin_crash(t);
    else
        t->is_crash = t->is_crash && is_crash_line(text, len);
    if (t->is_crash && t->count == MS_LAST_LINES)
        return;
    line = &t->line[(t->oldest + t->count) % MS_LAST_LINES];
    line->len = 0;
    if (len > MS_LAST_LINE_MAX)
        len = cut_at(text, MS_LAST_LINE_MAX);
    if (ms_buf_append(line, text, len) < 0 || !ms_buf_str(line))
        line->len = 0;
    for (size_t i = 0; i < line->len; i++)
        if (!line->data[i])
            line->data[i] = ' ';
    if (t->count < MS_LAST_LINES)
        t->count++;
    else
        t->oldest = (t->oldest + 1) % MS_LAST_LINES;
}

const char *ms_tail_get(struct ms_tail *t, unsigned i)
{
    const char *text;

    if (i >= t->count)
        return NULL;
    text = ms_buf_str(&t->line[(t->oldest + i) % MS_LAST_LINES]);
    return text ? text : "";
}
