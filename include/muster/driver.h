/* driver.h - all that a driver needs: a program that starts workers and calls them
 *
 * examples/c/driver.c is one. Build: cc $(pkg-config --cflags --libs muster) driver.c
 */
#ifndef MUSTER_DRIVER_H
#define MUSTER_DRIVER_H

#include <muster/cluster.h>
#include <muster/error.h>
#include <muster/future.h>
#include <muster/resource.h>
#include <muster/session.h>
#include <muster/value.h>

#endif
