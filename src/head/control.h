/* control.h - the server of the head: head.sock for tools, and where others dial
 *
 * One server answers the requests of `muster status`, `logs`, `list objects` and `stop`, and
 * hands links of agents and drivers to hello.h. What tools ask of nodes REST asks too: those
 * are operations. The head's thread, or before it runs.
 */
#ifndef MS_HEAD_CONTROL_H
#define MS_HEAD_CONTROL_H

#include "base/error.h"
#include "proto/muster.pb-c.h"

struct ms_head;
struct ms_head_op;

int ms_head_control_open(struct ms_head *h, struct ms_error *err);
/* Also there: "HOST:PORT"; it is added to h->addresses. */
int ms_head_control_listen(struct ms_head *h,
                           const char *address,
                           struct ms_error *err);
void ms_head_control_close(struct ms_head *h);

/* Ask a node for a piece of a log; the result is a LogPiece. NULL: out of memory. */
struct ms_head_op *ms_head_read_log(struct ms_head *h,
                                    const Muster__ReadLog *want,
                                    void (*on_done)(struct ms_head_op *op),
                                    void *arg);
/* `run` of the same as a request */
void ms_head_read_log_run(struct ms_head_op *op);
/* Ask all nodes; the result is Objects, sooner or later: nodes that do not answer say why
 * not. NULL: out of memory. */
struct ms_head_op *ms_head_list_objects(struct ms_head *h,
                                        void (*on_done)(struct ms_head_op *op),
                                        void *arg);

#endif
