/* children.c - processes beside this worker, asked for by HTTP
 *
 * The agent starts, reaps and ends them: a worker that dies takes none of their exit codes
 * with it, and leaves none of them behind.
 */
#include "base/cleanup.h"
#include "base/env.h"
#include "base/json.h"
#include "base/name.h"
#include "io/http/text.h"
#include "worker/http/http_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum child_state { CHILD_STARTING, CHILD_LIVES, CHILD_ENDED };

/* Kept after its end, until a client kills it or forks another of its name: the name is then
 * that one's. */
struct child {
    struct ms_list link;
    struct ms_worker_http *http;
    char role[MS_NAME_MAX + 1];
    uint32_t index;
    uint64_t uid;
    int32_t pid;
    enum child_state state;
    struct http_wait wait; /* for its start, then for its end */
    struct ms_timer deadline;
    json_t *end, *last_lines; /* if it ended by itself */
};

static void child_ended(struct child *child)
{
    if (child->state != CHILD_ENDED)
        child->http->children_living--;
    child->state = CHILD_ENDED;
}

static void child_free(struct child *child)
{
    child_ended(child);
    ms_list_remove(&child->link);
    ms_timer_finish(&child->deadline);
    json_decref(child->end);
    json_decref(child->last_lines);
    free(child);
}

static struct child *child_find(struct ms_worker_http *h, const char *role, uint32_t i)
{
    ms_list_each (child, &h->children, struct child, link)
        if (child->index == i && strcmp(child->role, role) == 0)
            return child;
    return NULL;
}

static struct child *child_by_uid(struct ms_worker_http *h, uint64_t uid)
{
    ms_list_each (child, &h->children, struct child, link)
        if (child->uid == uid)
            return child;
    return NULL;
}

/* The connection that waited, if it still does. */
static struct ms_http_conn *wait_end(struct child *child)
{
    ms_timer_cancel(&child->deadline);
    return MS_TAKE(child->wait.conn);
}

static void on_deadline(void *arg)
{
    struct child *child = arg;
    struct ms_http_conn *c = wait_end(child);

    if (c)
        ms_http_conn_fail(c,
                          504,
                          child->state == CHILD_STARTING
                              ? "the agent has not started it in time"
                              : "it has not ended in time");
}

/* ---- what is asked --------------------------------------------------------------- */

/* "role" and "worker_index"; false: that was answered. */
static bool
take_name(struct ms_http_conn *c, const json_t *json, const char **role, uint32_t *i)
{
    const json_t *index = json_object_get(json, "worker_index");
    struct ms_error err = {0};
    uint64_t n = UINT32_MAX;

    *role = json_string_value(json_object_get(json, "role"));
    if (!*role || ms_name_check(*role, "role", &err) < 0) {
        ms_http_conn_fail(c, 400, *role ? err.text : "'role' must be a string");
        return false;
    }
    if (json_is_integer(index) && json_integer_value(index) >= 0)
        n = (uint64_t)json_integer_value(index);
    else if (json_is_string(index) &&
             !ms_http_parse_decimal(json_string_value(index), &n))
        n = UINT32_MAX;
    if (n >= UINT32_MAX) {
        ms_http_conn_fail(c, 400, "'worker_index' must be a number of at least 0");
        return false;
    }
    *i = (uint32_t)n;
    return true;
}

/* Words of a JSON array, NULL-terminated and borrowed; NULL: not an array of strings. */
static char **take_words(const json_t *list, size_t *count)
{
    size_t n = json_array_size(list), i;
    char **words = calloc(n + 1, sizeof *words);
    json_t *word;

    *count = n;
    if (!words || n == 0) {
        free(words);
        return NULL;
    }
    json_array_foreach(list, i, word)
    {
        words[i] = (char *)(uintptr_t)json_string_value(word);
        if (!words[i] || strlen(words[i]) != json_string_length(word)) {
            free(words);
            return NULL;
        }
    }
    return words;
}

/* What /set_env has set, and on top what is asked (NULL: nothing). -EINVAL: one of them is
 * not possible; -ENOMEM. */
static int
take_env(const struct ms_worker_http *h, const json_t *asked, struct ms_env *env)
{
    json_t *from[] = {h->env, (json_t *)(uintptr_t)asked}, *value;
    const char *name;
    int rc = 0;

    for (size_t i = 0; i < MS_COUNT(from); i++)
        json_object_foreach(from[i], name, value)
        {
            MS_CLEANUP(ms_cleanup_free)
            char *text =
                json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);

            if (rc == 0 && !strchr(name, '='))
                rc = ms_env_printf(
                    env, "%s=%s", name, text ? text : json_string_value(value));
            else if (rc == 0)
                rc = -EINVAL;
        }
    return rc;
}

/* ---- fork ------------------------------------------------------------------------ */

static int
send_fork(struct child *child, char **words, size_t n, const struct ms_env *env)
{
    const struct ms_worker_http_options *o = &child->http->o;
    Muster__ForkWorker fork = MUSTER__FORK_WORKER__INIT;
    Muster__WorkerSpec spec = MUSTER__WORKER_SPEC__INIT;

    spec.uid = child->uid;
    spec.cluster = child->role;
    spec.rank = child->index;
    spec.start = MUSTER__START_KIND__START_COMMAND;
    spec.command = words;
    spec.n_command = n;
    spec.env = env->entries;
    spec.n_env = env->count;
    fork.beside = o->boot->uid;
    fork.spec = &spec;
    return o->tell_agent(o->arg, MUSTER__WORKER_TO_AGENT__BODY_FORK, &fork);
}

static struct child *
child_create(struct ms_worker_http *h, const char *role, uint32_t i)
{
    struct child *child = calloc(1, sizeof *child);

    if (!child)
        return NULL;
    ms_list_add_tail(&h->children, &child->link);
    child->http = h;
    h->children_living++;
    child->index = i;
    snprintf(child->role, sizeof child->role, "%s", role);
    child->uid = ms_random_id();
    if (ms_timer_init(&child->deadline, h->o.loop, on_deadline, child) < 0) {
        child_free(child);
        return NULL;
    }
    return child;
}

static void fork_child(struct ms_worker_http *h,
                       struct ms_http_conn *c,
                       const char *role,
                       uint32_t i,
                       const json_t *json)
{
    const json_t *asked = json_object_get(json, "env");
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};
    size_t count;
    MS_CLEANUP(ms_cleanup_free)
    char **words = take_words(json_object_get(json, "raw_cmd"), &count);
    bool is_env = !asked || json_is_null(asked) || json_is_object(asked);
    struct child *child;

    if (!words) {
        ms_http_conn_fail(c, 400, "'raw_cmd' must be a list of strings, and not empty");
    } else if (!is_env || take_env(h, asked, &env) < 0) {
        ms_http_conn_fail(c, 400, "'env' must be an object of names and values");
    } else if (!(child = child_create(h, role, i))) {
        ms_http_conn_fail(c, 503, "out of memory");
    } else if (send_fork(child, words, count, &env) < 0) {
        child_free(child);
        ms_http_conn_fail(c, 500, "the agent cannot be told");
    } else {
        ms_http_wait_begin(&child->wait, c);
        ms_timer_set(&child->deadline, MS_AGENT_START_NS);
    }
}

void ms_http_fork(struct ms_worker_http *h, struct ms_http_conn *c, json_t *json)
{
    struct child *old;
    const char *role;
    uint32_t i;

    if (!take_name(c, json, &role, &i))
        return;
    old = child_find(h, role, i);
    if (old && old->state == CHILD_ENDED)
        child_free(old);
    else if (old)
        old->role[0] = 0; /* lives on without a name, and ends with the worker */
    fork_child(h, c, role, i, json);
}

void ms_worker_http_forked(struct ms_worker_http *h, const Muster__Forked *m)
{
    struct child *child = child_by_uid(h, m->uid);
    struct ms_http_conn *c;
    char host[INET6_ADDRSTRLEN];

    if (!child || child->state != CHILD_STARTING)
        return;
    c = wait_end(child);
    child->pid = m->pid;
    child->state = CHILD_LIVES;
    if (*m->problem) {
        child_free(child);
        if (c)
            ms_http_conn_fail(c, 500, m->problem);
    } else if (c) {
        ms_http_own_host(c, host);
        ms_http_reply_json(
            c,
            200,
            json_pack(
                "{s:s, s:s, s:i}", "status", "success", "host", host, "pid", m->pid));
    }
}

/* ---- kill ------------------------------------------------------------------------ */

static void reply_killed(struct child *child, struct ms_http_conn *c)
{
    char text[MS_NAME_MAX + 64];
    json_t *answer;

    snprintf(text,
             sizeof text,
             "killed %s/%u (pid %d)",
             child->role,
             child->index,
             child->pid);
    answer =
        MS_JSON({"status", json_string("success")}, {"message", json_string(text)});
    if (child->end) {
        json_object_update(answer, child->end);
        json_object_set(answer, "last_lines", child->last_lines);
    }
    child_free(child);
    ms_http_reply_json(c, 200, answer);
}

static int send_kill(const struct child *child)
{
    const struct ms_worker_http_options *o = &child->http->o;
    Muster__StopWorkers stop = MUSTER__STOP_WORKERS__INIT;
    uint64_t uid = child->uid;

    stop.uids = &uid;
    stop.n_uids = 1;
    stop.grace_ns = MS_STOP_GRACE_NS;
    return o->tell_agent(o->arg, MUSTER__WORKER_TO_AGENT__BODY_KILL, &stop);
}

static void kill_child(struct child *child, struct ms_http_conn *c)
{
    if (child->state == CHILD_ENDED) {
        reply_killed(child, c);
    } else if (child->wait.conn) {
        ms_http_conn_fail(c, 409, "it is being started or killed right now");
    } else if (send_kill(child) < 0) {
        ms_http_conn_fail(c, 500, "the agent cannot be told");
    } else {
        ms_http_wait_begin(&child->wait, c);
        ms_timer_set(&child->deadline, MS_STOP_GRACE_NS + 2 * MS_END_NS);
    }
}

void ms_http_kill(struct ms_worker_http *h, struct ms_http_conn *c, json_t *json)
{
    struct child *child;
    const char *role;
    uint32_t i;

    if (!take_name(c, json, &role, &i))
        return;
    child = child_find(h, role, i);
    if (child)
        kill_child(child, c);
    else
        ms_http_conn_fail(c, 404, "there is no child of this role and index");
}

/* Anybody may ask how it ended; what it has printed is for those who may kill it. */
static void keep_end(struct child *child, const Muster__Exit *exit)
{
    child->end =
        MS_JSON({"role", json_string(child->role)},
                {"worker_index", json_integer(child->index)},
                {"exit_code", json_integer(exit->signaled ? -exit->code : exit->code)});
    child->last_lines = json_array();
    for (size_t i = 0; i < exit->n_last_lines; i++)
        json_array_append_new(child->last_lines, ms_json_string(exit->last_lines[i]));
}

json_t *ms_http_children_ended(const struct ms_worker_http *h)
{
    json_t *all = NULL;

    ms_list_each (child, &h->children, struct child, link) {
        if (!child->end)
            continue;
        all = all ? all : json_array();
        json_array_append(all, child->end);
    }
    return all;
}

void ms_worker_http_child_ended(struct ms_worker_http *h, const Muster__WorkerExited *m)
{
    struct child *child = child_by_uid(h, m->uid);
    struct ms_http_conn *c;
    bool is_new;

    if (!child || child->state == CHILD_ENDED)
        return;
    c = wait_end(child);
    is_new = child->state == CHILD_STARTING;
    child_ended(child);
    if (c && is_new)
        ms_http_conn_fail(c, 500, "it ended before it had begun");
    if (c && !is_new)
        reply_killed(child, c);
    else if (!child->role[0])
        child_free(child);
    else if (!c && m->exit && !m->exit->requested)
        keep_end(child, m->exit);
}

void ms_http_children_finish(struct ms_worker_http *h)
{
    ms_list_each (child, &h->children, struct child, link)
        child_free(child);
}
