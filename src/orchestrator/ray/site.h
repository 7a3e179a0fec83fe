/* site.h - which Ray cluster, and what of Muster goes there */
#ifndef MS_ORCHESTRATOR_RAY_SITE_H
#define MS_ORCHESTRATOR_RAY_SITE_H

#define MS_RAY_LOCAL  "local"
#define MS_RAY_INSIDE "inside"
/* The folder of a Ray of our own: python/muster/_ray/local.py */
#define MS_LOCAL_RAY_DIR "muster-ray-"

struct ms_ray_site {
    /* "http://HEAD:8265" (also https, or without a scheme): the cluster's dashboard;
     * "local": a Ray of our own on this machine, which ends with us;
     * "inside": this process is itself in a job of the cluster: no REST, no package, the
     * bridge is a process beside us. */
    const char *address;
    /* The package is made of these. NULL: looked for beside this program. */
    const char *muster;     /* the executable */
    const char *python_dir; /* the Python package `muster`, as installed */
    const char *cache_dir;  /* where packages are kept; NULL: ~/.cache/muster */
};

#endif
