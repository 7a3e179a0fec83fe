/* agent.h - the process that starts, watches and ends the workers of one node
 *
 * The body of `muster agent --fd 3`. One thread, one loop, no timer while nothing
 * happens. It is told everything by its head over the link (proto: "head to agent",
 * doc/worker-start.md) and tells it what it knows.
 *
 * It ends, with everything below it and the session's folder (but the logs), when the
 * head says so, when the link ends, or when the driver's process ends.
 */
#ifndef MS_AGENT_AGENT_H
#define MS_AGENT_AGENT_H

/* AgentConfig.protocol_version that is understood. 0 means "the same". */
enum { MS_AGENT_PROTOCOL = 1 };

/* Run until the end. Both descriptors are taken over: the stream socket to the head,
 * and the session's lock, which is only kept open (-1: none). Every other descriptor
 * above 2 is closed. The process's exit code: 0, or 1 if it could not even begin. */
int ms_agent_run(int link_fd, int lock_fd);

#endif
