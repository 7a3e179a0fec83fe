/* verdicts.h - what a client is told of workers that ended, and of those in their place
 *
 * A client knows only that a connection broke. Who knows why is the head (for a driver) or
 * the agent (for a worker): `ask` puts the question, and the answer comes to
 * ms_verdicts_add, asked for or not, once or more often. An end that is known is told
 * without asking. The last MS_EXITS_KEPT are known; of one that was forgotten `ask` is the
 * judge again, as of one that nobody has reported yet.
 *
 * Everything here is called on the client's loop, so it needs no lock.
 */
#ifndef MS_WIRE_CLIENT_VERDICTS_H
#define MS_WIRE_CLIENT_VERDICTS_H

#include "wire/client/client.h"
#include "wire/client/exits.h"

#include <stdint.h>

struct ms_verdicts {
    struct ms_client *client; /* who is told; NULL: nobody yet, or no longer */
    struct ms_exits known;
    /* How did this worker end? The answer goes to ms_verdicts_add. */
    void (*ask)(void *arg, uint64_t uid);
    /* Who has its place? The answer goes to ms_verdicts_replace. */
    void (*seek)(void *arg, uint64_t uid);
    void *arg;
};

void ms_verdicts_init(struct ms_verdicts *v,
                      void (*ask)(void *arg, uint64_t uid),
                      void (*seek)(void *arg, uint64_t uid),
                      void *arg);
void ms_verdicts_finish(struct ms_verdicts *v);

/* This worker has ended. Only the first report counts. */
void ms_verdicts_add(struct ms_verdicts *v, uint64_t uid, const Muster__Exit *exit);

/* Another worker has the place of `uid`; NULL: none has. */
void ms_verdicts_replace(struct ms_verdicts *v,
                         uint64_t uid,
                         const Muster__WorkerStatus *worker);

/* The client asks: call these from its ask_verdict and ask_successor. */
void ms_verdicts_ask(struct ms_verdicts *v, uint64_t uid);
void ms_verdicts_seek(struct ms_verdicts *v, uint64_t uid);

#endif
