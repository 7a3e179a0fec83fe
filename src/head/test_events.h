/* test_events.h - for tests: what a head has told a driver */
#ifndef MS_HEAD_TEST_EVENTS_H
#define MS_HEAD_TEST_EVENTS_H

#include "proto/muster.pb-c.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { EVENTS_MAX = 32 };

struct test_events {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t exits; /* of the first EVENTS_MAX what is below */
    uint64_t uids[EVENTS_MAX];
    int codes[EVENTS_MAX];
    char details[EVENTS_MAX][600];
    bool signaled, requested; /* the last of them */
    char last_words[128];     /* its last line */
    size_t lines;
    char line[EVENTS_MAX][64];
    char lost[600]; /* why the agent is; or "" */
    size_t exits_before_lost;
};

void events_init(struct test_events *s);

/* A driver's callbacks, with the `struct test_events` as their argument. */
void events_exit(void *arg, uint64_t uid, const Muster__Exit *exit);
void events_log(void *arg, const Muster__LogLines *lines);
void events_lost(void *arg, const char *why);

void events_wait_exits(struct test_events *s, size_t count);
void events_wait_line(struct test_events *s, const char *line);
void events_wait_lost(struct test_events *s);

#endif
