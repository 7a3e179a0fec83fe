/* fake_agent.h - for tests: an agent that behaves as the environment says
 *
 * The test program executes itself as `<self> agent --fd 3`; what it then does is named
 * by FAKE_AGENT: "" is an honest agent whose workers are `sleep` processes (or nothing,
 * pid 1 more than the rank), other names are ways to go wrong.
 */
#ifndef MS_HEAD_NODES_FAKE_AGENT_H
#define MS_HEAD_NODES_FAKE_AGENT_H

int fake_agent_main(void);

#endif
