/* scheduler_impl.h - what the scheduler's files have of each other
 *
 *   scheduler.c  events, the pump that sends, ticks
 *   queue.c      heaps and lists
 *   request.c    one request: queued, sent, aborted, over
 *   group.c      groups: submitted, finished, failed, cancelled
 *   deliver.c    batches, staleness, verdicts
 *   replica.c    replicas: up, down, drained, measured
 *   silence.c    who was not heard of for too long
 *   weights.c    new weights, as a barrier or one replica after the other
 *   report.c     what engines report
 *   policy.c     order and place; choose.c, tail.c: what they are chosen by
 *   explain.c    why a request is where it is
 */
#ifndef MS_GENERATE_SCHEDULER_IMPL_H
#define MS_GENERATE_SCHEDULER_IMPL_H

#include "generate/policy.h"
#include "generate/state.h"

/* ---- queue.c ----------------------------------------------------------------------- */

void ms_queue_add(struct ms_scheduler *s, uint32_t request);
void ms_queue_remove(struct ms_scheduler *s, uint32_t request);
void ms_queue_moved(struct ms_scheduler *s, uint32_t request); /* its rank changed */
void ms_queue_sort(struct ms_scheduler *s); /* all ranks may have changed */
uint64_t ms_queue_ahead(const struct ms_scheduler *s, uint32_t request);
void ms_deadlines_add(struct ms_scheduler *s, uint32_t group);
void ms_deadlines_remove(struct ms_scheduler *s, uint32_t group);
void ms_gen_list_add(struct ms_scheduler *s, struct ms_gen_list *l, uint32_t group);
/* In order of submission: what comes back goes where it was. */
void ms_gen_list_insert(struct ms_scheduler *s, struct ms_gen_list *l, uint32_t group);
void ms_gen_list_remove(struct ms_scheduler *s, struct ms_gen_list *l, uint32_t group);

/* ---- scheduler.c ------------------------------------------------------------------- */

/* The next decision, zeroed but for what it is. There is always room. */
struct ms_generate_decision *ms_decide(struct ms_scheduler *s, uint16_t what);

/* ---- request.c --------------------------------------------------------------------- */

uint32_t ms_gen_request_new(struct ms_scheduler *s); /* room was reserved */
void ms_gen_request_free(struct ms_scheduler *s, uint32_t i);
uint64_t ms_gen_request_id(const struct ms_scheduler *s, uint32_t i);
uint32_t ms_gen_request_find(const struct ms_scheduler *s,
                             uint64_t id); /* or MS_NONE */
void ms_gen_request_queue(struct ms_scheduler *s, uint32_t i);
void ms_gen_request_rank(struct ms_scheduler *s, uint32_t i);
void ms_gen_request_order(struct ms_scheduler *s,
                          uint32_t i); /* ms_queue_sort follows */
void ms_gen_request_send(struct ms_scheduler *s, uint32_t i, uint32_t replica);
void ms_gen_request_abort(struct ms_scheduler *s, uint32_t i, uint8_t why, bool ends);
/* It waits for q->replica, by its rank; and back to the queue, to go anywhere. */
void ms_gen_request_park(struct ms_scheduler *s, uint32_t i);
void ms_gen_request_unpark(struct ms_scheduler *s, uint32_t i);
void ms_gen_request_heard(struct ms_scheduler *s, uint32_t i);
void ms_gen_request_tokens(struct ms_scheduler *s, uint32_t i, uint32_t tokens);
/* Off its replica. */
void ms_gen_request_leave(struct ms_scheduler *s, uint32_t i);
/* It was on a replica that failed it: back to the queue, or its group fails. */
void ms_gen_request_failed(struct ms_scheduler *s, uint32_t i);
/* The same, of one whose replica went: it may have been the cause, or beside it. */
void ms_gen_request_lost(struct ms_scheduler *s, uint32_t i);
/* It has been lost so often that one time more fails its group: it goes alone. */
bool ms_gen_request_is_prime(const struct ms_scheduler *s,
                             const struct ms_gen_request *q);
/* Not wanted any more, wherever it is. */
void ms_gen_request_end(struct ms_scheduler *s, uint32_t i, uint8_t why);

/* ---- group.c ----------------------------------------------------------------------- */

int ms_gen_group_submit(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_gen_group_behind(struct ms_scheduler *s, const struct ms_generate_event *e);
uint32_t ms_gen_group_find(const struct ms_scheduler *s, uint64_t id); /* or MS_NONE */
void ms_gen_groups_admit(struct ms_scheduler *s);
/* By what has been heard of them since: the order of those that wait. */
void ms_gen_groups_rank(struct ms_scheduler *s);
void ms_gen_group_sample_done(struct ms_scheduler *s, uint32_t request);
/* A request is over: the group's memory may be free now. */
void ms_gen_group_request_over(struct ms_scheduler *s, uint32_t group);
void ms_gen_group_drop(struct ms_scheduler *s, uint32_t group, uint8_t why);
void ms_gen_group_shrink(struct ms_scheduler *s, uint32_t request);
void ms_gen_group_release(struct ms_scheduler *s, uint32_t group); /* it is over */

/* ---- deliver.c --------------------------------------------------------------------- */

void ms_deliver_finished(struct ms_scheduler *s, uint32_t group);
/* Samples of it that are too old end, so that others are waited for; true: it was dropped,
 * because there are not enough of these. */
bool ms_deliver_drop_old(struct ms_scheduler *s, uint32_t group);
int ms_deliver_verdict(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_deliver_pull(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_deliver_consumed(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_deliver_returned(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_deliver_take(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_deliver_advance(struct ms_scheduler *s, const struct ms_generate_event *e);
void ms_deliver(struct ms_scheduler *s);
void ms_bias_add(uint64_t *bins, uint32_t tokens);

/* ---- replica.c --------------------------------------------------------------------- */

int ms_gen_replica_up(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_gen_replica_down(struct ms_scheduler *s, const struct ms_generate_event *e);
/* It is gone: all that it had resumes elsewhere, from the tokens that were heard of. */
void ms_gen_replica_lose(struct ms_scheduler *s, uint32_t replica);
int ms_gen_replica_drain(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_gen_replica_load(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_gen_replica_alive(struct ms_scheduler *s, const struct ms_generate_event *e);
void ms_gen_replica_abort_all(struct ms_scheduler *s, uint32_t replica, uint8_t why);
/* Its last request has left. */
void ms_gen_replica_idle(struct ms_scheduler *s, uint32_t replica);
void ms_gen_replica_unpark_all(struct ms_scheduler *s, uint32_t replica);
/* Of this epoch, or NULL. */
struct ms_gen_replica *ms_gen_replica_of(struct ms_scheduler *s,
                                         const struct ms_generate_event *e);

/* ---- silence.c --------------------------------------------------------------------- */

/* For so long it, or a request on it, may be silent. */
int64_t ms_gen_replica_silence_ns(const struct ms_scheduler *s,
                                  const struct ms_gen_replica *r);
void ms_gen_replicas_listen(struct ms_scheduler *s); /* at a tick: who is silent? */
int64_t ms_gen_replicas_wake_ns(const struct ms_scheduler *s);

/* ---- weights.c --------------------------------------------------------------------- */

int ms_weights_begin(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_weights_ready(struct ms_scheduler *s, const struct ms_generate_event *e);
void ms_weights_go_on(struct ms_scheduler *s); /* a replica is idle, gone or new */
int ms_weights_failed(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_weights_pause(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_weights_resume(struct ms_scheduler *s, const struct ms_generate_event *e);
void ms_weights_tick(struct ms_scheduler *s);

/* ---- report.c ---------------------------------------------------------------------- */

int ms_report_take(struct ms_scheduler *s, const struct ms_generate_event *e);
int ms_report_fell_back(struct ms_scheduler *s, const struct ms_generate_event *e);

#endif
