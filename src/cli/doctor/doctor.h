/* doctor.h - the checks of `muster doctor`
 *
 * A check looks at one thing of this machine and fills a finding: what is there, and
 * what to do about it. It leaves nothing behind but the folder of the sessions, asks no
 * network, and ends soon.
 */
#ifndef MS_CLI_DOCTOR_DOCTOR_H
#define MS_CLI_DOCTOR_DOCTOR_H

enum ms_finding_level {
    MS_FINDING_OK,
    MS_FINDING_WARN, /* Muster runs; something will be slow, missing or short */
    MS_FINDING_FAIL  /* Muster cannot run like this */
};

struct ms_finding {
    const char *python; /* the interpreter to check; NULL: the one that is found */
    enum ms_finding_level level;
    char text[320];   /* what is there */
    char advice[320]; /* what to do; "": nothing */
};

/* What is there; all is well with it, unless the other one is called then. */
void ms_finding_set(struct ms_finding *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void ms_finding_rate(struct ms_finding *f,
                     enum ms_finding_level level,
                     const char *advice);

/* muster.c: what is Muster's own. */
void ms_check_python(struct ms_finding *f);
void ms_check_root(struct ms_finding *f);
void ms_check_sessions(struct ms_finding *f);
void ms_check_disk(struct ms_finding *f);

/* host.c: what the machine gives. */
void ms_check_pidfd(struct ms_finding *f);
void ms_check_descriptors(struct ms_finding *f);
void ms_check_shm(struct ms_finding *f);
void ms_check_clock(struct ms_finding *f);
void ms_check_devices(struct ms_finding *f);
void ms_check_cores(struct ms_finding *f);
void ms_check_memory_limits(struct ms_finding *f);

/* network.c: what lies between machines. */
void ms_check_network(struct ms_finding *f);
void ms_check_ipv6(struct ms_finding *f);
void ms_check_tls(struct ms_finding *f);
void ms_check_host_id(struct ms_finding *f);

#endif
