/* token.c - finds the token of a Ray cluster, as Ray does */
#include "orchestrator/ray/job/token.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int take(const char *from, const char *text, char **out, struct ms_error *err)
{
    size_t len;

    while (isspace((unsigned char)*text))
        text++;
    len = strlen(text);
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        len--;
    if (len == 0)
        return ms_error_set(err, -EINVAL, "%s holds no token", from);
    for (size_t i = 0; i < len; i++)
        if (!isgraph((unsigned char)text[i]))
            return ms_error_set(err, -EINVAL, "what %s holds is no token", from);
    *out = strndup(text, len);
    return *out ? 0 : ms_error_set(err, -ENOMEM, "out of memory");
}

static int read_file(const char *path, char **out, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[MS_RAY_TOKEN_MAX + 1];
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text);

    if (len < 0)
        return ms_error_sys(err, -errno, "cannot read the token in %s", path);
    if (len > MS_RAY_TOKEN_MAX)
        return ms_error_set(err, -EINVAL, "what %s holds is no token", path);
    text[len] = 0;
    return take(path, text, out, err);
}

int ms_ray_find_token(char **out, struct ms_error *err)
{
    const char *token = getenv("RAY_AUTH_TOKEN"), *path = getenv("RAY_AUTH_TOKEN_PATH"),
               *home = getenv("HOME");
    char usual[PATH_MAX];
    int rc;

    if (token && *token)
        return take("RAY_AUTH_TOKEN", token, out, err);
    if (path && *path)
        return read_file(path, out, err);
    snprintf(usual, sizeof usual, "%s/.ray/auth_token", home ? home : "");
    rc = home ? read_file(usual, out, err) : -ENOENT;
    if (rc == -ENOENT)
        return ms_error_set(
            err,
            rc,
            "it wants a token, and there is none: set RAY_AUTH_TOKEN or "
            "RAY_AUTH_TOKEN_PATH");
    return rc;
}
