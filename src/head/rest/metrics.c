/* metrics.c - the head's state in the text format of Prometheus */
#include "base/buf.h"
#include "base/clock.h"
#include "head/rest/rest_impl.h"
#include "head/version.h"
#include "wire/server/server.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* ---- the format ------------------------------------------------------------------ */

/* `what` is "name type help". How long its name is. */
static int family(struct ms_buf *b, const char *what)
{
    int name = (int)strcspn(what, " "), type = (int)strcspn(what + name + 1, " ");
    const char *after = what + name + 1;

    ms_buf_printf(b, "# HELP %.*s %s\n", name, what, after + type + 1);
    ms_buf_printf(b, "# TYPE %.*s %.*s\n", name, what, type, after);
    return name;
}

static void plain(struct ms_buf *b, const char *what, double value)
{
    int name = family(b, what);

    ms_buf_printf(b, "%.*s %.17g\n", name, what, value);
}

/* A name with backslash, quote and newline escaped; `out` has room for any. */
static const char *escape(const char *text, char *out, size_t room)
{
    char *to = out, *end = out + room - 2;

    for (; *text && to < end; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n')
            *to++ = '\\';
        *to++ = (char)(*text == '\n' ? 'n' : *text);
    }
    *to = 0;
    return out;
}

static const char *label(const char *text, char out[2 * MS_NAME_MAX + 1])
{
    return escape(text, out, 2 * MS_NAME_MAX + 1);
}

/* ---- what is counted ------------------------------------------------------------- */

static const Muster__WorkerState worker_states[] = {
    MUSTER__WORKER_STATE__WORKER_STARTING,
    MUSTER__WORKER_STATE__WORKER_RUNNING,
    MUSTER__WORKER_STATE__WORKER_EXITED};

static void add_nodes(struct ms_buf *b, const Muster__Status *s)
{
    static const char *const states[] = {"alive", "suspect", "gone"};
    char name[2 * MS_NAME_MAX + 1];

    family(b, "muster_nodes gauge Nodes by state.");
    for (size_t k = 0; k < MS_COUNT(states); k++) {
        unsigned count = 0;

        for (size_t i = 0; i < s->n_nodes; i++)
            count += strcmp(ms_view_node_word(s->nodes[i]), states[k]) == 0;
        ms_buf_printf(b, "muster_nodes{state=\"%s\"} %u\n", states[k], count);
    }
    family(b, "muster_node_gpus gauge Devices of a node.");
    for (size_t i = 0; i < s->n_nodes; i++)
        ms_buf_printf(b,
                      "muster_node_gpus{node=\"%s\"} %u\n",
                      label(s->nodes[i]->name, name),
                      s->nodes[i]->gpus);
    family(b, "muster_node_cpus gauge Processors of a node.");
    for (size_t i = 0; i < s->n_nodes; i++)
        ms_buf_printf(b,
                      "muster_node_cpus{node=\"%s\"} %u\n",
                      label(s->nodes[i]->name, name),
                      s->nodes[i]->cpus);
}

static void add_clusters(struct ms_buf *b, const Muster__Status *s)
{
    char name[2 * MS_NAME_MAX + 1];

    plain(b, "muster_clusters gauge Clusters.", (double)s->n_clusters);
    plain(b, "muster_drivers gauge Drivers that have joined.", (double)s->n_drivers);
    family(b, "muster_workers gauge Workers of a cluster by state.");
    for (size_t i = 0; i < s->n_clusters; i++) {
        const Muster__ClusterStatus *c = s->clusters[i];

        for (size_t k = 0; k < MS_COUNT(worker_states); k++) {
            unsigned count = 0;

            for (size_t j = 0; j < c->n_workers; j++)
                count += c->workers[j]->state == worker_states[k];
            ms_buf_printf(b,
                          "muster_workers{cluster=\"%s\",state=\"%s\"} %u\n",
                          label(c->name, name),
                          ms_view_worker_word(worker_states[k]),
                          count);
        }
    }
}

/* ---- what workers do --------------------------------------------------------------- */

/* One line for each worker that has said what it does: `what` is "name type help", and
 * `value` what it has to say of it; negative: nothing. */
static void add_each(struct ms_buf *b,
                     const Muster__Status *s,
                     const char *what,
                     double (*value)(const Muster__Activity *a))
{
    char name[2 * MS_NAME_MAX + 1];
    int len = family(b, what);

    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; k < s->clusters[i]->n_workers; k++) {
            const Muster__WorkerStatus *w = s->clusters[i]->workers[k];
            double v = w->activity ? value(w->activity) : -1;

            if (v >= 0)
                ms_buf_printf(b,
                              "%.*s{cluster=\"%s\",rank=\"%u\"} %.17g\n",
                              len,
                              what,
                              label(s->clusters[i]->name, name),
                              w->rank,
                              v);
        }
}

static double is_busy(const Muster__Activity *a)
{
    return ms_view_is_answer(a) ? a->doing != MUSTER__DOING__DOING_IDLE : -1;
}

static double busy_s(const Muster__Activity *a)
{
    return is_busy(a) > 0 ? (double)a->for_ns / (double)MS_NS_PER_S : is_busy(a);
}

static double is_silent(const Muster__Activity *a)
{
    return a->doing == MUSTER__DOING__DOING_SILENT ||
           a->doing == MUSTER__DOING__DOING_STOPPED;
}

static double queued(const Muster__Activity *a)
{
    return ms_view_is_answer(a) ? (double)a->calls_queued : -1;
}

static double memory(const Muster__Activity *a)
{
    return (double)a->memory;
}

static double device_memory(const Muster__Activity *a)
{
    return a->has_device_memory ? (double)a->device_memory : -1;
}

static double cpu_s(const Muster__Activity *a)
{
    return (double)a->cpu_ns / (double)MS_NS_PER_S;
}

static void add_workers(struct ms_buf *b, const Muster__Status *s)
{
    static const struct {
        const char *what;
        double (*value)(const Muster__Activity *a);
    } each[] = {
        {"muster_worker_busy gauge Whether the worker runs a call or constructs.",
         is_busy},
        {"muster_worker_busy_seconds gauge For how long; of several calls the oldest.",
         busy_s},
        {"muster_worker_silent gauge Whether the worker does not answer its agent.",
         is_silent},
        {"muster_worker_queue_length gauge Calls that wait for the engine.", queued},
        {"muster_worker_memory_bytes gauge Resident memory of the worker.", memory},
        {"muster_worker_device_memory_bytes gauge Memory in use on its devices.",
         device_memory},
        {"muster_worker_cpu_seconds_total counter Processor time of the worker.",
         cpu_s},
    };

    for (size_t i = 0; i < MS_COUNT(each); i++)
        add_each(b, s, each[i].what, each[i].value);
}

/* ---- calls ------------------------------------------------------------------------- */

/* The labels of one method of one worker, without braces. */
struct call_labels {
    char text[2 * MS_NAME_MAX + 2 * MS_METHOD_NAME_MAX + 128];
};

static const char *call_labels(struct call_labels *out,
                               const Muster__ClusterStatus *c,
                               const Muster__WorkerStatus *w,
                               const Muster__MethodCalls *m)
{
    char cluster[2 * MS_NAME_MAX + 1], method[2 * MS_METHOD_NAME_MAX + 8];

    snprintf(out->text,
             sizeof out->text,
             "cluster=\"%s\",rank=\"%u\",method=\"%s\"",
             label(c->name, cluster),
             w->rank,
             escape(m->method, method, sizeof method));
    return out->text;
}

/* A histogram; with so many buckets as the worker knows. */
static void
add_times(struct ms_buf *b, const char *labels, const Muster__MethodCalls *m)
{
    static const double times_ms[MS_CALL_TIMES - 1] = MS_CALL_TIMES_MS;
    uint64_t sum = 0;

    for (size_t i = 0; i < MS_CALL_TIMES - 1 && i < m->n_took; i++)
        ms_buf_printf(b,
                      "muster_call_seconds_bucket{%s,le=\"%g\"} %llu\n",
                      labels,
                      times_ms[i] / 1e3,
                      (unsigned long long)(sum += m->took[i]));
    ms_buf_printf(b,
                  "muster_call_seconds_bucket{%s,le=\"+Inf\"} %llu\n"
                  "muster_call_seconds_sum{%s} %.17g\n"
                  "muster_call_seconds_count{%s} %llu\n",
                  labels,
                  (unsigned long long)m->calls,
                  labels,
                  (double)m->total_ns / (double)MS_NS_PER_S,
                  labels,
                  (unsigned long long)m->calls);
}

static void
add_failed(struct ms_buf *b, const char *labels, const Muster__MethodCalls *m)
{
    ms_buf_printf(b,
                  "muster_calls_failed_total{%s} %llu\n",
                  labels,
                  (unsigned long long)m->failed);
}

static void add_method(struct ms_buf *b,
                       const Muster__Status *s,
                       void (*add)(struct ms_buf *b,
                                   const char *labels,
                                   const Muster__MethodCalls *m))
{
    struct call_labels labels;

    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; k < s->clusters[i]->n_workers; k++) {
            const Muster__WorkerStatus *w = s->clusters[i]->workers[k];

            for (size_t m = 0; w->activity && m < w->activity->n_methods; m++)
                add(b,
                    call_labels(&labels, s->clusters[i], w, w->activity->methods[m]),
                    w->activity->methods[m]);
        }
}

static void add_calls(struct ms_buf *b, const Muster__Status *s)
{
    family(b, "muster_call_seconds histogram How long methods ran in the worker.");
    add_method(b, s, add_times);
    family(b, "muster_calls_failed_total counter Calls of a method that failed.");
    add_method(b, s, add_failed);
}

/* ---- stores ------------------------------------------------------------------------ */

static void add_stores(struct ms_buf *b, const Muster__Status *s)
{
    static const struct {
        const char *what;
        size_t at; /* in Muster__StoreStats */
    } each[] = {
        {"muster_store_limit_bytes gauge Memory that the store may have.",
         offsetof(Muster__StoreStats, limit)},
        {"muster_store_used_bytes gauge Memory that objects take.",
         offsetof(Muster__StoreStats, used)},
        {"muster_store_committed_bytes gauge Memory that the store has.",
         offsetof(Muster__StoreStats, committed)},
        {"muster_store_spilled_bytes gauge Bytes of objects that are on disk.",
         offsetof(Muster__StoreStats, spilled)},
        {"muster_store_objects gauge Objects.",
         offsetof(Muster__StoreStats, object_count)},
        {"muster_store_received_bytes_total counter Bytes that came from other nodes.",
         offsetof(Muster__StoreStats, received)},
        {"muster_store_sent_bytes_total counter Bytes that went to other nodes.",
         offsetof(Muster__StoreStats, sent)},
    };
    char name[2 * MS_NAME_MAX + 1];

    for (size_t k = 0; k < MS_COUNT(each); k++) {
        int len = family(b, each[k].what);

        for (size_t i = 0; i < s->n_nodes; i++)
            if (s->nodes[i]->store)
                ms_buf_printf(b,
                              "%.*s{node=\"%s\"} %llu\n",
                              len,
                              each[k].what,
                              label(s->nodes[i]->name, name),
                              (unsigned long long)*(
                                  const uint64_t *)((const char *)s->nodes[i]->store +
                                                    each[k].at));
    }
}

/* ---- the process ----------------------------------------------------------------- */

static double open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    double count = 0;

    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count > 3 ? count - 3 : 0; /* ".", "..", and the folder's own */
}

static void add_memory(struct ms_buf *b)
{
    unsigned long virtual_pages = 0, resident_pages = 0;
    double page = (double)sysconf(_SC_PAGESIZE);
    FILE *f = fopen("/proc/self/statm", "re");

    if (f && fscanf(f, "%lu %lu", &virtual_pages, &resident_pages) != 2)
        resident_pages = virtual_pages = 0;
    if (f)
        fclose(f);
    plain(b,
          "process_virtual_memory_bytes gauge Virtual memory of the head's process.",
          (double)virtual_pages * page);
    plain(b,
          "process_resident_memory_bytes gauge Resident memory of the head's process.",
          (double)resident_pages * page);
}

static void add_process(struct ms_buf *b, const Muster__Status *s)
{
    double up_s = (double)s->uptime_ns / (double)MS_NS_PER_S;
    struct rusage used = {0};

    getrusage(RUSAGE_SELF, &used);
    plain(b,
          "process_cpu_seconds_total counter Processor time of the head's process.",
          (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
              (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
    plain(b, "process_open_fds gauge Open descriptors.", open_fds());
    plain(b, "muster_uptime_seconds gauge Time since the head began.", up_s);
    add_memory(b);
}

void ms_rest_metrics(const struct rest_ask *ask, const Muster__Status *s)
{
    struct ms_buf b;

    ms_buf_init(&b);
    family(&b, "muster_build_info gauge The version that runs.");
    ms_buf_printf(&b, "muster_build_info{version=\"%s\"} 1\n", MS_VERSION);
    add_nodes(&b, s);
    add_clusters(&b, s);
    add_workers(&b, s);
    add_calls(&b, s);
    add_stores(&b, s);
    plain(&b,
          "muster_http_requests_total counter Requests to the head by HTTP.",
          (double)ask->rest->requests);
    add_process(&b, s);
    if (b.failed)
        ms_http_conn_fail(ask->conn, 503, "out of memory");
    else
        ms_http_conn_reply(ask->conn,
                           200,
                           "text/plain; version=0.0.4; charset=utf-8",
                           NULL,
                           b.data,
                           b.len);
    ms_buf_finish(&b);
}
