/* join_impl.h - an agent that dials, inside join*.c and configure.c only */
#ifndef MS_AGENT_JOIN_IMPL_H
#define MS_AGENT_JOIN_IMPL_H

#include "agent/agent.h"
#include "agent/agent_impl.h"
#include "io/session/node_dir.h"
#include "wire/link/redial.h"
#include "wire/link/requests.h"

struct ms_join {
    struct ms_agent *agent;
    const struct ms_join_options *options;
    uint64_t id; /* of this process */
    char node[MS_NAME_MAX + 1];
    struct ms_node_dir dir;
    struct ms_redial redial; /* its link that is up is agent->link, too */
    struct ms_timer grace;
    int ready_fd;        /* until it was told; -1: none */
    int64_t lost_ns;     /* since when nothing is heard; 0: all is well */
    int64_t refused_ns;  /* since when the head does not want us; 0: it does */
    bool has_head_ended; /* rather than fallen silent */
    int64_t link_grace_ns, head_grace_ns;
    char said[MS_ERROR_TEXT_MAX]; /* why we are not joined: told once */

    struct ms_replies replies; /* to the requests of the head that welcomed us last */
    struct ms_buf held; /* packed lines that wait for a head, each behind its length */
    struct ms_list ended; /* workers that a head may not know to have ended */
    unsigned ended_count;
};

/* ---- join_hello.c ---------------------------------------------------------------- */

/* Say who we are, what lives here, and what has ended. 0 or a negative errno. */
int ms_join_hello(struct ms_join *j, struct ms_link *link);
/* Forget ends that every head has heard of. */
void ms_join_forget_ended(struct ms_join *j, int64_t before_ns);
/* Send the log lines that were held while no link was up. */
void ms_join_send_held(struct ms_join *j);
/* Tell the head of those that have ended since. */
void ms_join_tell_ended(struct ms_join *j, int64_t since_ns);

/* ---- configure.c ----------------------------------------------------------------- */

/* The first welcome: what this agent is told of itself is taken out of the message. */
int ms_join_configure(struct ms_join *j,
                      Muster__LinkWelcome *welcome,
                      struct ms_error *err);

#endif
