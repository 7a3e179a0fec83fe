/* The suite, and what goes wrong, without Ray: a dashboard for tests (fake_ray.h) runs this
 * very program as `muster bridge`, with a stand-in below it. */
#include "base/cleanup.h"
#include "io/tree.h"
#include "orchestrator/ray/bridge/bridge.h"
#include "orchestrator/ray/bridge/offer.h"
#include "orchestrator/ray/bridge/state.h"
#include "orchestrator/ray/fake_bridge.h"
#include "orchestrator/ray/fake_ray.h"
#include "orchestrator/ray/ray_impl.h"
#include "orchestrator/test_conformance.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SILENCE_SHARE = 15 }; /* of the time that the suite wants: this is real time */

static char self[PATH_MAX];

/* ---- the rig ------------------------------------------------------------------------- */

struct ray_rig {
    struct ms_rig base;
    struct ms_loop *loop;
    struct ms_timer wake;
    bool is_durable, is_inside;
    enum ms_ray_dialling dialling;
    char dir[64], address[64];
    pid_t dashboard;
    struct ms_orchestrator *o;
};

static struct ray_rig *rig_of(struct ms_rig *rig)
{
    return (struct ray_rig *)rig;
}

static struct ray *ray_of(struct ms_rig *rig)
{
    return (struct ray *)rig_of(rig)->o;
}

static long read_number(const struct ray_rig *r, const char *name)
{
    char path[PATH_MAX];
    long number = 0;

    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    for (int i = 0; i < 2; i++) { /* it may be written just now */
        MS_CLEANUP(ms_cleanup_file) FILE *f = fopen(path, "r");

        if (f && fscanf(f, "%ld", &number) == 1)
            break;
    }
    return number;
}

static void on_wake(void *arg)
{
    long pid = read_number(arg, "pid");

    if (pid > 0)
        kill((pid_t)pid, SIGCONT);
}

static bool run(struct ms_rig *rig, const bool *until, int64_t timeout_ns)
{
    return ms_rig_run_loop(rig_of(rig)->loop, until, timeout_ns, NULL, NULL);
}

static struct ms_orchestrator *open_one(struct ms_rig *rig, bool killed)
{
    struct ray_rig *r = rig_of(rig);
    char python_dir[PATH_MAX];
    struct ms_error err = {0};

    if (r->o && killed)
        ms_ray_abandon(r->o);
    else if (r->o)
        r->o->ops->destroy(r->o);
    snprintf(python_dir, sizeof python_dir, "%s/muster", r->dir);
    r->o = ms_ray_create(
        &(struct ms_ray_options){
            .loop = r->loop,
            .site = {.address = r->is_inside ? MS_RAY_INSIDE : r->address,
                     .muster = r->is_inside ? self : "/bin/true",
                     .python_dir = python_dir,
                     .cache_dir = r->dir},
            .name = "test",
            .dialling = r->dialling,
            .grace_ns = r->is_durable ? 30 * MS_NS_PER_S : 0,
            .state_dir = r->dir},
        &err);
    if (!r->o)
        fail_msg("%s", err.text);
    return r->o;
}

static void order(struct ms_rig *rig, json_t *o)
{
    uint64_t id;

    assert_int_equal(ms_ray_send(ray_of(rig), o, &id), 0);
    json_decref(o);
}

static void end_piece(struct ms_rig *rig, const char *key, uint32_t number, int code)
{
    order(rig,
          json_pack("{s:s, s:s, s:i, s:i}",
                    "verb",
                    "test_end",
                    "key",
                    key,
                    "number",
                    (int)number,
                    "code",
                    code));
}

static void kill_node(struct ms_rig *rig, const char *node)
{
    order(rig, json_pack("{s:s, s:s}", "verb", "test_kill", "node", node));
}

static void silence(struct ms_rig *rig, int64_t for_ns)
{
    struct ray_rig *r = rig_of(rig);

    assert_int_equal(kill((pid_t)read_number(r, "pid"), SIGSTOP), 0);
    ms_timer_set(&r->wake, for_ns / SILENCE_SHARE);
}

static size_t held(struct ms_rig *rig)
{
    return (size_t)read_number(rig_of(rig), "held");
}

/* ---- the dashboard's process --------------------------------------------------------- */

static void be_dashboard(const struct ray_rig *r, int say)
{
    struct ms_loop *loop = ms_loop_create();
    struct fake_ray f;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fake_ray_start(&f, loop, r->dir);
    if (write(say, f.address, sizeof f.address) > 0)
        ms_loop_run(loop);
    _exit(1);
}

static void make_files(const struct ray_rig *r)
{
    char path[PATH_MAX];

    fake_ray_make_python_dir(r->dir);
    snprintf(path, sizeof path, "%s/bin", r->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/bin/muster", r->dir);
    assert_int_equal(symlink(self, path), 0);
}

static const char durable[] = "durable", inside[] = "inside", dialled[] = "dialled",
                  dials[] = "dials";

static struct ms_rig *make(void *arg)
{
    static const struct ms_rig_ops ops = {.open = open_one,
                                          .run = run,
                                          .end_piece = end_piece,
                                          .kill_node = kill_node,
                                          .silence = silence,
                                          .held = held,
                                          .patience_ns = 12 * MS_NS_PER_S};
    struct ray_rig *r = calloc(1, sizeof *r);
    int say[2];

    r->base.ops = &ops;
    r->is_durable = arg == durable || arg == inside;
    r->is_inside = arg == inside;
    r->dialling = arg == dialled ? MS_RAY_BRIDGE_DIALS
                  : arg == dials ? MS_RAY_CONTROLLER_DIALS
                                 : MS_RAY_BOTH_DIAL;
    snprintf(r->dir, sizeof r->dir, "/tmp/muster-ray-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    make_files(r);
    if (r->is_inside) /* its bridge is below us */
        assert_int_equal(chdir(r->dir), 0);
    assert_int_equal(pipe(say), 0);
    r->dashboard = fork();
    if (r->dashboard == 0)
        be_dashboard(r, say[1]);
    close(say[1]);
    assert_true(read(say[0], r->address, sizeof r->address) > 0);
    close(say[0]);
    r->loop = ms_loop_create();
    assert_int_equal(ms_timer_init(&r->wake, r->loop, on_wake, r), 0);
    return &r->base;
}

static void destroy(struct ms_rig *rig)
{
    struct ray_rig *r = rig_of(rig);

    on_wake(r);
    if (r->o) {
        ms_ray_leave_bridge(ray_of(rig), false);
        r->o->ops->destroy(r->o);
    }
    assert_int_equal(held(rig), 0);
    kill(r->dashboard, SIGKILL);
    waitpid(r->dashboard, NULL, 0);
    ms_timer_finish(&r->wake);
    ms_loop_destroy(r->loop);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(ms_tree_remove(AT_FDCWD, r->dir), 0);
    free(r);
}

/* ---- what goes wrong ----------------------------------------------------------------- */

struct told {
    bool done;
    int times, rc;
    size_t pieces, running;
    struct ms_error why;
};

static void on_done(void *arg,
                    int rc,
                    const struct ms_error *why,
                    const struct ms_orch_answer *answer)
{
    struct told *t = arg;

    t->done = true;
    t->times++;
    t->rc = rc;
    if (rc < 0)
        t->why = *why;
    t->pieces = rc == 0 && answer->count ? answer->reservations[0].count : 0;
    t->running = 0;
    for (size_t i = 0; i < t->pieces; i++)
        t->running += answer->reservations[0].pieces[i]->phase == MS_PHASE_RUNNING;
}

static struct ms_orch_op *ask_within(struct ms_rig *rig,
                                     const char *key,
                                     size_t count,
                                     int64_t timeout_ns,
                                     struct told *t)
{
    struct ms_orchestrator *o = rig_of(rig)->o;
    struct ms_bundle bundles[8];
    struct ms_reserve r = {.key = key,
                           .pieces = {.bundles = bundles, .count = count},
                           .timeout_ns = timeout_ns};
    struct ms_orch_op *op;

    for (size_t i = 0; i < count; i++)
        bundles[i] = (struct ms_bundle){.cpu_milli = MS_RIG_CPUS * 1000};
    op = o->ops->reserve(o, &r, on_done, t);
    assert_non_null(op);
    return op;
}

static struct ms_orch_op *
ask(struct ms_rig *rig, const char *key, size_t count, struct told *t)
{
    return ask_within(rig, key, count, 60 * MS_NS_PER_S, t);
}

static void wait_for(struct ms_rig *rig, struct told *t)
{
    assert_true(run(rig, &t->done, 40 * MS_NS_PER_S));
    assert_int_equal(t->times, 1);
}

static int setup(void **state)
{
    *state = make(NULL);
    open_one(*state, false);
    return 0;
}

static int setup_durable(void **state)
{
    *state = make((void *)(uintptr_t)durable);
    open_one(*state, false);
    return 0;
}

static int setup_inside(void **state)
{
    *state = make((void *)(uintptr_t)inside);
    open_one(*state, false);
    return 0;
}

static int teardown(void **state)
{
    destroy(*state);
    return 0;
}

static void test_bridge_dies_while_a_reservation_waits(void **state)
{
    struct ms_rig *rig = *state;
    struct told first = {0}, waits = {0}, released = {0}, again = {0};
    struct ms_orchestrator *o = rig_of(rig)->o;

    ask(rig, "first", 1, &first);
    wait_for(rig, &first);
    ask(rig, "waits", MS_RIG_NODES, &waits);
    order(rig, json_pack("{s:s}", "verb", "test_exit"));
    wait_for(rig, &waits);
    assert_int_equal(waits.rc, -ECHILD);
    assert_non_null(strstr(waits.why.text, "the bridge has fallen")); /* from the log */
    assert_int_equal(
        ms_inventory_piece(
            ms_inventory_find(&ray_of(rig)->controller.inventory, "first"), 0)
            ->phase,
        MS_PHASE_ENDED);
    assert_non_null(o->ops->release(o, "first", NULL, 0, on_done, &released));
    wait_for(rig, &released);
    assert_int_equal(released.rc, 0);
    ask(rig, "first", 2, &again); /* a new bridge */
    wait_for(rig, &again);
    assert_int_equal(again.rc, 0);
    assert_int_equal(again.pieces, 2);
}

static void test_connection_breaks_and_comes_back(void **state)
{
    struct ms_rig *rig = *state;
    struct told first = {0}, second = {0};
    bool never = false;
    long pid;

    ask(rig, "first", 2, &first);
    wait_for(rig, &first);
    pid = read_number(rig_of(rig), "pid");
    ms_bridge_wire_cut(ray_of(rig)->transport);
    ask(rig, "second", 2, &second);
    wait_for(rig, &second);
    if (second.rc < 0)
        fail_msg("%s", second.why.text);
    assert_int_equal(held(rig), 4);
    run(rig, &never, 100 * MS_NS_PER_MS);
    assert_int_equal(read_number(rig_of(rig), "pid"), pid); /* the same bridge */
}

/* The reservation of a bridge that is no more is another one than its successor's. */
static void test_same_key_on_the_next_bridge(void **state)
{
    struct ms_rig *rig = *state;
    struct told first = {0}, waits = {0}, again = {0}, listed = {0};
    struct ms_orchestrator *o = rig_of(rig)->o;

    ask(rig, "job", 3, &first);
    wait_for(rig, &first);
    ask(rig, "waits", MS_RIG_NODES, &waits);
    order(rig, json_pack("{s:s}", "verb", "test_exit"));
    wait_for(rig, &waits);
    ask(rig, "job", 2, &again); /* nobody has released what ended */
    wait_for(rig, &again);
    assert_int_equal(again.rc, 0);
    assert_int_equal(again.pieces, 2);
    assert_int_equal(again.running, 2);
    assert_non_null(o->ops->list(o, "job", on_done, &listed));
    wait_for(rig, &listed);
    assert_int_equal(listed.running, 2);
}

/* A bridge that says nothing: cancel, and the deadline, complete in time; and what it lends
 * when it is back it gets back. */
static void give_up(struct ms_rig *rig, bool by_cancel)
{
    struct ms_orchestrator *o = rig_of(rig)->o;
    struct told first = {0}, given_up = {0}, listed = {0}, after = {0};
    struct ms_orch_op *op;

    ask(rig, "first", 1, &first);
    wait_for(rig, &first);
    ray_of(rig)->late_ns = 300 * MS_NS_PER_MS;
    assert_int_equal(kill((pid_t)read_number(rig_of(rig), "pid"), SIGSTOP), 0);
    op = ask_within(rig, "x", 1, by_cancel ? MS_NEVER : 300 * MS_NS_PER_MS, &given_up);
    run(rig, &given_up.done, 100 * MS_NS_PER_MS); /* it is asked */
    if (by_cancel)
        o->ops->cancel(op);
    assert_true(run(rig, &given_up.done, 4 * MS_NS_PER_S));
    assert_int_equal(given_up.rc, by_cancel ? -ECANCELED : -ETIMEDOUT);
    on_wake(rig);
    assert_non_null(o->ops->list(o, NULL, on_done, &listed));
    wait_for(rig, &listed);
    assert_null(ms_inventory_find(&ray_of(rig)->controller.inventory, "x"));
    assert_int_equal(held(rig), 1);
    ask_within(rig, "x", 2, INT64_MAX, &after);
    wait_for(rig, &after);
    if (after.rc < 0)
        fail_msg("%s", after.why.text);
    assert_int_equal(given_up.times, 1);
}

static void test_silent_bridge_and_cancel(void **state)
{
    give_up(*state, true);
}

static void test_silent_bridge_and_deadline(void **state)
{
    give_up(*state, false);
}

/* The next controller knows of pieces that are there, and of no others. */
static void test_next_controller_after_a_release_of_some(void **state)
{
    struct ms_rig *rig = *state;
    struct told first = {0}, released = {0}, listed = {0};
    struct ms_orchestrator *o = rig_of(rig)->o;
    const uint32_t some[] = {0, 2};

    ask(rig, "job", 4, &first);
    wait_for(rig, &first);
    assert_non_null(o->ops->release(o, "job", some, 2, on_done, &released));
    wait_for(rig, &released);
    o = open_one(rig, true);
    assert_non_null(o->ops->list(o, "job", on_done, &listed));
    wait_for(rig, &listed);
    assert_int_equal(listed.rc, 0);
    assert_int_equal(listed.pieces, 2);
    assert_int_equal(listed.running, 2);
}

/* In a job of the cluster the bridge outlives its controller, and what it has lent. */
static void test_inside_the_next_controller_goes_on(void **state)
{
    struct ms_rig *rig = *state;
    struct told first = {0}, same = {0}, more = {0}, released = {0};
    struct ms_orchestrator *o;
    long pid;

    ask(rig, "job", 2, &first);
    wait_for(rig, &first);
    assert_int_equal(first.rc, 0);
    pid = read_number(rig_of(rig), "pid");
    open_one(rig, true);
    ask(rig, "job", 2, &same);
    wait_for(rig, &same);
    assert_int_equal(same.running, 2);
    o = open_one(rig, false); /* it went in order: what is lent stays, too */
    ask(rig, "more", 1, &more);
    wait_for(rig, &more);
    assert_int_equal(held(rig), 3);
    assert_int_equal(read_number(rig_of(rig), "pid"), pid);
    assert_non_null(o->ops->release(o, "job", NULL, 0, on_done, &released));
    wait_for(rig, &released);
    released = (struct told){0};
    assert_non_null(o->ops->release(o, "more", NULL, 0, on_done, &released));
    wait_for(rig, &released);
    open_one(rig, false);
    assert_int_equal(kill((pid_t)pid, 0), -1); /* it had nothing to stay for */
}

/* It was killed meanwhile: there is a new one, which holds nothing. */
static void test_inside_the_bridge_is_gone(void **state)
{
    struct ms_rig *rig = *state;
    struct told first = {0}, listed = {0}, again = {0};
    struct ms_orchestrator *o;

    ask(rig, "job", 2, &first);
    wait_for(rig, &first);
    ms_ray_abandon(rig_of(rig)->o);
    rig_of(rig)->o = NULL;
    kill((pid_t)read_number(rig_of(rig), "pid"), SIGKILL);
    while (waitpid(-1, NULL, WNOHANG) <= 0) /* its parent ends with it */
        usleep(10000);
    o = open_one(rig, false);
    assert_non_null(o->ops->list(o, NULL, on_done, &listed));
    wait_for(rig, &listed);
    assert_int_equal(listed.rc, 0);
    assert_int_equal(listed.pieces, 0);
    ask(rig, "job", 3, &again);
    wait_for(rig, &again);
    assert_int_equal(again.running, 3);
}

/* The bridge of the controller before has ended long ago: a new one is there at once. */
static void test_state_of_a_bridge_that_is_gone(void **state)
{
    struct ray_rig *r = rig_of(*state);
    struct told t = {0};

    r->dialling = MS_RAY_CONTROLLER_DIALS;
    open_one(*state, false);
    ms_bridge_state_write(&ray_of(*state)->options,
                          &(struct ms_bridge_state){.job = "muster-test-gone",
                                                    .secret = {1},
                                                    .bridge_at = "127.0.0.1:9"});
    ask(*state, "x", 1, &t);
    wait_for(*state, &t);
    if (t.rc < 0)
        fail_msg("%s", t.why.text);
}

/* Either side makes the connection. */
static void connect_by(const char *way)
{
    struct ms_rig *rig = make((void *)(uintptr_t)way);
    struct told t = {0};

    open_one(rig, false);
    ask(rig, "x", 1, &t);
    wait_for(rig, &t);
    assert_int_equal(t.rc, 0);
    assert_int_equal(held(rig), 1);
    destroy(rig);
}

static void test_bridge_dials(void **state)
{
    (void)state;
    connect_by(dialled);
}

static void test_controller_dials(void **state)
{
    (void)state;
    connect_by(dials);
}

static void test_no_ray_there(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig_of(rig)->o;
    struct told t = {0}, listed = {0};

    kill(rig_of(rig)->dashboard, SIGKILL);
    waitpid(rig_of(rig)->dashboard, NULL, 0);
    ask(rig, "x", 1, &t);
    wait_for(rig, &t);
    assert_int_equal(t.rc, -ECONNREFUSED);
    assert_non_null(strstr(t.why.text, "no Ray dashboard answers"));
    assert_non_null(o->ops->list(o, NULL, on_done, &listed));
    wait_for(rig, &listed);
    assert_int_equal(listed.rc, -EAGAIN); /* not: nothing there */
}

static void test_wrong_options(void **state)
{
    struct ms_ray_options o = {.loop = rig_of(*state)->loop, .name = "x"};
    struct ms_error err = {0};

    assert_null(ms_ray_create(&o, &err));
    assert_int_equal(err.code, -EINVAL);
    o.site.address = "h:1";
    o.grace_ns = 1;
    assert_null(ms_ray_create(&o, &err)); /* without a state_dir */
    o.state_dir = "/tmp";
    o.site.address = MS_RAY_LOCAL;
    assert_null(ms_ray_create(&o, &err));
    o.site.address = "h:1";
    o.name = "../x";
    assert_null(ms_ray_create(&o, &err));
}

#define TEST(fn)    cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define DURABLE(fn) cmocka_unit_test_setup_teardown(fn, setup_durable, teardown)
#define INSIDE(fn)  cmocka_unit_test_setup_teardown(fn, setup_inside, teardown)

static int be_bridge(void)
{
    const char *grace = getenv(MS_BRIDGE_GRACE_ENV);

    return ms_bridge_run(&(struct ms_bridge_options){
        .offer = getenv(MS_OFFER_ENV),
        .name = getenv(MS_BRIDGE_NAME_ENV),
        .grace_ns = (int64_t)(strtod(grace ? grace : "0", NULL) * 1e9),
        .with = getenv(MS_BRIDGE_WITH_ENV),
        .out = stdout,
        .python = "/proc/self/exe",
        .script = "stand-in"});
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_bridge_dies_while_a_reservation_waits),
        DURABLE(test_connection_breaks_and_comes_back),
        TEST(test_same_key_on_the_next_bridge),
        TEST(test_silent_bridge_and_cancel),
        TEST(test_silent_bridge_and_deadline),
        DURABLE(test_next_controller_after_a_release_of_some),
        INSIDE(test_inside_the_next_controller_goes_on),
        INSIDE(test_inside_the_bridge_is_gone),
        DURABLE(test_state_of_a_bridge_that_is_gone),
        cmocka_unit_test(test_bridge_dials),
        cmocka_unit_test(test_controller_dials),
        TEST(test_no_ray_there),
        TEST(test_wrong_options),
    };
    const struct ms_conformance all[] = {
        {"ray", make, destroy, NULL},
        {"ray, with a grace", make, destroy, (void *)(uintptr_t)durable},
        {"ray, inside", make, destroy, (void *)(uintptr_t)inside},
    };

    if (argc > 1 && strcmp(argv[1], "bridge") == 0)
        return be_bridge();
    if (argc > 1 && strcmp(argv[1], "-u") == 0)
        return ms_fake_bridge_run();
    signal(SIGPIPE, SIG_IGN);
    unsetenv("http_proxy");
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 1;
    /* the suite takes minutes, most of them waiting: `make test-ray` */
    return ms_conformance_run(
        all, getenv("MUSTER_TEST_SLOW") ? MS_COUNT(all) : 0, tests, MS_COUNT(tests));
}
