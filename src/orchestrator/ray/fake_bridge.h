/* fake_bridge.h - a bridge for tests, without Ray
 *
 * It speaks the lines of doc/orchestrators.md for MS_RIG_NODES nodes of MS_RIG_CPUS CPUs
 * ("n0", ...), which exist in its books only. In its working directory, `held` has the
 * number of pieces that it holds, and `pid` its process. Verbs beside the usual ones:
 * "test_end" (key, number, code) ends a piece, "test_kill" (node) kills a node.
 */
#ifndef MS_ORCHESTRATOR_RAY_FAKE_BRIDGE_H
#define MS_ORCHESTRATOR_RAY_FAKE_BRIDGE_H

/* Until its input ends; an exit code. */
int ms_fake_bridge_run(void);

#endif
