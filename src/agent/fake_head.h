/* fake_head.h - a head for the agent's tests: starts a real agent in a child process
 * and talks to it over the real link. Every wait has a deadline and fails the test. */
#ifndef MS_AGENT_FAKE_HEAD_H
#define MS_AGENT_FAKE_HEAD_H

#include "base/buf.h"
#include "base/list.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "wire/link/link.h"

#include <stdbool.h>
#include <sys/types.h>

struct fake_head {
    struct ms_loop *loop;
    struct ms_link *link; /* NULL: the agent closed it */
    pid_t agent_pid;
    int agent_status; /* after fake_head_join */
    char root[64], dir[96], session[32];
    struct ms_list inbox;
    struct ms_buf lines;           /* "actor/0: text\n", "actor/0! text\n" for stderr */
    uint64_t dropped, line_driver; /* whose the last line was */
    uint64_t next_request;

    /* set before fake_head_start */
    int32_t driver_pid;
    char *python[4]; /* NULL-terminated; none: no zygote is started */
    char *env[8];
    bool is_quiet;            /* no lines to the head */
    unsigned long nofile_max; /* the agent's hard limit of descriptors; 0: ours */
};

/* A fresh session folder in a root of its own ($MUSTER_HOME). */
void fake_head_init(struct fake_head *h);
/* The agent's process, and its AgentReady, to be freed. */
Muster__AgentToHead *fake_head_start(struct fake_head *h);
/* Close the link if it is open and wait for the agent's process; the folder goes. */
void fake_head_finish(struct fake_head *h);
/* What is left of it, when the agent has ended. */
void fake_head_free(struct fake_head *h);
/* Wait for the end of the agent's process; its exit code. */
int fake_head_join(struct fake_head *h);

/* Send; fills in the request's number and returns it. */
uint64_t fake_head_send(struct fake_head *h, Muster__HeadToAgent *m);
/* The answer to a request, to be freed. */
Muster__AgentToHead *fake_head_answer(struct fake_head *h, uint64_t request);
/* The next end of a worker (any: uid 0), to be freed. */
Muster__AgentToHead *fake_head_exit(struct fake_head *h, uint64_t uid);
/* A message that is no log line and answers nothing, by its kind: is it there; take it. */
bool fake_head_has(const struct fake_head *h, Muster__AgentToHead__BodyCase kind);
Muster__AgentToHead *fake_head_take(struct fake_head *h,
                                    Muster__AgentToHead__BodyCase kind);
/* Of a link whose owner is a fake_head. */
extern const struct ms_link_ops fake_head_link_ops;
/* Until `lines` contains the text. */
void fake_head_wait_line(struct fake_head *h, const char *text);
/* Read what there is until `until` says so. */
void fake_head_run(struct fake_head *h, bool (*until)(struct fake_head *h));

/* A spec for a shell command line, or for whatever `command` says. */
struct fake_spec {
    Muster__WorkerSpec spec;
    char *command[8], *env[4];
    Muster__ZygoteKey key;
};
void fake_spec_shell(struct fake_spec *s,
                     uint64_t uid,
                     uint32_t rank,
                     const char *script);
void fake_spec_fork(struct fake_spec *s, uint64_t uid, uint32_t rank);
/* Its lists counted; borrowed from it. */
Muster__WorkerSpec *fake_spec_complete(struct fake_spec *s);
/* StartWorkers with these; the request. */
uint64_t
fake_head_start_workers(struct fake_head *h, struct fake_spec *specs, size_t count);
/* The same, and they must start; the answer, to be freed. */
Muster__AgentToHead *
fake_head_started(struct fake_head *h, struct fake_spec *specs, size_t count);

/* Stop workers; the answer is waited for. */
void fake_head_stop_workers(struct fake_head *h, uint64_t uid, uint64_t grace_ns);

/* Wait until a process is gone (also as a zombie). */
void fake_wait_gone(pid_t pid);
/* The number behind the first "name=" in the lines so far. */
long fake_head_number(struct fake_head *h, const char *name);
void fake_free(Muster__AgentToHead *m);

#endif
