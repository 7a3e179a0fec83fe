/* spares.c - which spares a zygote has, and what each does */
#include "agent/zygotes/spares.h"

#include <stddef.h>
#include <sys/mman.h>

/* What is in `doing`: a request's number, or one of these. */
enum { WAITS = 0 };
#define REPORTED UINT64_MAX /* it is a worker or a zygote now: no spare any more */

enum { DOING_SIZE = MS_SPARES_MAX * sizeof(uint64_t) };

static uint64_t get(const struct ms_spares *s, unsigned slot)
{
    return __atomic_load_n(&s->doing[slot], __ATOMIC_ACQUIRE);
}

static void set(struct ms_spares *s, uint64_t doing)
{
    __atomic_store_n(&s->doing[s->slot], doing, __ATOMIC_RELEASE);
}

void ms_spares_init(struct ms_spares *s)
{
    void *shared = mmap(
        NULL, DOING_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    *s = (struct ms_spares){.doing = shared == MAP_FAILED ? NULL : shared};
}

void ms_spares_finish(struct ms_spares *s)
{
    if (s->doing)
        munmap(s->doing, DOING_SIZE);
    *s = (struct ms_spares){0};
}

void ms_spares_want(struct ms_spares *s)
{
    if (s->doing && s->wanted < MS_SPARES_MAX)
        s->wanted++;
}

bool ms_spares_begin(struct ms_spares *s)
{
    for (unsigned i = 0; s->wanted && i < MS_SPARES_MAX; i++) {
        if (s->pids[i] && get(s, i) != REPORTED)
            continue;
        s->slot = i;
        s->pids[i] = 0;
        set(s, WAITS);
        s->wanted--;
        return true;
    }
    s->wanted = 0;
    return false;
}

void ms_spares_forked(struct ms_spares *s, pid_t pid)
{
    s->pids[s->slot] = pid > 0 ? pid : 0;
    if (pid <= 0)
        s->wanted = 0;
}

void ms_spares_take(struct ms_spares *s, uint64_t uid)
{
    set(s, uid);
}

void ms_spares_reported(struct ms_spares *s)
{
    set(s, REPORTED);
}

bool ms_spares_reaped(struct ms_spares *s, pid_t pid, uint64_t *lost)
{
    for (unsigned i = 0; s->doing && i < MS_SPARES_MAX; i++) {
        uint64_t doing = get(s, i);

        if (s->pids[i] != pid)
            continue;
        s->pids[i] = 0;
        *lost = doing == REPORTED ? WAITS : doing;
        return doing != REPORTED;
    }
    return false;
}
