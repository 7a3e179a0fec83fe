#include "orchestrator/ray/packing.h"

#include "base/cleanup.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct ms_packing {
    pthread_t thread;
    bool is_running;
    int done_fd;
    struct ms_watch done;
    const struct ms_ray_site *site;
    const char *const *files;
    struct ms_package package;
    struct ms_error why;
    int rc;
    void (*made)(void *arg, int rc, struct ms_package *p, const struct ms_error *why);
    void *arg;
};

static void *work(void *arg)
{
    struct ms_packing *p = arg;
    uint64_t one = 1;

    p->rc = ms_package_make(&p->package, p->site, p->files, &p->why);
    if (write(p->done_fd, &one, sizeof one) < 0)
        abort(); /* an eventfd that is ours takes it */
    return NULL;
}

static void on_done(void *arg, unsigned events)
{
    struct ms_packing *p = arg;
    struct ms_package made = p->package;

    (void)events;
    pthread_join(p->thread, NULL);
    p->is_running = false;
    ms_watch_finish(&p->done);
    p->package = (struct ms_package){0};
    p->made(p->arg, p->rc, &made, &p->why);
}

struct ms_packing *ms_packing_start(
    struct ms_loop *loop,
    const struct ms_ray_site *site,
    const char *const *files,
    void (*made)(void *arg, int rc, struct ms_package *p, const struct ms_error *why),
    void *arg,
    struct ms_error *err)
{
    struct ms_packing *p = calloc(1, sizeof *p);
    int rc = p ? 0 : -ENOMEM;

    if (rc == 0) {
        p->site = site;
        p->files = files;
        p->made = made;
        p->arg = arg;
        p->done_fd = eventfd(0, EFD_CLOEXEC);
        rc = p->done_fd < 0
                 ? -errno
                 : ms_watch_init(&p->done, loop, p->done_fd, MS_READ, on_done, p);
    }
    if (rc == 0)
        rc = -pthread_create(&p->thread, NULL, work, p);
    if (rc == 0) {
        p->is_running = true;
        return p;
    }
    ms_error_sys(err, rc, "cannot begin to pack");
    ms_packing_destroy(p);
    return NULL;
}

void ms_packing_destroy(struct ms_packing *p)
{
    if (!p)
        return;
    if (p->is_running)
        pthread_join(p->thread, NULL);
    ms_watch_finish(&p->done);
    ms_fd_close(&p->done_fd);
    ms_package_finish(&p->package);
    free(p);
}
