/* log_limits.c - measures logs of what has ended, and says which of them stay */
#include "io/session/log_limits.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/size.h"
#include "base/timestamp.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum { COUNT_DIGITS = 9 };

/* Among the logs: their measure. Many files take long to look at, and a session begins with
 * this. */
#define MEASURED ".measured"

/* ---- limits ---------------------------------------------------------------------- */

static int read_count(const char *text, void *out)
{
    uint64_t *count = out;

    if (strspn(text, "0123456789") != strlen(text) || strlen(text) > COUNT_DIGITS)
        return -EINVAL;
    *count = strtoull(text, NULL, 10);
    return 0;
}

static int read_size(const char *text, void *out)
{
    return ms_size_parse(text, out);
}

static int read_age(const char *text, void *out)
{
    return ms_duration_parse(text, out);
}

void ms_log_limits_init(struct ms_log_limits *k)
{
    const struct {
        const char *name;
        int (*read)(const char *text, void *out);
        void *out;
    } variables[] = {{"MUSTER_LOGS_KEPT", read_count, &k->count_max},
                     {"MUSTER_LOGS_KEPT_SIZE", read_size, &k->size_max},
                     {"MUSTER_LOGS_KEPT_AGE", read_age, &k->age_max_ns}};

    *k = (struct ms_log_limits){.count_max = MS_SESSIONS_KEPT,
                                .size_max = MS_SESSIONS_KEPT_SIZE,
                                .age_max_ns = MS_SESSIONS_KEPT_AGE_NS,
                                .remembers = true};
    for (size_t i = 0; i < MS_COUNT(variables); i++) {
        const char *text = getenv(variables[i].name);

        if (text && *text && variables[i].read(text, variables[i].out) < 0)
            k->not_known = variables[i].name;
    }
}

bool ms_log_limits_take(struct ms_log_limits *k, uint64_t size, int64_t age_ns)
{
    if (k->count >= k->count_max || age_ns > k->age_max_ns ||
        (k->count &&
         size > k->size_max - (k->size < k->size_max ? k->size : k->size_max)))
        return false;
    k->count++;
    k->size += size;
    return true;
}

/* ---- files ----------------------------------------------------------------------- */

struct log_file {
    char name[NAME_MAX + 1];
    uint64_t size;
    int64_t changed_ns;
};

struct log_files {
    struct log_file *at;
    size_t count, room;
};

static int add_file(void *arg, int dir, const char *name)
{
    struct log_files *l = arg;
    struct log_file *f;
    struct stat st;

    if (strcmp(name, MEASURED) == 0 ||
        fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return 0;
    if (ms_array_reserve(&l->at, &l->room, l->count + 1, sizeof *l->at) < 0)
        return -ENOMEM;
    f = &l->at[l->count++];
    snprintf(f->name, sizeof f->name, "%s", name);
    f->size = (uint64_t)st.st_size;
    f->changed_ns = st.st_mtim.tv_sec * MS_NS_PER_S + st.st_mtim.tv_nsec;
    return 0;
}

/* How much there is, and when it last changed; of no files 0. */
struct measure {
    uint64_t size;
    int64_t changed_ns;
};

static bool read_measure(int logs, struct measure *m)
{
    char text[64];

    return ms_tree_read(logs, MEASURED, text, sizeof text) > 0 &&
           sscanf(text, "%" SCNu64 " %" SCNd64, &m->size, &m->changed_ns) == 2;
}

static void write_measure(int logs, const struct measure *m)
{
    char text[64];
    int len =
        snprintf(text, sizeof text, "%" PRIu64 " %" PRId64, m->size, m->changed_ns);

    ms_tree_write(logs, MEASURED, text, (size_t)len);
}

static int measure_logs(int logs, struct measure *m)
{
    struct log_files files = {0};
    int rc = ms_tree_each(logs, add_file, &files);

    *m = (struct measure){0};
    for (size_t i = 0; i < files.count; i++) {
        m->size += files.at[i].size;
        if (files.at[i].changed_ns > m->changed_ns)
            m->changed_ns = files.at[i].changed_ns;
    }
    free(files.at);
    return rc;
}

bool ms_log_limits_take_dir(struct ms_log_limits *k, int dir)
{
    MS_CLEANUP(ms_cleanup_fd) int logs = ms_tree_open(dir, "logs");
    struct measure m;

    if (logs == -ENOENT)
        return false;
    if (logs < 0)
        return true; /* could not look is not nothing there */
    if (!k->remembers || !read_measure(logs, &m)) {
        if (measure_logs(logs, &m) < 0)
            return true;
        if (k->remembers && m.changed_ns)
            write_measure(logs, &m);
    }
    return m.changed_ns && ms_log_limits_take(k, m.size, ms_wall_ns() - m.changed_ns);
}

static int newer_first(const void *a, const void *b)
{
    int64_t x = ((const struct log_file *)a)->changed_ns,
            y = ((const struct log_file *)b)->changed_ns;

    return (x < y) - (x > y);
}

void ms_log_limits_sweep(int dir)
{
    MS_CLEANUP(ms_cleanup_fd) int logs = ms_tree_open(dir, "logs");
    struct log_files files = {0};
    struct ms_log_limits k;

    ms_log_limits_init(&k);
    k.count_max = UINT64_MAX;
    if (logs < 0)
        return;
    unlinkat(logs, MEASURED, 0);
    if (ms_tree_each(logs, add_file, &files) == 0 && files.count)
        qsort(files.at, files.count, sizeof *files.at, newer_first);
    for (size_t i = 0; i < files.count; i++)
        if (!ms_log_limits_take(
                &k, files.at[i].size, ms_wall_ns() - files.at[i].changed_ns))
            unlinkat(logs, files.at[i].name, 0);
    free(files.at);
}
