/* test_local.c - for tests: the head of a driver, with one fake agent on node
 * "here" */
#include "head/test_local.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

struct test_events local_events;

int local_setup(void **state)
{
    events_init(&local_events);
    return ops_home_make(state);
}

struct ms_head *local_start_with(const char *path,
                                 const char *mode,
                                 int64_t timeout_ns,
                                 struct ms_error *err)
{
    const char *const python[] = {"python3", NULL};
    char fake[64];
    const char *const env[] = {fake, "PATH=/usr/bin:/bin", NULL};

    snprintf(fake, sizeof fake, "FAKE_AGENT=%s", mode);
    return ms_head_start(
        &(struct ms_head_options){
            .agent_path = path,
            .node_name = "here",
            .num_gpus = 4,
            .num_cpus = -1,
            .python = python,
            .env = env,
            .timeout_ns = timeout_ns,
            .on_exit = events_exit,
            .on_agent_lost = events_lost,
            .arg = &local_events,
        },
        err);
}

struct ms_head *local_start(const char *mode)
{
    struct ms_error err = {0};
    struct ms_head *h = local_start_with("/proc/self/exe", mode, 0, &err);

    if (!h)
        fail_msg("%s", err.text);
    return h;
}

void local_spec(struct spec *s, const char *name, uint32_t count)
{
    spec_init(s, name, count);
    for (uint32_t i = 0; i < count; i++)
        spec_add_device(s, i);
}

struct ms_head_op *local_create(struct ms_head *h, const char *name, uint32_t count)
{
    struct spec s;

    local_spec(&s, name, count);
    return spec_create(h, &s);
}

pid_t local_agent_pid(struct ms_head *h)
{
    struct ms_head_op *op;
    pid_t pid = ops_status(h, &op)->nodes[0]->agent_pid;

    ms_head_op_unref(op);
    return pid;
}

void local_assert_gone(const char *dir)
{
    static const char *const gone[] = {
        "lock", "secret", "driver", "head.sock", "w", "spin"};
    char path[128];

    for (size_t i = 0; i < MS_COUNT(gone); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, gone[i]);
        assert_int_equal(access(path, F_OK), -1);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG),
                     -1); /* no child, not even a dead one */
    assert_int_equal(errno, ECHILD);
}

int local_count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}
