/* failure.c - failures of workers and of the head as errors */
#include "capi/capi.h"
#include "wire/client/exit_text.h"

#include <errno.h>
#include <string.h>

static void put(char *out, size_t room, const char *text)
{
    snprintf(out, room, "%s", text ? text : "");
}

static int code_of(Muster__Failure__Kind kind)
{
    static const int codes[] = {
        [MUSTER__FAILURE__KIND__UNKNOWN] = -EIO,
        [MUSTER__FAILURE__KIND__RAISED] = -EREMOTEIO,
        [MUSTER__FAILURE__KIND__NO_ENGINE] = -ENOENT,
        [MUSTER__FAILURE__KIND__NO_METHOD] = -ENOSYS,
        [MUSTER__FAILURE__KIND__DEADLINE] = -ETIMEDOUT,
        [MUSTER__FAILURE__KIND__CANCELLED] = -ECANCELED,
        [MUSTER__FAILURE__KIND__BAD_ARGUMENT] = -EINVAL,
        [MUSTER__FAILURE__KIND__BAD_RESULT] = -EBADMSG,
        [MUSTER__FAILURE__KIND__REFUSED] = -EPERM,
        [MUSTER__FAILURE__KIND__DEADLOCK] = -EDEADLK,
        [MUSTER__FAILURE__KIND__SHUTTING_DOWN] = -ESHUTDOWN,
        [MUSTER__FAILURE__KIND__LOST] = -ESTALE,
        [MUSTER__FAILURE__KIND__WORKER_DIED] = -EPIPE,
        [MUSTER__FAILURE__KIND__UNREACHABLE] = -EHOSTUNREACH,
        [MUSTER__FAILURE__KIND__NO_MEMORY] = -ENOMEM,
        [MUSTER__FAILURE__KIND__PLACEMENT] = -ENOSPC,
    };

    return (unsigned)kind < sizeof codes / sizeof *codes ? codes[kind] : -EIO;
}

/* As many of the last lines as fit. */
static void put_lines(char *out, size_t room, const Muster__Exit *e)
{
    size_t from = e->n_last_lines, size = 1, at = 0;

    while (from > 0 && size + strlen(e->last_lines[from - 1]) + 1 <= room)
        size += strlen(e->last_lines[--from]) + 1;
    out[0] = '\0';
    for (size_t i = from; i < e->n_last_lines; i++)
        at += (size_t)snprintf(
            out + at, room - at, "%s%s", i > from ? "\n" : "", e->last_lines[i]);
}

static void put_exit(struct muster_exit *out, const Muster__Exit *e)
{
    out->pid = e->pid;
    out->signal = e->signaled ? e->code : 0;
    out->exit_code = e->signaled ? 0 : e->code;
    out->out_of_memory = e->out_of_memory;
    out->requested = e->requested;
    put(out->node, sizeof out->node, e->node);
    put(out->log_path, sizeof out->log_path, e->log_path);
    put_lines(out->last_lines, sizeof out->last_lines, e);
}

static void describe_death(struct muster_error *err, const Muster__Failure *f)
{
    const char *lines = err->exit.last_lines;
    char how[MS_EXIT_TEXT_MAX];

    snprintf(err->message,
             sizeof err->message,
             "%s (pid %d) %s%s%s%s%s",
             err->where,
             err->exit.pid,
             ms_exit_describe(f->exit, how),
             *f->message ? ": " : "",
             f->message,
             *lines ? "; its last lines:\n" : "",
             lines);
}

static int fill(const Muster__Failure *f, const char *where, struct muster_error *err)
{
    int code = code_of(f->kind);

    if (!err)
        return code;
    memset(err, 0, sizeof *err);
    err->kind = (enum muster_error_kind)f->kind;
    err->code = code;
    put(err->type, sizeof err->type, f->type);
    put(err->where, sizeof err->where, *f->where ? f->where : where);
    if (f->exit)
        put_exit(&err->exit, f->exit);
    if (f->kind == MUSTER__FAILURE__KIND__WORKER_DIED && f->exit)
        describe_death(err, f);
    else
        snprintf(err->message,
                 sizeof err->message,
                 "%s: %s%s%s",
                 err->where,
                 f->type,
                 *f->type ? ": " : "",
                 *f->message ? f->message : muster_error_kind_name(err->kind));
    return code;
}

int ms_capi_failure(const uint8_t *body,
                    size_t len,
                    const char *where,
                    struct muster_error *err)
{
    Muster__Failure *f = muster__failure__unpack(NULL, len, body);
    int code;

    if (!f)
        return muster_error_set(
            err, -EBADMSG, NULL, "%s: its failure cannot be read", where);
    code = fill(f, where, err);
    muster__failure__free_unpacked(f, NULL);
    return code;
}

int ms_capi_error(const struct ms_error *from, struct muster_error *err)
{
    return muster_error_set(err, from->code, NULL, "%s", from->text);
}

int ms_capi_missing(const char *what, struct muster_error *err)
{
    muster_error_set(err, -EINVAL, NULL, "%s is needed, and was NULL", what);
    if (err)
        err->kind = MUSTER_ERROR_BAD_ARGUMENT;
    return -EINVAL;
}

int ms_capi_no_memory(struct muster_error *err)
{
    return muster_error_set(err, -ENOMEM, NULL, "out of memory");
}

int ms_capi_op_failure(const struct ms_head_op *op,
                       const struct ms_error *why,
                       struct muster_error *err)
{
    const Muster__Failure *failure = ms_head_op_failure(op);
    const char *table = ms_head_op_table(op);

    if (failure && failure->n_workers)
        return fill(failure->workers[0], "", err); /* that of the first of them */
    if (!table && why->code != -ENOSPC)
        return ms_capi_error(why, err);
    muster_error_set(err,
                     why->code,
                     NULL,
                     "%s%s%s",
                     why->text,
                     table ? "\n" : "",
                     table ? table : "");
    if (err)
        err->kind = MUSTER_ERROR_PLACEMENT;
    return why->code;
}
