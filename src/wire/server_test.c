/* Peers that misbehave, and resources that run out. */
#include "base/limits.h"
#include "base/name.h"
#include "io/sock.h"
#include "wire/server/server.h"
#include "wire/server/server_impl.h"
#include "wire/test_pipe.h"
#include "wire/test_raw.h"

#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The server closes this one. */
static void expect_closed(int fd)
{
    char bin[256];
    ssize_t n;

    do {
        struct pollfd p = {.fd = fd, .events = POLLIN};

        assert_int_equal(poll(&p, 1, (int)(RIG_DEADLINE_NS / MS_NS_PER_MS)), 1);
        n = recv(fd, bin, sizeof bin, 0);
    } while (n > 0);
    assert_true(n == 0 || errno == ECONNRESET);
    close(fd);
}

static void expect_alive(struct rig *rig)
{
    static unsigned session = 1000;
    struct raw raw;

    raw_open(&raw, rig, ++session, MS_LANE_CALL);
    raw_call(&raw, 1, 0, "alive");
    raw_expect(&raw, 1, "alive");
    raw_close(&raw);
}

static unsigned conn_count(struct rig *rig)
{
    unsigned n;

    pthread_mutex_lock(&rig->server->lock);
    n = rig->server->conn_count;
    pthread_mutex_unlock(&rig->server->lock);
    return n;
}

/* ---- peers ----------------------------------------------------------------------- */

static void test_noise_without_the_secret(void **state)
{
    struct rig rig = {.no_client = true};
    uint64_t seed = 12345;

    (void)state;
    rig_start(&rig);
    for (int i = 0; i < 50; i++) {
        int fd = ms_unix_connect(rig.path, SOCK_STREAM, NULL);
        uint8_t noise[512];

        assert_true(fd >= 0);
        for (size_t at = 0; at < sizeof noise; at++)
            noise[at] = (uint8_t)test_random(&seed);
        if (i % 2)
            memcpy(noise, "MSTR\1\0\0\0", 8); /* a hello, and no proof */
        assert_int_equal(send(fd, noise, sizeof noise, MSG_NOSIGNAL), sizeof noise);
        expect_closed(fd);
    }
    expect_alive(&rig);
    rig_stop(&rig);
}

/* Frames of any kind in any state, whole and cut, and noise. */
static void random_frames(struct raw *raw, uint64_t *seed)
{
    for (int i = 0; i < 30; i++) {
        uint8_t bytes[MS_FRAME_SIZE + 64];
        uint64_t total = test_random(seed) % 64;
        struct ms_frame f = {
            .kind = (uint8_t)(1 + test_random(seed) % MS_KIND_LAST),
            .op = (uint16_t)(test_random(seed) % 4 ? 256 + test_random(seed) % 3
                                                   : test_random(seed)),
            .flags = (uint16_t)(test_random(seed) % 4 ? 0 : test_random(seed) % 64),
            .call_id = 1 + test_random(seed) % 8,
            .length = (uint32_t)total,
            .total = total,
            .ack = test_random(seed) % 8};
        size_t len = MS_FRAME_SIZE + f.length;

        if (test_random(seed) % 8 == 0)
            f.total += test_random(seed) % 100;
        ms_frame_encode(&f, bytes);
        for (size_t at = MS_FRAME_SIZE; at < sizeof bytes; at++)
            bytes[at] = (uint8_t)test_random(seed);
        if (test_random(seed) % 30 == 0)
            bytes[test_random(seed) % MS_FRAME_SIZE] ^= (uint8_t)test_random(seed);
        if (test_random(seed) % 30 == 0)
            len = test_random(seed) % len;
        raw_write(raw, bytes, len);
    }
}

static void test_noise_from_who_knows_the_secret(void **state)
{
    struct rig rig = {.no_client = true};
    uint64_t seed = 4711;

    (void)state;
    rig_start(&rig);
    for (int i = 0; i < 150; i++) {
        struct raw raw;

        raw_open(
            &raw, &rig, (unsigned)i % 5 + 1, i % 3 ? MS_LANE_CALL : MS_LANE_CONTROL);
        random_frames(&raw, &seed);
        if (i % 2) {
            shutdown(ms_conn_fd(raw.conn), SHUT_WR); /* and whatever was left is cut */
            raw_wait_closed(&raw);
        }
        raw_close(&raw);
    }
    expect_alive(&rig);
    rig_stop(&rig);
}

static void test_frames_that_a_client_never_sends(void **state)
{
    static const uint8_t kinds[] = {
        MS_KIND_REPLY, MS_KIND_ERROR, MS_KIND_ITEM, MS_KIND_CONTROL, MS_KIND_PONG};
    struct rig rig = {.no_client = true};

    (void)state;
    rig_start(&rig);
    for (size_t i = 0; i < sizeof kinds; i++) {
        struct ms_frame f = {.kind = kinds[i], .call_id = 1};
        struct raw raw;

        raw_open(&raw, &rig, 1, MS_LANE_CALL);
        raw_send(&raw, &f, NULL, 0);
        raw_wait_closed(&raw);
        raw_close(&raw);
    }
    expect_alive(&rig);
    rig_stop(&rig);
}

/* Each of these ends the connection. */
static void test_messages_that_make_no_sense(void **state)
{
    static const struct {
        struct ms_frame head;
        const char *body;
        size_t len;
    } bad[] = {
        {{.kind = MS_KIND_CALL, .call_id = 0}, "", 0},
        {{.kind = MS_KIND_CALL, .call_id = 5, .flags = MS_FRAME_CHAIN}, "x", 1},
        {{.kind = MS_KIND_CALL, .call_id = 5, .flags = MS_FRAME_CHAIN},
         "\2\0xxxxxxxx",
         10},
        {{.kind = MS_KIND_CALL, .call_id = 5, .flags = MS_FRAME_CHAIN}, "\377\377", 2},
        {{.kind = MS_KIND_METHOD, .op = 255}, "e\0m", 3},
        {{.kind = MS_KIND_METHOD, .op = MS_OP_METHOD + MS_METHODS_MAX}, "e\0m", 3},
        {{.kind = MS_KIND_METHOD, .op = MS_OP_METHOD}, "", 0},
        {{.kind = MS_KIND_METHOD, .op = MS_OP_METHOD}, "em", 2},
        {{.kind = MS_KIND_METHOD, .op = MS_OP_METHOD}, "e\0", 2},
        {{.kind = MS_KIND_METHOD, .op = MS_OP_METHOD}, "e\0m\0", 4},
        {{.kind = MS_KIND_ATTACH}, "", 0},
        {{.kind = MS_KIND_ATTACH}, "123456789", 9},
    };
    struct rig rig = {.no_client = true};

    (void)state;
    rig_start(&rig);
    for (size_t i = 0; i < MS_COUNT(bad); i++) {
        struct raw raw;

        raw_open(&raw, &rig, (unsigned)i + 1, MS_LANE_CALL);
        raw_send(&raw, &bad[i].head, bad[i].body, bad[i].len);
        raw_wait_closed(&raw);
        raw_close(&raw);
    }
    assert_int_equal(rig.executed, 0);
    expect_alive(&rig);
    rig_stop(&rig);
}

static void test_the_same_call_twice(void **state)
{
    struct rig rig = {.no_client = true};
    struct raw raw;

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    raw_call(&raw, 1, 0, "x");
    raw_expect(&raw, 1, "x");
    raw_call(&raw, 1, 0, "x");
    raw_wait_closed(&raw);
    assert_int_equal(rig.executed, 1);
    raw_close(&raw);
    rig_stop(&rig);
}

/* ---- resources ------------------------------------------------------------------- */

/* What comes from now on has time. */
static void be_patient(void *server)
{
    ((struct ms_server *)server)->o.handshake_ns = MS_HANDSHAKE_NS;
}

/* Who connects and says nothing, or not all, is cut. */
static void test_slow_handshakes_are_cut(void **state)
{
    struct rig rig = {.no_client = true, .handshake_ns = 300 * MS_NS_PER_MS};
    int silent, slow;

    (void)state;
    rig_start(&rig);
    silent = ms_unix_connect(rig.path, SOCK_STREAM, NULL);
    slow = ms_unix_connect(rig.path, SOCK_STREAM, NULL);
    assert_int_equal(send(slow, "MSTR", 4, 0), 4);
    expect_closed(silent);
    expect_closed(slow);
    rig_on_loop(&rig, rig.server_loop, be_patient, rig.server);
    expect_alive(&rig);
    rig_stop(&rig);
}

static void test_churn_leaves_nothing(void **state)
{
    struct rig rig = {.no_client = true, .server_grace_ns = 1};
    unsigned fds, sessions = 1;

    (void)state;
    rig_start(&rig);
    expect_alive(&rig);
    while (conn_count(&rig))
        ;
    fds = rig_open_fds();
    for (int i = 0; i < 2000; i++) {
        int fd = ms_unix_connect(rig.path, SOCK_STREAM, NULL);

        if (fd == -EAGAIN)
            continue;
        assert_true(fd >= 0);
        if (i % 2)
            assert_int_equal(send(fd, "MSTR\1\0\0\0", 8, MSG_NOSIGNAL), 8);
        close(fd);
        if (i % 20 == 0)
            expect_alive(&rig);
    }
    expect_alive(&rig); /* all before it were accepted */
    for (int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;
         conn_count(&rig) || sessions || rig_open_fds() > fds;) {
        assert_true(ms_now_ns() < until_ns);
        pthread_mutex_lock(&rig.server->lock);
        sessions = !ms_list_is_empty(&rig.server->ledgers);
        pthread_mutex_unlock(&rig.server->lock);
    }
    rig_stop(&rig);
}

/* Take all descriptors but none; the count. */
static size_t take_all(int *fds, size_t room, struct rlimit *before)
{
    struct rlimit few;
    size_t n = 0;
    int next = dup(0);

    assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
    few = *before;
    few.rlim_cur = (rlim_t)next + 16;
    close(next);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (n < room && (fds[n] = dup(0)) >= 0)
        n++;
    assert_int_equal(errno, EMFILE);
    return n;
}

/* Without a descriptor the server waits, and serves again when there is one. */
static void test_no_descriptor_left(void **state)
{
    struct rig rig = {.no_client = true};
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct pollfd p = {.events = POLLIN};
    struct rlimit before;
    struct raw raw;
    int fds[64];
    size_t count;

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    p.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(sa.sun_path, sizeof sa.sun_path, "%s", rig.path);
    count = take_all(fds, MS_COUNT(fds), &before);
    assert_int_equal(connect(p.fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(send(p.fd, "noise", 5, 0), 5);
    assert_int_equal(poll(&p, 1, 100), 0); /* not accepted: not closed */
    raw_call(&raw, 1, 0, "still");
    raw_expect(&raw, 1, "still");
    while (count)
        close(fds[--count]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    close(p.fd);
    expect_alive(&rig);
    raw_close(&raw);
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noise_without_the_secret),
        cmocka_unit_test(test_noise_from_who_knows_the_secret),
        cmocka_unit_test(test_frames_that_a_client_never_sends),
        cmocka_unit_test(test_messages_that_make_no_sense),
        cmocka_unit_test(test_the_same_call_twice),
        cmocka_unit_test(test_slow_handshakes_are_cut),
        cmocka_unit_test(test_churn_leaves_nothing),
        cmocka_unit_test(test_no_descriptor_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
