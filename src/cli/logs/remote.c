/* remote.c - which logs other machines have, and what is in them now */
#include "cli/logs/remote.h"
#include "base/cleanup.h"
#include "cli/out.h"

#include <errno.h>
#include <string.h>

/* ---- which ----------------------------------------------------------------------- */

static struct ms_remote_log *find(const struct ms_remote_logs *f,
                                  const struct ms_remote_log *l)
{
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->at[i].name, l->name) == 0 &&
            strcmp(f->at[i].log.node, l->log.node) == 0)
            return &f->at[i];
    return NULL;
}

/* Takes nothing; the parts of `l` that name it are set. */
static int add(struct ms_remote_logs *f, const struct ms_remote_log *l)
{
    struct ms_remote_log *more = find(f, l);

    if (!l->name[0])
        return 0;
    if (more) {
        more->is_listed = true;
        more->failed = more->failed && more->was_listed; /* a node came back */
        return 0;
    }
    more = realloc(f->at, (f->count + 1) * sizeof *more);
    if (!more)
        return -ENOMEM;
    f->at = more;
    f->at[f->count] = *l;
    f->at[f->count++].is_listed = true;
    return 0;
}

/* The merged file, or the agent's. */
static int add_node(struct ms_remote_logs *f, const Muster__NodeStatus *n)
{
    struct ms_remote_log l = {0};

    if (!n->alive)
        return 0;
    snprintf(l.name, sizeof l.name, "%s", f->view->single);
    snprintf(l.log.node, sizeof l.log.node, "%s", n->name);
    return add(f, &l);
}

static bool is_alive(const Muster__Status *s, const char *node)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        if (s->nodes[i]->alive && strcmp(s->nodes[i]->name, node) == 0)
            return true;
    return false;
}

/* Of a node that is gone the head reads what it has left. */
static int add_job_nodes(struct ms_remote_logs *f, const Muster__Status *s)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < f->job->n_log_nodes; i++) {
        struct ms_remote_log l = {0}, *added;

        snprintf(l.name, sizeof l.name, "%s", f->view->single);
        snprintf(l.log.node, sizeof l.log.node, "%s", f->job->log_nodes[i]);
        rc = add(f, &l);
        added = find(f, &l);
        if (added)
            added->is_listed = is_alive(s, l.log.node);
    }
    return rc;
}

static int add_worker(struct ms_remote_logs *f,
                      const Muster__ClusterStatus *c,
                      const Muster__WorkerStatus *w)
{
    struct ms_remote_log l = {.log.rank = w->rank};
    const char *slash = strrchr(w->log_path, '/');

    if (!ms_cli_selector_matches(&f->view->selector, c->name, w->rank))
        return 0;
    snprintf(l.log.cluster, sizeof l.log.cluster, "%s", c->name);
    snprintf(l.log.node, sizeof l.log.node, "%s", w->node);
    snprintf(l.name, sizeof l.name, "%s", slash ? slash + 1 : "");
    return add(f, &l);
}

int ms_remote_logs_add(struct ms_remote_logs *f, const Muster__Status *s)
{
    bool of_nodes = f->view->single != NULL;
    int rc = 0;

    f->change = s->change;
    for (size_t i = 0; i < f->count; i++) {
        f->at[i].was_listed = f->at[i].is_listed;
        f->at[i].is_listed = false;
    }
    if (f->job)
        return add_job_nodes(f, s);
    for (size_t i = 0; of_nodes && rc == 0 && i < s->n_nodes; i++)
        rc = add_node(f, s->nodes[i]);
    for (size_t i = 0; !of_nodes && i < s->n_clusters; i++)
        for (size_t k = 0; rc == 0 && k < s->clusters[i]->n_workers; k++)
            rc = add_worker(f, s->clusters[i], s->clusters[i]->workers[k]);
    return rc;
}

enum ms_exit ms_remote_logs_look(struct ms_remote_logs *f)
{
    Muster__Status *s = NULL;
    enum ms_exit code = ms_target_status(f->target, &s);

    if (code)
        return code;
    if (ms_remote_logs_add(f, s) < 0)
        code = ms_out_fail(f->target->cli, MS_EXIT_FAILED, "out of memory");
    muster__status__free_unpacked(s, NULL);
    return code;
}

/* ---- what is in them ------------------------------------------------------------- */

void ms_remote_log_want(const struct ms_remote_logs *f,
                        struct ms_remote_log *l,
                        Muster__ReadLog *want)
{
    long lines_max = ms_logview_lines_back(f->view);

    muster__read_log__init(want);
    want->name = l->name;
    want->node = l->log.node;
    want->file = l->file;
    want->offset = l->offset;
    want->all = f->following || lines_max < 0;
    want->lines_max = lines_max > 0 ? (uint64_t)lines_max : 0;
    want->since_ns = (uint64_t)f->view->since_ns;
}

void ms_remote_log_move(struct ms_remote_log *l, const Muster__LogPiece *piece)
{
    if (!piece->file)
        return;
    if (piece->first_ns)
        l->log.time_ns = (int64_t)piece->first_ns;
    l->file = piece->file;
    l->offset = piece->offset;
}

/* One piece: how many bytes, or a negative errno. */
static int read_piece(const struct ms_remote_logs *f, struct ms_remote_log *l)
{
    Muster__ReadLog want;
    ProtobufCMessage *answer = NULL;
    Muster__LogPiece *piece;
    struct ms_error err = {0};
    int rc = 0;

    ms_remote_log_want(f, l, &want);
    if (f->job) /* a node that has not come yet has nothing */
        rc = ms_target_try(f->target,
                           MUSTER__DRIVER_TO_HEAD__BODY_READ_LOG,
                           &want.base,
                           f->target->timeout_ns,
                           &answer,
                           &err);
    else if (ms_target_ask(f->target,
                           MUSTER__DRIVER_TO_HEAD__BODY_READ_LOG,
                           &want.base,
                           f->target->timeout_ns,
                           &answer))
        rc = -EIO;
    if (rc < 0)
        return rc == -EREMOTEIO ? 0 : rc;
    piece = (Muster__LogPiece *)answer;
    ms_remote_log_move(l, piece);
    rc = ms_logtext_add(&l->log, (char *)piece->data.data, piece->data.len);
    if (rc == 0)
        rc = (int)piece->data.len;
    muster__log_piece__free_unpacked(piece, NULL);
    return rc;
}

static struct ms_logtext *log_of(void *arg, size_t i)
{
    return &((struct ms_remote_logs *)arg)->at[i].log;
}

/* What a node refuses is said once; it is left out from then on. */
static int more(void *arg, size_t i)
{
    struct ms_remote_logs *f = arg;
    struct ms_remote_log *l = &f->at[i];
    int rc = l->failed ? 0 : read_piece(f, l);

    l->failed = l->failed || rc < 0;
    return rc < 0 ? 0 : rc;
}

static int on_line(void *arg, size_t i, const struct ms_logline *line)
{
    struct ms_remote_logs *f = arg;
    int rc = ms_logview_print_line(f->view, &f->at[i].log, line);

    return rc == 0 && ferror(stdout) ? -EIO : rc;
}

/* All there is now of all of them; how many could not be read. */
static size_t read_all(struct ms_remote_logs *f)
{
    static const struct ms_logmerge_ops ops = {log_of, more, on_line};
    size_t failed = 0;
    int rc = 0;

    if (f->view->grep && f->view->lines_max > 0)
        for (size_t i = 0; rc == 0 && i < f->count; i++)
            rc = ms_logview_keep_last(f->view, &ops, f, i);
    if (rc == 0)
        ms_logmerge(&ops, f, f->count);
    fflush(stdout);
    for (size_t i = 0; i < f->count; i++)
        failed += f->at[i].failed;
    return failed;
}

enum ms_exit ms_remote_logs_show(struct ms_target *t,
                                 const struct ms_logview *v,
                                 const Muster__JobStatus *job)
{
    struct ms_remote_logs f = {.target = t, .view = v, .job = job};
    bool following = ms_cli_has(t->cli, MS_OPT_FOLLOW);
    enum ms_exit code = ms_remote_logs_look(&f);
    size_t failed;

    if (!code && f.count == 0 && !following)
        code = ms_out_fail(t->cli,
                           MS_EXIT_NOT_FOUND,
                           "there are no such workers; `muster status` shows what "
                           "there is");
    if (!code) {
        failed = read_all(&f);
        code = failed && failed == f.count ? MS_EXIT_UNREACHABLE : MS_EXIT_OK;
        if (!code && following && !(job && job->is_over))
            code = ms_remote_logs_follow(&f);
        if (!code && f.is_over)
            read_all(&f); /* what was printed last */
    }
    for (size_t i = 0; i < f.count; i++) {
        ms_logview_rest(v, &f.at[i].log);
        ms_buf_finish(&f.at[i].log.bytes);
    }
    free(f.at);
    return code;
}
