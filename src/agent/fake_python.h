/* fake_python.h - a zygote without an interpreter, for the agent's tests: a test program
 * that is run with "as-python" calls this with what follows "-c". $FAKE says how it misbehaves, $PLACE is printed
 * by its workers. */
#ifndef MS_AGENT_FAKE_PYTHON_H
#define MS_AGENT_FAKE_PYTHON_H

/* The exit code. */
int fake_python_run(const char *code);

#endif
