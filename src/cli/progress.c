/* progress.c - a sign of life while a command waits */
#include "cli/progress.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FIRST_S = 1, TERMINAL_S = 1, PLAIN_S = 10 };

struct ms_progress {
    const char *command;
    bool is_terminal;
    int64_t began_ns;
    pthread_t thread;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t changed;
    bool ended, shown;
    char text[160];
};

static void show(struct ms_progress *p)
{
    int seconds = (int)((ms_now_ns() - p->began_ns) / MS_NS_PER_S);

    p->shown = true;
    fprintf(stderr,
            p->is_terminal ? "\r\033[Kmuster %s: %s, %d s" : "muster %s: %s, %d s\n",
            p->command,
            p->text,
            seconds);
    fflush(stderr);
}

/* True when the end came first. */
static bool wait_until(struct ms_progress *p, int64_t at_ns)
{
    struct timespec at = {.tv_sec = (time_t)(at_ns / MS_NS_PER_S),
                          .tv_nsec = (long)(at_ns % MS_NS_PER_S)};
    int rc = 0;

    while (rc == 0 && !p->ended)
        rc = pthread_cond_timedwait(&p->changed, &p->lock, &at);
    return p->ended;
}

static void *run(void *arg)
{
    struct ms_progress *p = arg;
    int64_t at_ns = p->began_ns + FIRST_S * MS_NS_PER_S;

    pthread_mutex_lock(&p->lock);
    while (!wait_until(p, at_ns)) {
        show(p);
        at_ns += (p->is_terminal ? TERMINAL_S : PLAIN_S) * MS_NS_PER_S;
    }
    if (p->shown && p->is_terminal)
        fputs("\r\033[K", stderr);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct ms_progress *ms_progress_start(const struct ms_cli *cli, const char *text)
{
    struct ms_progress *p = calloc(1, sizeof *p);
    pthread_condattr_t attr;

    if (!p)
        return NULL;
    p->command = cli->command->name;
    p->is_terminal = isatty(STDERR_FILENO);
    p->began_ns = ms_now_ns();
    snprintf(p->text, sizeof p->text, "%s", text);
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&p->thread, NULL, run, p) == 0)
        return p;
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}

void ms_progress_stop(struct ms_progress *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->ended = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
