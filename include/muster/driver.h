/* driver.h - all that a driver needs: a program that starts workers and calls them
 *
 * examples/c/driver.c is one. Build: cc $(pkg-config --cflags --libs muster) driver.c
 *
 * Under `muster run job.yaml` what a cluster's options do not give (they are 0 or NULL) is as
 * the file says of the role of its name, or of options.role:
 *
 *     options.name = "actor"; // class, devices, mesh, variables: all of it is in the file
 *     c = muster_cluster_create(session, &options, &err);
 *
 * Variables of options.env are added to those of the file. What both say must be the same:
 * otherwise there is no cluster, -EINVAL, and err.message names all differences. -ENOENT:
 * options.role is none of the file's. The keys of a role that have no option (mesh, python,
 * visible, http_open, max_concurrency, a command to start with, bundle) are as the file says;
 * the placement group of a bundle ends with the cluster. In a submitted job a role with a class
 * is there already, and the cluster is a handle of it. doc/orchestrators.md has
 * the rules, which are those of drivers in Python.
 */
#ifndef MUSTER_DRIVER_H
#define MUSTER_DRIVER_H

#include <muster/cluster.h>
#include <muster/error.h>
#include <muster/future.h>
#include <muster/generate.h>
#include <muster/resource.h>
#include <muster/session.h>
#include <muster/value.h>

#endif
