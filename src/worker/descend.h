/* descend.h - the descendants of this process */
#ifndef MS_WORKER_DESCEND_H
#define MS_WORKER_DESCEND_H

/* SIGKILL every descendant, wherever it has put itself by setsid, until none is found. */
void ms_descend_kill(void);

#endif
