/* worker.c - a worker whose one method does nothing */
#include <muster/worker.h>

static int nothing(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)self;
    (void)call;
    (void)err;
    return 0;
}

MUSTER_EXPORT const struct muster_worker_class worker = {
    MUSTER_WORKER_CLASS,
    .name = "Worker",
    .methods = (const struct muster_method[]){{"nothing", nothing}, {0}},
};
