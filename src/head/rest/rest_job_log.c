/* rest_job_log.c - GET of what a job's roles and driver have printed, from all of its nodes
 *
 * One step after the other: the job's status names the nodes, then the merged log of each is
 * read piece by piece, then the lines are put in the order of their times. Of a node that is
 * gone the head reads what it has left, if that is on this machine.
 */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/timestamp.h"
#include "head/head_impl.h"
#include "head/ops/request.h"
#include "head/rest/rest_impl.h"

#include <errno.h>
#include <string.h>

#define MERGED "merged.log"

enum {
    LINES_DEFAULT = 100,
    LINES_MAX = 10000,
    NODE_TEXT_MAX = 1 << 20, /* bytes that are kept of one node's log... */
    NODE_READ_MAX = 32 << 20 /* ...and read, of one that grows meanwhile */
};

/* What one node has. */
struct node_log {
    struct ms_buf text;
    int64_t first_ns; /* of the line before it; 0: not known */
    bool is_cut;      /* there is more before it */
};

struct job_log {
    struct rest_wait wait;
    struct ms_head_op *op; /* under way */
    char name[MS_NAME_MAX + 1];
    int64_t most, since_ns;
    Muster__JobStatus *job; /* NULL: not known yet */
    struct node_log *nodes;
    size_t at, all; /* the node that is read, and bytes of it */
    uint64_t file, offset;
};

struct line {
    int64_t time_ns; /* 0: not known */
    const char *text;
    size_t len, order;
};

struct lines {
    struct line *at;
    size_t count, room;
};

static void job_log_destroy(struct rest_wait *w)
{
    struct job_log *l = (struct job_log *)w;

    if (l->op)
        l->op->on_done = NULL;
    ms_head_op_unref(l->op);
    ms_list_remove(&w->link);
    for (size_t i = 0; l->nodes && i < l->job->n_log_nodes; i++)
        ms_buf_finish(&l->nodes[i].text);
    free(l->nodes);
    muster__job_status__free_unpacked(l->job, NULL);
    free(l);
}

static void fail(struct job_log *l, int status, const char *text)
{
    if (l->wait.conn)
        ms_http_conn_fail(l->wait.conn, status, text);
    job_log_destroy(&l->wait);
}

/* ---- the answer -------------------------------------------------------------------- */

/* "JOB.", as its clusters and nodes begin. */
static bool is_of_job(const struct job_log *l, const char *text, size_t len)
{
    size_t name_len = strlen(l->name);

    return len > name_len && memcmp(text, l->name, name_len) == 0 &&
           text[name_len] == '.';
}

static int add_line(struct lines *all, int64_t time_ns, const char *text, size_t len)
{
    if (ms_array_reserve(&all->at, &all->room, all->count + 1, sizeof *all->at) < 0)
        return -ENOMEM;
    all->at[all->count] = (struct line){time_ns, text, len, all->count};
    all->count++;
    return 0;
}

/* A node that the job shares has lines of others. */
static int add_node(struct job_log *l, size_t i, struct lines *all)
{
    const struct node_log *n = &l->nodes[i];
    const char *node = l->job->log_nodes[i];
    const char *text = (const char *)n->text.data, *end = text + n->text.len, *lf;
    bool is_its_own = is_of_job(l, node, strlen(node));
    int64_t ns = n->first_ns;
    int rc = 0;

    for (const char *at = text; rc == 0 && at < end; at = lf + 1) {
        size_t len;

        lf = memchr(at, '\n', (size_t)(end - at));
        if (!lf)
            lf = end;
        len = (size_t)(lf - at);
        if (ms_timestamp_read(at, len, &ns)) {
            at += MS_TIMESTAMP_LEN + 1;
            len -= MS_TIMESTAMP_LEN + 1;
        }
        if (ns >= l->since_ns && (is_its_own || is_of_job(l, at, len)))
            rc = add_line(all, ns, at, len);
    }
    return rc;
}

static int by_time(const void *a, const void *b)
{
    const struct line *x = a, *y = b;

    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static void reply(struct job_log *l)
{
    struct lines all = {0};
    json_t *lines = json_array(), *times = json_array();
    bool is_cut = false;
    size_t from;

    for (size_t i = 0; i < l->job->n_log_nodes; i++) {
        is_cut = is_cut || l->nodes[i].is_cut;
        if (add_node(l, i, &all) < 0)
            is_cut = true;
    }
    if (all.count)
        qsort(all.at, all.count, sizeof *all.at, by_time);
    from = all.count > (size_t)l->most ? all.count - (size_t)l->most : 0;
    for (size_t i = from; i < all.count; i++) {
        const struct line *one = &all.at[i];
        struct ms_timestamp time = {0};

        ms_timestamp_set(&time, one->time_ns);
        json_array_append_new(lines, ms_json_text(one->text, one->len));
        json_array_append_new(times,
                              one->time_ns ? json_stringn(time.text, MS_TIMESTAMP_LEN)
                                           : json_null());
    }
    free(all.at);
    ms_http_reply_json(l->wait.conn,
                       200,
                       json_pack("{s:b, s:o, s:o}",
                                 "is_cut",
                                 is_cut || from > 0,
                                 "lines",
                                 lines,
                                 "times",
                                 times));
    job_log_destroy(&l->wait);
}

/* ---- reading ----------------------------------------------------------------------- */

static void ask_piece(struct job_log *l);

static void next_node(struct job_log *l)
{
    l->at++;
    l->all = 0;
    l->file = l->offset = 0;
    if (l->at < l->job->n_log_nodes)
        ask_piece(l);
    else
        reply(l);
}

/* False: that was all of this node. */
static bool take_piece(struct job_log *l, const Muster__LogPiece *piece)
{
    struct node_log *n = &l->nodes[l->at];
    size_t len = piece->data.len;

    if (!l->file) {
        n->is_cut = piece->offset > len && !l->since_ns;
        n->first_ns = (int64_t)piece->first_ns;
    }
    l->file = piece->file;
    l->offset = piece->offset;
    if (len == 0 || ms_buf_append(&n->text, piece->data.data, len) < 0)
        return false;
    if (n->text.len > NODE_TEXT_MAX) { /* the next line that is whole */
        size_t over = n->text.len - NODE_TEXT_MAX;
        const uint8_t *lf = memchr(n->text.data + over, '\n', NODE_TEXT_MAX);

        ms_buf_consume(&n->text, lf ? (size_t)(lf - n->text.data) + 1 : over);
        n->is_cut = true;
    }
    l->all += len;
    return l->all < NODE_READ_MAX;
}

/* A node that cannot be asked has nothing to say. */
static void on_piece(struct ms_head_op *op, void *arg)
{
    struct job_log *l = arg;
    const Muster__LogPiece *piece = (const Muster__LogPiece *)op->message;
    int rc = ms_head_op_result(op, NULL);

    l->op = NULL;
    if (!l->wait.conn)
        job_log_destroy(&l->wait);
    else if (rc == 0 && piece && take_piece(l, piece))
        ask_piece(l);
    else
        next_node(l);
    ms_head_op_unref(op);
}

static void ask_piece(struct job_log *l)
{
    Muster__ReadLog want = MUSTER__READ_LOG__INIT;

    want.node = l->job->log_nodes[l->at];
    want.name = (char *)(uintptr_t)MERGED;
    want.file = l->file;
    want.offset = l->offset;
    want.since_ns = (uint64_t)l->since_ns;
    want.lines_max = (uint64_t)l->most;
    l->op = ms_head_request_then(
        l->wait.rest->head, MUSTER__DRIVER_TO_HEAD__BODY_READ_LOG, &want, on_piece, l);
    if (!l->op)
        fail(l, 503, "out of memory");
}

/* A job of the same name that was deleted has printed before this one was submitted. */
static void begin(struct job_log *l, Muster__JobStatus *job)
{
    l->job = job;
    if (l->since_ns < (int64_t)job->submitted_ns)
        l->since_ns = (int64_t)job->submitted_ns;
    l->nodes = calloc(job->n_log_nodes + 1, sizeof *l->nodes);
    if (!l->nodes)
        fail(l, 503, "out of memory");
    else if (job->n_log_nodes)
        ask_piece(l);
    else
        reply(l);
}

static void on_job(struct ms_head_op *op, void *arg)
{
    struct job_log *l = arg;
    struct ms_error err = {0};
    int rc = ms_head_op_result(op, &err);

    l->op = NULL;
    if (rc < 0)
        fail(l, ms_rest_status_of(rc), err.text);
    else if (!l->wait.conn)
        job_log_destroy(&l->wait);
    else
        begin(l, (Muster__JobStatus *)MS_TAKE(op->message));
    ms_head_op_unref(op);
}

void ms_rest_job_logs(const struct rest_ask *ask)
{
    Muster__JobRef want = MUSTER__JOB_REF__INIT;
    int64_t most = ms_rest_number(ask, "lines", LINES_DEFAULT, 1, LINES_MAX);
    int64_t since_ns = 0;
    struct job_log *l;

    if (most < 0 || !ms_rest_since(ask, &since_ns))
        return;
    if (strlen(ask->name) > MS_NAME_MAX) {
        ms_http_conn_fail(ask->conn, 404, "there is no job of so long a name");
        return;
    }
    l = calloc(1, sizeof *l);
    if (!l) {
        ms_http_conn_fail(ask->conn, 503, "out of memory");
        return;
    }
    l->wait.destroy = job_log_destroy;
    l->most = most;
    l->since_ns = since_ns;
    snprintf(l->name, sizeof l->name, "%s", ask->name);
    ms_rest_wait_begin(&l->wait, ask);
    want.name = l->name;
    l->op = ms_head_request_then(
        ask->rest->head, MUSTER__DRIVER_TO_HEAD__BODY_GET_JOB, &want, on_job, l);
    if (!l->op)
        fail(l, 503, "out of memory");
}
