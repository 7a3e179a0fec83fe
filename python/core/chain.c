/* chain.c - who waits for whom
 *
 * A call that its caller waits for carries the workers that wait already; waiting for one of
 * those can never end.
 */
#include "core/worker/host_object.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t own_uid;
static uint64_t chain[MS_CHAIN_MAX];
static uint32_t chain_count;
static pid_t engine_tid; /* the thread whose waiting blocks the engine; 0: none */

static bool on_engine_thread(void)
{
    return engine_tid && (pid_t)syscall(SYS_gettid) == engine_tid;
}

int core_check_deadlock(struct ms_peer *peer)
{
    uint64_t uid;

    if (!the_host || !on_engine_thread())
        return 0;
    uid = ms_peer_uid(peer);
    for (uint32_t i = 0; i < chain_count; i++) {
        if (chain[i] != uid)
            continue;
        core_raise_kind("deadlock",
                        uid == own_uid
                            ? "a worker waits for a call to itself, which cannot begin "
                              "before the running one ends"
                            : "this call waits for a worker that waits for this one");
        return -1;
    }
    return 0;
}

const uint64_t *core_chain(uint32_t *count)
{
    if (!the_host || !on_engine_thread()) {
        *count = 0;
        return NULL;
    }
    *count = chain_count;
    return chain;
}

void chain_enter(const struct ms_request *r)
{
    chain_count = r->chain_count < MS_CHAIN_MAX - 1 ? r->chain_count : MS_CHAIN_MAX - 1;
    memcpy(chain, r->chain, chain_count * sizeof *chain);
    chain[chain_count++] = own_uid;
}

void chain_leave(void)
{
    chain_count = 0;
}

void chain_start(uint64_t uid)
{
    own_uid = uid;
}

void chain_set_engine_thread(void)
{
    engine_tid = (pid_t)syscall(SYS_gettid);
}

/* While it waits for a call, none of its requests goes on, and no other begins. */
void chain_set_async(void)
{
    chain_set_engine_thread();
    chain[0] = own_uid;
    chain_count = 1;
}

void chain_forget(void)
{
    engine_tid = 0;
}
