/* test_rig.h - a worker's HTTP without a worker, for tests: the test is the client, the
 * engine and the agent
 */
#ifndef MS_WORKER_HTTP_TEST_RIG_H
#define MS_WORKER_HTTP_TEST_RIG_H

#include "io/http/token.h"
#include "worker/http/http.h"

#include <pthread.h>
#include <stdatomic.h>

#define DEADLINE_MS 20000
#define JSON        "Content-Type: application/json\r\n"

struct rig {
    struct ms_loop *loop;
    struct ms_server *server;
    struct ms_worker_http *http;
    Muster__WorkerBoot boot;
    _Atomic bool has_engines;
    struct ms_http_token token;
    pthread_t thread;
    int fd;          /* the client's end */
    int to_agent[2]; /* packed messages, for the test */
    struct ms_buf got;
    uint8_t secret[32];
};

void rig_start(struct rig *rig, bool is_open);
void rig_stop(struct rig *rig);

/* On the loop's thread, and wait. */
void on_loop(struct rig *rig, void (*fn)(struct rig *, void *), void *arg);

/* In place of the connection before. */
void rig_connect(struct rig *rig);
/* A connection more: the client's end. */
int rig_connect_one(struct rig *rig);
void rig_send(struct rig *rig, const char *what, const char *headers, const char *body);
/* With the token. */
void rig_post(struct rig *rig, const char *path, const char *body);
/* Wait until a whole answer has come and compare parts of it. */
void rig_expect(struct rig *rig, const char *status, const char *part);

#endif
