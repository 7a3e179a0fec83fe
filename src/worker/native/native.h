/* native.h - the program of a worker without Python
 *
 * Hosts the classes of muster/worker.h: the same host, operations and descriptors as any
 * other worker (doc/worker-start.md), with the engine's thread in C.
 */
#ifndef MS_WORKER_NATIVE_NATIVE_H
#define MS_WORKER_NATIVE_NATIVE_H

/* Take the descriptors that the environment names, and serve until the end. The exit
 * code of the process; failures are on stderr. */
int ms_native_main(void);

#endif
