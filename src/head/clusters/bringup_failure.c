/* bringup_failure.c - why workers were not made, as Failure messages */
#include "head/clusters/bringup_failure.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/ops/op.h"

#include <errno.h>
#include <string.h>

static Muster__Failure *create(Muster__Failure__Kind kind, const char *message)
{
    Muster__Failure f = MUSTER__FAILURE__INIT;

    f.kind = kind;
    f.message = ms_field_text(message);
    return (Muster__Failure *)ms_proto_copy(&f.base);
}

Muster__Failure *ms_bringup_died(const Muster__Exit *exit)
{
    const Muster__Exit none = MUSTER__EXIT__INIT;
    Muster__Failure *f = create(MUSTER__FAILURE__KIND__WORKER_DIED, "");

    if (f)
        f->exit = (Muster__Exit *)ms_proto_copy(exit ? &exit->base : &none.base);
    return f;
}

Muster__Failure *ms_bringup_refused(const struct ms_error *why)
{
    return create(MUSTER__FAILURE__KIND__REFUSED, why->text);
}

Muster__Failure *ms_bringup_late(int64_t timeout_ns)
{
    struct ms_error text = {0};

    ms_error_set(&text,
                 -ETIMEDOUT,
                 "it was not made within %.3g s (start_timeout); its constructor may "
                 "still be running",
                 (double)timeout_ns / (double)MS_NS_PER_S);
    return create(MUSTER__FAILURE__KIND__DEADLINE, text.text);
}

/* One clause of it, for those who read no more. */
static void
set_why(struct ms_head_op *op, const char *where, const Muster__Failure *failure)
{
    const char *type = strrchr(failure->type, '.');
    bool is_dead = failure->kind == MUSTER__FAILURE__KIND__WORKER_DIED;

    ms_error_set(&op->error,
                 failure->kind == MUSTER__FAILURE__KIND__DEADLINE ? -ETIMEDOUT
                                                                  : -EREMOTEIO,
                 "%s: %s%s%.300s",
                 where,
                 type ? type + 1 : failure->type,
                 failure->type[0] ? ": " : "",
                 is_dead ? "it has ended" : failure->message);
}

void ms_bringup_add_failure(struct ms_head_op *op,
                            const struct ms_slot *slot,
                            Muster__Failure *failure)
{
    char where[2 * MS_NAME_MAX + 32];

    snprintf(
        where, sizeof where, "%s/%u@%s", slot->cluster->name, slot->rank, slot->node);
    if (!op->failure)
        op->failure = create(MUSTER__FAILURE__KIND__REFUSED, "");
    if (!failure || !op->failure || !ms_proto_set_text(&failure->where, where)) {
        if (!op->error.code)
            ms_error_set(&op->error, -ENOMEM, "%s: out of memory", where);
        muster__failure__free_unpacked(failure, NULL);
        return;
    }
    if (!op->error.code)
        set_why(op, where, failure);
    ms_proto_append(&op->failure->workers, &op->failure->n_workers, failure);
}
