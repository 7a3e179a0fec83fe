/* Which head a driver means: its own, or one that runs already. */
#include "base/cleanup.h"
#include "capi/capi.h"
#include "io/secret.h"
#include "wire/tls.h"

#include <errno.h>
#include <string.h>

/* The folder of the one head of this machine and user that others join. */
static int daemon_folder(char out[MS_SESSION_DIR_MAX], struct ms_error *err)
{
    struct ms_session *all = NULL;
    int count = ms_session_list(&all, err), found = 0;

    for (int i = 0; i < count; i++)
        if (all[i].is_daemon && all[i].alive && found++ == 0)
            memcpy(out, all[i].dir, sizeof all[i].dir);
    if (count > 0)
        explicit_bzero(all, (size_t)count * sizeof *all); /* secrets */
    free(all);
    if (count < 0)
        return count;
    if (found == 1)
        return 0;
    return ms_error_set(err,
                        found ? -ENOTUNIQ : -ENOENT,
                        "%s: give its address, and its secret's file in secret_file or "
                        "MUSTER_SECRET_FILE",
                        found ? "several heads run here"
                              : "no head runs here (`muster head` starts one)");
}

struct ms_head *ms_capi_join(const struct ms_head_options *ho,
                             const struct muster_session_options *o,
                             const char *address,
                             struct ms_error *err)
{
    const char *file = o->secret_file ? o->secret_file : getenv(MS_SECRET_FILE_ENV);
    char folder[MS_SESSION_DIR_MAX] = "";
    MS_CLEANUP(ms_cleanup_free) char *own_file = NULL;
    MS_CLEANUP(ms_cleanup_free) char *socket = NULL;
    uint8_t secret[MS_SECRET_FILE_SIZE];
    struct ms_head_address a = {.secret = secret};
    bool is_auto = strcmp(address, "auto") == 0;
    struct ms_head *head = NULL;

    if ((is_auto || !file) && daemon_folder(folder, err) < 0)
        return NULL;
    if (asprintf(&own_file, "%s/secret", folder) < 0 ||
        asprintf(&socket, "%s/head.sock", folder) < 0) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    a.addresses = is_auto ? socket : address;
    if (ms_tls_mode_parse(o->tls ? o->tls : "auto", &a.tls, err) == 0 &&
        ms_secret_read(file ? file : own_file, secret, err) == 0)
        head = ms_head_join(ho, &a, err);
    explicit_bzero(secret, sizeof secret);
    return head;
}
