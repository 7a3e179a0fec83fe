/* activity.h - what a worker does, as cells of a table: of `status`, `list` and `top` */
#ifndef MS_CLI_ACTIVITY_H
#define MS_CLI_ACTIVITY_H

#include "cli/out.h"
#include "proto/muster.pb-c.h"

/* It ended without being stopped, by a signal or with an exit code other than 0. */
bool ms_worker_has_failed(const Muster__WorkerStatus *w);

/* "busy", "idle", "exited"; where nothing says what it does "running" or "starting". */
const char *ms_worker_word(const Muster__WorkerStatus *w);
/* Why it is as it is, where that is no good: how it ended, who has stopped it. Else "".
 * Returns `out`. */
const char *ms_worker_why(const Muster__WorkerStatus *w, char *out, size_t room);

void ms_worker_add_state(struct ms_grid *g, const Muster__WorkerStatus *w);
/* For how long. */
void ms_worker_add_for(struct ms_grid *g, const Muster__WorkerStatus *w);
/* Two cells: that; the method, and of several calls how many more there are. */
void ms_worker_add_doing(struct ms_grid *g, const Muster__WorkerStatus *w);
/* Three cells: calls that are queued, that have run, and how many of those failed. */
void ms_worker_add_calls(struct ms_grid *g, const Muster__WorkerStatus *w);
/* Two cells: its memory; that of its devices: "-" if nobody can say. */
void ms_worker_add_memory(struct ms_grid *g, const Muster__WorkerStatus *w);

#endif
