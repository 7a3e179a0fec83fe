/* many_test.c - what a head with 1,000 agents costs when nothing happens
 *
 * The head is a process of its own, so that its memory and its time can be told from those
 * of the simulated agents.
 */
#include "base/cleanup.h"
#include "base/limits.h"
#include "head/nodes/test_agents.h"
#include "head/test_ops.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* What the address sanitizer adds. */
#ifdef __SANITIZE_ADDRESS__
enum { SLACK = 8 };
#else
enum { SLACK = 1 };
#endif

enum {
    AGENTS = 1000,
    MEMORY_MAX_KIB = SLACK * 64 << 10,
    IDLE_S = 4, /* $MUSTER_IDLE_S: as long as the benchmark wants */
    TIME_MAX_PERCENT =
        SLACK * 4,          /* 1 on an idle machine, which the benchmark looks at */
    TIMES_MAX = SLACK * 16, /* or so much more than the bare system calls */
};

static int setup(void **state)
{
    struct rlimit files;

    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    return ops_home_make(state);
}

/* What the parent needs to know of it. */
struct told {
    char address[64];
    uint8_t secret[32];
};

static void head_main(int out, enum ms_tls_mode tls)
{
    const char *const listen[] = {"127.0.0.1:0", NULL};
    struct ms_head *h = ms_head_serve(
        &(struct ms_head_serve_options){.listen = listen, .tls = tls}, NULL);
    struct told t = {0};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!h)
        _exit(1);
    snprintf(t.address, sizeof t.address, "%s", ms_head_addresses(h)[0]);
    memcpy(t.secret, ms_head_session(h)->secret, sizeof t.secret);
    if (write(out, &t, sizeof t) != sizeof t)
        _exit(1);
    for (;;)
        pause();
}

static pid_t start_head(enum ms_tls_mode tls, struct told *t)
{
    int fds[2];
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0)
        head_main(fds[1], tls);
    close(fds[1]);
    assert_int_equal(read(fds[0], t, sizeof *t), sizeof *t);
    close(fds[0]);
    return pid;
}

static long memory_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = -1;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    assert_non_null(f);
    while (kib < 0 && fgets(line, sizeof line, f))
        sscanf(line, "VmRSS: %ld", &kib);
    fclose(f);
    return kib;
}

/* User and system time of all its threads, in ns. */
static int64_t time_ns(pid_t pid)
{
    char path[64];
    unsigned long long user = 0, system = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f,
                            "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu "
                            "%llu",
                            &user,
                            &system),
                     2);
    fclose(f);
    return (int64_t)(user + system) * (MS_NS_PER_S / sysconf(_SC_CLK_TCK));
}

/* What this machine takes to send and receive a byte for each heart-beat of that time, both
 * ways: a slow machine is slow at this, too. */
static int64_t bare_beats_ns(int64_t idle_ns)
{
    struct timespec before, after;
    char byte = 0;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    for (int64_t i = 0; i < 2 * AGENTS * (idle_ns / MS_LINK_BEAT_NS + 1); i++) {
        assert_int_equal(write(fds[0], &byte, 1), 1);
        assert_int_equal(read(fds[1], &byte, 1), 1);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    close(fds[0]);
    close(fds[1]);
    return (after.tv_sec - before.tv_sec) * MS_NS_PER_S + after.tv_nsec -
           before.tv_nsec;
}

static void measure(enum ms_tls_mode tls, const char *what)
{
    const char *wanted = getenv("MUSTER_IDLE_S");
    struct timespec idle = {.tv_sec = wanted ? atoi(wanted) : IDLE_S};
    struct told t;
    pid_t head = start_head(tls, &t);
    long before_kib = memory_kib(head), after_kib;
    int64_t before_ns, ran_ns, bare_ns;
    double percent;

    test_agent_start();
    test_agent_dial_many(t.address, t.secret, tls, AGENTS);
    after_kib = memory_kib(head);
    before_ns = time_ns(head);
    nanosleep(&idle, NULL); /* what is measured is that nothing happens */
    ran_ns = time_ns(head) - before_ns;
    percent = 100.0 * (double)ran_ns / (double)(idle.tv_sec * MS_NS_PER_S);
    bare_ns = bare_beats_ns(idle.tv_sec * MS_NS_PER_S);
    print_message("# %s: %ld KiB (%ld without agents), %.2f %% of a core, "
                  "%.0f times the bare beats\n",
                  what,
                  after_kib,
                  before_kib,
                  percent,
                  (double)ran_ns / (double)bare_ns);
    kill(head, SIGKILL);
    waitpid(head, NULL, 0);
    test_agent_stop();
    assert_true(after_kib < MEMORY_MAX_KIB);
    assert_true(percent <= TIME_MAX_PERCENT || ran_ns < TIMES_MAX * bare_ns);
}

static void test_a_thousand_agents(void **state)
{
    (void)state;
    measure(MS_TLS_OFF, "1,000 agents");
}

static void test_a_thousand_agents_with_tls(void **state)
{
    (void)state;
    measure(MS_TLS_ON, "1,000 agents over TLS");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, ops_home_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_thousand_agents),
        TEST(test_a_thousand_agents_with_tls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
