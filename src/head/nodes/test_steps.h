/* test_steps.h - what agents that only pretend answer to RunSteps */
#ifndef MS_HEAD_NODES_TEST_STEPS_H
#define MS_HEAD_NODES_TEST_STEPS_H

#include "proto/muster.pb-c.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

enum { STEPS_ANSWER_MAX = 8 };

/* The message and what it points to: it is valid while this does not move. */
struct steps_answer {
    Muster__AgentToHead message;
    Muster__StepsDone done;
    Muster__Failure failure;
    Muster__StepAnswer each[STEPS_ANSWER_MAX], *pointers[STEPS_ANSWER_MAX];
};

/* The steps that `q` asks for: its own, or those that came with the worker's start. */
static inline const Muster__RunSteps *steps_asked(const Muster__HeadToAgent *q,
                                                  const Muster__RunSteps *start)
{
    return start && start->run == q->run_steps->run ? start : q->run_steps;
}

/* Each step of `run` is answered with its argument, or the worker raises a ValueError. */
static inline void steps_answer_fill(struct steps_answer *a,
                                     const Muster__HeadToAgent *q,
                                     const Muster__RunSteps *run,
                                     bool fails)
{
    static char type[] = "builtins.ValueError", message[] = "no such model";

    muster__agent_to_head__init(&a->message);
    muster__steps_done__init(&a->done);
    muster__failure__init(&a->failure);
    a->failure.kind = MUSTER__FAILURE__KIND__RAISED;
    a->failure.type = type;
    a->failure.message = message;
    a->done.uid = run->uid;
    a->done.run = run->run;
    a->done.answers = a->pointers;
    if (fails)
        a->done.failure = &a->failure;
    for (size_t i = 0; !fails && i < run->n_steps; i++) {
        assert(i < STEPS_ANSWER_MAX);
        muster__step_answer__init(&a->each[i]);
        a->each[i].body = run->steps[i]->arguments[0];
        a->pointers[a->done.n_answers++] = &a->each[i];
    }
    a->message.request = q->request;
    a->message.body_case = MUSTER__AGENT_TO_HEAD__BODY_STEPS_DONE;
    a->message.steps_done = &a->done;
}

#endif
