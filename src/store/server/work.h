/* work.h - a thread for what takes long: clearing pages, writing and reading files
 *
 * Jobs are done one after the other, in the order of adding. The thread is started with
 * the first one: most agents never have any.
 *
 * How to write a job: begin your struct with a struct ms_work_job and fill its two functions.
 *
 *   run    on the thread; touches only what is the job's own. If it takes long it asks
 *          ms_work_ends now and then, and gives up
 *   done   on the loop, when it has run, or was dropped because the work is destroyed
 *          first: free what the job has
 */
#ifndef MS_STORE_WORK_H
#define MS_STORE_WORK_H

#include "base/list.h"
#include "io/loop.h"

#include <stdbool.h>

struct ms_work_job {
    struct ms_list link;
    void (*run)(struct ms_work_job *j);
    void (*done)(struct ms_work_job *j, bool was_dropped);
};

struct ms_work;

/* `name` is that of the thread, at most 15 characters. NULL: out of memory. */
struct ms_work *ms_work_create(struct ms_loop *loop, const char *name);
/* When the loop does not run any more. Waits for the job that runs; the others are
 * dropped. */
void ms_work_destroy(struct ms_work *w);

/* -ENOMEM: there is no thread, and the job is still the caller's. */
int ms_work_add(struct ms_work *w, struct ms_work_job *j);
/* Any thread: it is being destroyed. */
bool ms_work_ends(const struct ms_work *w);

#endif
