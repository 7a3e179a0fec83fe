/* fake_python.c - a zygote without an interpreter, for the agent's tests */
#include "agent/fake_python.h"
#include "agent/zygotes/process.h"
#include "base/clock.h"
#include "io/proc.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static off_t loaded; /* bytes of the module's file */

static const char *fake_mode(void)
{
    const char *mode = getenv("FAKE");

    return mode ? mode : "";
}

/* What the host would do: here, what the role's environment says. */
static void be_worker(const struct ms_zygote_request *r)
{
    const Muster__Spawn *s = r->message->spawn;
    const char *to_do = getenv("DO");
    char uid[17] = "?";
    int waiting = 0;

    ms_proc_env(getpid(), "MUSTER_WORKER_UID", uid, sizeof uid);
    ioctl(r->fds[MS_SPAWN_CONTROL], FIONREAD, &waiting); /* what it is told at first */
    printf("forked %s/%u uid=%s group=%d boot=%d pid=%d sent=",
           s->cluster,
           s->rank,
           uid,
           getpgrp() == getpid(),
           waiting,
           (int)getpid());
    for (size_t i = 0; i < s->n_env; i++)
        printf("%s,", s->env[i]);
    printf(
        " loaded=%d place=%s\n", (int)loaded, getenv("PLACE") ? getenv("PLACE") : "");
    fflush(stdout);
    if (to_do && !strcmp(to_do, "exit"))
        _exit(6);
    pause();
}

/* $FAKE_FILE is a file that a module was loaded from, and that it may change. */
static void tell_file(int fd)
{
    const char *path = getenv("FAKE_FILE");
    struct stat st;

    if (!path || stat(path, &st) < 0)
        return;
    loaded = st.st_size;
    ms_zygote_loaded(fd,
                     path,
                     (uint64_t)st.st_size,
                     st.st_mtim.tv_sec * MS_NS_PER_S + st.st_mtim.tv_nsec);
    if (!strcmp(fake_mode(), "edits") && truncate(path, st.st_size + 1) < 0)
        _exit(7);
}

/* In the child: a worker that does not return, or a zygote; its socket. */
static int carry_out(int fd, struct ms_zygote_request *r, bool is_spare)
{
    if (is_spare && ms_zygote_spare(fd, r) <= 0)
        _exit(0);
    fd = ms_zygote_child(fd, r);
    if (r->message->body_case == MUSTER__ZYGOTE_REQUEST__BODY_SPAWN)
        be_worker(r);
    printf("derived for %s\n", r->message->derive->preload[0]);
    fflush(stdout);
    ms_zygote_ready(fd, "", true);
    return fd;
}

/* 0: a spare is to be forked. */
static uint64_t uid_of(const Muster__ZygoteRequest *m)
{
    bool is_spawn = m && m->body_case == MUSTER__ZYGOTE_REQUEST__BODY_SPAWN;

    return !m ? 0 : is_spawn ? m->spawn->uid : m->derive->uid;
}

static int be_zygote(void)
{
    static struct ms_zygote_request r;
    const char *told = getenv("MUSTER_ZYGOTE_FD");
    int fd = told ? atoi(told) : -1, rc;

    if (!strcmp(fake_mode(), "die"))
        return dprintf(2, "ModuleNotFoundError: no muster\n") ? 3 : 0;
    rc = ms_zygote_next(fd, &r); /* the set-up */
    if (rc <= 0 || r.message->body_case != MUSTER__ZYGOTE_REQUEST__BODY_SETUP)
        return 4;
    if (!strcmp(fake_mode(), "slow"))
        pause();
    tell_file(fd);
    ms_zygote_ready(fd, fake_mode(), strcmp(fake_mode(), "threads") != 0);
    while ((rc = ms_zygote_next(fd, &r)) > 0) {
        uint64_t uid = uid_of(r.message);
        pid_t pid;

        if (!strcmp(fake_mode(), "die-later"))
            raise(SIGABRT);
        if (!strcmp(fake_mode(), "no-fork")) {
            ms_zygote_started(fd, uid, 0, EAGAIN);
            continue;
        }
        pid = fork();
        if (pid == 0)
            fd = carry_out(fd, &r, rc == MS_ZYGOTE_FORK_SPARE);
        else
            ms_zygote_started(fd, uid, pid, 0);
    }
    return rc < 0 ? 5 : 0;
}

int fake_python_run(const char *code)
{
    if (strstr(code, ".zygote "))
        return be_zygote();
    printf("executed\n");
    fflush(stdout);
    pause();
    return 0;
}
