/* sessions.h - conversations, and which replica has the prefix of each
 *
 * A session is opened, has turns (each a group of its own) and is finished. One that has no
 * turn under way and had none for the time to live is forgotten by itself, so that one
 * that is never finished is not kept for ever. Pure: the time is an argument, and does not go
 * back.
 */
#ifndef MS_GENERATE_SESSIONS_H
#define MS_GENERATE_SESSIONS_H

#include "base/clock.h"

#include <stddef.h>
#include <stdint.h>

#define MS_GEN_SESSION_TTL_NS (3600 * MS_NS_PER_S) /* without a turn */

struct ms_gen_sessions;

/* What the next turn begins with. */
struct ms_gen_turn {
    uint64_t key;  /* of the conversation, in the history of lengths; 0: none */
    uint32_t turn; /* from 0 */
    /* The replica that has its prefix (MS_NOWHERE: none), and its epoch and weights when it
     * ended the turn before: later ones have it not. */
    uint32_t replica, epoch, weights;
};

/* ttl_ns 0: MS_GEN_SESSION_TTL_NS. NULL: out of memory. */
struct ms_gen_sessions *ms_gen_sessions_create(int64_t ttl_ns);
void ms_gen_sessions_destroy(struct ms_gen_sessions *s); /* NULL is fine */

/* `turn`: of its first turn; more than 0 for one that goes on after it was forgotten. -ENOMEM. */
int ms_gen_sessions_open(struct ms_gen_sessions *s,
                         uint64_t key,
                         uint32_t turn,
                         int64_t now_ns,
                         uint64_t *id);
/* -ENOENT: there is no such, or not any more. */
int ms_gen_sessions_finish(struct ms_gen_sessions *s, uint64_t id);

/* A turn: `look` at what it begins with, `begin` it, and `end` it, with the replica that has its
 * prefix now (MS_NOWHERE: as before), whatever became of it. -ENOENT as above. */
int ms_gen_sessions_look(struct ms_gen_sessions *s,
                         uint64_t id,
                         int64_t now_ns,
                         struct ms_gen_turn *out);
int ms_gen_sessions_begin(struct ms_gen_sessions *s, uint64_t id);
int ms_gen_sessions_end(struct ms_gen_sessions *s,
                        uint64_t id,
                        uint32_t replica,
                        uint32_t epoch,
                        uint32_t weights,
                        int64_t now_ns);

/* Forget those whose time has passed; when to ask again, or MS_NEVER. */
int64_t ms_gen_sessions_expire(struct ms_gen_sessions *s, int64_t now_ns);
size_t ms_gen_sessions_count(const struct ms_gen_sessions *s);

#endif
