/* fake_daemon.h - a daemon head for the tests of agents that dial: a real listener on
 * loopback and a real agent in a child process; what it says is up to the test. Built on
 * fake_head.h, whose functions work on `head` once the agent is welcome. */
#ifndef MS_AGENT_FAKE_DAEMON_H
#define MS_AGENT_FAKE_DAEMON_H

#include "agent/fake_head.h"
#include "wire/server/server.h"

struct fake_daemon {
    struct fake_head head;
    struct ms_server *server; /* NULL: it does not run */
    uint16_t port;
    uint64_t id; /* of this "process" of the head; changes with every start */
    uint64_t link_grace_ns, head_grace_ns;
    unsigned links;           /* that came */
    uint8_t agent_secret[32]; /* what the agent proves; zeros are right */
    const char *node, *session;
};

/* It listens, and an agent that dials it runs. */
void fake_daemon_init(struct fake_daemon *d);
void fake_daemon_start_agent(struct fake_daemon *d);
/* Waits for the agent's end; its exit code. */
int fake_daemon_join_agent(struct fake_daemon *d);
/* The agent has ended. All goes. */
void fake_daemon_finish(struct fake_daemon *d);

/* The head's process ends, or is started again. The port stays the same. */
void fake_daemon_stop(struct fake_daemon *d);
void fake_daemon_start(struct fake_daemon *d);

/* The next hello, to be freed. */
Muster__AgentToHead *fake_daemon_hello(struct fake_daemon *d);
void fake_daemon_welcome(struct fake_daemon *d);
void fake_daemon_refuse(struct fake_daemon *d, const char *why);
/* AgentStop, and its answer. */
void fake_daemon_stop_agent(struct fake_daemon *d);

#endif
