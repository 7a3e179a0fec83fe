/* cgpath.c - where a process's control groups are, from what /proc says */
#include "io/cgpath.h"
#include "base/buf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART_MAX = 512 };

/* Whether `word` is one of the comma-separated words in [text, text + len). */
static bool has_word(const char *text, size_t len, const char *word)
{
    size_t word_len = strlen(word);

    while (len) {
        const char *comma = memchr(text, ',', len);
        size_t n = comma ? (size_t)(comma - text) : len;

        if (n == word_len && !memcmp(text, word, n))
            return true;
        if (!comma)
            return false;
        len -= n + 1;
        text += n + 1;
    }
    return false;
}

/* "4:memory:/path" of a controller, or "0::/path" for NULL. */
static int
group_path(const char *cgroup, const char *controller, char *out, size_t room)
{
    while (*cgroup) {
        const char *end = strchrnul(cgroup, '\n');
        const char *list = memchr(cgroup, ':', (size_t)(end - cgroup));
        const char *path =
            list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;

        if (path) {
            size_t len = (size_t)(path - list - 1);

            if (controller ? has_word(list + 1, len, controller) : len == 0)
                return ms_text_copy(out, room, path + 1, (size_t)(end - path - 1));
        }
        cgroup = *end ? end + 1 : end;
    }
    return -ENOENT;
}

/* "36 35 98:0 /root /mount/point rw,noatime - cgroup cgroup rw,memory" */
struct mount {
    char root[PART_MAX], point[PART_MAX], type[32], options[PART_MAX];
};

static bool parse_mount(const char *line, struct mount *m)
{
    const char *dash;
    char text[2 * PART_MAX];

    if (ms_text_copy(text, sizeof text, line, strcspn(line, "\n")) < 0 ||
        sscanf(text, "%*s %*s %*s %511s %511s", m->root, m->point) != 2)
        return false;
    dash = strstr(text, " - ");
    return dash && sscanf(dash, " - %31s %*s %511s", m->type, m->options) == 2;
}

static bool find_mount(const char *mountinfo, const char *controller, struct mount *m)
{
    while (*mountinfo) {
        const char *end = strchrnul(mountinfo, '\n');

        if (parse_mount(mountinfo, m)) {
            if (!controller && !strcmp(m->type, "cgroup2"))
                return true;
            if (controller && !strcmp(m->type, "cgroup") &&
                has_word(m->options, strlen(m->options), controller))
                return true;
        }
        mountinfo = *end ? end + 1 : end;
    }
    return false;
}

/* Our group's path as seen below the mount: without the part that the mount hides. */
static const char *below(const char *root, const char *path)
{
    size_t len = strlen(root);

    if (!strcmp(root, "/"))
        return path;
    if (!strncmp(path, root, len) && (!path[len] || path[len] == '/'))
        return path + len;
    return path; /* a namespace: the path is already relative to what we see */
}

static int find_in(const char *cgroup,
                   const char *mountinfo,
                   const char *controller,
                   char *out,
                   size_t room)
{
    char path[PART_MAX];
    struct mount m;
    const char *rest;
    int rc = group_path(cgroup, controller, path, sizeof path), n;

    if (rc < 0)
        return rc;
    if (!find_mount(mountinfo, controller, &m))
        return -ENOENT;
    rest = below(m.root, path);
    n = snprintf(out, room, "%s%s", m.point, strcmp(rest, "/") ? rest : "");
    return n < 0 || (size_t)n >= room ? -ENAMETOOLONG : 0;
}

int ms_cgpath_find(const char *cgroup,
                   const char *mountinfo,
                   const char *controller,
                   char *out,
                   size_t room,
                   bool *is_v2)
{
    int rc = find_in(cgroup, mountinfo, controller, out, room);

    *is_v2 = rc == -ENOENT;
    return rc == -ENOENT ? find_in(cgroup, mountinfo, NULL, out, room) : rc;
}

long long ms_cgpath_number(const char *text, const char *key)
{
    size_t len = strlen(key);

    while (*text) {
        const char *end = strchrnul(text, '\n');

        if (!strncmp(text, key, len) && text[len] == ' ')
            return strtoll(text + len + 1, NULL, 10);
        text = *end ? end + 1 : end;
    }
    return -1;
}
