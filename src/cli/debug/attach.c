/* attach.c - the session with a worker's debugger, from attaching to the end */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/name.h"
#include "base/proto.h"
#include "cli/debug/debug.h"
#include "cli/out.h"
#include "cli/selector.h"
#include "io/proc.h"
#include "wire/client/client.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* The worker's socket is gone: its end is looked up then. */
#define EXIT_WAIT_NS (200 * MS_NS_PER_MS)

enum { CALLS_MAX = 8, TAGS_MAX = 16 };

struct attach {
    struct ms_target *target;
    const char *cluster;
    const Muster__WorkerStatus *worker;
    struct ms_loop *loop;
    struct ms_client *client;
    struct ms_peer *peer;
    struct ms_inbox *inbox;
    struct ms_watch answers, signals;
    int signal_fd;
    struct ms_typed *typed;
    struct ms_call *calls[CALLS_MAX]; /* under way; NULL: none */
    char who[128];
    uint64_t id, seen;
    uint64_t prompt;       /* that the worker has told; 0: none */
    uint64_t answered;     /* that a line was typed for */
    struct ms_call *leave; /* with which it leaves, among those */
    bool is_attached, is_lost, is_over;
    enum ms_exit code;
};

static void end(struct attach *a, enum ms_exit code)
{
    a->code = code;
    a->is_over = true;
    ms_typed_stop(a->typed);
    ms_loop_stop(a->loop);
}

/* ---- questions ------------------------------------------------------------------- */

static struct ms_call **free_slot(struct attach *a, uint64_t *tag)
{
    for (*tag = 0; *tag < CALLS_MAX; ++*tag)
        if (!a->calls[*tag])
            return &a->calls[*tag];
    return NULL;
}

/* NULL: not now, or that was said. */
static struct ms_call *ask(struct attach *a, Muster__Debug *m)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};
    struct ms_call_spec spec = {.op = MS_OP_DEBUG,
                                .codec = MS_CODEC_PROTO,
                                .deadline_ns = ms_now_ns() + MS_DEBUG_HOLD_NS +
                                               a->target->timeout_ns,
                                .count = 1};
    struct iovec iov;
    uint64_t tag;
    struct ms_call **slot = free_slot(a, &tag);

    if (!slot)
        return NULL; /* interrupted very often */
    m->client = a->id;
    m->who = a->who;
    m->seen = a->seen;
    if (ms_proto_pack(&m->base, &packed) == 0) {
        iov = (struct iovec){packed.data, packed.len};
        spec.iov = &iov;
        *slot = ms_peer_call(a->peer, &spec);
    }
    if (!*slot || ms_call_notify(*slot, a->inbox, tag) < 0)
        end(a, ms_out_fail(a->target->cli, MS_EXIT_FAILED, "out of memory"));
    return *slot;
}

/* For what comes next. */
static void ask_more(struct attach *a)
{
    Muster__Debug m = MUSTER__DEBUG__INIT;

    m.prompt = a->prompt;
    m.wait_ns = MS_DEBUG_HOLD_NS;
    ask(a, &m);
}

static bool is_asking(const struct attach *a)
{
    for (size_t i = 0; i < CALLS_MAX; i++)
        if (a->calls[i])
            return true;
    return false;
}

static void leave(struct attach *a)
{
    Muster__Debug m = MUSTER__DEBUG__INIT;

    m.detach = true;
    if (!a->leave)
        a->leave = ask(a, &m);
}

static void on_line(void *arg, const char *line)
{
    struct attach *a = arg;
    Muster__Debug m = MUSTER__DEBUG__INIT;

    if (!line) {
        leave(a);
        return;
    }
    m.prompt = a->answered = a->prompt;
    m.has_line = true;
    m.line = (ProtobufCBinaryData){strlen(line), (uint8_t *)(uintptr_t)line};
    m.wait_ns = MS_DEBUG_HOLD_NS;
    ask(a, &m);
}

static void on_signal(void *arg, unsigned events)
{
    struct attach *a = arg;
    struct signalfd_siginfo info;
    Muster__Debug m = MUSTER__DEBUG__INIT;

    (void)events;
    if (read(a->signal_fd, &info, sizeof info) != sizeof info)
        return;
    if (info.ssi_signo != SIGINT) {
        leave(a);
    } else if (a->prompt > a->answered) {
        ms_typed_restart(a->typed);
    } else {
        m.interrupt = true;
        ask(a, &m);
    }
}

/* ---- answers --------------------------------------------------------------------- */

/* What is new of it: answers may overlap. */
static void print_output(struct attach *a, const Muster__DebugState *m)
{
    uint64_t more = m->output_end > a->seen ? m->output_end - a->seen : 0;

    if (more > m->output.len)
        more = m->output.len; /* the worker has dropped the oldest */
    fwrite(m->output.data + m->output.len - more, 1, more, stdout);
    fflush(stdout);
    if (m->output_end > a->seen)
        a->seen = m->output_end;
}

/* Refused, or not at a breakpoint. */
static void fail_attach(struct attach *a, const Muster__DebugState *m)
{
    const struct ms_cli *cli = a->target->cli;

    if (m->is_open)
        end(a,
            ms_out_fail(cli,
                        MS_EXIT_FAILED,
                        "%s/%u is debugged by %s",
                        a->cluster,
                        a->worker->rank,
                        m->client));
    else
        end(a,
            ms_out_fail(cli,
                        MS_EXIT_NOT_FOUND,
                        "%s/%u is at no breakpoint(); `muster debug` shows who is",
                        a->cluster,
                        a->worker->rank));
}

static void tell(const struct attach *a, const char *what, const char *where)
{
    fprintf(stderr, "%s/%u %s%s\n", a->cluster, a->worker->rank, what, where);
}

static void take_state(struct attach *a, const Muster__DebugState *m)
{
    if (a->is_over)
        return;
    if (!a->is_attached && (!m->is_open || m->client[0])) {
        fail_attach(a, m);
        return;
    }
    if (!a->is_attached)
        tell(a, "waits at ", m->where);
    a->is_attached = true;
    print_output(a, m);
    if (m->client[0]) {
        tell(a, "is debugged by another now: ", m->client);
        end(a, MS_EXIT_FAILED);
    } else if (!m->is_open) {
        tell(a, "goes on", "");
        end(a, MS_EXIT_OK);
    } else if (a->leave) {
        return;
    } else if (m->prompt > a->answered && m->prompt != a->prompt) {
        a->prompt = m->prompt;
        ms_typed_ask(a->typed, m->prompt_text);
    } else if (!m->prompt || m->prompt > a->answered) {
        a->prompt = m->prompt;
    }
}

static void take(struct attach *a, uint64_t tag)
{
    struct ms_call *c = a->calls[tag];
    Muster__DebugState *m;
    struct ms_outcome o;

    if (!c || !ms_call_is_done(c))
        return;
    a->calls[tag] = NULL;
    ms_call_outcome(c, &o);
    m = o.kind == MS_KIND_ERROR ? NULL
                                : muster__debug_state__unpack(NULL, o.len, o.body);
    if (m) {
        take_state(a, m);
        if (c == a->leave && !a->is_over) {
            tell(a, "still waits at ", m->where);
            end(a, MS_EXIT_OK);
        }
        muster__debug_state__free_unpacked(m, NULL);
    } else if (!a->is_over) {
        a->is_lost = true;
        end(a, MS_EXIT_FAILED);
    }
    ms_call_unref(c);
}

static void on_answers(void *arg, unsigned events)
{
    struct attach *a = arg;
    uint64_t tags[TAGS_MAX];
    size_t count;

    (void)events;
    while ((count = ms_inbox_take(a->inbox, tags, TAGS_MAX)) > 0)
        for (size_t i = 0; i < count; i++)
            take(a, tags[i]);
    if (!a->is_over && !is_asking(a))
        ask_more(a);
}

/* ---- life ------------------------------------------------------------------------ */

static void set_who(struct attach *a)
{
    const struct passwd *user = getpwuid(getuid());
    char host[65] = "";

    gethostname(host, sizeof host - 1);
    snprintf(a->who,
             sizeof a->who,
             "%.32s@%.64s, process %d",
             user ? user->pw_name : "?",
             host,
             (int)getpid());
}

static int attach_open(struct attach *a, enum ms_tls_mode tls, struct ms_error *err)
{
    static const struct ms_typed_ops typed_ops = {on_line};
    int rc;

    a->loop = ms_loop_create();
    a->inbox = ms_inbox_create();
    a->signal_fd = ms_signals_open((const int[]){SIGINT, SIGTERM, SIGHUP, 0}, NULL);
    if (!a->loop || !a->inbox)
        return ms_error_set(err, -ENOMEM, "out of memory");
    a->typed = ms_typed_create(a->loop, &typed_ops, a);
    a->client = ms_client_create(
        &(struct ms_client_options){.loop = a->loop,
                                    .secret = a->target->secret,
                                    .tls = tls,
                                    .exit_wait_ns = EXIT_WAIT_NS,
                                    .grace_ns = a->target->timeout_ns});
    if (!a->typed || !a->client)
        return ms_error_set(err, -ENOMEM, "out of memory");
    a->peer = ms_peer_create(a->client, a->worker->address, 0, a->cluster, err);
    if (!a->peer)
        return err->code ? err->code : -ENOMEM;
    rc = ms_watch_init(
        &a->answers, a->loop, ms_inbox_fd(a->inbox), MS_READ, on_answers, a);
    if (rc == 0 && a->signal_fd >= 0)
        rc = ms_watch_init(&a->signals, a->loop, a->signal_fd, MS_READ, on_signal, a);
    return rc < 0 ? ms_error_sys(err, rc, "cannot attach") : 0;
}

static void attach_close(struct attach *a)
{
    for (size_t i = 0; i < CALLS_MAX; i++)
        if (a->calls[i]) {
            ms_call_cancel(a->calls[i]);
            ms_call_unref(a->calls[i]);
        }
    ms_typed_destroy(a->typed);
    ms_watch_finish(&a->signals);
    ms_watch_finish(&a->answers);
    ms_fd_close(&a->signal_fd);
    ms_peer_unref(a->peer);
    ms_client_destroy(a->client, "it ends");
    ms_inbox_unref(a->inbox);
    ms_loop_destroy(a->loop);
}

/* The worker as the head knows it now, or NULL. */
static const Muster__WorkerStatus *find_again(const struct attach *a,
                                              const Muster__Status *s)
{
    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; k < s->clusters[i]->n_workers; k++)
            if (s->clusters[i]->workers[k]->uid == a->worker->uid)
                return s->clusters[i]->workers[k];
    return NULL;
}

/* It does not answer any more: what does its head know of it? */
static enum ms_exit say_lost(const struct attach *a)
{
    MS_CLEANUP(ms_status_cleanup) Muster__Status *s = NULL;
    enum ms_exit code = ms_target_status(a->target, &s);
    const Muster__WorkerStatus *w = code ? NULL : find_again(a, s);
    const char *what = "has ended with its cluster";
    char why[256];

    if (code)
        return code;
    if (w && w->exit)
        what = ms_exit_text(w->exit, why, sizeof why);
    else if (w)
        what = "does not answer any more";
    return ms_out_fail(a->target->cli,
                       w && !w->exit ? MS_EXIT_UNREACHABLE : MS_EXIT_FAILED,
                       w && w->exit ? "%s/%u has ended: %s" : "%s/%u %s",
                       a->cluster,
                       a->worker->rank,
                       what);
}

static void attach_once(struct attach *a, enum ms_tls_mode tls)
{
    struct ms_error err = {0};

    if (attach_open(a, tls, &err) < 0) {
        a->code = ms_out_fail(a->target->cli, MS_EXIT_FAILED, "%s", err.text);
    } else {
        ask_more(a);
        ms_loop_run(a->loop);
    }
    attach_close(a);
}

/* A connection that never worked is tried with TLS, which it may want here too. */
enum ms_exit ms_debug_attach(struct ms_target *t,
                             const Muster__ClusterStatus *c,
                             const Muster__WorkerStatus *w)
{
    const struct attach none = {.target = t,
                                .cluster = c->name,
                                .worker = w,
                                .signal_fd = -1,
                                .id = ms_random_id() | 1};
    struct attach a = none;

    set_who(&a);
    attach_once(&a, MS_TLS_AUTO);
    if (a.is_lost && !a.is_attached) {
        a = none;
        set_who(&a);
        attach_once(&a, MS_TLS_ON);
    }
    return a.is_lost ? say_lost(&a) : a.code;
}
