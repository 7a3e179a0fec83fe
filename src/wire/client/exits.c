/* exits.c - how the last workers ended, and who waits to hear of an end */
#include "wire/client/exits.h"

#include "base/proto.h"

#include <errno.h>
#include <string.h>

enum { ASKS_MAX = 1 << 16 };

struct ask {
    struct ms_list link;
    uint64_t asker, about;
};

void ms_exits_init(struct ms_exits *e)
{
    memset(e, 0, sizeof *e);
    ms_list_init(&e->asks);
}

static void drop(struct ms_exits *e, struct ask *a)
{
    ms_list_remove(&a->link);
    free(a);
    e->ask_count--;
}

void ms_exits_finish(struct ms_exits *e)
{
    for (unsigned i = 0; i < MS_EXITS_KEPT; i++)
        muster__worker_exited__free_unpacked(e->kept[i], NULL);
    ms_list_each (a, &e->asks, struct ask, link)
        drop(e, a);
}

static void drop_lines(Muster__WorkerExited *x)
{
    if (!x || !x->exit)
        return;
    for (size_t i = 0; i < x->exit->n_last_lines; i++)
        free(x->exit->last_lines[i]);
    free(x->exit->last_lines);
    x->exit->last_lines = NULL;
    x->exit->n_last_lines = 0;
}

int ms_exits_add(struct ms_exits *e, const Muster__WorkerExited *exited)
{
    Muster__WorkerExited *x = (Muster__WorkerExited *)ms_proto_copy(&exited->base);

    if (!x)
        return -ENOMEM;
    muster__worker_exited__free_unpacked(e->kept[e->next], NULL);
    e->kept[e->next] = x;
    drop_lines(
        e->kept[(e->next + MS_EXITS_KEPT - MS_EXITS_LINES_KEPT) % MS_EXITS_KEPT]);
    e->next = (e->next + 1) % MS_EXITS_KEPT;
    return 0;
}

const Muster__WorkerExited *ms_exits_find(const struct ms_exits *e, uint64_t uid)
{
    for (unsigned i = 0; i < MS_EXITS_KEPT; i++)
        if (e->kept[i] && e->kept[i]->uid == uid)
            return e->kept[i];
    return NULL;
}

int ms_exits_ask(struct ms_exits *e, uint64_t asker, uint64_t about)
{
    struct ask *a;

    ms_list_each (other, &e->asks, struct ask, link)
        if (other->asker == asker && other->about == about)
            return 0;
    if (e->ask_count >= ASKS_MAX)
        return -ENOSPC;
    a = malloc(sizeof *a);
    if (!a)
        return -ENOMEM;
    a->asker = asker;
    a->about = about;
    ms_list_add_tail(&e->asks, &a->link);
    e->ask_count++;
    return 0;
}

uint64_t ms_exits_take_asker(struct ms_exits *e, uint64_t about)
{
    ms_list_each (a, &e->asks, struct ask, link) {
        uint64_t asker = a->asker;

        if (a->about != about)
            continue;
        drop(e, a);
        return asker;
    }
    return 0;
}

void ms_exits_forget_asker(struct ms_exits *e, uint64_t asker)
{
    ms_list_each (a, &e->asks, struct ask, link)
        if (a->asker == asker)
            drop(e, a);
}
