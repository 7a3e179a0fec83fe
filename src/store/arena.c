#include "store/arena.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/list.h"
#include "store/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

struct job {
    struct ms_list link;
    struct ms_arena *arena;
    bool punches;
    int rc;
    ms_commit_fn *on_done;
    void *arg;
    size_t count, done;
    struct ms_run runs[];
};

struct ms_arena {
    struct ms_loop *loop;
    int fd;
    uint64_t size;
    uint8_t *memory;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more;
    struct ms_list jobs, done;
    bool is_posted, ends;
};

/* ---- the thread ------------------------------------------------------------------ */

/* Bytes that the machine can give without swapping; UINT64_MAX: it does not say. */
static uint64_t memory_available(void)
{
    MS_CLEANUP(ms_cleanup_file) FILE *f = fopen("/proc/meminfo", "re");
    unsigned long long kib;
    char line[128];

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            return (uint64_t)kib << 10;
    return UINT64_MAX;
}

static int commit_run(struct ms_arena *a, const struct ms_run *run)
{
    int rc;

    if (memory_available() < run->len + MS_STORE_SPARE_MIN)
        return -ENOMEM;
    rc = ms_pages_commit(a->memory + run->at, run->len);
    if (rc != -EINVAL)
        return rc;
    return fallocate(a->fd, 0, (off_t)run->at, (off_t)run->len) < 0 ? -errno : 0;
}

static void punch_run(struct ms_arena *a, const struct ms_run *run)
{
    fallocate(a->fd,
              FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)run->at,
              (off_t)run->len);
}

static void run_job(struct ms_arena *a, struct job *j)
{
    for (; j->done < j->count; j->done++) {
        if (j->punches)
            punch_run(a, &j->runs[j->done]);
        else
            j->rc = commit_run(a, &j->runs[j->done]);
        if (j->rc < 0)
            return;
    }
}

static void deliver(void *arg)
{
    struct ms_arena *a = arg;
    struct ms_list done;

    ms_list_init(&done);
    pthread_mutex_lock(&a->lock);
    a->is_posted = false;
    ms_list_splice(&done, &a->done);
    pthread_mutex_unlock(&a->lock);
    ms_list_each (j, &done, struct job, link) {
        if (j->on_done)
            j->on_done(j->arg, j->rc, j->runs, j->done);
        free(j);
    }
}

static void *thread_main(void *arg)
{
    struct ms_arena *a = arg;

    prctl(PR_SET_NAME, "muster-store");
    pthread_mutex_lock(&a->lock);
    for (;;) {
        struct job *j;

        while (ms_list_is_empty(&a->jobs) && !a->ends)
            pthread_cond_wait(&a->more, &a->lock);
        if (a->ends)
            break;
        j = ms_list_first(&a->jobs, struct job, link);
        ms_list_remove(&j->link);
        pthread_mutex_unlock(&a->lock);
        run_job(a, j);
        pthread_mutex_lock(&a->lock);
        ms_list_add_tail(&a->done, &j->link);
        if (!a->is_posted)
            a->is_posted = ms_loop_post(a->loop, deliver, a) == 0;
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* The first job starts it: most agents never have one. */
static int thread_start(struct ms_arena *a)
{
    sigset_t all, before;
    int rc;

    if (a->has_thread)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = -pthread_create(&a->thread, NULL, thread_main, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    a->has_thread = rc == 0;
    return rc;
}

/* ---- asking ---------------------------------------------------------------------- */

static int add_job(struct ms_arena *a,
                   const struct ms_run *runs,
                   size_t count,
                   bool punches,
                   ms_commit_fn *on_done,
                   void *arg)
{
    struct job *j = calloc(1, sizeof *j + count * sizeof *runs);

    if (!j || thread_start(a) < 0) {
        free(j);
        return -ENOMEM;
    }
    j->arena = a;
    j->punches = punches;
    j->on_done = on_done;
    j->arg = arg;
    j->count = count;
    memcpy(j->runs, runs, count * sizeof *runs);
    pthread_mutex_lock(&a->lock);
    ms_list_add_tail(&a->jobs, &j->link);
    pthread_cond_signal(&a->more);
    pthread_mutex_unlock(&a->lock);
    return 0;
}

int ms_arena_commit(struct ms_arena *a,
                    const struct ms_run *runs,
                    size_t count,
                    ms_commit_fn *on_done,
                    void *arg)
{
    return add_job(a, runs, count, false, on_done, arg);
}

int ms_arena_punch(struct ms_arena *a, const struct ms_run *run)
{
    return add_job(a, run, 1, true, NULL, NULL);
}

/* ---- life ------------------------------------------------------------------------ */

static int open_file(struct ms_arena *a, struct ms_error *err)
{
    a->fd = memfd_create("muster-store", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (a->fd < 0)
        return ms_error_sys(err, -errno, "cannot make shared memory");
    if (ftruncate(a->fd, (off_t)a->size) < 0 ||
        fcntl(a->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return ms_error_sys(err,
                            -errno,
                            "cannot make %llu MiB of shared memory",
                            (unsigned long long)(a->size >> 20));
    a->memory = ms_pages_map(a->fd, a->size, PROT_READ | PROT_WRITE);
    if (!a->memory)
        return ms_error_set(err, -ENOMEM, "cannot map shared memory");
    madvise(a->memory, a->size, MADV_DONTFORK);
    return 0;
}

struct ms_arena *
ms_arena_create(struct ms_loop *loop, uint64_t size, struct ms_error *err)
{
    struct ms_arena *a = calloc(1, sizeof *a);

    if (!a) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    a->loop = loop;
    a->size = size;
    a->fd = -1;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->more, NULL);
    ms_list_init(&a->jobs);
    ms_list_init(&a->done);
    if (open_file(a, err) < 0) {
        ms_arena_destroy(a);
        return NULL;
    }
    return a;
}

static void jobs_free(struct ms_list *jobs)
{
    ms_list_each (j, jobs, struct job, link)
        free(j);
}

void ms_arena_destroy(struct ms_arena *a)
{
    if (!a)
        return;
    if (a->has_thread) {
        pthread_mutex_lock(&a->lock);
        a->ends = true;
        pthread_cond_signal(&a->more);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
    }
    jobs_free(&a->jobs);
    jobs_free(&a->done);
    if (a->memory)
        munmap(a->memory, a->size);
    ms_fd_close(&a->fd);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->more);
    free(a);
}

int ms_arena_fd(const struct ms_arena *a)
{
    return a->fd;
}

uint8_t *ms_arena_memory(const struct ms_arena *a)
{
    return a->memory;
}
