/* op.h - the inside of an operation, for the head alone
 *
 * An operation is held by its caller and, until it completes, by the head. It completes
 * exactly once, by ms_head_op_succeed or ms_head_op_fail, on the head's thread (or in
 * the caller's before it was submitted, or when that thread has ended).
 *
 * What is wanted is a DriverToHead message: a head carries it out itself
 * (request.h), one that has joined another sends it there (drivers/uplink.h).
 */
#ifndef MS_HEAD_OPS_OP_H
#define MS_HEAD_OPS_OP_H

#include "base/buf.h"
#include "base/list.h"
#include "cluster/change_plan.h"
#include "head/clusters/bringup.h"
#include "head/clusters/ending.h"
#include "head/head.h"
#include "head/ops/verbs.h"
#include "wire/link/requests.h"

#include <pthread.h>
#include <stdatomic.h>

struct ms_node;
struct ms_driver;

struct ms_head_op {
    _Atomic unsigned refs;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic bool done;     /* written under the lock, and last */
    struct ms_error error; /* why it fails, or has failed; code 0: all is well */
    ProtobufCMessage *message;
    struct ms_buf table; /* beside the error's text; empty: none */
    Muster__Failure
        *failure; /* what workers said; NULL: nothing. Set before it fails. */

    struct ms_head *head;
    struct ms_list link; /* head->ops, until done; under the head's lock */

    /* The request. Once submitted all of it, and what is above, belongs to the head's
     * thread until it has completed. */
    Muster__DriverToHead *request;
    enum ms_asker asker;      /* who wants it: this process, unless set */
    struct ms_driver *driver; /* its link; NULL: it has none */
    /* Begin. 0: it has completed or will; else it fails with op->error, or if that is not
     * set with the negative errno. */
    ms_verb_run *run;
    /* A node's answer, which is no Failure; what is taken out of it is set to NULL. */
    void (*on_answer)(struct ms_head_op *op,
                      struct ms_node *node,
                      Muster__AgentToHead *answer);
    /* A node's failure, or its end. NULL: the operation fails with that. */
    void (*on_refused)(struct ms_head_op *op,
                       struct ms_node *node,
                       const struct ms_error *why);
    void (*next)(struct ms_head_op *op);      /* when all nodes have answered */
    void (*on_failed)(struct ms_head_op *op); /* before it completes with an error */
    void (*on_done)(struct ms_head_op *op, void *arg); /* completed; head's thread */
    void *done_arg;
    struct ms_list asks;       /* open questions to nodes */
    void *data;                /* of the file that carries it out */
    struct ms_pending pending; /* of a driver's link, or of our uplink */

    int64_t grace_ns; /* of the head's end */

    /* Clusters. */
    struct ms_cluster *cluster;
    struct ms_ending ending;    /* ranks of it that end */
    struct ms_bringup bringup;  /* ranks of it that start */
    struct ms_change_plan plan; /* what is done to it; zero: no change */
    /* one of the lists in which operations wait: of the head, or of a barrier */
    struct ms_list wait_link;
    /* While it waits there: go on if possible; false: it waits on. */
    bool (*retry)(struct ms_head_op *op, bool is_last);
    struct ms_timer deadline;
};

/* For the caller and for the head; NULL: out of memory, or this is a forked child. */
struct ms_head_op *ms_head_op_create(struct ms_head *h);

/* What stands for an operation that could not be made: it has completed, with -ENOMEM,
 * or with -EPERM in a forked child. */
struct ms_head_op *ms_head_op_refused(const struct ms_head *h);

/* Call `on_late` with the operation after that time, unless it completes or is given another
 * deadline before. 0 or -ENOMEM. */
int ms_head_op_set_deadline(struct ms_head_op *op,
                            void (*on_late)(void *op),
                            int64_t delay_ns);

/* Ask several nodes and wait for all: between these two they are asked (node.h); `next` is
 * called once, when all have answered, have refused or are gone. */
void ms_head_op_gather(struct ms_head_op *op, void (*next)(struct ms_head_op *op));
void ms_head_op_gather_end(struct ms_head_op *op);
/* A `next` that completes it without a result, or with op->error. */
void ms_head_op_done(struct ms_head_op *op);
/* Do not wait for the answers that are missing. */
void ms_head_op_drop_asks(struct ms_head_op *op);

/* Call `retry`; if it cannot go on it waits in this list until ms_head_op_retry_all finds
 * that it can, or wait_ns have passed, which is the last time. 0 or -ENOMEM. */
int ms_head_op_wait_in(struct ms_head_op *op,
                       struct ms_list *list,
                       bool (*retry)(struct ms_head_op *op, bool is_last),
                       int64_t wait_ns);
void ms_head_op_retry_all(struct ms_list *list);

/* Call `run`, and fail if it does. */
void ms_head_op_run(struct ms_head_op *op);
/* What `run` has given: if it is negative the operation fails. */
void ms_head_op_end(struct ms_head_op *op, int rc);
/* The same, on the head's thread; 0, or -ENOMEM and nothing has changed. */
int ms_head_op_post(struct ms_head_op *op);
/* The same. Completes with an error if that cannot be. Returns op. */
struct ms_head_op *ms_head_op_submit(struct ms_head_op *op);

/* Run it on the head's thread and wait: its result, or -ETIMEDOUT without a text. */
int ms_head_op_call(struct ms_head *h,
                    ms_verb_run *run,
                    int64_t deadline_ns,
                    struct ms_error *err);

/* Takes the message (may be NULL). */
void ms_head_op_succeed(struct ms_head_op *op, ProtobufCMessage *message);
/* The same; NULL: there was no memory for it. */
void ms_head_op_answer(struct ms_head_op *op, ProtobufCMessage *message);
/* With a copy of it. */
void ms_head_op_succeed_copy(struct ms_head_op *op, const ProtobufCMessage *message);
void ms_head_op_fail(struct ms_head_op *op, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void ms_head_op_fail_with(struct ms_head_op *op, const struct ms_error *err);
/* Fail if there is an error in op->error, else succeed with the message, which is taken. */
void ms_head_op_complete(struct ms_head_op *op, ProtobufCMessage *message);

#endif
