/* arena.c - the shared memory itself, and the thread that clears it */
#include "store/server/arena.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "store/pages.h"
#include "store/server/work.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

struct job {
    struct ms_work_job job;
    struct ms_arena *arena;
    bool punches;
    int rc;
    ms_commit_fn *on_done;
    void *arg;
    size_t count, done;
    struct ms_block_run runs[];
};

/* ---- on the thread --------------------------------------------------------------- */

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

static int commit_run(struct ms_arena *a, const struct ms_block_run *run)
{
    int rc;

    if (memory_available() < run->len + MS_STORE_SPARE_MIN ||
        (a->memory_left && a->memory_left() < run->len + MS_STORE_SPARE_HERE))
        return -ENOMEM;
    rc = ms_pages_commit(a->memory + run->at, run->len);
    if (rc != -EINVAL)
        return rc;
    return fallocate(a->fd, 0, (off_t)run->at, (off_t)run->len) < 0 ? -errno : 0;
}

static void punch_run(struct ms_arena *a, const struct ms_block_run *run)
{
    fallocate(a->fd,
              FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)run->at,
              (off_t)run->len);
}

static void job_run(struct ms_work_job *job)
{
    struct job *j = MS_CONTAINER(job, struct job, job);

    for (; j->done < j->count; j->done++) {
        if (j->punches)
            punch_run(j->arena, &j->runs[j->done]);
        else
            j->rc = commit_run(j->arena, &j->runs[j->done]);
        if (j->rc < 0)
            return;
    }
}

/* ---- asking ---------------------------------------------------------------------- */

static void job_done(struct ms_work_job *job, bool was_dropped)
{
    struct job *j = MS_CONTAINER(job, struct job, job);

    if (j->on_done && was_dropped)
        j->on_done(j->arg, -ECANCELED, j->runs, 0);
    else if (j->on_done)
        j->on_done(j->arg, j->rc, j->runs, j->done);
    free(j);
}

static int add_job(struct ms_arena *a,
                   const struct ms_block_run *runs,
                   size_t count,
                   bool punches,
                   ms_commit_fn *on_done,
                   void *arg)
{
    struct job *j = calloc(1, sizeof *j + count * sizeof *runs);

    if (!j)
        return -ENOMEM;
    j->job = (struct ms_work_job){.run = job_run, .done = job_done};
    j->arena = a;
    j->punches = punches;
    j->on_done = on_done;
    j->arg = arg;
    j->count = count;
    memcpy(j->runs, runs, count * sizeof *runs);
    if (ms_work_add(a->work, &j->job) < 0) {
        free(j);
        return -ENOMEM;
    }
    return 0;
}

int ms_arena_commit(struct ms_arena *a,
                    const struct ms_block_run *runs,
                    size_t count,
                    ms_commit_fn *on_done,
                    void *arg)
{
    return add_job(a, runs, count, false, on_done, arg);
}

int ms_arena_punch(struct ms_arena *a, const struct ms_block_run *run)
{
    return add_job(a, run, 1, true, NULL, NULL);
}

/* ---- life ------------------------------------------------------------------------ */

int ms_arena_open(struct ms_arena *a, struct ms_loop *loop, struct ms_error *err)
{
    a->work = ms_work_create(loop, "muster-store");
    if (!a->work)
        return ms_error_set(err, -ENOMEM, "out of memory");
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

void ms_arena_close(struct ms_arena *a)
{
    ms_work_destroy(a->work);
    if (a->memory)
        munmap(a->memory, a->size);
    ms_fd_close(&a->fd);
    a->work = NULL;
    a->memory = NULL;
}
