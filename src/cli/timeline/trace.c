/* trace.c - reads a timeline's lines, and writes the trace */
#include "cli/timeline/trace.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "cli/timeline/lanes.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int ms_trace_init(struct ms_trace *t)
{
    *t = (struct ms_trace){.by_name = json_object(), .processes = json_object()};
    return t->by_name && t->processes ? 0 : -ENOMEM;
}

void ms_trace_finish(struct ms_trace *t)
{
    for (size_t i = 0; i < t->count; i++)
        json_decref(t->events[i].line);
    free(t->events);
    free(t->tracks);
    json_decref(t->by_name);
    json_decref(t->processes);
    *t = (struct ms_trace){0};
}

/* ---- lines ----------------------------------------------------------------------- */

/* The number of a name in a table, which grows if it is new. -1: out of memory. */
static json_int_t number_of(json_t *table, const char *name)
{
    json_t *known = json_object_get(table, name);

    if (known)
        return json_integer_value(known);
    if (json_object_set_new(
            table, name, json_integer((json_int_t)json_object_size(table))) < 0)
        return -1;
    return (json_int_t)json_object_size(table) - 1;
}

/* "actor/0@n" belongs to actor. */
static json_int_t process_of(struct ms_trace *t, const char *track)
{
    size_t len = strcspn(track, "/");
    MS_CLEANUP(ms_cleanup_free) char *name = strndup(track, len);

    return name ? number_of(t->processes, name) : -1;
}

static int add_track(struct ms_trace *t, const char *name, uint32_t *out)
{
    size_t known = t->track_count;
    json_int_t index = number_of(t->by_name, name), process;

    if (index < 0)
        return -ENOMEM;
    *out = (uint32_t)index;
    if ((size_t)index < known)
        return 0;
    process = process_of(t, name);
    if (process < 0 ||
        ms_array_reserve(&t->tracks, &t->track_room, known + 1, sizeof *t->tracks) < 0)
        return -ENOMEM;
    t->tracks[t->track_count++] =
        (struct ms_trace_track){.name = name, .process = (uint32_t)process};
    return 0;
}

static void take_clock(struct ms_trace *t, const json_t *line)
{
    if (t->unix_ns)
        return;
    t->unix_ns = json_integer_value(json_object_get(line, "unix_ns"));
    t->clock_ns = json_integer_value(json_object_get(line, "now_ns"));
}

/* 1: it is one; 0: it is not. */
static int read_event(const json_t *line, struct ms_trace_event *e)
{
    const json_t *begin = json_object_get(line, "begin");
    const json_t *end = json_object_get(line, "end");
    const json_t *at = json_object_get(line, "at");
    bool is_span = json_is_integer(begin) && json_is_integer(end);

    if (!json_is_string(json_object_get(line, "track")) ||
        !json_is_string(json_object_get(line, "name")) ||
        (!is_span && !json_is_integer(at)))
        return 0;
    e->begin_ns = json_integer_value(is_span ? begin : at);
    e->end_ns = json_integer_value(is_span ? end : at);
    return e->end_ns >= e->begin_ns;
}

int ms_trace_add(struct ms_trace *t, const char *line, size_t len)
{
    struct ms_trace_event e = {.order = t->count};
    json_t *read = json_loadb(line, len, 0, NULL);
    const char *track;

    if (json_is_object(read) && json_object_get(read, "timeline")) {
        take_clock(t, read);
        json_decref(read);
        return 0;
    }
    if (!json_is_object(read) || !read_event(read, &e)) {
        t->unreadable++;
        json_decref(read);
        return 0;
    }
    track = json_string_value(json_object_get(read, "track"));
    if (add_track(t, track, &e.track) < 0 ||
        ms_array_reserve(&t->events, &t->room, t->count + 1, sizeof *t->events) < 0) {
        json_decref(read);
        return -ENOMEM;
    }
    t->spans += json_object_get(read, "end") != NULL;
    e.line = read;
    t->events[t->count++] = e;
    return 0;
}

int64_t ms_trace_length_ns(const struct ms_trace *t)
{
    int64_t first = INT64_MAX, last = INT64_MIN;

    for (size_t i = 0; i < t->count; i++) {
        first = t->events[i].begin_ns < first ? t->events[i].begin_ns : first;
        last = t->events[i].end_ns > last ? t->events[i].end_ns : last;
    }
    return t->count ? last - first : 0;
}

/* ---- the trace ------------------------------------------------------------------- */

struct writer {
    const struct ms_trace *t;
    FILE *out;
    size_t written;
    bool failed; /* no memory */
};

static json_t *micros(const struct writer *w, int64_t ns)
{
    return json_real((double)(ns - w->t->events[0].begin_ns) / 1000);
}

/* Takes `event`. */
static void put(struct writer *w, json_t *event)
{
    fputs(w->written++ ? ",\n" : "\n", w->out);
    if (!event || json_dumpf(event, w->out, JSON_COMPACT | JSON_REAL_PRECISION(15)) < 0)
        w->failed = true;
    json_decref(event);
}

static void put_name(struct writer *w,
                     const char *what,
                     uint32_t process,
                     uint32_t thread,
                     const char *name)
{
    put(w,
        MS_JSON({"ph", json_string("M")},
                {"name", json_string(what)},
                {"pid", json_integer(process + 1)},
                {"tid", json_integer(thread)},
                {"args", MS_JSON({"name", ms_json_string(name)})}));
}

static void put_names(struct writer *w)
{
    const char *process;
    json_t *number;

    json_object_foreach(w->t->processes, process, number)
        put_name(w, "process_name", (uint32_t)json_integer_value(number), 0, process);
    for (size_t i = 0; i < w->t->track_count; i++) {
        const struct ms_trace_track *k = &w->t->tracks[i];

        for (uint32_t lane = 0; lane < k->lanes; lane++)
            put_name(w, "thread_name", k->process, k->first + lane, k->name);
    }
}

/* The members that all events have. */
static json_t *
event_at(const struct writer *w, const struct ms_trace_event *e, int64_t ns)
{
    const struct ms_trace_track *k = &w->t->tracks[e->track];

    return MS_JSON({"name", json_incref(json_object_get(e->line, "name"))},
                   {"ts", micros(w, ns)},
                   {"pid", json_integer(k->process + 1)},
                   {"tid", json_integer(k->first + e->lane)});
}

static void put_event(struct writer *w, const struct ms_trace_event *e)
{
    json_t *out = event_at(w, e, e->begin_ns);
    json_t *value = json_object_get(e->line, "value");
    json_t *args = json_object_get(e->line, "args");

    if (json_object_get(e->line, "end")) {
        json_object_set_new(out, "ph", json_string("X"));
        json_object_set_new(
            out, "dur", json_real((double)(e->end_ns - e->begin_ns) / 1000));
    } else if (value) {
        json_object_set_new(out, "ph", json_string("C"));
        args = NULL;
        json_object_set_new(out, "args", MS_JSON({"value", json_incref(value)}));
    } else {
        json_object_set_new(out, "ph", json_string("i"));
        json_object_set_new(out, "s", json_string("p"));
    }
    if (args)
        json_object_set(out, "args", args);
    put(w, out);
}

/* One end of an arrow, at a time that its span covers. */
static void put_arrow(struct writer *w,
                      const struct ms_trace_event *e,
                      const char *end,
                      int64_t ns,
                      json_int_t id)
{
    json_t *out = event_at(w, e, ns);

    json_object_set_new(out, "ph", json_string(end));
    json_object_set_new(out, "cat", json_string("flow"));
    json_object_set_new(out, "id", json_integer(id));
    json_object_set_new(out, "bp", json_string("e"));
    put(w, out);
}

/* From the span before, of the same flow, to this one. */
static void put_flow(struct writer *w, json_t *last, size_t i)
{
    const struct ms_trace_event *e = &w->t->events[i], *before;
    json_t *flow = json_object_get(e->line, "flow"), *seen;
    char key[24];

    if (!json_is_integer(flow) || !json_object_get(e->line, "end"))
        return;
    snprintf(key, sizeof key, "%lld", (long long)json_integer_value(flow));
    seen = json_object_get(last, key);
    if (seen) {
        before = &w->t->events[json_integer_value(seen)];
        put_arrow(w,
                  before,
                  "s",
                  before->end_ns > before->begin_ns ? before->end_ns - 1
                                                    : before->begin_ns,
                  (json_int_t)i);
        put_arrow(w, e, "f", e->begin_ns, (json_int_t)i);
    }
    if (json_object_set_new(last, key, json_integer((json_int_t)i)) < 0)
        w->failed = true;
}

static int by_begin(const void *a, const void *b)
{
    const struct ms_trace_event *x = a, *y = b;

    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->end_ns != y->end_ns) /* the longer one has the other within it */
        return x->end_ns > y->end_ns ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int write_events(struct writer *w)
{
    json_t *last = json_object();

    if (!last)
        return -ENOMEM;
    put_names(w);
    for (size_t i = 0; i < w->t->count; i++) {
        put_event(w, &w->t->events[i]);
        put_flow(w, last, i);
    }
    json_decref(last);
    return w->failed ? -ENOMEM : 0;
}

int ms_trace_write(struct ms_trace *t, FILE *out)
{
    struct writer w = {.t = t, .out = out};
    int64_t started = 0;
    int rc;

    if (t->count) {
        qsort(t->events, t->count, sizeof *t->events, by_begin);
        if (t->unix_ns)
            started = t->unix_ns + t->events[0].begin_ns - t->clock_ns;
    }
    rc = ms_lanes_assign(t);
    if (rc < 0)
        return rc;
    fprintf(out,
            "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"unix_ns\":\"%lld\"},"
            "\"traceEvents\":[",
            (long long)started);
    rc = write_events(&w);
    fputs("\n]}\n", out);
    return rc < 0 ? rc : fflush(out) != 0 || ferror(out) ? -EIO : 0;
}
