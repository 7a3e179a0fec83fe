/* node.h - one machine that lends itself, as the head sees it
 *
 * A node is there because the head's own orchestrator started an agent (child_agent.h) or
 * because an agent dialled and said who it is (dialled.h). What happens to it in either
 * case ends here: it becomes ready, it may be silent for a while, and one day it is
 * gone, which ends its workers and whatever was asked of it.
 *
 *   STARTING -> READY <-> AWAY -> GONE      (a lent one is never AWAY)
 *
 * AWAY is a node whose link broke without a word: it has link_grace to come back. What
 * is asked of it meanwhile waits. A node that is GONE is forgotten, unless it is lent:
 * an embedded head goes on to say why it has no node.
 *
 * Nothing here ticks: a timer exists only while a node is AWAY or suspect.
 */
#ifndef MS_HEAD_NODES_NODE_H
#define MS_HEAD_NODES_NODE_H

#include "base/error.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/map.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "wire/link/link.h"
#include "wire/link/requests.h"

#include <stdbool.h>
#include <sys/types.h>

struct ms_head;
struct ms_head_op;
struct ms_child_agent;

enum ms_node_state { MS_NODE_STARTING, MS_NODE_READY, MS_NODE_AWAY, MS_NODE_GONE };

struct ms_node {
    struct ms_list link; /* head->nodes */
    struct ms_head *head;
    char name[MS_NAME_MAX + 1];
    enum ms_node_state state;
    bool suspect; /* silent for longer than it should be */
    bool silent;  /* for so long that it is given up */
    bool closed;  /* the other side will say no more */
    bool is_asked,
        is_over; /* lent by an orchestrator: its link is closed, it has ended;
                             * for a moment it may say why */
    struct ms_link *wire;

    struct ms_requests requests; /* ms_ask: what it has not answered */
    struct ms_map contexts; /* drivers whose context it has; the values are nothing */

    pid_t pid; /* of the agent */
    uint32_t cpus;
    Muster__AgentReady *ready;    /* what it said of itself; NULL until then */
    uint64_t agent;               /* id of its process; 0: lent */
    struct ms_child_agent *child; /* NULL: dialled */

    struct ms_timer grace; /* while suspect or AWAY */
    char *gone;            /* once GONE: why, for people */
};

/* One question to one node on behalf of an operation. It is answered once: by the node,
 * or by its end. */
struct ms_ask {
    struct ms_list link; /* op->asks */
    struct ms_head_op *op;
    struct ms_node *node;
    struct ms_pending request;
    Muster__HeadToAgent *message; /* kept for a node that may come back */
};

/* In head->nodes, STARTING. NULL: out of memory. */
struct ms_node *ms_node_create(struct ms_head *h, const char *name);
void ms_node_destroy(struct ms_node *n);

/* NULL if there is none; one that is GONE is found too. */
struct ms_node *ms_node_find(const struct ms_head *h, const char *name);
/* The living node of that name; an empty one: any, else the one that is gone. NULL: there
 * is none. */
struct ms_node *ms_head_find_node(const struct ms_head *h, const char *name);
/* Living ones. */
size_t ms_node_count(const struct ms_head *h);

/* READY or AWAY: 0. Otherwise -EPIPE, with the reason. */
int ms_node_check(const struct ms_node *n, struct ms_error *err);

/* Ask on behalf of an operation; op->on_answer or op->on_refused follows, never from
 * inside. `body` is the message of that name in HeadToAgent, borrowed. On failure nothing was
 * asked. */
int ms_node_ask(struct ms_node *n,
                struct ms_head_op *op,
                Muster__HeadToAgent__BodyCase what,
                void *body,
                struct ms_error *err);
/* The same of all nodes that are not gone. */
void ms_nodes_ask(struct ms_head_op *op,
                  Muster__HeadToAgent__BodyCase what,
                  void *body);
/* Say without an answer. -EPIPE: there is nobody now. */
int ms_node_tell(struct ms_node *n, Muster__HeadToAgent__BodyCase what, void *body);
/* It needs the context of this driver no longer. */
int ms_node_tell_forget(struct ms_node *n, uint64_t driver);
/* What it has not answered, once more; it knows what it has begun. */
void ms_node_ask_again(struct ms_node *n);
/* The operation has completed: nobody waits for this any more. */
void ms_ask_destroy(struct ms_ask *a);

/* It has said what it is; taken over. */
void ms_node_is_ready(struct ms_node *n, Muster__AgentReady *ready);
/* A message from it; false: it is none. */
bool ms_node_read(struct ms_node *n, const uint8_t *body, size_t len);
/* It will not come back: its workers are lost, what was asked fails. A dialled node is
 * freed. */
void ms_node_is_gone(struct ms_node *n, const char *why);
/* The same in two halves, for who has something to say in between: before what was asked
 * fails, and operations that wait for it go on. */
void ms_node_has_ended(struct ms_node *n, const char *why);
void ms_node_refuse_all(struct ms_node *n, const char *why);

#endif
