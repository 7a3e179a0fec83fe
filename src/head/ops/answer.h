/* answer.h - what answers a request, as it travels: HeadToDriver
 *
 * An operation that has completed becomes a message for the process that asked, and at
 * the other end the message becomes the operation's result again. Which body it has is said
 * by the row of its verb (verbs.h).
 */
#ifndef MS_HEAD_OPS_ANSWER_H
#define MS_HEAD_OPS_ANSWER_H

#include "base/error.h"
#include "proto/muster.pb-c.h"

struct ms_head_op;
struct ms_verb;

struct ms_answer {
    Muster__HeadToDriver message; /* `request` is for the caller to set */
    Muster__Done done;
    Muster__Failure failure; /* if that is the message's body */
};

/* What this operation, which has completed, is answered with. It borrows from `op`, and
 * refers to itself: it is not copied. */
void ms_answer_init(struct ms_answer *a, const struct ms_head_op *op);

/* Answer with this failure instead; `why` is borrowed. */
void ms_answer_fail(struct ms_answer *a, const struct ms_error *why);

/* `why` as a message, which borrows its text. */
void ms_head_failure(Muster__Failure *f, const struct ms_error *why);

/* The result in an answer that is no failure; *result is the caller's, NULL if there is
 * none. -EPROTO: this does not answer such a request. `v` NULL: only Done does. */
int ms_answer_take(const struct ms_verb *v,
                   Muster__HeadToDriver *answer,
                   ProtobufCMessage **result);

#endif
