/* fake_ray.c - a Ray's dashboard for tests: takes packages, and runs a job by a shell */
#include "orchestrator/ray/fake_ray.h"

#include "base/cleanup.h"
#include "io/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static void say(struct ms_http_conn *c, int status, const char *text)
{
    ms_http_conn_reply(c,
                       status,
                       text[0] == '{' ? "application/json" : "text/plain",
                       NULL,
                       text,
                       strlen(text));
}

/* ---- jobs ---------------------------------------------------------------------------- */

static void run_job(const struct fake_ray *f, const json_t *o)
{
    const char *entrypoint = json_string_value(json_object_get(o, "entrypoint")), *name;
    json_t *env = json_object_get(json_object_get(o, "runtime_env"), "env_vars"),
           *value;
    int log = open(f->log, O_WRONLY | O_CREAT | O_APPEND, 0600);

    json_object_foreach(env, name, value) setenv(name, json_string_value(value), 1);
    setsid();
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    if (chdir(f->work_dir) == 0)
        execl("/bin/sh", "sh", "-c", entrypoint, NULL);
    _exit(127);
}

static void
submit(struct fake_ray *f, struct ms_http_conn *c, const char *body, size_t len)
{
    json_t *o = json_loadb(body, len, 0, NULL);
    const char *id = json_string_value(json_object_get(o, "submission_id")),
               *dir = json_string_value(
                   json_object_get(json_object_get(o, "runtime_env"), "working_dir"));
    char uri[96];

    f->submissions++;
    snprintf(uri, sizeof uri, "gcs://%s", f->package);
    if (!id || !dir || strcmp(dir, uri) != 0) {
        say(c, 400, "Traceback\nValueError: no such package");
        json_decref(o);
        return;
    }
    /* else the same again, of a connection that was lost */
    if (!f->job || strcmp(f->id, id) != 0) {
        snprintf(f->id, sizeof f->id, "%s", id);
        unlink(f->log);
        f->has_job = true;
        f->was_stopped = false;
        f->job = fork();
        if (f->job == 0)
            run_job(f, o);
    }
    json_decref(o);
    if (f->lose_answers > 0) {
        f->lose_answers--;
        shutdown(ms_http_conn_fd(c), SHUT_RDWR);
        return;
    }
    say(c, 200, "{\"submission_id\":\"x\"}");
}

static void reap(struct fake_ray *f)
{
    if (f->job && waitpid(f->job, &f->status, WNOHANG) == f->job)
        f->job = 0;
}

static void say_job(struct fake_ray *f, struct ms_http_conn *c)
{
    char text[256];
    int code = WIFEXITED(f->status) ? WEXITSTATUS(f->status) : -WTERMSIG(f->status);

    reap(f);
    code = WIFEXITED(f->status) ? WEXITSTATUS(f->status) : -WTERMSIG(f->status);
    if (f->job)
        snprintf(text, sizeof text, "{\"status\":\"RUNNING\",\"message\":\"runs\"}");
    else
        snprintf(text,
                 sizeof text,
                 "{\"status\":\"%s\",\"message\":\"ended\",\"driver_exit_code\":%d}",
                 f->was_stopped ? "STOPPED"
                 : code == 0    ? "SUCCEEDED"
                                : "FAILED",
                 code);
    say(c, 200, text);
}

static void say_logs(const struct fake_ray *f, struct ms_http_conn *c)
{
    MS_CLEANUP(ms_cleanup_file) FILE *log = fopen(f->log, "r");
    static char text[256 << 10];
    size_t len = log ? fread(text, 1, sizeof text - 1, log) : 0;
    json_t *o;
    char *body;

    text[len] = 0;
    o = json_pack("{s:s}", "logs", text);
    body = json_dumps(o, 0);
    json_decref(o);
    say(c, 200, body);
    free(body);
}

static void
of_job(struct fake_ray *f, struct ms_http_conn *c, const char *method, const char *what)
{
    if (strcmp(what, "/stop") == 0) {
        f->stops++;
        f->was_stopped = f->job != 0;
        if (f->job && kill(-f->job, SIGTERM) < 0)
            kill(f->job, SIGTERM); /* it has no group of its own yet */
        say(c, 200, "{\"stopped\":true}");
    } else if (strcmp(what, "/logs") == 0) {
        say_logs(f, c);
    } else if (strcmp(method, "DELETE") == 0) {
        f->deletions++;
        f->has_job = false;
        say(c, 200, "{\"deleted\":true}");
    } else {
        say_job(f, c);
    }
}

/* ---- requests ------------------------------------------------------------------------ */

static bool may(const struct fake_ray *f, const struct ms_http_request *r)
{
    char wanted[128];

    if (!f->token)
        return true;
    snprintf(wanted, sizeof wanted, "Bearer %s", f->token);
    for (size_t i = 0; i < r->header_count; i++)
        if (strcasecmp(r->headers[i].name, "authorization") == 0)
            return strcmp(r->headers[i].value, wanted) == 0;
    return false;
}

static void
of_package(struct fake_ray *f, struct ms_http_conn *c, const struct ms_http_request *r)
{
    const char *name = strrchr(r->path, '/') + 1;

    if (strcmp(r->method, "GET") == 0) {
        say(c, strcmp(f->package, name) == 0 ? 200 : 404, "");
        return;
    }
    f->uploads++;
    assert_true(r->body_len > 1000 && memcmp(r->body, "PK", 2) == 0);
    snprintf(f->package, sizeof f->package, "%s", name);
    say(c, 200, "");
}

static void
on_request(void *arg, struct ms_http_conn *c, const struct ms_http_request *r)
{
    struct fake_ray *f = arg;
    char text[128];
    const char *job = r->path + strlen("/api/jobs/");

    if (f->is_html) {
        ms_http_conn_reply(c, 200, "text/html", NULL, "<html>", 6);
    } else if (strcmp(r->path, "/api/authentication_mode") == 0) {
        say(c,
            200,
            f->token ? "{\"authentication_mode\":\"token\"}"
                     : "{\"authentication_mode\":\"disabled\"}");
    } else if (!may(f, r)) {
        say(c, 403, "no");
    } else if (strcmp(r->path, "/api/version") == 0) {
        snprintf(text,
                 sizeof text,
                 "{\"ray_version\":\"%s\"}",
                 f->version ? f->version : "2.60.0");
        say(c, 200, text);
    } else if (strncmp(r->path, "/api/packages/gcs/", 18) == 0) {
        of_package(f, c, r);
    } else if (strcmp(r->path, "/api/jobs/") == 0) {
        submit(f, c, (const char *)r->body, r->body_len);
    } else if (f->has_job && !f->is_forgetful &&
               strncmp(job, f->id, strlen(f->id)) == 0) {
        of_job(f, c, r->method, job + strlen(f->id));
    } else {
        say(c, 404, "Job does not exist");
    }
}

static int on_head(void *arg,
                   const struct ms_http_request *r,
                   uint64_t *body_max,
                   const char **why)
{
    struct fake_ray *f = arg;

    (void)body_max;
    if (strcmp(r->method, "PUT") != 0 || f->refuse_uploads == 0)
        return 0;
    f->refuse_uploads--; /* in the middle of it */
    *why = "the connection is cut";
    return 503;
}

static void on_listening(void *arg, unsigned events)
{
    struct fake_ray *f = arg;
    int fd = ms_tcp_accept(f->fd);

    (void)events;
    if (fd >= 0)
        ms_http_server_add(&f->http, fd, NULL, 0);
}

void fake_ray_start(struct fake_ray *f, struct ms_loop *loop, const char *work_dir)
{
    static const struct ms_http_conn_ops ops = {.on_head = on_head,
                                                .on_request = on_request};
    uint16_t port = 0;

    *f = (struct fake_ray){.work_dir = work_dir};
    ms_http_server_init(&f->http, loop, &ops, f);
    f->fd = ms_tcp_listen("127.0.0.1", &port, NULL);
    assert_true(f->fd >= 0);
    assert_int_equal(
        ms_watch_init(&f->listening, loop, f->fd, MS_READ, on_listening, f), 0);
    snprintf(f->address, sizeof f->address, "http://127.0.0.1:%u", port);
    snprintf(f->log, sizeof f->log, "%s/job.log", work_dir);
}

void fake_ray_make_python_dir(const char *dir)
{
    static const char *const linked[] = {"ray_job.py", "_ray"};
    char self[PATH_MAX] = "", from[2 * PATH_MAX], to[PATH_MAX];
    FILE *f;

    snprintf(to, sizeof to, "%s/muster", dir);
    assert_int_equal(mkdir(to, 0700), 0);
    snprintf(to, sizeof to, "%s/muster/ray_bridge.py", dir);
    f = fopen(to, "w");
    fputs("#", f);
    fclose(f);
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (int up = 0; up < 4; up++) /* ROOT/build/KIND/t/PROGRAM */
        *strrchr(self, '/') = 0;
    for (size_t i = 0; i < MS_COUNT(linked); i++) {
        snprintf(from, sizeof from, "%s/python/muster/%s", self, linked[i]);
        snprintf(to, sizeof to, "%s/muster/%s", dir, linked[i]);
        assert_int_equal(symlink(from, to), 0);
    }
}

void fake_ray_finish(struct fake_ray *f)
{
    if (f->job) {
        kill(-f->job, SIGKILL);
        waitpid(f->job, NULL, 0);
    }
    ms_watch_finish(&f->listening);
    ms_http_server_finish(&f->http);
    ms_fd_close(&f->fd);
}
