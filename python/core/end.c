/* end.c - the end of a worker that is asked for by SIGTERM, wherever its main thread is.
 *
 * SystemExit interrupts what runs. Python drops an exception that is raised in a weakref's
 * callback or in __del__, and a method may swallow it too: so the signal comes again until
 * the worker leaves (`leave`). It is not raised a second time while the clean-up of the
 * first runs: in the `finally` and `__exit__` that it passes. The engine loop looks for
 * the wish between two requests (`host_is_ending`). */
#include "core/worker/host_object.h"

#include "base/clock.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Between two signals that ask for the same end. */
#define AGAIN_NS (20 * MS_NS_PER_MS)

/* An event loop has this long to notice the signal by itself, because an exception in the
 * middle of it would take its tasks' turn to clean up. */
#define LOOP_NS (250 * MS_NS_PER_MS)

/* After so long exceptions do not help; well before SIGKILL (MS_STOP_GRACE_NS). */
#define LAST_NS (2 * MS_NS_PER_S)

/* How far back the exceptions that led to the handled one are looked at. */
enum { CONTEXTS_MAX = 64 };

static struct {
    bool is_asked, is_held, is_leaving, has_timer;
    int code;
    int64_t asked_ns;
    timer_t timer;
} end;

/* Send ourselves the signal after `first_ns` and then again and again; 0: no more. */
static void repeat(int sig, int64_t first_ns)
{
    struct itimerspec when = {
        .it_value = {first_ns / MS_NS_PER_S, first_ns % MS_NS_PER_S},
        .it_interval = {0, first_ns ? AGAIN_NS : 0}};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = sig};

    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    if (!end.has_timer && first_ns)
        end.has_timer = timer_create(CLOCK_MONOTONIC, &event, &end.timer) == 0;
    if (end.has_timer)
        timer_settime(end.timer, 0, &when, NULL);
}

/* The exception before it, or NULL. Takes `e`. */
static PyObject *context_of(PyObject *e)
{
    PyObject *context = PyException_GetContext(e);

    Py_DECREF(e);
    return context;
}

/* Code that cleans up after a SystemExit runs now. */
static bool is_cleaning_up(void)
{
    PyObject *e = PyErr_GetHandledException();
    bool found = false;

    for (int i = 0; e && e != Py_None && !found && i < CONTEXTS_MAX; i++) {
        found = PyObject_TypeCheck(e, (PyTypeObject *)PyExc_SystemExit);
        if (!found)
            e = context_of(e);
    }
    Py_XDECREF(e);
    return found;
}

static PyObject *raise_end(void)
{
    PyObject *code = PyLong_FromLong(end.code);

    if (code)
        PyErr_SetObject(PyExc_SystemExit, code);
    Py_XDECREF(code);
    return NULL;
}

/* The first time; whether that is enough for now. */
static bool begin(int sig, bool is_async)
{
    end.is_asked = true;
    end.code = 128 + sig;
    end.asked_ns = ms_now_ns();
    repeat(sig, is_async ? LOOP_NS : AGAIN_NS);
    return is_async;
}

PyObject *host_terminate(PyObject *self, PyObject *signum)
{
    struct host *h = (struct host *)self;
    long sig = PyLong_AsLong(signum);

    if (sig == -1 && PyErr_Occurred())
        return NULL;
    if (end.is_leaving || host_is_forgotten(h))
        Py_RETURN_FALSE;
    if (!end.is_asked && begin((int)sig, h->is_async))
        Py_RETURN_FALSE;
    if (end.is_held || is_cleaning_up())
        Py_RETURN_FALSE;
    if (ms_now_ns() - end.asked_ns > LAST_NS)
        Py_RETURN_TRUE;
    return raise_end();
}

PyObject *host_give_time(PyObject *self, PyObject *seconds)
{
    double s = PyFloat_AsDouble(seconds);

    if (s == -1.0 && PyErr_Occurred())
        return NULL;
    if (end.is_asked && !end.is_leaving)
        repeat(SIGTERM, (int64_t)(s * (double)MS_NS_PER_S));
    Py_RETURN_NONE;
}

PyObject *host_hold(PyObject *self, PyObject *on)
{
    end.is_held = PyObject_IsTrue(on) == 1;
    Py_RETURN_NONE;
}

PyObject *host_leave(PyObject *self, PyObject *unused)
{
    end.is_leaving = true;
    repeat(SIGTERM, 0);
    Py_RETURN_NONE;
}

PyObject *host_get_is_ending(PyObject *self, void *unused)
{
    return PyBool_FromLong(end.is_asked);
}

bool host_is_ending(void)
{
    if (!end.is_asked)
        return false;
    raise_end();
    return true;
}
