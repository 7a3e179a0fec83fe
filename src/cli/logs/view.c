/* view.c - the log files of a session, and how their lines are printed */
#include "cli/logs/view.h"
#include "base/cleanup.h"
#include "base/timestamp.h"
#include "cli/logs/tail.h"
#include "io/tree.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { DRIVER_LEN = 17, BLOCK = 64 << 10, KEPT_SLACK = 1 << 20 };

struct ms_logview_file {
    struct ms_tailfile tail;
    struct ms_logtext log;
};

/* Where "CLUSTER-RANK" ends: before ".log", or before ".<driver's id>.log". 0: this is no
 * log. */
static size_t find_stem(const char *name)
{
    static const char hex[] = "0123456789abcdef";
    size_t len = strlen(name);

    if (len < 4 || strcmp(name + len - 4, ".log") != 0)
        return 0;
    len -= 4;
    if (len > DRIVER_LEN && name[len - DRIVER_LEN] == '.' &&
        strspn(name + len - DRIVER_LEN + 1, hex) == DRIVER_LEN - 1)
        len -= DRIVER_LEN;
    return len;
}

bool ms_logview_is_worker(const char *name,
                          char cluster[MS_NAME_MAX + 1],
                          uint32_t *rank)
{
    size_t len = find_stem(name), at;

    for (at = len; at > 0 && isdigit((unsigned char)name[at - 1]); at--)
        ;
    if (at < 2 || name[at - 1] != '-' || at - 1 > MS_NAME_MAX ||
        !ms_rank_parse(name + at, len - at, rank))
        return false;
    memcpy(cluster, name, at - 1);
    cluster[at - 1] = 0;
    return true;
}

int ms_logview_open(struct ms_logview *v, int at, const char *path)
{
    int *dirs = realloc(v->dirs, (v->dir_count + 1) * sizeof *dirs);

    if (!dirs)
        return -ENOMEM;
    v->merged = v->single && strcmp(v->single, MS_LOGVIEW_MERGED) == 0;
    v->dirs = dirs;
    dirs[v->dir_count] = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dirs[v->dir_count] < 0)
        return -errno;
    v->dir_count++;
    return 0;
}

static void file_finish(struct ms_logview_file *f)
{
    ms_tailfile_close(&f->tail);
    ms_buf_finish(&f->log.bytes);
}

void ms_logview_close(struct ms_logview *v)
{
    for (size_t i = 0; i < v->count; i++)
        file_finish(&v->files[i]);
    for (size_t i = 0; i < v->dir_count; i++)
        close(v->dirs[i]);
    free(v->files);
    free(v->dirs);
    v->files = NULL;
    v->dirs = NULL;
    v->count = v->dir_count = 0;
}

/* ---- which files ----------------------------------------------------------------- */

static bool has_file(const struct ms_logview *v, int dir, const char *name)
{
    for (size_t i = 0; i < v->count; i++)
        if (v->files[i].tail.dir == dir && strcmp(v->files[i].tail.name, name) == 0)
            return true;
    return false;
}

static int add_file(void *arg, int dir, const char *name)
{
    struct ms_logview *v = arg;
    struct ms_logview_file *files, f = {0};
    int rc;

    if (v->single
            ? strcmp(name, v->single) != 0
            : !ms_logview_is_worker(name, f.log.cluster, &f.log.rank) ||
                  !ms_cli_selector_matches(&v->selector, f.log.cluster, f.log.rank))
        return 0;
    if (has_file(v, dir, name))
        return 0;
    rc = ms_tailfile_open(&f.tail, dir, name);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    files = realloc(v->files, (v->count + 1) * sizeof *files);
    if (!files) {
        file_finish(&f);
        return -ENOMEM;
    }
    v->files = files;
    v->files[v->count++] = f;
    return 0;
}

static int by_rank(const void *a, const void *b)
{
    const struct ms_logtext *x = &((const struct ms_logview_file *)a)->log,
                            *y = &((const struct ms_logview_file *)b)->log;
    int order = strcmp(x->cluster, y->cluster);

    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

int ms_logview_scan(struct ms_logview *v)
{
    for (size_t i = 0; i < v->dir_count; i++) {
        int rc = ms_tree_each(v->dirs[i], add_file, v);

        if (rc < 0)
            return rc;
    }
    if (v->count)
        qsort(v->files, v->count, sizeof *v->files, by_rank);
    return (int)v->count;
}

/* ---- what is in them ------------------------------------------------------------- */

static bool matches(const regex_t *grep, const struct ms_logline *line)
{
    regmatch_t range = {.rm_so = 0, .rm_eo = (regoff_t)line->len};

    return !grep || regexec(grep, line->text, 1, &range, REG_STARTEND) == 0;
}

/* "JOB.", as its nodes and clusters begin. */
static bool is_of_job(const char *name, const char *job)
{
    size_t len = strlen(job);

    return strncmp(name, job, len) == 0 && name[len] == '.';
}

/* Whose it is, if that is known; false: it is not wanted. */
static bool
look(const struct ms_logview *v, const struct ms_logtext *t, struct ms_logline *line)
{
    if (line->time_ns < v->since_ns)
        return false;
    if (v->merged) { /* nodes of one machine share the file */
        if (ms_logline_split(line) && t->node[0] && strcmp(line->node, t->node) != 0)
            return false;
        if (v->job && !is_of_job(t->node, v->job) && !is_of_job(line->cluster, v->job))
            return false;
    } else {
        line->rank = t->rank;
        if (v->json || v->labels)
            memcpy(line->cluster, t->cluster, sizeof line->cluster);
        if (v->json)
            memcpy(line->node, t->node, sizeof line->node);
    }
    return matches(v->grep, line);
}

int ms_logview_print_line(const struct ms_logview *v,
                          const struct ms_logtext *t,
                          const struct ms_logline *raw)
{
    struct ms_logline line = *raw;
    bool is_agent = v->single && !v->merged; /* its lines stay as they are */

    if (!look(v, t, &line))
        return 0;
    if (v->json)
        return ms_logline_print_json(&line);
    if (is_agent && t->node[0])
        printf("%s: ", t->node);
    ms_logline_print(&line, is_agent ? line.has_time : v->timestamps);
    return 0;
}

int ms_logview_rest(const struct ms_logview *v, struct ms_logtext *t)
{
    struct ms_logline line;

    return ms_logtext_rest(t, &line) ? ms_logview_print_line(v, t, &line) : 0;
}

int ms_logview_add(const struct ms_logview *v,
                   struct ms_logtext *t,
                   const char *data,
                   size_t len)
{
    int rc = ms_logtext_add(t, data, len);
    struct ms_logline line;

    while (rc == 0 && ms_logtext_next(t, &line))
        rc = ms_logview_print_line(v, t, &line);
    return rc;
}

/* ---- the last lines that match --------------------------------------------------- */

long ms_logview_lines_back(const struct ms_logview *v)
{
    return v->grep && v->lines_max > 0 ? -1 : v->lines_max;
}

struct kept {
    struct ms_buf bytes;
    size_t from; /* the lines before are too many */
    long count;
};

/* With its time; the oldest goes when there are too many. */
static int keep(struct kept *k, const struct ms_logline *line, long lines_max)
{
    struct ms_timestamp time = {0};
    int rc = 0;

    if (line->time_ns) {
        ms_timestamp_set(&time, line->time_ns);
        rc = ms_buf_append(&k->bytes, time.text, MS_TIMESTAMP_LEN + 1);
    }
    if (rc == 0)
        rc = ms_buf_append(&k->bytes, line->text, line->len);
    if (rc == 0)
        rc = ms_buf_append(&k->bytes, "\n", 1);
    if (rc == 0 && ++k->count > lines_max) {
        const uint8_t *at = k->bytes.data + k->from;

        at = memchr(at, '\n', k->bytes.len - k->from);
        k->from = (size_t)(at - k->bytes.data) + 1;
        k->count--;
    }
    if (k->from > KEPT_SLACK && k->from > k->bytes.len / 2) {
        ms_buf_consume(&k->bytes, k->from);
        k->from = 0;
    }
    return rc;
}

int ms_logview_keep_last(const struct ms_logview *v,
                         const struct ms_logmerge_ops *ops,
                         void *arg,
                         size_t i)
{
    struct ms_logtext *t = ops->log(arg, i);
    struct ms_logline line;
    struct kept k = {0};
    int rc;

    do {
        rc = ops->more(arg, i);
        while (rc >= 0 && ms_logtext_next(t, &line)) {
            struct ms_logline shown = line;

            if (look(v, t, &shown) && keep(&k, &line, v->lines_max) < 0)
                rc = -ENOMEM;
        }
    } while (rc > 0);
    if (rc == 0)
        rc = ms_buf_append(&k.bytes, t->bytes.data + t->at, t->bytes.len - t->at);
    if (rc == 0 && !ms_buf_str(&k.bytes))
        rc = -ENOMEM;
    ms_buf_finish(&t->bytes);
    t->bytes = k.bytes;
    t->at = k.from;
    return rc;
}

/* ---- files ----------------------------------------------------------------------- */

static struct ms_logtext *log_of(void *arg, size_t i)
{
    return &((struct ms_logview *)arg)->files[i].log;
}

static int more(void *arg, size_t i)
{
    struct ms_logview_file *f = &((struct ms_logview *)arg)->files[i];
    char block[BLOCK];
    int n = ms_tailfile_read(&f->tail, block, sizeof block);
    int rc = n > 0 ? ms_logtext_add(&f->log, block, (size_t)n) : 0;

    return rc < 0 ? rc : n;
}

static int on_line(void *arg, size_t i, const struct ms_logline *line)
{
    const struct ms_logview *v = arg;
    int rc = ms_logview_print_line(v, &v->files[i].log, line);

    return rc == 0 && ferror(stdout) ? -EIO : rc;
}

static const struct ms_logmerge_ops merge_ops = {log_of, more, on_line};

/* Files that are new. */
static int start(struct ms_logview *v)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < v->count; i++) {
        struct ms_tailfile *t = &v->files[i].tail;

        if (t->started)
            continue;
        rc = ms_tailfile_start(t, ms_logview_lines_back(v), v->since_ns);
        v->files[i].log.time_ns = t->first_ns;
        if (rc == 0 && v->grep && v->lines_max > 0)
            rc = ms_logview_keep_last(v, &merge_ops, v, i);
    }
    return rc;
}

int ms_logview_print(struct ms_logview *v)
{
    int rc = start(v);

    return rc < 0 ? rc : ms_logmerge(&merge_ops, v, v->count);
}

int ms_logview_end(struct ms_logview *v)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < v->count; i++)
        rc = ms_logview_rest(v, &v->files[i].log);
    return rc;
}
