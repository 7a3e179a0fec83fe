#include "cli/logs_far.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/logline.h"
#include "cli/out.h"
#include "wire/frame.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Between two questions whether there is more. */
#define AGAIN_NS (300 * MS_NS_PER_MS)

enum { PART_MAX = 1 << 20 };

/* The log of one worker, or of one agent. */
struct far_log {
    char cluster[MS_NAME_MAX + 1]; /* "": the agent's */
    char node[MS_NAME_MAX + 1];
    char name[160]; /* of the file */
    uint32_t rank;
    uint64_t file, offset;
    bool failed; /* said so */
    struct ms_buf part;
};

struct far_logs {
    const struct ms_target *target;
    const struct ms_logview *view;
    struct far_log *at;
    size_t count;
    bool following; /* what appears now is read from its beginning */
};

static void finish(struct far_logs *f)
{
    for (size_t i = 0; i < f->count; i++)
        ms_buf_finish(&f->at[i].part);
    free(f->at);
}

/* ---- which ----------------------------------------------------------------------- */

static bool has(const struct far_logs *f, const struct far_log *l)
{
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->at[i].name, l->name) == 0 && strcmp(f->at[i].node, l->node) == 0)
            return true;
    return false;
}

/* Takes nothing; the parts of `l` that name it are set. */
static int add(struct far_logs *f, const struct far_log *l)
{
    struct far_log *more;

    if (!l->name[0] || has(f, l))
        return 0;
    more = realloc(f->at, (f->count + 1) * sizeof *more);
    if (!more)
        return -ENOMEM;
    f->at = more;
    f->at[f->count++] = *l;
    return 0;
}

static int add_agent(struct far_logs *f, const Muster__NodeStatus *n)
{
    struct far_log l = {.name = "agent.log"};

    snprintf(l.node, sizeof l.node, "%s", n->name);
    return add(f, &l);
}

static int add_worker(struct far_logs *f,
                      const Muster__ClusterStatus *c,
                      const Muster__WorkerStatus *w)
{
    struct far_log l = {.rank = w->rank};
    const char *slash = strrchr(w->log_path, '/');

    if (!ms_cli_selector_matches(&f->view->selector, c->name, w->rank))
        return 0;
    snprintf(l.cluster, sizeof l.cluster, "%s", c->name);
    snprintf(l.node, sizeof l.node, "%s", w->node);
    snprintf(l.name, sizeof l.name, "%s", slash ? slash + 1 : "");
    return add(f, &l);
}

static int add_all(struct far_logs *f, const Muster__Status *s)
{
    bool agents = f->view->single && !f->view->merged;
    int rc = 0;

    for (size_t i = 0; agents && rc == 0 && i < s->n_nodes; i++)
        rc = add_agent(f, s->nodes[i]);
    for (size_t i = 0; !agents && i < s->n_clusters; i++)
        for (size_t k = 0; rc == 0 && k < s->clusters[i]->n_workers; k++)
            rc = add_worker(f, s->clusters[i], s->clusters[i]->workers[k]);
    return rc;
}

static enum ms_exit look(struct far_logs *f)
{
    Muster__Status *s = NULL;
    enum ms_exit code = ms_target_status(f->target, &s);

    if (code)
        return code;
    if (add_all(f, s) < 0)
        code = ms_out_fail(f->target->cli, MS_EXIT_FAILED, "out of memory");
    muster__status__free_unpacked(s, NULL);
    return code;
}

/* ---- what is in them ------------------------------------------------------------- */

static int print_line(const struct far_logs *f,
                      const struct far_log *l,
                      const char *text,
                      size_t len)
{
    const struct ms_logview *v = f->view;
    struct ms_logline line = {.rank = l->rank, .text = text, .len = len};

    if (v->json || v->labels || v->single)
        memcpy(line.cluster, l->cluster, sizeof line.cluster);
    if (v->json || v->single)
        memcpy(line.node, l->node, sizeof line.node);
    if (v->json)
        return ms_logline_print_json(&line);
    if (!l->cluster[0])
        printf("%s: ", l->node);
    ms_logline_print(&line);
    return 0;
}

static int
feed(const struct far_logs *f, struct far_log *l, const char *data, size_t len)
{
    int rc = 0;

    while (rc == 0 && len) {
        const char *newline = memchr(data, '\n', len);
        size_t piece = newline ? (size_t)(newline - data) : len;

        rc = ms_buf_append(&l->part, data, piece);
        if (rc == 0 && (newline || l->part.len > PART_MAX)) {
            rc = print_line(f, l, (char *)l->part.data, l->part.len);
            l->part.len = 0;
        }
        piece += newline != NULL;
        data += piece;
        len -= piece;
    }
    return rc;
}

/* One piece: how many bytes, or a negative errno. What a node refuses is said once. */
static int read_piece(const struct far_logs *f, struct far_log *l)
{
    MS_CLEANUP(ms_cleanup_free) uint8_t *reply = NULL;
    Muster__ReadLog want = MUSTER__READ_LOG__INIT;
    Muster__LogPiece *piece;
    enum ms_exit code;
    size_t len = 0;
    int rc;

    want.name = l->name;
    want.node = l->node;
    want.file = l->file;
    want.offset = l->offset;
    want.all = f->following || f->view->lines_max < 0;
    want.lines_max = f->view->lines_max > 0 ? (uint64_t)f->view->lines_max : 0;
    code = ms_target_ask(
        f->target, MS_OP_READ_LOG, &want.base, f->target->timeout_ns, &reply, &len);
    piece = code ? NULL : muster__log_piece__unpack(NULL, len, reply);
    if (!piece)
        return -EIO;
    rc = feed(f, l, (char *)piece->data.data, piece->data.len);
    if (piece->file) {
        l->file = piece->file;
        l->offset = piece->offset;
    }
    if (rc == 0)
        rc = (int)piece->data.len;
    muster__log_piece__free_unpacked(piece, NULL);
    return rc;
}

/* All there is now of all of them. A node that does not answer is left out from then on. */
static size_t read_all(struct far_logs *f)
{
    size_t failed = 0;

    for (size_t i = 0; i < f->count; i++) {
        struct far_log *l = &f->at[i];
        int rc = l->failed ? -EIO : 1;

        while (rc > 0 && !ferror(stdout))
            rc = read_piece(f, l);
        l->failed = rc < 0;
        failed += l->failed;
    }
    fflush(stdout);
    return failed;
}

static void print_parts(struct far_logs *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->at[i].part.len)
            print_line(f, &f->at[i], (char *)f->at[i].part.data, f->at[i].part.len);
}

static enum ms_exit follow(struct far_logs *f)
{
    const struct timespec again = {.tv_nsec = AGAIN_NS};
    enum ms_exit code = MS_EXIT_OK;

    f->following = true;
    while (!code && !ferror(stdout) && !ms_out_is_closed(STDOUT_FILENO)) {
        nanosleep(&again, NULL);
        code = look(f);
        if (!code)
            read_all(f);
    }
    print_parts(f);
    return code;
}

enum ms_exit ms_logs_far(const struct ms_target *t, const struct ms_logview *v)
{
    struct far_logs f = {.target = t, .view = v};
    bool following = ms_cli_has(t->cli, MS_OPT_FOLLOW);
    enum ms_exit code = look(&f);
    size_t failed;

    if (!code && f.count == 0 && !following)
        code = ms_out_fail(t->cli,
                           MS_EXIT_NOT_FOUND,
                           "there are no such workers; `muster status` shows what "
                           "there is");
    if (!code) {
        failed = read_all(&f);
        code = failed && failed == f.count ? MS_EXIT_UNREACHABLE : MS_EXIT_OK;
        if (!code && following)
            code = follow(&f);
        else
            print_parts(&f);
    }
    finish(&f);
    return code;
}
