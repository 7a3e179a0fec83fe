/* gang_file_test.c - what outlives a controller of this host */
#include "io/supervised.h"
#include "orchestrator/local/local.h"
#include "orchestrator/local/test_local_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* As if the controller before had written something else of its first gang. */
static void change_file(const struct local_rig *r,
                        void (*change)(Muster__LocalGang *g, void *arg),
                        void *arg)
{
    uint8_t data[4096];
    char path[64];
    Muster__LocalGangs *m;
    ssize_t len;
    size_t size;
    int fd;

    snprintf(path, sizeof path, "%s/lent-", r->dir);
    fd = open(path, O_RDWR | O_CLOEXEC);
    len = read(fd, data, sizeof data);
    assert_true(len > 0);
    m = muster__local_gangs__unpack(NULL, (size_t)len, data);
    assert_non_null(m);
    change(m->gangs[0], arg);
    assert_true(muster__local_gangs__get_packed_size(m) <= sizeof data);
    size = muster__local_gangs__pack(m, data);
    assert_int_equal(pwrite(fd, data, size, 0), size);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    close(fd);
    muster__local_gangs__free_unpacked(m, NULL);
}

static void set_text(char **at, const char *text)
{
    if (*at != protobuf_c_empty_string)
        free(*at);
    *at = strdup(text);
    assert_non_null(*at);
}

static void set_process(Muster__LocalGang *g, void *arg)
{
    set_text(&g->agents[0]->process, arg);
}

static void set_secret_file(Muster__LocalGang *g, void *arg)
{
    set_text(&g->secret_file, arg);
}

static void close_rig(struct local_rig *r)
{
    r->o->ops->destroy(r->o);
    r->o = NULL;
}

static void kill_agent(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static enum ms_phase phase_of(const struct local_rig *r, const char *key)
{
    const struct local *l = (const struct local *)r->o;

    return ms_inventory_piece(ms_inventory_find(&l->controller.inventory, key), 0)
        ->phase;
}

static void test_an_agent_that_ended_meanwhile(void **state)
{
    const struct ms_bundle two[] = {{.cpu_milli = 8000, .devices = 1},
                                    {.cpu_milli = 8000}};
    struct local_rig *r = rig_of(*state);
    pid_t pid;

    open_rig(*state, false);
    assert_int_equal(reserve(r, "kept", two, 2, "FAKE_AGENT=").rc, 0);
    pid = agent_pid(r->o, "kept", 0);
    close_rig(r);
    kill_agent(pid);
    open_rig(*state, true);
    assert_int_equal(agent_pid(r->o, "kept", 0), 0);
    assert_true(agent_pid(r->o, "kept", 1) > 0);
    assert_int_equal(phase_of(r, "kept"), MS_PHASE_ENDED);
    release(r, "kept");
}

/* Controllers come and go: an end that the first of them found is an end for all. */
static void test_an_end_is_written_down_again(void **state)
{
    const struct ms_bundle two[] = {{.cpu_milli = 8000, .devices = 1},
                                    {.cpu_milli = 8000}};
    const struct ms_bundle one = {.cpu_milli = 8000, .devices = 1};
    struct local_rig *r = rig_of(*state);
    pid_t pid;

    open_rig(*state, false);
    assert_int_equal(reserve(r, "kept", two, 2, "FAKE_AGENT=").rc, 0);
    pid = agent_pid(r->o, "kept", 0);
    close_rig(r);
    kill_agent(pid);
    open_rig(*state, true);
    release_some(r, "kept", (const uint32_t[]){0}, 1);
    assert_int_equal(reserve(r, "more", &one, 1, "FAKE_AGENT=").rc, 0);
    pid = agent_pid(r->o, "more", 0); /* of the same name */
    open_rig(*state, true);
    assert_int_equal(agent_pid(r->o, "kept", 0), 0);
    assert_int_equal(agent_pid(r->o, "more", 0), pid);
    release(r, "kept");
    release(r, "more");
}

/* As the file is when a controller is killed before it has written the agent's process. */
static pid_t forget_process(struct local_rig *r, const char *key)
{
    pid_t pid = agent_pid(r->o, key, 0);

    close_rig(r);
    change_file(r, set_process, (char[]){""});
    return pid;
}

static void test_an_agent_that_was_not_written_down(void **state)
{
    const struct ms_bundle one = {.cpu_milli = 1000};
    struct local_rig *r = rig_of(*state);
    pid_t pid;

    open_rig(*state, false);
    assert_int_equal(reserve(r, "kept", &one, 1, "FAKE_AGENT=").rc, 0);
    pid = forget_process(r, "kept");
    open_rig(*state, true);
    assert_int_equal(agent_pid(r->o, "kept", 0), pid);
    release(r, "kept");
}

/* One with this node's name, of our executable, whose head has another secret. */
static void test_an_agent_of_another_head(void **state)
{
    const struct ms_bundle one = {.cpu_milli = 1000};
    struct local_rig *r = rig_of(*state);
    pid_t pid;

    open_rig(*state, false);
    assert_int_equal(reserve(r, "kept", &one, 1, "FAKE_AGENT=").rc, 0);
    pid = forget_process(r, "kept");
    change_file(r, set_secret_file, (char[]){"/others/secret"});
    open_rig(*state, true);
    assert_int_equal(agent_pid(r->o, "kept", 0), 0);
    assert_int_equal(phase_of(r, "kept"), MS_PHASE_ENDED);
    kill_agent(pid);
    release(r, "kept");
}

/* Of an agent that is gone the file says that it is this process. */
static void is_none(struct ms_rig *rig, char *process)
{
    const struct ms_bundle one = {.cpu_milli = 1000};
    struct local_rig *r = rig_of(rig);
    pid_t pid;

    open_rig(rig, false);
    assert_int_equal(reserve(r, "kept", &one, 1, "FAKE_AGENT=").rc, 0);
    pid = agent_pid(r->o, "kept", 0);
    close_rig(r);
    kill_agent(pid);
    change_file(r, set_process, process);
    open_rig(rig, true);
    assert_int_equal(agent_pid(r->o, "kept", 0), 0);
    assert_int_equal(phase_of(r, "kept"), MS_PHASE_ENDED);
    release(r, "kept");
}

static void test_a_process_that_is_no_agent_of_ours(void **state)
{
    char process[MS_SUPERVISOR_NAME_MAX], other[MS_SUPERVISOR_NAME_MAX + 4];
    pid_t stranger = rig_of(*state)->anchor;

    assert_int_equal(ms_supervisor_name(stranger, process), 0);
    snprintf(other, sizeof other, "7%s", process); /* of another pid namespace */
    is_none(*state, other);
    snprintf(other, sizeof other, "%s7", process); /* started at another time */
    is_none(*state, other);
    snprintf(other, sizeof other, "%s-7", process); /* no name */
    is_none(*state, other);
    is_none(*state, (char[]){"7"});
}

static void test_a_file_that_is_damaged(void **state)
{
    struct local_rig *r = rig_of(*state);
    struct ms_error err = {0};
    struct ms_orchestrator *o;
    char path[64];
    int fd;

    snprintf(path, sizeof path, "%s/lent-", r->dir);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "\xff\xff\xff", 3), 3);
    close(fd);
    o = ms_orchestrator_local(&(struct ms_local_options){.loop = r->loop,
                                                         .agent_path = local_rig_self,
                                                         .state_dir = r->dir},
                              &err);
    assert_null(o);
    assert_int_equal(err.code, -EBADMSG);
    assert_non_null(strstr(err.text, "cannot be read"));
}

static int setup(void **state)
{
    *state = local_rig_make(local_rig_self);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, local_rig_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_agent_that_ended_meanwhile),
        TEST(test_an_end_is_written_down_again),
        TEST(test_an_agent_that_was_not_written_down),
        TEST(test_an_agent_of_another_head),
        TEST(test_a_process_that_is_no_agent_of_ours),
        TEST(test_a_file_that_is_damaged),
    };
    int code;

    if (local_rig_is_agent(argc, argv, &code))
        return code;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
