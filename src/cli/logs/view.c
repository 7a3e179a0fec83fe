/* view.c - the log files of a session, and how their lines are printed */
#include "cli/logs/view.h"
#include "base/cleanup.h"
#include "cli/logs/line.h"
#include "cli/logs/tail.h"
#include "cli/out.h"
#include "io/tree.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* The longest line that is kept until its end comes; the agent cuts them sooner. */
enum { PART_MAX = 1 << 20, DRIVER_LEN = 17 };

struct ms_logview_file {
    struct ms_tailfile tail;
    struct ms_log log;
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

int ms_logview_open(struct ms_logview *v, const char *path)
{
    v->files = NULL;
    v->count = 0;
    v->merged = v->single && strcmp(v->single, MS_LOGVIEW_MERGED) == 0;
    v->by_line = v->json || v->labels || (v->merged && ms_out_is_colour(stdout));
    v->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return v->dir < 0 ? -errno : 0;
}

static void file_finish(struct ms_logview_file *f)
{
    ms_tailfile_close(&f->tail);
    ms_buf_finish(&f->log.part);
}

void ms_logview_close(struct ms_logview *v)
{
    for (size_t i = 0; i < v->count; i++)
        file_finish(&v->files[i]);
    free(v->files);
    ms_fd_close(&v->dir);
    v->files = NULL;
    v->count = 0;
}

/* ---- which files ----------------------------------------------------------------- */

static bool has_file(const struct ms_logview *v, const char *name)
{
    for (size_t i = 0; i < v->count; i++)
        if (strcmp(v->files[i].tail.name, name) == 0)
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
    if (has_file(v, name))
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
    const struct ms_log *x = &((const struct ms_logview_file *)a)->log,
                        *y = &((const struct ms_logview_file *)b)->log;
    int order = strcmp(x->cluster, y->cluster);

    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

int ms_logview_scan(struct ms_logview *v)
{
    int rc = ms_tree_each(v->dir, add_file, v);

    if (rc < 0)
        return rc;
    if (v->count)
        qsort(v->files, v->count, sizeof *v->files, by_rank);
    return (int)v->count;
}

/* ---- what is in them ------------------------------------------------------------- */

static int print_line(const struct ms_logview *v,
                      const struct ms_log *l,
                      const char *text,
                      size_t len)
{
    struct ms_logline line = {.rank = l->rank, .text = text, .len = len};

    if (v->merged) { /* nodes of one machine share the file */
        if (ms_logline_split(&line) && l->node[0] && strcmp(line.node, l->node) != 0)
            return 0;
    } else {
        if (v->json || v->labels)
            memcpy(line.cluster, l->cluster, sizeof line.cluster);
        if (v->json)
            memcpy(line.node, l->node, sizeof line.node);
    }
    if (v->json)
        return ms_logline_print_json(&line);
    if (v->single && !v->merged && l->node[0])
        printf("%s: ", l->node);
    ms_logline_print(&line);
    return 0;
}

int ms_log_print_rest(const struct ms_logview *v, struct ms_log *l)
{
    size_t len = l->part.len;

    l->part.len = 0;
    return len ? print_line(v, l, (char *)l->part.data, len) : 0;
}

int ms_log_print(const struct ms_logview *v,
                 struct ms_log *l,
                 const char *data,
                 size_t len)
{
    int rc = 0;

    while (rc == 0 && len) {
        const char *newline = memchr(data, '\n', len);
        size_t piece = newline ? (size_t)(newline - data) : len;

        if (newline && !l->part.len) {
            rc = print_line(v, l, data, piece);
        } else {
            rc = ms_buf_append(&l->part, data, piece);
            if (rc == 0 && (newline || l->part.len > PART_MAX))
                rc = ms_log_print_rest(v, l);
        }
        piece += newline != NULL;
        data += piece;
        len -= piece;
    }
    return rc;
}

struct sink {
    const struct ms_logview *view;
    struct ms_log *log;
};

static int on_data(void *arg, const char *data, size_t len)
{
    const struct sink *s = arg;

    if (s->view->by_line)
        return ms_log_print(s->view, s->log, data, len);
    return fwrite(data, 1, len, stdout) == len ? 0 : -EIO;
}

int ms_logview_print(struct ms_logview *v)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < v->count; i++) {
        struct sink s = {v, &v->files[i].log};

        rc = ms_tailfile_read(&v->files[i].tail, v->lines_max, on_data, &s);
    }
    return rc;
}

int ms_logview_end(struct ms_logview *v)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < v->count; i++)
        rc = ms_log_print_rest(v, &v->files[i].log);
    return rc;
}
