/* supervisor.h - the process above an agent, which outlives it and ends what is left
 *
 * A subreaper: when the agent was killed, its workers, their daemons and whatever else
 * came from it become the supervisor's children one after the other, and it kills them
 * until there is none. Then it ends as the agent did, with its exit code or signal: the
 * process that started it takes it for the agent.
 *
 *   SIGTERM, SIGINT, SIGHUP    are the agent's: passed on
 *   SIGQUIT                    the agent is killed, and everything with it
 *   the process that the       the agent is woken if it is stopped, and killed if it has
 *   agent is to end with ends  not ended within MS_SUPERVISOR_NS
 *   the supervisor is killed   the agent is woken too, and ends with all that it has
 *
 * If both are killed at once, what is left can be told by its control group, where one
 * may be made (io/supervised_group.h), and by their environment (io/supervised.h). They are
 * killed by their workers' I/O threads, by a head on the same machine, and by the next
 * supervisor.
 *
 * It holds no descriptor of the agent and uses next to no memory of its own.
 */
#ifndef MS_AGENT_SUPERVISOR_H
#define MS_AGENT_SUPERVISOR_H

#include <sys/types.h>

/* Become two processes. In the agent this returns the supervisor's pid (a negative errno:
 * there is none, the caller goes on alone); in the supervisor it does not return. For a
 * process with one thread. `end_with`: the process whose end ends the agent too; 0: none. */
pid_t ms_supervise(pid_t end_with);

#endif
