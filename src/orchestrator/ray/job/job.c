/* job.c - one job on a Ray cluster: its life, and what its thread tells the loop */
#include "base/cleanup.h"
#include "orchestrator/ray/job/job_impl.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#define STOP_NS (30 * MS_NS_PER_S) /* then ending it has come to nothing */

static void poke(int fd)
{
    uint64_t one = 1;

    if (write(fd, &one, sizeof one) < 0)
        abort(); /* an eventfd that is ours takes it */
}

static void drain(int fd)
{
    uint64_t count;

    while (read(fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

/* ---- for the thread ---------------------------------------------------------------- */

bool ms_ray_job_is_stopping(struct ms_ray_job *j)
{
    bool is;

    pthread_mutex_lock(&j->lock);
    is = j->is_stopping;
    pthread_mutex_unlock(&j->lock);
    return is;
}

static int64_t end_by_ns(struct ms_ray_job *j)
{
    int64_t at_ns;

    pthread_mutex_lock(&j->lock);
    at_ns = j->end_by_ns;
    pthread_mutex_unlock(&j->lock);
    return at_ns;
}

bool ms_ray_job_is_left(struct ms_ray_job *j)
{
    return ms_now_ns() >= end_by_ns(j);
}

bool ms_ray_job_may_submit(struct ms_ray_job *j)
{
    bool may;

    pthread_mutex_lock(&j->lock);
    may = ms_now_ns() < j->end_by_ns;
    j->is_on_cluster = j->is_on_cluster || may;
    pthread_mutex_unlock(&j->lock);
    return may;
}

void ms_ray_job_set_gone(struct ms_ray_job *j)
{
    pthread_mutex_lock(&j->lock);
    j->is_on_cluster = false;
    pthread_mutex_unlock(&j->lock);
}

void ms_ray_job_wait(struct ms_ray_job *j, int64_t for_ns)
{
    struct pollfd p = {.fd = j->thread_fd, .events = POLLIN};
    int64_t left_ns = end_by_ns(j) - ms_now_ns();

    for_ns = left_ns < for_ns ? left_ns : for_ns;
    if (for_ns > 0 && poll(&p, 1, (int)(for_ns / MS_NS_PER_MS) + 1) > 0)
        drain(j->thread_fd);
}

struct ms_ray_news *ms_ray_job_lock_news(struct ms_ray_job *j)
{
    pthread_mutex_lock(&j->lock);
    return &j->news;
}

void ms_ray_job_tell_news(struct ms_ray_job *j)
{
    pthread_mutex_unlock(&j->lock);
    poke(j->loop_fd);
}

/* ---- on the loop ------------------------------------------------------------------- */

static void on_woken(void *arg, unsigned events)
{
    struct ms_ray_job *j = arg;
    const struct ms_ray_job_events *e = j->events;
    struct ms_ray_news news;

    (void)events;
    drain(j->loop_fd);
    pthread_mutex_lock(&j->lock);
    news = j->news;
    j->news = (struct ms_ray_news){0};
    pthread_mutex_unlock(&j->lock);
    if (news.is_submitted && e->on_submitted)
        e->on_submitted(j->arg);
    if (news.log.len > 0 && e->on_log)
        e->on_log(j->arg, (char *)news.log.data, news.log.len);
    if (news.has_silence && e->on_silent)
        e->on_silent(j->arg, news.is_silent ? &news.silence : NULL);
    ms_buf_finish(&news.log);
    if (news.is_over)
        e->on_ended(
            j->arg, news.why.code, news.exit_code, news.why.code ? &news.why : NULL);
}

void ms_ray_job_look(struct ms_ray_job *j)
{
    poke(j->thread_fd);
}

void ms_ray_job_stop(struct ms_ray_job *j)
{
    pthread_mutex_lock(&j->lock);
    if (!j->is_stopping) {
        j->is_stopping = true;
        j->stop_until_ns = ms_now_ns() + STOP_NS;
        j->polite_until_ns = ms_now_ns() + j->spec.polite_ns;
    }
    pthread_mutex_unlock(&j->lock);
    poke(j->thread_fd);
}

/* ---- life -------------------------------------------------------------------------- */

static void job_free(struct ms_ray_job *j)
{
    ms_watch_finish(&j->woken);
    if (j->has_thread)
        pthread_join(j->thread, NULL);
    ms_local_ray_destroy(j->local_ray);
    ms_fetcher_destroy(j->fetcher);
    ms_package_finish(&j->package);
    ms_fd_close(&j->loop_fd);
    ms_fd_close(&j->thread_fd);
    pthread_mutex_destroy(&j->lock);
    ms_buf_finish(&j->news.log);
    free(j->base);
    free(j->token);
    free(j);
}

/* Everything but the thread. */
static int prepare(struct ms_ray_job *j, struct ms_error *err)
{
    const char *address = j->spec.site.address;

    j->loop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    j->thread_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (strcmp(address, MS_RAY_LOCAL) != 0 &&
        !(j->base = ms_ray_base_url(address, err)))
        return -EINVAL;
    j->fetcher = ms_fetcher_create(err);
    if (!j->fetcher)
        return -ENOPKG;
    if (j->loop_fd < 0 || j->thread_fd < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return 0;
}

struct ms_ray_job *ms_ray_job_create(const struct ms_ray_job_spec *spec,
                                     const struct ms_ray_job_events *events,
                                     void *arg,
                                     struct ms_error *err)
{
    struct ms_ray_job *j = calloc(1, sizeof *j);
    int rc;

    if (!j) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    j->spec = *spec;
    j->events = events;
    j->arg = arg;
    j->end_by_ns = MS_NEVER;
    j->is_on_cluster = spec->is_there;
    pthread_mutex_init(&j->lock, NULL);
    if (prepare(j, err) < 0) {
        job_free(j);
        return NULL;
    }
    rc = ms_watch_init(&j->woken, spec->loop, j->loop_fd, MS_READ, on_woken, j);
    if (rc == 0)
        rc = -pthread_create(&j->thread, NULL, ms_ray_job_run, j);
    j->has_thread = rc == 0;
    if (rc == 0)
        return j;
    ms_error_sys(err, rc, "cannot begin the job");
    job_free(j);
    return NULL;
}

/* Nothing more is told, and the thread ends by then. */
static void end_by(struct ms_ray_job *j, int64_t until_ns)
{
    ms_watch_finish(&j->woken);
    pthread_mutex_lock(&j->lock);
    if (!j->is_on_cluster || strcmp(j->spec.site.address, MS_RAY_LOCAL) == 0)
        until_ns = 0; /* there is nothing to be stopped, or it ends with its Ray */
    j->end_by_ns = until_ns;
    j->is_stopping = true;
    j->stop_until_ns = until_ns;
    j->polite_until_ns = ms_now_ns() + j->spec.polite_ns;
    pthread_mutex_unlock(&j->lock);
    ms_fetcher_end_by(j->fetcher, until_ns);
    poke(j->thread_fd);
    job_free(j);
}

void ms_ray_job_destroy(struct ms_ray_job *j, int64_t until_ns)
{
    if (j)
        end_by(j, until_ns);
}

void ms_ray_job_leave(struct ms_ray_job *j)
{
    if (j)
        end_by(j, 0);
}
