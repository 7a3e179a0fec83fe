/* A driver in C of a job whose file says what its clusters are; test_roles.py has the file.
 *
 * test_jobs_python.py has that of a submitted job.
 *
 * role_driver CASE prints what it saw.
 */
#include <muster/driver.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct muster_session *session;
static struct muster_error err;
static struct muster_cluster *left[4]; /* to be destroyed after the session */

static struct muster_cluster_options named(const char *name)
{
    struct muster_cluster_options o = MUSTER_CLUSTER_OPTIONS;

    o.name = name;
    return o;
}

static struct muster_cluster *make(struct muster_cluster_options o)
{
    struct muster_cluster *c = muster_cluster_create(session, &o, &err);

    if (!c) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return c;
}

/* Its error, on a line. */
static void fail(struct muster_cluster_options o)
{
    if (muster_cluster_create(session, &o, &err))
        exit(1);
    printf("%s\n", err.message);
}

/* A variable of one rank. */
static void tell_variable(struct muster_cluster *c, uint32_t rank, const char *name)
{
    struct muster_value *args = muster_value_list(), *result = NULL;
    const char *text;

    muster_list_append(args, muster_value_text(name));
    if (muster_cluster_call_sync(c, rank, "env", args, NULL, &result, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    text = muster_value_get_text(result, NULL);
    printf("%s\n", text ? text : "none");
    muster_value_destroy(result);
    muster_value_destroy(args);
}

/* Whether its constructor had what the file says. */
static void tell_given(struct muster_cluster *c)
{
    struct muster_value *result = NULL;
    const char *text;

    if (muster_cluster_call_sync(c, 0, "shown", NULL, NULL, &result, &err) < 0)
        exit(1);
    text = muster_value_get_text(result, NULL);
    printf("%s\n", text ? text : "none");
    muster_value_destroy(result);
}

static void take(void)
{
    static const char *const more[] = {"MORE=yes", NULL};
    struct muster_cluster_options o = named("actor");
    struct muster_cluster *actor, *critic, *packed, *native;

    o.env = more;
    actor = make(o);
    printf("%u\n", muster_cluster_world_size(actor));
    tell_given(actor);
    tell_variable(actor, 3, "CUDA_VISIBLE_DEVICES");
    tell_variable(actor, 0, "FLAVOUR");
    tell_variable(actor, 0, "MORE");
    if (muster_cluster_resize(actor, 2, 0, &err) < 0) /* its mesh has a tp */
        printf("%s\n", err.message);
    o = named(NULL);
    o.role = "critic";
    critic = make(o);
    printf("%s\n", muster_cluster_name(critic));
    for (int i = 0; i < 2; i++) { /* twice: its bundles are given back */
        packed = make(named("packed"));
        printf(
            "%s %s\n", muster_cluster_node(packed, 0), muster_cluster_node(packed, 1));
        muster_cluster_destroy(packed, 0);
    }
    o = named("native");
    native = make(o);
    printf("%u\n", muster_cluster_world_size(native));
    left[0] = actor;
    left[1] = critic;
    left[2] = native;
    left[3] = make(named("packed"));
}

static void differ(void)
{
    static const char *const pear[] = {"FLAVOUR=pear", NULL};
    struct muster_cluster_options o = named("actor");

    o.worker_cls = "train.Other";
    o.device_mapping = "0-1";
    o.env = pear;
    o.timeout_ns = INT64_C(30000000000);
    fail(o);
    fail(named("bare"));
    o = named(NULL);
    o.role = "actr";
    fail(o);
    fail(named("nobody"));
    o = named("bare");
    o.worker_cls = "roles_workers.Missing";
    fail(o);
    o = named("actor"); /* one rank, which has no tp of 2 */
    o.num_gpus_per_worker = 4;
    fail(o);
    fail(named("broken")); /* on most CPUs, */
    fail(named("broken")); /* which were given back */
}

/* In a submitted job: roles that the controller has created. */
static void find(void)
{
    static const char *const more[] = {"MORE=yes", NULL};
    struct muster_cluster_options o = named("actor");

    left[0] = make(named("actor"));
    printf("%u\n", muster_cluster_world_size(left[0]));
    o.env = more;
    fail(o);
    o = named("actor");
    o.world_size = 3;
    fail(o);
}

int main(int argc, char **argv)
{
    session = muster_init(NULL, &err);
    if (!session || argc < 2) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (strcmp(argv[1], "take") == 0)
        take();
    else if (strcmp(argv[1], "find") == 0)
        find();
    else
        differ();
    muster_shutdown(session, 0);
    for (int i = 0; i < 4; i++)
        muster_cluster_destroy(left[i], 0);
    return 0;
}
