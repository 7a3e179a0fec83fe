/* metrics.c - the head's state in the text format of Prometheus */
#include "base/buf.h"
#include "base/clock.h"
#include "head/rest/rest_impl.h"
#include "head/status.h"
#include "head/version.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

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

/* Of a label: backslash, quote and newline are escaped. */
static const char *label(const char *text, char out[2 * MS_NAME_MAX + 1])
{
    char *to = out, *end = out + 2 * MS_NAME_MAX - 1;

    for (; *text && to < end; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n')
            *to++ = '\\';
        *to++ = (char)(*text == '\n' ? 'n' : *text);
    }
    *to = 0;
    return out;
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

void ms_rest_metrics(const struct rest_ask *ask)
{
    Muster__Status *s = ms_head_status_message(ask->rest->head);
    struct ms_buf b;

    ms_buf_init(&b);
    if (!s) {
        ms_http_conn_fail(ask->conn, 503, "out of memory");
        return;
    }
    family(&b, "muster_build_info gauge The version that runs.");
    ms_buf_printf(&b, "muster_build_info{version=\"%s\"} 1\n", MS_VERSION);
    add_nodes(&b, s);
    add_clusters(&b, s);
    plain(&b,
          "muster_http_requests_total counter Requests to the head by HTTP.",
          (double)ask->rest->requests);
    add_process(&b, s);
    muster__status__free_unpacked(s, NULL);
    ms_http_conn_reply(ask->conn,
                       200,
                       "text/plain; version=0.0.4; charset=utf-8",
                       NULL,
                       b.data,
                       b.len);
    ms_buf_finish(&b);
}
