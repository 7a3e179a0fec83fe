/* rest_log.c - GET of a log: read here, or piece by piece from its agent */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proto.h"
#include "base/timestamp.h"
#include "head/head_impl.h"
#include "head/ops/request.h"
#include "head/rest/rest_impl.h"
#include "io/addr.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LINES_DEFAULT = 100,
    LINES_MAX = 10000,
    TAIL_MAX = 1 << 20, /* bytes that are shown */
    REMOTE_READ_MAX =
        32 << 20 /* that are read for them, of a log that grows meanwhile */
};

/* ---- of this machine --------------------------------------------------------------- */

/* The end of a file, at most TAIL_MAX bytes. */
static int read_tail(const char *path, struct ms_buf *out, bool *is_cut)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    struct stat st;
    off_t from;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    from = st.st_size > TAIL_MAX ? st.st_size - TAIL_MAX : 0;
    *is_cut = from > 0;
    if (ms_buf_reserve(out, TAIL_MAX) < 0)
        return -ENOMEM;
    n = pread(fd, out->data, TAIL_MAX, from);
    if (n < 0)
        return -errno;
    out->len = (size_t)n;
    return 0;
}

/* Where its last `most` lines begin; false: not all of the file is behind that. */
static bool find_lines(const char *text, size_t len, int64_t most, size_t *from)
{
    size_t end = len && text[len - 1] == '\n' ? len - 1 : len;

    *from = len;
    while (end > 0 && most-- > 0) {
        const char *lf = memrchr(text, '\n', end);

        *from = lf ? (size_t)(lf - text) + 1 : 0;
        if (!lf)
            return true;
        end = (size_t)(lf - text);
    }
    return len == 0;
}

/* Which lines are wanted: the last `most`, and of these what was read then or later. */
struct lines_wanted {
    int64_t most, since_ns;
    int64_t first_ns; /* of the line before the text; 0: not known */
};

/* A time of 0 is not known. */
static void
add_line(json_t *lines, json_t *times, int64_t time_ns, const char *text, size_t len)
{
    struct ms_timestamp time = {0};

    ms_timestamp_set(&time, time_ns);
    json_array_append_new(lines, ms_json_text(text, len));
    json_array_append_new(
        times, time_ns ? json_stringn(time.text, MS_TIMESTAMP_LEN) : json_null());
}

/* *is_cut: the file began before `b`, and then: before the lines. */
static void last_lines(const struct ms_buf *b,
                       const struct lines_wanted *want,
                       json_t *lines,
                       json_t *times,
                       bool *is_cut)
{
    const char *text = (const char *)b->data, *end = text + b->len, *lf;
    int64_t ns = want->first_ns;
    size_t from;

    if (!find_lines(text, b->len, want->most, &from))
        *is_cut = true;
    else if (*is_cut && (lf = memchr(text, '\n', b->len)))
        from = (size_t)(lf - text) + 1; /* not all of the first line is here */
    for (const char *at = text; at < end; at = lf + 1) {
        size_t time_len;

        lf = memchr(at, '\n', (size_t)(end - at));
        if (!lf)
            lf = end;
        time_len =
            ms_timestamp_read(at, (size_t)(lf - at), &ns) ? MS_TIMESTAMP_LEN + 1 : 0;
        if (at < text + from)
            continue;
        if (ns < want->since_ns)
            *is_cut = false; /* what is before is not wanted */
        else
            add_line(lines, times, ns, at + time_len, (size_t)(lf - at) - time_len);
    }
}

/* Is the node this machine? One that this head has started always is. */
static bool
is_here(const struct ms_rest *rest, const Muster__Status *s, const char *node)
{
    if (strcmp(rest->head->node, node) == 0)
        return true;
    for (size_t i = 0; i < s->n_nodes; i++)
        if (strcmp(s->nodes[i]->name, node) == 0)
            return *s->nodes[i]->host_id &&
                   strcmp(s->nodes[i]->host_id, ms_host_id()) == 0;
    return false;
}

/* `is_piece`: the file, and perhaps its first line, began before what is in `b`; `is_cut`: it
 * did, with a whole line. */
static void reply_lines(struct ms_http_conn *c,
                        const char *path,
                        const struct ms_buf *b,
                        const struct lines_wanted *want,
                        bool is_piece,
                        bool is_cut)
{
    json_t *lines = json_array(), *times = json_array();

    last_lines(b, want, lines, times, &is_piece);
    if (want->since_ns) /* older lines were left out on purpose */
        is_cut = is_cut && json_array_size(lines) >= (size_t)want->most;
    ms_http_reply_json(c,
                       200,
                       json_pack("{s:o, s:b, s:o, s:o}",
                                 "path",
                                 ms_json_text(path, strlen(path)),
                                 "is_cut",
                                 is_piece || is_cut,
                                 "lines",
                                 lines,
                                 "times",
                                 times));
}

static void
reply_log(const struct rest_ask *ask, const char *path, const struct lines_wanted *want)
{
    struct ms_buf b;
    bool is_cut = false;
    int rc;

    ms_buf_init(&b);
    rc = read_tail(path, &b, &is_cut);
    if (rc == -ENOENT) {
        ms_http_conn_fail(ask->conn, 404, "the worker has no log");
    } else if (rc < 0) {
        ms_http_conn_fail(ask->conn, 500, "the log cannot be read");
    } else {
        reply_lines(ask->conn, path, &b, want, is_cut, false);
    }
    ms_buf_finish(&b);
}

/* ---- of another machine ------------------------------------------------------------ */

/* Its agent is asked for piece after piece, until there is no more. */
struct remote_log {
    struct rest_wait wait;
    struct ms_head_op *op; /* under way */
    Muster__ReadLog *want;
    char *path;
    struct lines_wanted lines;
    struct ms_buf text;
    size_t all; /* bytes that were read */
    bool is_cut, is_piece, has_begun;
};

static void remote_destroy(struct rest_wait *w)
{
    struct remote_log *f = (struct remote_log *)w;

    if (f->op)
        f->op->on_done = NULL;
    ms_head_op_unref(f->op);
    ms_list_remove(&w->link);
    muster__read_log__free_unpacked(f->want, NULL);
    ms_buf_finish(&f->text);
    free(f->path);
    free(f);
}

static void remote_ask(struct remote_log *f);

static void remote_fail(struct remote_log *f, int status, const char *text)
{
    if (f->wait.conn)
        ms_http_conn_fail(f->wait.conn, status, text);
    remote_destroy(&f->wait);
}

/* False: that was all. */
static bool remote_take(struct remote_log *f, const Muster__LogPiece *piece)
{
    size_t len = piece->data.len;

    if (!f->has_begun) { /* the first piece begins with the lines that are wanted */
        f->is_cut = piece->offset > len;
        f->lines.first_ns = (int64_t)piece->first_ns;
    }
    f->has_begun = true;
    f->want->file = piece->file;
    f->want->offset = piece->offset;
    if (len == 0 || ms_buf_append(&f->text, piece->data.data, len) < 0)
        return false;
    if (f->text.len > TAIL_MAX) {
        ms_buf_consume(&f->text, f->text.len - TAIL_MAX);
        f->is_piece = true;
    }
    f->all += len;
    return f->all < REMOTE_READ_MAX;
}

static void remote_done(struct ms_head_op *op, void *arg)
{
    struct remote_log *f = arg;
    const Muster__LogPiece *piece = (const Muster__LogPiece *)op->message;
    struct ms_error err = {0};
    int rc = ms_head_op_result(op, &err);

    f->op = NULL;
    if (rc < 0)
        remote_fail(f, 502, err.text);
    else if (!f->wait.conn)
        remote_destroy(&f->wait);
    else if (!f->has_begun && !piece->file)
        remote_fail(f, 404, "the worker has no log");
    else if (remote_take(f, piece))
        remote_ask(f);
    else {
        reply_lines(f->wait.conn, f->path, &f->text, &f->lines, f->is_piece, f->is_cut);
        remote_destroy(&f->wait);
    }
    ms_head_op_unref(op);
}

static void remote_ask(struct remote_log *f)
{
    f->op = ms_head_request_then(f->wait.rest->head,
                                 MUSTER__DRIVER_TO_HEAD__BODY_READ_LOG,
                                 f->want,
                                 remote_done,
                                 f);
    if (!f->op)
        remote_fail(f, 503, "out of memory");
}

static Muster__ReadLog *remote_want(const Muster__WorkerStatus *w,
                                    const struct lines_wanted *lines)
{
    const char *slash = strrchr(w->log_path, '/');
    Muster__ReadLog want = MUSTER__READ_LOG__INIT;

    want.node = w->node;
    want.name = (char *)(uintptr_t)(slash ? slash + 1 : w->log_path);
    want.lines_max = (uint64_t)lines->most;
    want.since_ns = (uint64_t)lines->since_ns;
    return (Muster__ReadLog *)ms_proto_copy(&want.base);
}

static void remote_begin(const struct rest_ask *ask,
                         const Muster__WorkerStatus *w,
                         const struct lines_wanted *lines)
{
    struct remote_log *f = calloc(1, sizeof *f);

    if (f) {
        ms_buf_init(&f->text);
        ms_list_init(&f->wait.link);
        f->want = remote_want(w, lines);
        f->path = strdup(w->log_path);
        f->lines = *lines;
    }
    if (!f || !f->want || !f->path) {
        ms_http_conn_fail(ask->conn, 503, "out of memory");
        if (f)
            remote_destroy(&f->wait);
        return;
    }
    f->wait.destroy = remote_destroy;
    ms_rest_wait_begin(&f->wait, ask);
    remote_ask(f);
}

bool ms_rest_since(const struct rest_ask *ask, int64_t *since_ns)
{
    char text[128];

    if (!ms_rest_text(ask, "since", text, sizeof text))
        return true;
    if (ms_rest_decode(text, strlen(text), text) &&
        ms_since_parse(text, ms_wall_ns(), since_ns) == 0)
        return true;
    ms_http_conn_fail(
        ask->conn, 400, "'since' is a time such as 10m, 2h or 2026-11-18T05:00Z");
    return false;
}

void ms_rest_logs(const struct rest_ask *ask, const Muster__Status *s)
{
    struct lines_wanted want = {
        .most = ms_rest_number(ask, "lines", LINES_DEFAULT, 1, LINES_MAX)};
    const Muster__WorkerStatus *w = NULL;

    if (want.most > 0 && ms_rest_since(ask, &want.since_ns))
        w = ms_rest_find_worker(ask, s);
    if (!w)
        return;
    if (is_here(ask->rest, s, w->node))
        reply_log(ask, w->log_path, &want);
    else
        remote_begin(ask, w, &want);
}
