/* stack.c - the stacks of all threads of this process, native and Python's */
#include "worker/stack.h"
#include "base/cleanup.h"
#include "base/limits.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { FRAMES_MAX = 64 };

/* One question at a time: the handlers have nowhere else to write. */
static struct {
    sem_t answered;
    _Atomic pid_t asked; /* the thread whose answer is wanted; 0: none */
    void *frames[FRAMES_MAX];
    int count;
} slot;

int ms_stack_python_signal(void)
{
    return SIGRTMIN + 7;
}

static int signal_native(void)
{
    return SIGRTMIN + 8;
}

static pid_t self_tid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

/* Runs after the interpreter's own handler has written everything. */
static void on_python(int sig)
{
    int saved = errno;

    (void)sig;
    if (atomic_load(&slot.asked) == self_tid())
        sem_post(&slot.answered);
    errno = saved;
}

static void on_native(int sig)
{
    int saved = errno;

    (void)sig;
    if (atomic_load(&slot.asked) == self_tid()) {
        slot.count = backtrace(slot.frames, FRAMES_MAX);
        sem_post(&slot.answered);
    }
    errno = saved;
}

static int install(int sig, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

    return sigaction(sig, &action, NULL) < 0 ? -errno : 0;
}

void ms_stack_warm(void)
{
    static bool is_warm;
    void *frames[2];

    if (!is_warm)
        backtrace(frames, 2);
    is_warm = true;
}

int ms_stack_init(void)
{
    int rc;

    ms_stack_warm();
    if (sem_init(&slot.answered, 0, 0) < 0)
        return -errno;
    rc = install(ms_stack_python_signal(), on_python);
    return rc < 0 ? rc : install(signal_native(), on_native);
}

/* Signal one thread and wait for its handler. 0, -ETIMEDOUT, -ESRCH. */
static int ask(pid_t tid, int sig)
{
    struct timespec at;
    int rc;

    while (sem_trywait(&slot.answered) == 0)
        ; /* a late answer to an old question */
    atomic_store(&slot.asked, tid);
    if (syscall(SYS_tgkill, getpid(), tid, sig) < 0) {
        atomic_store(&slot.asked, 0);
        return -errno;
    }
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += MS_STACK_THREAD_NS;
    at.tv_sec += at.tv_nsec / MS_NS_PER_S;
    at.tv_nsec %= MS_NS_PER_S;
    do
        rc = sem_clockwait(&slot.answered, CLOCK_MONOTONIC, &at) < 0 ? -errno : 0;
    while (rc == -EINTR);
    atomic_store(&slot.asked, 0);
    return rc;
}

static int read_all(int fd, struct ms_buf *out)
{
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (ms_buf_reserve(out, (size_t)st.st_size + 1) < 0)
        return -ENOMEM;
    n = pread(fd, out->data + out->len, (size_t)st.st_size, 0);
    if (n > 0)
        out->len += (size_t)n;
    return n < 0 ? -errno : 0;
}

int ms_stack_python(pid_t main_tid, int fd, struct ms_buf *out)
{
    int rc;

    if (fd < 0)
        return ms_buf_printf(out, "this worker runs no Python\n");
    if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    rc = ask(main_tid, ms_stack_python_signal());
    if (rc < 0)
        ms_buf_printf(out,
                      "the main thread did not answer a signal within %lld ms: it "
                      "blocks signals, or waits in the kernel\n",
                      (long long)(MS_STACK_THREAD_NS / MS_NS_PER_MS));
    return read_all(fd, out);
}

static void print_line_of(pid_t tid, const char *file, struct ms_buf *out)
{
    char path[64], text[128] = "";
    MS_CLEANUP(ms_cleanup_file) FILE *f = NULL;

    snprintf(path, sizeof path, "/proc/self/task/%d/%s", (int)tid, file);
    f = fopen(path, "re");
    if (f && fgets(text, sizeof text, f))
        text[strcspn(text, "\n")] = 0;
    ms_buf_printf(out, "%s", *text ? text : "?");
}

static void print_frames(struct ms_buf *out)
{
    for (int i = 2; i < slot.count; i++) { /* the handler and its trampoline */
        Dl_info info = {0};
        uintptr_t at = (uintptr_t)slot.frames[i];

        if (!dladdr(slot.frames[i], &info) || !info.dli_fname)
            ms_buf_printf(out, "  #%-2d %#lx\n", i - 2, (unsigned long)at);
        else if (info.dli_sname)
            ms_buf_printf(out,
                          "  #%-2d %s+%#lx (%s)\n",
                          i - 2,
                          info.dli_sname,
                          (unsigned long)(at - (uintptr_t)info.dli_saddr),
                          info.dli_fname);
        else
            ms_buf_printf(out,
                          "  #%-2d %s+%#lx\n",
                          i - 2,
                          info.dli_fname,
                          (unsigned long)(at - (uintptr_t)info.dli_fbase));
    }
}

static void print_thread(pid_t tid, struct ms_buf *out)
{
    int rc;

    ms_buf_printf(out, "Thread %d (", (int)tid);
    print_line_of(tid, "comm", out);
    ms_buf_printf(out, ")");
    rc = ask(tid, signal_native());
    if (rc < 0) {
        ms_buf_printf(out, " did not answer a signal; it waits in the kernel in ");
        print_line_of(tid, "wchan", out);
        ms_buf_printf(out, "\n");
        return;
    }
    ms_buf_printf(out, ":\n");
    print_frames(out);
}

int ms_stack_native(struct ms_buf *out)
{
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    unsigned count = 0;

    if (!d)
        return -errno;
    while ((e = readdir(d)) && count < MS_STACK_THREADS_MAX) {
        pid_t tid = (pid_t)atoi(e->d_name);

        if (tid <= 0 || tid == self_tid())
            continue;
        print_thread(tid, out);
        count++;
    }
    closedir(d);
    return 0;
}
