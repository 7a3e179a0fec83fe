/* test_proxy.h - a network that a test can break: a TCP proxy on loopback
 *
 * One thread forwards between whoever connects and one target.
 *   proxy_cut     nothing goes through any more, and nobody is told: connections stay open,
 *                 new ones are not answered
 *   proxy_heal    as before; with drop_old the connections of before stay mute, as after a
 *                 cut that was too long for TCP
 *   proxy_reset   all connections are reset
 *   proxy_hold    what the target says from now on is lost
 *   delay_ns      each piece is held for so long, in both directions
 */
#ifndef MS_WIRE_TEST_PROXY_H
#define MS_WIRE_TEST_PROXY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct rig;

enum { PROXY_PAIRS_MAX = 64, PROXY_FILL_MAX = 8 };

struct proxy {
    uint16_t port, target;
    char address[32];
    int listen_fd, wake[2];
    pthread_t thread;
    pthread_mutex_t lock;
    bool is_cut, is_held, stop;
    int64_t delay_ns;
    unsigned accepted;
    unsigned changes; /* of what is below, by the test */
    int fill[PROXY_FILL_MAX];
    struct {
        int fd[2];
        bool mute;
    } pairs[PROXY_PAIRS_MAX];
    unsigned count;
};

void proxy_start(struct proxy *p, uint16_t target);
void proxy_stop(struct proxy *p);
/* Start a rig on TCP whose client goes through this proxy. */
void proxy_rig_start(struct proxy *p, struct rig *rig);
void proxy_cut(struct proxy *p);
void proxy_heal(struct proxy *p, bool drop_old);
void proxy_reset(struct proxy *p);
void proxy_hold(struct proxy *p, bool is_held);

#endif
