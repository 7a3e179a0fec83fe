/* muster.h - everything: drivers (driver.h) and workers (worker.h) */
#ifndef MUSTER_MUSTER_H
#define MUSTER_MUSTER_H

#include <muster/driver.h>
#include <muster/worker.h>

#endif
