#include "wire/client/verdicts.h"

void ms_verdicts_init(struct ms_verdicts *v,
                      void (*ask)(void *arg, uint64_t uid),
                      void (*seek)(void *arg, uint64_t uid),
                      void *arg)
{
    v->client = NULL;
    v->ask = ask;
    v->seek = seek;
    v->arg = arg;
    ms_exits_init(&v->known);
}

void ms_verdicts_finish(struct ms_verdicts *v)
{
    ms_exits_finish(&v->known);
}

void ms_verdicts_add(struct ms_verdicts *v, uint64_t uid, const Muster__Exit *exit)
{
    Muster__WorkerExited exited = MUSTER__WORKER_EXITED__INIT;

    if (ms_exits_find(&v->known, uid))
        return; /* and so it was told */
    exited.uid = uid;
    exited.exit = (Muster__Exit *)(uintptr_t)exit;
    (void)ms_exits_add(&v->known, &exited); /* without memory it is asked for again */
    if (v->client)
        ms_client_verdict(v->client, uid, exit);
}

void ms_verdicts_replace(struct ms_verdicts *v,
                         uint64_t uid,
                         const Muster__WorkerStatus *worker)
{
    if (v->client)
        ms_client_successor(
            v->client, uid, worker ? worker->uid : 0, worker ? worker->address : "");
}

void ms_verdicts_ask(struct ms_verdicts *v, uint64_t uid)
{
    const Muster__WorkerExited *exited = ms_exits_find(&v->known, uid);

    if (exited && exited->exit)
        ms_client_verdict(v->client, uid, exited->exit);
    else
        v->ask(v->arg, uid);
}

void ms_verdicts_seek(struct ms_verdicts *v, uint64_t uid)
{
    v->seek(v->arg, uid);
}
