/* remote.h - logs of workers on other machines, read through the head
 *
 * A daemon head has no logs of its own: each node keeps those of its workers. The head is
 * asked for them piece by piece. To follow them, one question for each log is under way,
 * which its node holds until there is something, and one for the head's status, which is
 * held until nodes or workers come or go (long polling). What was there before is printed in
 * the order of its lines' times, by the nodes' clocks; what comes then too, as exact as a
 * round trip to the node.
 *
 * remote.c         which logs there are, and what is in them now
 * remote_follow.c  what comes then
 */
#ifndef MS_CLI_LOGS_REMOTE_H
#define MS_CLI_LOGS_REMOTE_H

#include "cli/jobs/jobs.h"
#include "cli/logs/view.h"
#include "cli/target.h"

/* One file of a node: a worker's, the merged one, or the agent's. */
struct ms_remote_log {
    struct ms_logtext log;
    char name[160]; /* of the file */
    uint64_t file, offset;
    bool failed;     /* said so */
    bool is_listed;  /* in the last status... */
    bool was_listed; /* ...and in the one before */
    bool is_asked;   /* what comes next; the answer is under way */
};

struct ms_remote_logs {
    struct ms_target *target;
    const struct ms_logview *view;
    struct ms_remote_log *at;
    size_t count;
    const Muster__JobStatus
        *job;        /* of its nodes, also those that are gone; NULL: all */
    bool is_over;    /* that job */
    uint64_t change; /* of the last status */
    bool following;  /* what appears now is read from its beginning */
};

/* What `v` selects: its `single` means all workers, or the agents. `job` is v->job as the head
 * knows it, or NULL. */
enum ms_exit ms_remote_logs_show(struct ms_target *t,
                                 const struct ms_logview *v,
                                 const Muster__JobStatus *job);

/* Which logs there are: those of a status are added. 0 or -ENOMEM. */
int ms_remote_logs_add(struct ms_remote_logs *f, const Muster__Status *s);
/* Ask for the status; prints its failure. */
enum ms_exit ms_remote_logs_look(struct ms_remote_logs *f);

/* The question for what comes next; borrows from `l`. */
void ms_remote_log_want(const struct ms_remote_logs *f,
                        struct ms_remote_log *l,
                        Muster__ReadLog *want);
/* The next question goes on behind this piece. */
void ms_remote_log_move(struct ms_remote_log *l, const Muster__LogPiece *piece);
/* remote_follow.c: until the reader of stdout or the head is gone. */
enum ms_exit ms_remote_logs_follow(struct ms_remote_logs *logs);

#endif
