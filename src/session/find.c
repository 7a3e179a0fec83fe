/* find.c - which head a driver means, and where that head's secret is */
#include "session/find.h"

#include "io/session/secret.h"
#include "io/session/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The one of this machine and user that others join, or why there is none. */
struct daemons {
    char dir[MS_SESSION_DIR_MAX]; /* of the first */
    char names[128];              /* of all, as far as they fit */
    int count;
};

static int daemons_list(struct daemons *d, struct ms_error *err)
{
    struct ms_session *all = NULL;
    int count = ms_session_list(&all, err);
    size_t len = 0;

    for (int i = 0; i < count; i++) {
        if (!all[i].is_daemon || !all[i].alive)
            continue;
        if (d->count++ == 0)
            memcpy(d->dir, all[i].dir, sizeof d->dir);
        if (len < sizeof d->names)
            len += (size_t)snprintf(d->names + len,
                                    sizeof d->names - len,
                                    "%s%s",
                                    len ? ", " : "",
                                    all[i].name);
    }
    if (count > 0)
        explicit_bzero(all, (size_t)count * sizeof *all); /* secrets */
    free(all);
    return count < 0 ? count : 0;
}

static int no_single(const struct daemons *d, const char *address, struct ms_error *err)
{
    bool is_auto = strcmp(address, "auto") == 0;
    char what[192] = "no head runs here (`muster head` starts one)";

    if (d->count)
        snprintf(what,
                 sizeof what,
                 "several heads run here (%s): which one is meant",
                 d->names);
    return ms_error_set(err,
                        d->count ? -ENOTUNIQ : -ENOENT,
                        "address '%s': %s%s; %s",
                        address,
                        is_auto ? "" : "where is its secret? ",
                        what,
                        is_auto ? "give its address"
                                : "give secret_file, or set MUSTER_SECRET_FILE");
}

static int no_memory(struct ms_error *err)
{
    return ms_error_set(err, -ENOMEM, "out of memory");
}

static char *path_in(const char *dir, const char *name)
{
    char *path;

    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

int ms_find_head(const char *address,
                 const char *secret_file,
                 struct ms_found_head *out,
                 struct ms_error *err)
{
    struct ms_found_head f = {0};
    struct daemons d = {0};
    bool is_auto;
    int rc;

    if (!address || !*address)
        address = getenv("MUSTER_ADDRESS");
    if (!secret_file || !*secret_file)
        secret_file = getenv(MS_SECRET_FILE_ENV);
    *out = f;
    if (!address || !*address || strcmp(address, "local") == 0)
        return 0;
    is_auto = strcmp(address, "auto") == 0;
    if (is_auto || !secret_file || !*secret_file) {
        rc = daemons_list(&d, err);
        if (rc < 0)
            return rc;
        if (d.count != 1)
            return no_single(&d, address, err);
    }
    f.address = is_auto ? path_in(d.dir, "head.sock") : strdup(address);
    f.secret_file =
        secret_file && *secret_file ? strdup(secret_file) : path_in(d.dir, "secret");
    if (!f.address || !f.secret_file) {
        ms_found_head_finish(&f);
        return no_memory(err);
    }
    *out = f;
    return 0;
}

void ms_found_head_finish(struct ms_found_head *f)
{
    free(f->address);
    free(f->secret_file);
    *f = (struct ms_found_head){0};
}
