/* A driver in C that shows one behaviour, as driver_behaviours.py does in Python.
 *
 * driver_behaviours NAME prints what it saw, a line for each step; test_both_drivers.py
 * says what both have to print.
 */
#include <muster/driver.h>

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEADLINE_MS = 20000 };

static struct muster_session *session;
static struct muster_error err;

static void give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, err.message);
    exit(1);
}

static struct muster_cluster *make(bool exec)
{
    struct muster_cluster_options o = MUSTER_CLUSTER_OPTIONS;
    struct muster_cluster *c;

    o.name = "mortal";
    o.worker_cls = "driver_workers.Mortal";
    o.world_size = 2;
    o.exec = exec;
    c = muster_cluster_create(session, &o, &err);
    if (!c)
        give_up("create");
    return c;
}

static void tell_death(void)
{
    const char *line = strrchr(err.exit.last_lines, '\n');

    printf("worker_died: %.*s: %s %d: %s\n",
           (int)strcspn(err.where, "@"),
           err.where,
           err.exit.signal ? "signal" : "code",
           err.exit.signal ? err.exit.signal : err.exit.exit_code,
           line ? line + 1 : err.exit.last_lines);
}

static void tell_failure(void)
{
    if (err.kind == MUSTER_ERROR_WORKER_DIED)
        tell_death();
    else if (err.kind == MUSTER_ERROR_RAISED)
        printf("raised: %s\n", err.type);
    else if (err.kind == MUSTER_ERROR_REFUSED && strstr(err.message, "was forked from"))
        printf("refused: forked\n");
    else if (err.kind == MUSTER_ERROR_SHUTTING_DOWN &&
             strstr(err.message, "was shut down"))
        printf("shutting_down\n");
    else
        printf("%s: %s\n", muster_error_kind_name(err.kind), err.message);
}

/* What a call comes to. */
static void tell(int rc, struct muster_value *result)
{
    int64_t number;

    if (rc < 0)
        tell_failure();
    else if (muster_value_get_int(result, &number) == 0)
        printf("%lld\n", (long long)number);
    else
        printf("%s\n", muster_value_get_text(result, NULL));
    fflush(stdout);
    muster_value_destroy(result);
}

static void say(struct muster_cluster *c, uint32_t rank, const char *method)
{
    struct muster_value *result = NULL;
    int rc = muster_cluster_call_sync(c, rank, method, NULL, NULL, &result, &err);

    tell(rc, result);
}

static void
say_of(struct muster_cluster *c, uint32_t rank, const char *method, int count, ...)
{
    struct muster_value *args = muster_value_list(), *result = NULL;
    va_list numbers;
    int rc;

    va_start(numbers, count);
    for (int i = 0; i < count; i++)
        muster_list_append(args, muster_value_int(va_arg(numbers, int)));
    va_end(numbers);
    rc = muster_cluster_call_sync(c, rank, method, args, NULL, &result, &err);
    muster_value_destroy(args);
    tell(rc, result);
}

static struct muster_future *begin(struct muster_cluster *c, uint32_t rank)
{
    struct muster_future *f = muster_cluster_call(c, rank, "hang", NULL, NULL, &err);

    if (!f)
        give_up("hang");
    return f;
}

static void say_end(struct muster_future *f)
{
    struct muster_value *result = NULL;
    int rc = muster_future_result(f, &result, &err);

    tell(rc, result);
    muster_future_destroy(f);
}

/* Also wait for its end. */
static void kill_rank(struct muster_cluster *c, uint32_t rank)
{
    struct pollfd p = {.events = POLLIN};

    p.fd = (int)syscall(SYS_pidfd_open, muster_cluster_pid(c, rank), 0);
    if (p.fd < 0 || kill(muster_cluster_pid(c, rank), SIGKILL) < 0 ||
        poll(&p, 1, DEADLINE_MS) != 1)
        give_up("kill");
    close(p.fd);
}

/* ---- the behaviours -------------------------------------------------------------- */

static void calls(void)
{
    struct muster_cluster *c = make(false);

    say_of(c, 0, "add", 2, 1, 2);
    say(c, 1, "rank");
    say(c, 1, "fail");
    muster_cluster_destroy(c, 0);
}

static void dies_in_a_call(void)
{
    struct muster_cluster *c = make(false);
    struct muster_future *pending;

    say_of(c, 0, "leave", 1, 7);
    pending = begin(c, 1);
    kill_rank(c, 1);
    say_end(pending);
    muster_cluster_destroy(c, 0);
}

static void dies_between_calls(void)
{
    struct muster_cluster *c = make(false);

    say(c, 1, "rank");
    kill_rank(c, 1);
    say(c, 1, "rank");
    say(c, 1, "rank");
    say(c, 0, "rank");
    muster_cluster_destroy(c, 0);
}

static void dies_before_a_call(void)
{
    struct muster_cluster *c = make(false);

    kill_rank(c, 0);
    say(c, 0, "rank");
    muster_cluster_destroy(c, 0);
}

static void finds_a_successor(void)
{
    struct muster_cluster *c = muster_cluster_open(session, "kept", &err);

    if (!c)
        give_up("open");
    say(c, 1, "pid");
    while (getchar() != '\n')
        ;
    say(c, 1, "pid");
    muster_cluster_close(c);
}

/* One handle changes the cluster, the other one follows. */
static void follows(void)
{
    struct muster_cluster *c = make(false);
    struct muster_cluster *other = muster_cluster_open(session, "mortal", &err);
    uint32_t all[] = {0, 1};

    if (!other || muster_cluster_refresh(other, &err) < 0)
        give_up("open");
    if (muster_cluster_restart(c, all, 2, 0, &err) < 0 ||
        muster_cluster_resize(c, 3, 0, &err) < 0)
        give_up("change");
    if (muster_cluster_refresh(other, &err) != 1)
        give_up("refresh");
    printf("%u\n", muster_cluster_world_size(other));
    say(other, 2, "rank");
    say(other, 0, "rank");
    muster_cluster_close(other);
    muster_cluster_destroy(c, 0);
}

static void keeps_the_secret(void)
{
    for (int exec = 0; exec < 2; exec++) {
        struct muster_cluster *c = make(exec);

        say(c, 0, "secret");
        muster_cluster_destroy(c, 0);
    }
}

static void changes(void)
{
    struct muster_cluster *c = make(false);
    int32_t old[2] = {muster_cluster_pid(c, 0), muster_cluster_pid(c, 1)};
    int same = 0;

    say(c, 1, "rank");
    if (muster_cluster_restart(c, NULL, 0, 0, &err) < 0)
        give_up("restart");
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t k = 0; k < 2; k++)
            same += old[i] == muster_cluster_pid(c, k);
    printf("%d\n", same);
    if (muster_cluster_resize(c, 3, 0, &err) < 0)
        give_up("resize");
    say(c, 2, "rank");
    if (muster_cluster_resize(c, 1, 0, &err) < 0)
        give_up("resize");
    printf("%u\n", muster_cluster_world_size(c));
    say(c, 0, "rank");
    muster_cluster_destroy(c, 0);
}

static struct muster_cluster *make_with(const char *variable)
{
    const char *env[] = {variable, NULL};
    struct muster_cluster_options o = MUSTER_CLUSTER_OPTIONS;
    struct muster_cluster *c;

    o.name = "mortal";
    o.worker_cls = "driver_workers.Mortal";
    o.world_size = 2;
    o.env = env;
    c = muster_cluster_create(session, &o, &err);
    if (!c)
        give_up("create");
    return c;
}

static void has_its_roles_environment(void)
{
    struct muster_cluster *c = make_with("ROLE_SAYS=hello");

    say(c, 1, "at_import");
    muster_cluster_destroy(c, 0);
}

static void ends_rank_zero_last(void)
{
    const char *path = getenv("TOLD");
    char variable[512], line[16] = "";
    FILE *file;

    snprintf(variable, sizeof variable, "ROLE_ENDS=%s", path);
    muster_cluster_destroy(make_with(variable), INT64_C(10000000000));
    file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file))
        give_up("nobody has ended");
    fclose(file);
    puts(line);
}

static void calls_after_shutdown(void)
{
    struct muster_cluster *c = make(false);
    struct muster_future *pending = begin(c, 0);

    muster_shutdown(session, 0);
    session = NULL;
    say_end(pending);
    say(c, 1, "rank");
    muster_cluster_destroy(c, 0);
}

static void forks(void)
{
    struct muster_cluster *c = make(false);
    pid_t pid;

    say(c, 0, "rank");
    pid = fork();
    if (pid == 0) {
        say(c, 0, "rank");
        muster_cluster_destroy(c, 0);
        muster_shutdown(session, 0);
        exit(0);
    }
    waitpid(pid, NULL, 0);
    say(c, 1, "rank");
    muster_cluster_destroy(c, 0);
}

static const struct {
    const char *name;
    void (*show)(void);
} behaviours[] = {
    {"calls", calls},
    {"dies_in_a_call", dies_in_a_call},
    {"dies_between_calls", dies_between_calls},
    {"dies_before_a_call", dies_before_a_call},
    {"finds_a_successor", finds_a_successor},
    {"keeps_the_secret", keeps_the_secret},
    {"changes", changes},
    {"follows", follows},
    {"has_its_roles_environment", has_its_roles_environment},
    {"ends_rank_zero_last", ends_rank_zero_last},
    {"calls_after_shutdown", calls_after_shutdown},
    {"forks", forks},
};

int main(int argc, char **argv)
{
    session = muster_init(NULL, &err);
    if (!session)
        give_up("init");
    for (size_t i = 0; argc > 1 && i < sizeof behaviours / sizeof *behaviours; i++)
        if (strcmp(argv[1], behaviours[i].name) == 0) {
            behaviours[i].show();
            muster_shutdown(session, 0);
            return 0;
        }
    fprintf(stderr, "driver_behaviours NAME\n");
    return 2;
}
