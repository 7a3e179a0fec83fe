/* logwait.h - questions for pieces of logs, held until there is something to answer
 *
 * Whoever follows a log asks for what comes next and says how long to wait for it. A
 * question that finds nothing stays here; the folder of logs is watched (inotify) while
 * there are such questions, because files are written by others too: agents that share the
 * folder, and whoever prints to agent.log. Nothing ticks.
 *
 * Each question is answered exactly once, by a piece (an empty one when the time is over) or
 * with a refusal, possibly before ms_logwaits_ask returns; those that are still held at the
 * finish are answered to nobody.
 */
#ifndef MS_AGENT_LOGS_FOLLOW_H
#define MS_AGENT_LOGS_FOLLOW_H

#include "base/list.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"

struct ms_logwaits_ops {
    /* `piece` is borrowed. */
    void (*on_piece)(void *arg, uint64_t request, Muster__LogPiece *piece);
    void (*on_refused)(void *arg, uint64_t request, const char *why);
};

struct ms_logwaits {
    struct ms_loop *loop;
    const char *session_dir; /* borrowed */
    const struct ms_logwaits_ops *ops;
    void *arg;
    int inotify; /* -1: nobody waits */
    struct ms_watch watch;
    struct ms_list held;
    size_t count;
};

void ms_logwaits_init(struct ms_logwaits *w);
void ms_logwaits_finish(struct ms_logwaits *w);

/* Before the first question. */
void ms_logwaits_open(struct ms_logwaits *w,
                      struct ms_loop *loop,
                      const char *session_dir,
                      const struct ms_logwaits_ops *ops,
                      void *arg);

/* `want` is borrowed until this returns. */
void ms_logwaits_ask(struct ms_logwaits *w,
                     uint64_t request,
                     const Muster__ReadLog *want);

#endif
