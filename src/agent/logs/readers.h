/* readers.h - requests for pieces of logs, held until there is something to answer
 *
 * A reader that follows a log asks for what comes next and says how long to wait for it. A
 * request that finds nothing stays here; the folder of logs is watched (inotify) while
 * there are such requests, because files are written by others too: agents that share the
 * folder, and whatever prints to agent.log. Nothing ticks.
 *
 * Each request is answered exactly once, by a piece (an empty one when the time is over) or
 * with a refusal, possibly before ms_log_readers_ask returns; those that are still held at
 * the finish are not answered.
 */
#ifndef MS_AGENT_LOGS_READERS_H
#define MS_AGENT_LOGS_READERS_H

#include "base/list.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"

struct ms_log_readers_ops {
    /* `piece` is borrowed. */
    void (*on_piece)(void *arg, uint64_t request, const Muster__LogPiece *piece);
    void (*on_refused)(void *arg, uint64_t request, const char *why);
};

struct ms_log_readers {
    struct ms_loop *loop;
    const char *session_dir; /* borrowed */
    const struct ms_log_readers_ops *ops;
    void *arg;
    int inotify; /* -1: no request is held */
    struct ms_watch watch;
    struct ms_list held;
    size_t count;
};

void ms_log_readers_init(struct ms_log_readers *w,
                         struct ms_loop *loop,
                         const char *session_dir,
                         const struct ms_log_readers_ops *ops,
                         void *arg);

/* One that is all zero was never initialised, and has nothing to finish. */
void ms_log_readers_finish(struct ms_log_readers *w);

/* `want` is borrowed until this returns. */
void ms_log_readers_ask(struct ms_log_readers *w,
                        uint64_t request,
                        const Muster__ReadLog *want);

#endif
