/* seen.h - for tests: what a head has told a driver */
#ifndef MS_HEAD_SEEN_H
#define MS_HEAD_SEEN_H

#include "proto/muster.pb-c.h"

#include <pthread.h>
#include <stdint.h>

enum { SEEN_MAX = 32 };

struct seen {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t exits;
    uint64_t uids[SEEN_MAX];
    int codes[SEEN_MAX];
    char details[SEEN_MAX][300];
    size_t lines;
    char line[SEEN_MAX][64];
    char lost[300];
};

void seen_init(struct seen *s);
void seen_exit(void *arg, uint64_t uid, const Muster__Exit *exit);
void seen_log(void *arg, const Muster__LogLines *lines);
void seen_lost(void *arg, const char *why);
void seen_wait_exits(struct seen *s, size_t count);
void seen_wait_line(struct seen *s, const char *line);
void seen_wait_lost(struct seen *s);

#endif
