/* native.c - the program of a worker without Python: start, signals, operations */
#include "worker/native/native.h"
#include "base/clock.h"
#include "plain/value.h"
#include "worker/native/native_impl.h"
#include "worker/stack.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct ms_server *server; /* of the signal handler */

/* ---- operations ------------------------------------------------------------------ */

static Muster__Failure__Kind set_env(const struct muster_value *env,
                                     struct muster_error *err)
{
    for (size_t i = 0; i < muster_map_count(env); i++) {
        const char *name = NULL;
        const char *value = muster_value_get_text(muster_map_at(env, i, &name), NULL);

        if (!value || setenv(name, value, 1) < 0) {
            muster_error_set(
                err, -EINVAL, "ValueError", "cannot set the variable '%s'", name);
            return MUSTER__FAILURE__KIND__RAISED;
        }
    }
    return MS_NATIVE_OK;
}

static Muster__Failure__Kind operate(struct ms_native_engines *e,
                                     uint16_t op,
                                     struct muster_value **argument,
                                     struct muster_error *err)
{
    switch (op) {
    case MS_OP_CREATE_ENGINE:
        return ms_native_engine_create(e, *argument, err);
    case MS_OP_DESTROY_ENGINE:
        return ms_native_engine_destroy(e, muster_value_get_text(*argument, NULL), err);
    case MS_OP_SET_ENV:
        return set_env(*argument, err);
    case MS_OP_CONFIGURE:
        ms_native_engines_configure(e, *argument);
        *argument = NULL;
        return MS_NATIVE_OK;
    default:
        muster_error_set(err, -ENOSYS, NULL, "unknown operation %u", op);
        return MUSTER__FAILURE__KIND__REFUSED;
    }
}

static void run_operation(struct ms_native_engines *e, struct ms_request *r)
{
    static struct muster_error err;
    struct ms_error why = {0};
    const uint8_t *body = r->body;
    size_t len = r->len;
    struct muster_value *argument;
    Muster__Failure__Kind kind;
    uint8_t *memory;

    if (r->codec != MS_CODEC_PLAIN) {
        ms_request_fail_text(r,
                             MUSTER__FAILURE__KIND__BAD_ARGUMENT,
                             "a worker in C understands plain data, not pickle");
        return;
    }
    ms_request_take_body(r, &memory);
    argument = ms_value_decode(memory, body, len, &why);
    if (!argument) {
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__BAD_ARGUMENT, "%s", why.text);
        return;
    }
    ms_report_clear(&err);
    kind = operate(e, r->op, &argument, &err);
    muster_value_destroy(argument);
    if (kind == MS_NATIVE_OK)
        ms_request_reply(r, MS_CODEC_PLAIN, NULL, 0);
    else
        ms_request_fail_report(r, kind, err.code, &err);
}

/* ---- the program ----------------------------------------------------------------- */

static void on_terminate(int sig)
{
    int saved = errno;

    (void)sig;
    atomic_store(&ms_native_ending, true);
    ms_server_engine_stop(server);
    errno = saved;
}

static void prepare_signals(void)
{
    struct sigaction terminate = {.sa_handler = on_terminate};

    signal(SIGINT, SIG_IGN); /* the driver's Ctrl-C is the driver's */
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGTERM, &terminate, NULL);
}

/* The descriptor that a variable names, and the variable away; -1: none. */
static int take_fd(const char *name)
{
    const char *text = getenv(name);
    int fd = text ? atoi(text) : -1;

    unsetenv(name);
    return fd;
}

static void serve(struct ms_native_engines *e)
{
    for (;;) {
        struct ms_request *r = NULL;
        int rc = ms_server_engine_next(server, MS_NEVER, &r);

        if (rc == -ESHUTDOWN)
            return;
        if (rc < 0)
            continue;
        if (r->method)
            ms_call_run(e, r);
        else if (!ms_native_http(e, r))
            run_operation(e, r);
    }
}

int ms_native_main(void)
{
    static struct ms_native_engines engines;
    struct ms_error err = {0};
    struct ms_host_options o = {.control_fd = take_fd("MUSTER_CONTROL_FD"),
                                .listen_fd = take_fd("MUSTER_LISTEN_FD"),
                                .listen_tcp_fd = take_fd("MUSTER_LISTEN_TCP_FD"),
                                .python_stack_fd = -1};

    if (o.control_fd < 0 || o.listen_fd < 0) {
        fprintf(stderr, "muster worker: an agent starts this, people need not\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    ms_stack_init();
    engines.host = ms_host_start(&o, &err);
    if (!engines.host) {
        fprintf(stderr, "muster worker: %s\n", err.text);
        return 1;
    }
    server = ms_host_server(engines.host);
    prepare_signals();
    ms_context_init(&engines.context, ms_host_boot(engines.host));
    serve(&engines);
    ms_native_engines_destroy_all(&engines);
    fflush(NULL);
    _exit(128 + SIGTERM); /* without exit handlers: the I/O thread runs on */
}
