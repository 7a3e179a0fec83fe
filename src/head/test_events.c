/* test_events.c - for tests: what a head has told a driver */
#include "head/test_events.h"

#include <stdio.h>
#include <string.h>

void events_init(struct test_events *s)
{
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
}

void events_exit(void *arg, uint64_t uid, const Muster__Exit *exit)
{
    struct test_events *s = arg;

    pthread_mutex_lock(&s->lock);
    if (s->exits < EVENTS_MAX) {
        s->uids[s->exits] = uid;
        s->codes[s->exits] = exit->code;
        snprintf(s->details[s->exits], sizeof s->details[0], "%s", exit->detail);
    }
    s->exits++;
    s->signaled = exit->signaled;
    s->requested = exit->requested;
    snprintf(s->last_words,
             sizeof s->last_words,
             "%s",
             exit->n_last_lines ? exit->last_lines[exit->n_last_lines - 1] : "");
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void events_log(void *arg, const Muster__LogLines *lines)
{
    struct test_events *s = arg;

    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < lines->n_lines && s->lines < EVENTS_MAX; i++)
        snprintf(s->line[s->lines++],
                 sizeof s->line[0],
                 "%.*s",
                 (int)lines->lines[i]->text.len,
                 (const char *)lines->lines[i]->text.data);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void events_lost(void *arg, const char *why)
{
    struct test_events *s = arg;

    pthread_mutex_lock(&s->lock);
    snprintf(s->lost, sizeof s->lost, "%s", why);
    s->exits_before_lost = s->exits;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void events_wait_exits(struct test_events *s, size_t count)
{
    pthread_mutex_lock(&s->lock);
    while (s->exits < count)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static bool has_line(const struct test_events *s, const char *line)
{
    for (size_t i = 0; i < s->lines; i++)
        if (strcmp(s->line[i], line) == 0)
            return true;
    return false;
}

void events_wait_line(struct test_events *s, const char *line)
{
    pthread_mutex_lock(&s->lock);
    while (!has_line(s, line))
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void events_wait_lost(struct test_events *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->lost[0])
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}
