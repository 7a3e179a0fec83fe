/* work.c - a thread for what takes long */
#include "store/server/work.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

struct ms_work {
    struct ms_loop *loop;
    char name[16];
    pthread_t thread;
    bool has_thread;
    atomic_bool ends;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more;
    struct ms_list jobs, done;
    bool is_posted;
};

static void deliver(void *arg)
{
    struct ms_work *w = arg;
    struct ms_list done;

    ms_list_init(&done);
    pthread_mutex_lock(&w->lock);
    w->is_posted = false;
    ms_list_splice(&done, &w->done);
    pthread_mutex_unlock(&w->lock);
    ms_list_each (j, &done, struct ms_work_job, link) {
        ms_list_remove(&j->link);
        j->done(j, false);
    }
}

static void *thread_main(void *arg)
{
    struct ms_work *w = arg;

    prctl(PR_SET_NAME, w->name);
    pthread_mutex_lock(&w->lock);
    while (!w->ends) {
        struct ms_work_job *j;

        if (ms_list_is_empty(&w->jobs)) {
            pthread_cond_wait(&w->more, &w->lock);
            continue;
        }
        j = ms_list_first(&w->jobs, struct ms_work_job, link);
        ms_list_remove(&j->link);
        pthread_mutex_unlock(&w->lock);
        j->run(j);
        pthread_mutex_lock(&w->lock);
        ms_list_add_tail(&w->done, &j->link);
        if (!w->is_posted)
            w->is_posted = ms_loop_post(w->loop, deliver, w) == 0;
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static int thread_start(struct ms_work *w)
{
    sigset_t all, before;
    int rc;

    if (w->has_thread)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&w->thread, NULL, thread_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->has_thread = rc == 0;
    return w->has_thread ? 0 : -ENOMEM;
}

struct ms_work *ms_work_create(struct ms_loop *loop, const char *name)
{
    struct ms_work *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->loop = loop;
    snprintf(w->name, sizeof w->name, "%s", name);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    ms_list_init(&w->jobs);
    ms_list_init(&w->done);
    return w;
}

static void drop_all(struct ms_list *jobs)
{
    ms_list_each (j, jobs, struct ms_work_job, link) {
        ms_list_remove(&j->link);
        j->done(j, true);
    }
}

void ms_work_destroy(struct ms_work *w)
{
    if (!w)
        return;
    if (w->has_thread) {
        pthread_mutex_lock(&w->lock);
        w->ends = true;
        pthread_cond_signal(&w->more);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
    }
    drop_all(&w->jobs);
    drop_all(&w->done);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->more);
    free(w);
}

int ms_work_add(struct ms_work *w, struct ms_work_job *j)
{
    int rc = thread_start(w);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&w->lock);
    ms_list_init(&j->link);
    ms_list_add_tail(&w->jobs, &j->link);
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
    return 0;
}

bool ms_work_ends(const struct ms_work *w)
{
    return w->ends;
}
