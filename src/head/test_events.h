/* seen.h - for tests: what a head has told a driver */
#ifndef MS_HEAD_TEST_EVENTS_H
#define MS_HEAD_TEST_EVENTS_H

#include "proto/muster.pb-c.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { SEEN_MAX = 32 };

struct seen {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t exits; /* of the first SEEN_MAX what is below */
    uint64_t uids[SEEN_MAX];
    int codes[SEEN_MAX];
    char details[SEEN_MAX][600];
    bool signaled, requested; /* the last of them */
    char last_words[128];     /* its last line */
    size_t lines;
    char line[SEEN_MAX][64];
    char lost[600]; /* why the agent is; or "" */
    size_t exits_before_lost;
};

void seen_init(struct seen *s);

/* A driver's callbacks, with the `struct seen` as their argument. */
void seen_exit(void *arg, uint64_t uid, const Muster__Exit *exit);
void seen_log(void *arg, const Muster__LogLines *lines);
void seen_lost(void *arg, const char *why);

void seen_wait_exits(struct seen *s, size_t count);
void seen_wait_line(struct seen *s, const char *line);
void seen_wait_lost(struct seen *s);

#endif
