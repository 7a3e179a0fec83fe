/* frame.c - what `muster top` shows, from two statuses */
#include "cli/top/frame.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/activity.h"
#include "cli/view.h"
#include "head/rest/view.h"
#include "resource/amount.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct ms_top_sort_name ms_top_sorts[MS_TOP_SORTS] = {
    [MS_TOP_BY_TROUBLE] = {'t', "trouble"},
    [MS_TOP_BY_CPU] = {'c', "cpu"},
    [MS_TOP_BY_MEMORY] = {'m', "memory"},
    [MS_TOP_BY_CALLS] = {'r', "rate"},
    [MS_TOP_BY_NAME] = {'n', "name"},
};

/* One worker. */
struct row {
    const Muster__ClusterStatus *cluster;
    const Muster__WorkerStatus *worker;
    size_t number;   /* in the status */
    double cpu;      /* of one processor: 1 is all of it; negative: not known */
    double calls_ps; /* a second; negative: not known */
};

struct rows {
    struct row *at;
    size_t count;
};

/* ---- rates ----------------------------------------------------------------------- */

static int by_uid(const void *a, const void *b)
{
    uint64_t x = (*(const Muster__WorkerStatus *const *)a)->uid;
    uint64_t y = (*(const Muster__WorkerStatus *const *)b)->uid;

    return (x > y) - (x < y);
}

/* All workers with an activity, by uid; freed by the caller. NULL: out of memory. */
static const Muster__WorkerStatus **sort_workers(const Muster__Status *s, size_t *count)
{
    size_t room = 1;
    const Muster__WorkerStatus **all;

    for (size_t i = 0; i < s->n_clusters; i++)
        room += s->clusters[i]->n_workers;
    *count = 0;
    all = calloc(room, sizeof *all);
    for (size_t i = 0; all && i < s->n_clusters; i++)
        for (size_t k = 0; k < s->clusters[i]->n_workers; k++)
            if (s->clusters[i]->workers[k]->activity)
                all[(*count)++] = s->clusters[i]->workers[k];
    if (all)
        qsort(all, *count, sizeof *all, by_uid);
    return all;
}

/* From one count to a later one; negative: that cannot be said. */
static double rate(uint64_t before, uint64_t now, double seconds)
{
    return seconds > 0 && now >= before ? (double)(now - before) / seconds : -1;
}

static int
set_rates(struct rows *r, const Muster__Status *before, const Muster__Status *now)
{
    double seconds = (double)(now->uptime_ns - before->uptime_ns) / (double)MS_NS_PER_S;
    size_t count = 0;
    const Muster__WorkerStatus **old = sort_workers(before, &count);

    for (size_t i = 0; old && i < r->count; i++) {
        const Muster__Activity *a = r->at[i].worker->activity, *was;
        const Muster__WorkerStatus **found =
            a ? bsearch(&r->at[i].worker, old, count, sizeof *old, by_uid) : NULL;

        if (!found)
            continue;
        was = (*found)->activity;
        r->at[i].cpu = rate(was->cpu_ns, a->cpu_ns, seconds * (double)MS_NS_PER_S);
        if (ms_view_is_answer(was) && ms_view_is_answer(a))
            r->at[i].calls_ps = rate(was->calls_done, a->calls_done, seconds);
    }
    free(old);
    return old ? 0 : -ENOMEM;
}

/* ---- order ----------------------------------------------------------------------- */

static bool is_trouble(const Muster__WorkerStatus *w)
{
    return ms_worker_has_failed(w) ||
           (w->activity && w->activity->doing >= MUSTER__DOING__DOING_SILENT);
}

/* What comes first: 0. */
static int urgency(const Muster__WorkerStatus *w)
{
    const Muster__Activity *a = w->activity;

    if (is_trouble(w))
        return 0;
    if (!a || a->doing == MUSTER__DOING__DOING_UNKNOWN)
        return w->state == MUSTER__WORKER_STATE__WORKER_STARTING ? 1 : 3;
    if (a->doing <= MUSTER__DOING__DOING_CONSTRUCTING)
        return 1;
    return a->doing == MUSTER__DOING__DOING_CALL ? 2 : 4;
}

/* Below 0: `x` is the smaller one, and so comes first. */
static int ascending(double x, double y)
{
    return (x > y) - (x < y);
}

static int by_trouble(const struct row *x, const struct row *y)
{
    const Muster__Activity *a = x->worker->activity, *b = y->worker->activity;
    int first = urgency(x->worker) - urgency(y->worker);

    if (first || urgency(x->worker) > 2)
        return first;
    return ascending(b ? (double)b->for_ns : 0, a ? (double)a->for_ns : 0);
}

static int by_cpu(const struct row *x, const struct row *y)
{
    return ascending(y->cpu, x->cpu);
}

static int by_memory(const struct row *x, const struct row *y)
{
    const Muster__Activity *a = x->worker->activity, *b = y->worker->activity;

    return ascending(b ? (double)b->memory : 0, a ? (double)a->memory : 0);
}

static int by_calls(const struct row *x, const struct row *y)
{
    return ascending(y->calls_ps, x->calls_ps);
}

static int by_name(const struct row *x, const struct row *y)
{
    int order = strcmp(x->cluster->name, y->cluster->name);

    return order ? order : ascending(x->worker->rank, y->worker->rank);
}

static int compare(const void *a, const void *b, void *sort)
{
    static int (*const orders[])(const struct row *x, const struct row *y) = {
        [MS_TOP_BY_TROUBLE] = by_trouble,
        [MS_TOP_BY_CPU] = by_cpu,
        [MS_TOP_BY_MEMORY] = by_memory,
        [MS_TOP_BY_CALLS] = by_calls,
        [MS_TOP_BY_NAME] = by_name,
    };
    const struct row *x = a, *y = b;
    int order = orders[*(const enum ms_top_sort *)sort](x, y);

    return order ? order : ascending((double)x->number, (double)y->number);
}

/* ---- rows ------------------------------------------------------------------------ */

/* Those that were selected. */
static int collect(struct rows *r, const struct ms_top_view *v, const Muster__Status *s)
{
    size_t room = 1, number = 0;

    for (size_t i = 0; i < s->n_clusters; i++)
        room += s->clusters[i]->n_workers;
    r->at = calloc(room, sizeof *r->at);
    if (!r->at)
        return -ENOMEM;
    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; k < s->clusters[i]->n_workers; k++, number++) {
            const Muster__ClusterStatus *c = s->clusters[i];
            const Muster__WorkerStatus *w = c->workers[k];

            if (ms_cli_selector_matches(&v->selector, c->name, w->rank))
                r->at[r->count++] = (struct row){.cluster = c,
                                                 .worker = w,
                                                 .number = number,
                                                 .cpu = -1,
                                                 .calls_ps = -1};
        }
    return 0;
}

static void add_rate(struct ms_grid *g, int digits, double value)
{
    char text[32] = "";

    if (value >= 0)
        snprintf(text, sizeof text, "%.*f", digits, value);
    ms_grid_add(g, NULL, "%s", text);
}

enum {
    WHY_MAX = 48
}; /* of the column for methods: how a worker ended stands there too */

static void add_row(struct ms_grid *g, const struct row *r)
{
    const Muster__WorkerStatus *w = r->worker;
    char why[256];

    ms_worker_why(w, why, sizeof why);
    ms_grid_add(g, NULL, "%s/%u", r->cluster->name, w->rank);
    ms_worker_add_state(g, w);
    if (why[0]) {
        ms_worker_add_for(g, w);
        ms_grid_add(g, MS_STYLE_BAD, "%.*s", WHY_MAX, why);
    } else {
        ms_worker_add_doing(g, w);
    }
    add_rate(g, 0, r->cpu < 0 ? r->cpu : 100 * r->cpu);
    ms_worker_add_memory(g, w);
    ms_worker_add_calls(g, w);
    add_rate(g, r->calls_ps > 0 && r->calls_ps < 10, r->calls_ps);
    ms_grid_add(g, NULL, "%d", (int)w->pid);
    ms_grid_add(g, NULL, "%s", w->node);
    ms_view_add_devices(g, w->devices, w->n_devices);
}

static int print_rows(const struct ms_top_view *v,
                      const struct rows *r,
                      size_t lines,
                      struct ms_buf *out)
{
    struct ms_grid g;
    int rc;

    if (!r->count) {
        ms_buf_printf(out, "no workers\n");
        return out->failed;
    }
    ms_view_grid(&g,
                 "llrlrrrrrrrrll",
                 "WORKER|STATE|FOR|METHOD|CPU%|MEMORY|DEV MEM|QUEUED|CALLS|FAILED|"
                 "CALLS/S|PID|NODE|DEVICES");
    g.hides_empty = true;
    g.colour = v->colour;
    g.room = v->columns;
    for (size_t i = v->skip; i < r->count && i - v->skip < lines; i++)
        add_row(&g, &r->at[i]);
    rc = ms_grid_print(&g, out);
    ms_grid_finish(&g);
    return rc;
}

/* ---- the head of it -------------------------------------------------------------- */

/* A line of the head, cut to the screen. */
static void
print_line(const struct ms_top_view *v, struct ms_buf *line, struct ms_buf *out)
{
    const char *text = ms_buf_str(line);
    size_t width = 0, len = 0;

    while (text && text[len] &&
           (!v->columns || width < v->columns || (text[len] & 0xc0) == 0x80))
        width += (text[len++] & 0xc0) != 0x80;
    ms_buf_printf(out, "%.*s\n", (int)len, text ? text : "");
    line->len = 0;
}

static void print_session(const Muster__Status *s, struct ms_buf *out)
{
    size_t alive = 0;
    char up[24];

    for (size_t i = 0; i < s->n_nodes; i++)
        alive += s->nodes[i]->alive && !s->nodes[i]->suspect;
    ms_buf_printf(
        out, "session %s  up %s  ", s->session, ms_out_duration(s->uptime_ns, up));
    if (alive == s->n_nodes)
        ms_buf_printf(out, "%s", ms_amount_count(alive, "node").text);
    else
        ms_buf_printf(out, "%zu of %zu nodes alive", alive, s->n_nodes);
}

/* "8 workers: 3 busy, 5 idle"; in the order in which the words come first. */
static void print_states(const struct rows *r, struct ms_buf *out)
{
    ms_buf_printf(out, "%s", ms_amount_count(r->count, "worker").text);
    for (size_t i = 0, shown = 0; i < r->count; i++) {
        const char *word = ms_worker_word(r->at[i].worker);
        size_t count = 0, before = 0;

        for (size_t k = 0; k < r->count; k++) {
            bool same = strcmp(word, ms_worker_word(r->at[k].worker)) == 0;

            before += same && k < i;
            count += same;
            if (before)
                break;
        }
        if (!before)
            ms_buf_printf(out, "%s%zu %s", shown++ ? ", " : ": ", count, word);
    }
}

static void print_stores(const Muster__Status *s, struct ms_buf *out)
{
    uint64_t used = 0, limit = 0, objects = 0, spilled = 0;

    for (size_t i = 0; i < s->n_nodes; i++) {
        const Muster__StoreStats *st = s->nodes[i]->store;

        used += st ? st->used : 0;
        limit += st ? st->limit : 0;
        objects += st ? st->object_count : 0;
        spilled += st ? st->spilled : 0;
    }
    if (limit)
        ms_buf_printf(out,
                      "  store %s of %s",
                      ms_amount_bytes(used).text,
                      ms_amount_bytes(limit).text);
    if (objects)
        ms_buf_printf(out, " in %s", ms_amount_count(objects, "object").text);
    if (spilled)
        ms_buf_printf(out, ", %s spilled", ms_amount_bytes(spilled).text);
}

/* Clusters that wait for room have no workers yet. */
static void print_waiting(const Muster__Status *s, struct ms_buf *out)
{
    size_t shown = 0;

    for (size_t i = 0; i < s->n_clusters; i++)
        if (s->clusters[i]->waits_for[0])
            ms_buf_printf(out,
                          "%s%s",
                          shown++ ? ", " : "  waiting for room: ",
                          s->clusters[i]->name);
}

/* What calls there are a second, of all workers that are shown; or nothing. */
static void print_calls(const struct rows *r, struct ms_buf *out)
{
    double sum = 0;
    bool is_known = false;

    for (size_t i = 0; i < r->count; i++)
        if (r->at[i].calls_ps >= 0) {
            sum += r->at[i].calls_ps;
            is_known = true;
        }
    if (is_known)
        ms_buf_printf(out, "  %.0f calls/s", sum);
}

static void print_head(const struct ms_top_view *v,
                       const struct rows *r,
                       const Muster__Status *s,
                       struct ms_buf *out)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf line = {0};

    print_session(s, &line);
    print_stores(s, &line);
    print_line(v, &line, out);
    print_states(r, &line);
    print_calls(r, &line);
    print_waiting(s, &line);
    print_line(v, &line, out);
    ms_buf_printf(out, "\n");
}

enum { HEAD_LINES = 4, FOOT_LINES = 1, LINES_MIN = 1 }; /* with the titles */

static void print_keys(const struct ms_top_view *v,
                       const struct rows *r,
                       size_t lines,
                       struct ms_buf *out)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf line = {0};
    size_t last = v->skip + lines < r->count ? v->skip + lines : r->count;

    if (last - v->skip < r->count)
        ms_buf_printf(&line, "%zu-%zu of %zu  ", v->skip + 1, last, r->count);
    ms_buf_printf(&line, "q ends  sort:");
    for (size_t i = 0; i < MS_TOP_SORTS; i++)
        ms_buf_printf(&line,
                      v->sort == i ? " [%c %s]" : " %c %s",
                      ms_top_sorts[i].key,
                      ms_top_sorts[i].name);
    print_line(v, &line, out);
    if (out->len && out->data[out->len - 1] == '\n')
        out->len--; /* the last line of a screen must not make it move */
}

/* How many workers have room. */
static size_t room_for(const struct ms_top_view *v)
{
    size_t others = HEAD_LINES + (v->has_keys ? FOOT_LINES : 0);

    if (!v->lines)
        return SIZE_MAX;
    return v->lines > others + LINES_MIN ? v->lines - others : LINES_MIN;
}

int ms_top_frame(struct ms_top_view *v,
                 const Muster__Status *before,
                 const Muster__Status *now,
                 struct ms_buf *out)
{
    struct rows r = {0};
    size_t lines = room_for(v);
    int rc = collect(&r, v, now);

    if (rc == 0 && before)
        rc = set_rates(&r, before, now);
    if (rc == 0) {
        qsort_r(r.at, r.count, sizeof *r.at, compare, &v->sort);
        if (v->skip + lines > r.count || lines == SIZE_MAX)
            v->skip = lines < r.count ? r.count - lines : 0;
        print_head(v, &r, now, out);
        rc = print_rows(v, &r, lines, out);
    }
    if (rc == 0 && v->has_keys)
        print_keys(v, &r, lines, out);
    free(r.at);
    return rc < 0 ? rc : out->failed;
}
