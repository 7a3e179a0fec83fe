/* told.h - completions and watches, told from a mirror
 *
 * What the controllers of all engines do alike. Watches hear the changes of the mirror,
 * each from its own cursor, when the engine pumps: never from inside of a call, but as
 * soon as it can (`schedule`).
 */
#ifndef MS_ORCHESTRATOR_TOLD_H
#define MS_ORCHESTRATOR_TOLD_H

#include "io/loop.h"
#include "orchestrator/mirror.h"

struct ms_watches {
    struct ms_list all; /* ms_orch_watch */
    const struct ms_mirror *mirror;
    /* Have ms_watches_pump called soon; false: out of memory, it is asked again. */
    bool (*schedule)(void *arg);
    void *arg;
    bool is_scheduled;
    struct ms_timer timer;                /* of those on a loop */
    void (*finish)(struct ms_watches *w); /* NULL: nothing is to be ended but them */
};

void ms_watches_init(struct ms_watches *w,
                     const struct ms_mirror *mirror,
                     bool (*schedule)(void *arg),
                     void *arg);
/* Those that are pumped from a loop (told_loop.c, so that an engine without one needs
 * none). 0, -ENOMEM. */
int ms_watches_init_on(struct ms_watches *w,
                       const struct ms_mirror *mirror,
                       struct ms_loop *loop);
/* Nobody hears anything any more. */
void ms_watches_finish(struct ms_watches *w);

/* As orchestrator.h has them. */
struct ms_orch_watch *ms_watches_add(struct ms_watches *w,
                                     uint64_t cursor,
                                     ms_orch_watched *watched,
                                     void *arg);
void ms_watches_remove(struct ms_orch_watch *w); /* NULL is nothing */

/* The mirror has changed. */
void ms_watches_wake(struct ms_watches *w);
/* Tell what has not been told. */
void ms_watches_pump(struct ms_watches *w);

/* Complete with what the mirror has of `key` ("": of all); what that fails by, if it
 * does. `done` may be NULL. */
void ms_told_answer(const struct ms_mirror *m,
                    const char *key,
                    ms_orch_done *done,
                    void *arg);

#endif
